"""Planted bugs of the censuses (docs/design.md 15). See planted.py."""

from __future__ import annotations

from simulator.planting import Patch

__all__ = ["CENSUSES"]

FILE = "engine/log/census.py"
OWN = "engine/log/own_census.py"

CENSUSES: dict[str, tuple[Patch, ...]] = {
    "no_census_proves_anything": (
        Patch(
            "engine/rules/election.py",
            "    proved = {store for store, why in _doubts(found, grants, register).items() if not why}\n",
            "    proved = set()\n",
        ),
    ),
    "a_key_is_not_written": (Patch("engine/store/sources.py", "        self._census.note(source)\n", ""),),
    "a_key_is_overlooked": (Patch(FILE, "    if any(census.lists(key) for key in keys):\n", "    if False:\n"),),
    "a_missing_census_is_believed": (
        Patch(FILE, '        return "its census is gone, or could not be written"\n', '        return ""\n'),
    ),
    "a_census_begins_empty": (
        Patch(OWN, "{*self._earlier, *chain.from_iterable(map(_keys_of, state.sources))}", "{*self._earlier}"),
    ),
    "a_life_forgets_the_one_before_it": (
        Patch(FILE, "        return census.each(), census.whole and", "        return frozenset(), census.whole and"),
    ),
    "what_is_unknown_is_whole": (
        Patch(FILE, "    return frozenset(), goes_on or ended\n", "    return frozenset(), True\n"),
    ),
}
"""What a census proves of a store that does not answer (engine/log/census.py)."""
