"""An audit as a chart: what each store has over the sequence numbers, and how far everybody was behind over
time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from matplotlib import dates
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

if TYPE_CHECKING:
    from pathlib import Path

    from .findings import Audit, SourceAudit

__all__ = ["draw"]

SOURCES_MAX = 12
"""Shown; those with findings first."""
LINES_MAX = 20
"""Of lag; the longest ones."""
HAS, LACKS, DIVERGES, BEHIND = "#4c8bbf", "#c62828", "#f9a825", "#d5d8dc"
BAR = 0.7
WIDTH_INCHES = 11.0


def draw(audit: Audit, path: Path) -> None:
    """Writes the picture to ``path``, in the format that its name says (png, svg, pdf).

    Raises:
        OSError, ValueError: it cannot be written there, or no such format is known.
    """
    wrong = {(each.topic, each.source) for each in audit.findings}
    sources = sorted(audit.sources, key=lambda source: (source.topic, source.source) not in wrong)[:SOURCES_MAX]
    heights = [max(1.0, 0.35 * len(source.stores) + 0.6) for source in sources]
    figure = Figure(figsize=(WIDTH_INCHES, sum(heights) + 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(sources) + 1, 1, squeeze=False, height_ratios=[*heights, 3.0])[:, 0]
    for source, axis in zip(sources, axes, strict=False):
        _coverage(axis, source)
    _lags(axes[-1], audit)
    count = f"{len(audit.findings):,} findings" if audit.findings else "no finding"
    left_out = (
        f"; {len(sources)} of {len(audit.sources)} sources are shown" if len(sources) < len(audit.sources) else ""
    )
    figure.suptitle(f"audit of {audit.domain or 'directories'}: {count}{left_out}", x=0.01, ha="left")
    marks = [(HAS, "has"), (LACKS, "lacks"), (DIVERGES, "has something else than others"), (BEHIND, "not got yet")]
    figure.legend(
        handles=[Patch(color=color, label=label) for color, label in marks],
        loc="upper right",
        ncols=4,
        fontsize="small",
    )
    figure.savefig(path, dpi=110)


def _coverage(axis: Any, source: SourceAudit) -> None:
    """A bar per store. What is a pixel wide or less is marked by a triangle, too."""
    low, high = source.oldest, max(source.next, source.oldest + 1)
    for row, store in enumerate(source.stores):
        place = (row - BAR / 2, BAR)
        axis.broken_barh([(store.oldest, store.next - store.oldest)], place, color=HAS)
        if store.behind:
            axis.broken_barh([(store.next, store.behind)], place, color=BEHIND)
        _marked(axis, store.lacks, row, LACKS)
        _marked(axis, store.diverges, row, DIVERGES)
    axis.set_yticks(range(len(source.stores)), [store.store for store in source.stores])
    axis.set_ylim(len(source.stores) - 0.4, -0.9)
    axis.set_xlim(low, high)
    axis.ticklabel_format(axis="x", style="plain", useOffset=False)
    axis.set_title(
        f"{source.topic}, source {source.source}: numbers {low:,} to {high - 1:,}", loc="left", fontsize="medium"
    )


def _marked(axis: Any, spans: list[tuple[int, int]], row: int, color: str) -> None:
    if spans:
        axis.broken_barh([(first, following - first) for first, following in spans], (row - BAR / 2, BAR), color=color)
        middles = [(first + following) / 2 for first, following in spans]
        axis.plot(middles, [row - BAR / 2 - 0.12] * len(spans), "v", color=color, markersize=6, clip_on=False)


def _lags(axis: Any, audit: Audit) -> None:
    """A line for everybody: step by step, because nobody knows what was between two looks."""
    highest: dict[str, int] = {}
    for sample in audit.samples:
        for name, lag in sample.lags.items():
            highest[name] = max(highest.get(name, 0), lag)
    shown = sorted(highest, key=lambda name: (-highest[name], name))[:LINES_MAX]
    lines = []
    for name in sorted(shown):
        at = [(sample.time_ns, sample.lags[name]) for sample in audit.samples if name in sample.lags]
        times = [datetime.fromtimestamp(time_ns / 1e9, UTC) for time_ns, _ in at]
        (line,) = axis.plot(times, [lag for _, lag in at], drawstyle="steps-post", marker=".", label=name)
        lines.append(line)
    made: Any = dates  # it has no types
    locator = made.AutoDateLocator()
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(made.ConciseDateFormatter(locator))
    axis.set_ylim(0, max([1, *highest.values()]) * 1.05)
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.set_ylabel("numbers behind")
    axis.set_title("lag of stores (@) and receivers (>), UTC", loc="left", fontsize="medium")
    if lines:
        axis.legend(handles=lines, loc="upper left", fontsize="x-small")
