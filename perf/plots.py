"""Draws the scale curves of every machine whose results are committed, as PNG and SVG, and shows them in
perf/README.md.

Nothing is measured here: ``python -m perf.scale`` writes the JSON, ``make perf-report`` runs both. Curves
differ in marker and line, so that they can be told apart in black and white; the thin grey line is the
steepest that a curve may be.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from .cli import README, RESULTS
from .curves import FIGURES, costs, judge
from .report import curve_table, insert_into, load, quantity
from .scale import SCRIPT, SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .curves import Slope
    from .harness import Series

STYLES = (("black", "o", "-"), ("0.45", "s", "--"))
"""Colour, marker and line of a figure's curves, in turn."""
COLUMNS = 4


def draw(series: Mapping[str, Series], target: Path) -> list[Path]:
    """All figures of one machine on one sheet, as ``target``.png and .svg. Returns both paths."""
    from matplotlib.figure import Figure

    slopes = judge(series)
    rows = -(-len(FIGURES) // COLUMNS)
    sheet = Figure(figsize=(4.6 * COLUMNS, 3.9 * rows), layout="constrained")
    panels = sheet.subplots(rows, COLUMNS, squeeze=False).flat
    for figure, panel in zip(FIGURES, panels, strict=False):
        panel.set(title=figure.title, xlabel=figure.axis, xscale="log", yscale="log")
        own = [slope for slope in slopes if slope.figure is figure]
        for slope, style in zip(own, STYLES, strict=False):
            _curve(panel, slope, series, style)
        if own:
            panel.set_xticks(own[0].measured, [_tick(figure.in_bytes, x) for x in own[0].measured], rotation=45)
            panel.minorticks_off()
            panel.yaxis.set_major_formatter(lambda value, _: quantity(value, "ns"))
            panel.set_ylim(10 ** math.floor(math.log10(panel.dataLim.y0)), panel.get_ylim()[1] * 2)
            panel.grid(color="0.9", which="major")
            panel.legend(fontsize="small", frameon=False, loc="best")
        else:
            panel.text(0.5, 0.5, "not measured", ha="center", transform=panel.transAxes)
    for panel in panels:  # of the last row, those without a figure
        panel.set_axis_off()
    return save(sheet, target)


def save(sheet: Any, target: Path) -> list[Path]:
    """Write a matplotlib figure as ``target``.png and .svg, the same each time. Returns both paths."""
    import matplotlib as mpl

    mpl.rcParams["svg.hashsalt"] = "holdfast"
    paths = [target.with_name(f"{target.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        sheet.savefig(path, dpi=110, metadata={"Software": None} if path.suffix == ".png" else {"Date": None})
    return paths


def _curve(panel: Any, slope: Slope, series: Mapping[str, Series], style: tuple[str, str, str]) -> None:
    colour, marker, line = style
    runs = [costs(series[slope.curve.case.format(x)]) for x in slope.measured]
    middle = [statistics.median(values) for values in runs]
    below = [centre - min(values) for centre, values in zip(middle, runs, strict=True)]
    above = [max(values) - centre for centre, values in zip(middle, runs, strict=True)]
    panel.errorbar(
        slope.measured, middle, (below, above), color=colour, marker=marker, ls=line, capsize=3, label=slope.curve.title
    )
    judged = [(x, y) for x, y in zip(slope.measured, middle, strict=True) if x >= slope.curve.judged_from]
    x0, y0 = judged[0]
    panel.plot([x for x, _ in judged], [y0 * (x / x0) ** slope.curve.limit for x, _ in judged], color="0.7", lw=0.7)


def _tick(in_bytes: bool, x: int) -> str:
    return quantity(x, "B") if in_bytes else f"{x}"


def page(results: Path) -> str:
    """Draws for every ``*-scale.json`` in ``results``; the Markdown that shows the sheets and what they
    say."""
    parts = []
    for path in sorted(results.glob(f"*{SUFFIX}.json")):
        machine, sections = load(path)
        series = sections[SCRIPT.name]
        png, svg = draw(series, path.with_suffix(""))
        facts = f"{machine['cpu']}, {machine['cores']} cores, commit {machine['commit']}"
        parts += [f"**{facts}** ([SVG](results/{svg.name}))", "", f"![Scale curves](results/{png.name})", ""]
        parts += [curve_table(judge(series)), ""]
    return "\n".join(parts) or "Nothing is measured yet: `make perf-report`."


if __name__ == "__main__":
    insert_into(README, page(RESULTS), "scale")
    print("written:", README)
