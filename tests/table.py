"""Which test proves a module, and which a rule: ``python tests/table.py`` writes TABLE.md beside it.

A test proves what it imports, and the rules that it cites. Of a module with many tests, those of its own name
come first, and the rest are counted. tests/test_table.py compares the file with this, and asks for what no
test reaches by name.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
TABLE = TESTS / "TABLE.md"
SHOWN = 4
"""Tests of a module or a rule that are named."""
BESIDE = {
    "engine/client/callback_errors.py": "process/cli/test_configuration.py",
    "engine/native/unclosed.py": "process/client/test_unclosed.py",
    "engine/shown.py": "process/client/test_docstrings.py",
    "engine/source/source_stats.py": "process/client/test_api.py",
    "engine/client/liveness_driver.py": "process/client/test_liveness.py",
    "engine/control/fields.py": "unit/control/test_packet_sizes.py unit/control/test_undecodable.py",
    "engine/control/listing.py": "process/receiver/test_finished.py unit/control/test_packet_sizes.py",
    "engine/receiver/ack_controller.py": "process/receiver/test_ack_only.py process/receiver/test_visits.py",
    "engine/receiver/finished.py": "process/receiver/test_finished.py",
    "engine/receiver/finished_source.py": "process/receiver/test_finished.py",
    "engine/control/configuration.py": "process/source/test_votes.py process/source/test_orphan_begin.py",
    "engine/control/forgetting.py": "process/cli/test_finished.py unit/control/test_packet_sizes.py",
    "engine/control/grants.py": "process/source/test_votes.py unit/control/test_packet_sizes.py",
    "engine/control/host.py": "process/client/test_end_to_end.py",
    "engine/control/skipped.py": "process/receiver/test_skipping.py",
    "engine/log/believed.py": "process/source/test_orphan_begin.py process/log/test_records.py",
    "engine/log/board_line.py": "process/store/test_catch_up.py process/client/test_turns.py",
    "engine/log/writer.py": "process/store/test_shelf.py process/store/test_unusable_log.py",
    "engine/log/look.py": "process/log/test_repair.py process/store/test_rounds.py",
    "engine/tools/rows.py": "process/cli/test_commands.py process/cli/test_many_over.py",
    "engine/log/timestamps.py": "c/test_timestamp.c process/store/test_options.py",
    "engine/memory/batch_input.py": "process/client/test_end_to_end.py process/client/test_api.py",
    "engine/memory/message_slot.py": "process/receiver/test_recycling.py process/receiver/test_handed_out.py",
    "engine/memory/nameless.py": "process/faults/test_nameless.py",
    "engine/memory/sri.py": "process/source/test_groups.py process/receiver/test_events.py",
    "engine/native/background.py": "process/store/test_rounds.py process/store/test_hung_disk.py",
    "engine/source/own_names.py": "process/faults/test_nameless.py",
    "engine/source/quorum_news.py": "process/source/test_quorum_news.py",
    "engine/native/threads.py": "process/store/test_no_threads.py",
    "engine/receiver/board_name.py": "process/faults/test_nameless.py",
    "engine/receiver/line_identity.py": "process/receiver/test_recovery.py process/receiver/test_events.py",
    "engine/store/syncers.py": "process/store/test_no_threads.py",
    "engine/receiver/delivery_controller.py": "process/receiver/test_recovery.py process/receiver/test_incarnations.py",
    "engine/receiver/late.py": "process/receiver/test_late.py",
    "engine/receiver/matcher.py": "process/receiver/test_wildcard.py",
    "engine/receiver/ports.py": "process/receiver/test_recovery.py",
    "engine/receiver/receiver.py": "process/receiver/test_consumption.py process/receiver/test_wildcard.py",
    "engine/receiver/start.py": "process/receiver/test_chosen_start.py process/receiver/test_recovery.py",
    "engine/tools/users.py": "process/cli/test_orphans.py unit/tools/test_orphans.py",
    "engine/source/publisher.py": "process/source/test_flight_size.py process/source/test_semantics.py",
    "engine/source/registration_events.py": "process/source/test_registration.py process/source/test_groups.py",
    "engine/source/settlement.py": "process/source/test_semantics.py process/source/test_flight_size.py",
    "engine/source/source.py": "process/client/test_end_to_end.py process/client/test_api.py",
    "engine/store/first_state.py": "unit/log/test_store_directory.py process/cli/test_adopt_empty.py",
    "engine/store/owed.py": "process/store/test_owed.py",
    "engine/store/guard.py": "process/faults/test_fence.py",
    "engine/store/log_places.py": "process/faults/test_nameless.py process/faults/test_other_users.py",
    "engine/store/listener.py": "process/store/test_names.py process/store/test_clients.py",
    "engine/store/missed_begins.py": "process/store/test_missed_begins.py",
    "engine/store/no_cache.py": "process/store/test_options.py",
    "engine/store/operator.py": "process/store/test_operator.py",
    "engine/store/pacer.py": "process/receiver/test_paced.py",
    "engine/store/receivers.py": "process/receiver/test_recovery.py process/source/test_holders.py",
    "engine/store/scrub.py": "process/store/test_repair.py",
    "engine/store/still_log.py": "process/store/test_read_only.py",
    "bindings/__main__.py": "process/cli/test_commands.py",
    "bindings/aio.py": "process/receiver/test_asyncio.py",
    "bindings/batch.py": "process/receiver/test_recycling.py process/receiver/test_handed_out.py",
    "bindings/cli/": "process/cli/test_commands.py process/cli/test_looking.py process/cli/test_bad_input.py",
    "bindings/cli/demo": "unit/cli/test_demo_proof.py spark/test_demo.py",
    "bindings/cli/pipeline_app.py": "spark/test_pipeline_cli.py",
    "bindings/cli/store_adopt.py": "process/cli/test_adopt_empty.py",
    "bindings/cli/store_repair.py": "process/cli/test_store_repair.py",
    "bindings/cli/store_run.py": "process/store/test_daemon.py",
    "bindings/config/": "unit/config/test_flat.py unit/config/test_xml.py unit/config/test_precedence.py",
    "bindings/context.py": "process/client/test_api.py process/client/test_closing.py",
    "bindings/counters.py": "process/client/test_api.py process/receiver/test_recycling.py",
    "bindings/daemon/": "process/store/test_daemon.py unit/daemon/test_store_xml.py",
    "bindings/examples/": "process/cli/test_examples.py process/cli/test_example_ends.py unit/examples/test_lines.py",
    "bindings/pool.py": "process/receiver/test_recycling.py",
    "bindings/receiver.py": "process/receiver/test_consumption.py process/receiver/test_iteration.py",
    "bindings/releaser.py": "process/receiver/test_recycling.py",
    "bindings/spark/": "spark/test_leftovers.py spark/test_pipeline_cli.py spark/test_executors.py",
    "bindings/stores/": "process/store/test_callable_store.py process/store/test_spawn_given.py",
    "bindings/limited_receiver.py": "process/receiver/test_throttle.py",
    "bindings/version.py": "process/cli/test_commands.py",
    "semantics B.2": "process/receiver/test_events.py process/source/test_groups.py",
    "semantics F.5": "process/receiver/test_recovery.py",
    "semantics I.5": "process/store/test_daemon.py unit/log/test_state_file.py",
    "semantics I.7": "process/cli/test_commands.py",
    "semantics K": "unit/options/test_table.py unit/options/test_rules.py",
    "semantics L.3": "process/client/test_liveness.py",
    "semantics N.29": "process/store/test_operator.py",
    "design A": "process/client/test_end_to_end.py process/client/test_one_message.py",
    "design B": "test_rooms.py test_architecture.py",
    "design C": "unit/harness/test_evidence.py",
    "design D": "unit/perf/test_check.py",
    "design 1": "test_build.py",
    "design 2": "unit/native/test_layout.py",
    "design 4": "c/test_stream.c c/litmus_commit.c models/test_models.py",
    "design 5": "c/test_stream.c",
    "design 6": "c/test_reader.c models/test_models.py",
    "design 7": "c/test_reader.c c/litmus_pin.c",
    "design 9": "c/test_board.c",
    "design 10": "c/test_sleep.c c/litmus_sleep.c",
    "design 11": "c/test_source.c process/source/test_flight_size.py",
    "design 17": "process/source/test_holders.py c/test_process.c",
    "design 18": "c/test_log.c c/test_drain.c",
    "design 19": "c/test_log.c c/test_log_sectors.c",
    "design 20": "process/faults/test_failed_sync.py c/test_log_power.c",
    "design 21": "c/test_log_damage.c process/store/test_repair.py",
    "design 22": "c/test_log_retire.c c/test_log_release.c",
    "design 33": "process/store/test_shelf.py process/store/test_shelf_files.py c/test_log_rest.c c/test_log_rest_power.c",
    "design 24": "test_rooms.py",
    "design 25": "test_rooms.py process/client/test_one_message.py",
    "design 26": "process/receiver/test_recycling.py",
    "design 28": "unit/memory/test_domain.py",
    "design 29": "spark/test_place.py",
    "design S.1": "spark/test_java.py",
    "design S.2": "spark/test_executors.py spark/test_session.py",
}
"""What the texts do not say: a module, a folder of modules, a rule, or all rules of a letter -> tests."""
PLANNED = {"design 31", "design 32"}
"""Decisions of what is not built yet."""
_CITED = re.compile(
    r"docs/(semantics|design)\.md((?:[\s,]|to|and)*(?:[A-N]\.?\d*|\d+)\b(?:(?:,|\s|to|and)+(?:[A-N]\.\d+|\d+)\b)*)"
)
_SECTION = re.compile(r"[A-N]\.\d+|\b\d+\b")


def modules() -> list[str]:
    """Files of engine/ and bindings/ that say something, from the root."""
    found = [path for room in ("engine", "bindings") for path in sorted((ROOT / room).rglob("*.py"))]
    return [str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py" and path.stat().st_size]


def rules() -> list[tuple[str, str]]:
    """(section, title) of docs/semantics.md and docs/design.md, each with its anchor's name."""
    found = []
    for document in ("semantics", "design"):
        text = (ROOT / "docs" / f"{document}.md").read_text()
        for title, anchor in re.findall(r'^#{2,3} (.*?) <a id="([^"]+)">', text, re.MULTILINE):
            if "." in anchor or document == "design":
                found.append((f"{document} {anchor}", title.removeprefix(anchor).removeprefix(".").strip()))
    return found


def imported(path: Path) -> set[str]:
    """Files of engine/ and bindings/ that a test imports, also through a name of their package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "holdfast":
            module = node.module or ""
            found |= {_file(module), *(_file(f"{module}.{name.name}") for name in node.names)}
        elif isinstance(node, ast.Import):
            found |= {_file(name.name) for name in node.names if name.name.startswith("holdfast.")}
    return found - {""}


def _file(module: str) -> str:
    parts = module.split(".")[1:]
    place = Path("engine", *parts[1:]) if parts[:1] == ["engine"] else Path("bindings", *parts)
    return f"{place}.py" if (ROOT / f"{place}.py").is_file() else ""


def cited(text: str) -> set[str]:
    """Sections that a text names."""
    found = set()
    for document, said in _CITED.findall(text):
        found |= {f"{document} {letter}" for letter in re.findall(r"\b[A-N]\b(?!\.)", said)}
        found |= {f"{document} {section}" for section in _SECTION.findall(said)}
        for first, last in re.findall(r"([A-N]\.\d+|\d+) to\s+([A-N]\.\d+|\d+)", said):
            head, _, low = first.rpartition(".")
            between = range(int(low), int(last.rpartition(".")[2]) + 1)
            found |= {f"{document} {head + '.' if head else ''}{number}" for number in between}
    return found


def tests() -> list[Path]:
    """Those of Python and those of C."""
    return sorted([*TESTS.rglob("test_*.py"), *(TESTS / "c").glob("*.c")])


@cache
def table() -> str:
    """The whole page."""
    of_module, of_rule = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for path in tests():
        name, text = str(path.relative_to(TESTS)), path.read_text()
        for module in imported(path) if path.suffix == ".py" else ():
            of_module[module].append(name)
        for section in cited(text):
            of_rule[section].append(name)
    lines = [
        "# Which test proves what", "",
        "Written by `python tests/table.py`; `make test` compares it. A test proves what it imports and the rules that it",
        "cites; what neither says is in `table.py`. Paths are from `tests/`.", "",
        "## Of a module", "", "| module | tests |", "|---|---|",
    ]  # fmt: skip
    for module in modules():
        found = of_module[module]
        own = [name for name in found if Path(name).stem == f"test_{Path(module).stem}"]
        every = [*own, *(name for name in found if name not in own)]
        lines.append(f"| `{module}` | {_shown(every or _beside(module))} |")
    lines += ["", "## Of a rule", "", "| rule | what | tests |", "|---|---|---|"]
    for section, title in rules():
        found = of_rule[section] or of_rule[section.partition(".")[0]] or _beside(section)
        lines.append(f"| {section} | {title} | {_shown(found)} |")
    return "\n".join([*lines, ""])


def _beside(name: str) -> list[str]:
    """By the longest entry that ``name`` begins with; of a rule, by its own or its letter's."""
    if " " in name:
        return BESIDE.get(name, BESIDE.get(name.partition(".")[0], "")).split()
    fits = [entry for entry in BESIDE if name == entry or (not entry.endswith(".py") and name.startswith(entry))]
    return BESIDE[max(fits, key=len)].split() if fits else []


def _shown(found: list[str]) -> str:
    more = f", {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in found[:SHOWN]) + more


if __name__ == "__main__":
    if "--check" not in sys.argv:
        TABLE.write_text(table())
    elif TABLE.read_text() != table():
        sys.exit("tests/TABLE.md is not what the tests say: run python tests/table.py")
