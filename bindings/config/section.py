"""What a file says about one object: options that are applied one after the other, whatever format they were
written in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.errors import ConfigError
from ..engine.options import values
from ..engine.options.resolve import Layer, Rule, check_value, find
from ..engine.options.table import BY_ANY_NAME, CONTEXT, RECEIVER, SOURCE, WILDCARD, Option
from ..engine.options.unsupported import has_no_effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .text import Text, Word

__all__ = ["Section"]

SCOPES = (CONTEXT, SOURCE, RECEIVER, WILDCARD)
IGNORED_SCOPES = ("event_queue", "hfx")
"""Of UM's queues of events and of hot failover: there is nothing here that they could be options of."""
LISTS = (values.store_addresses, values.store_names, values.store_groups)
ENTRIES_MAX = 250
"""Of one list, those that are cleared later included: ten times what a source may have."""
FUNCTIONS = (values.function, values.function_pair)


class Section:
    """Options by scope: a later value replaces an earlier one, and entries of a list are appended, as in UM.

    ``ignored`` collects the names of options that have no effect here.
    """

    def __init__(self, text: Text) -> None:
        self.ignored: dict[str, None] = {}
        self._text = text
        self._values: dict[str, dict[str, object]] = {scope: {} for scope in SCOPES}
        self._entries: dict[tuple[str, str], list[str]] = {}
        self._rules: dict[str, dict[str, Rule]] = {scope: {} for scope in SCOPES}

    def apply(self, scope: Word, name: Word, value: Word) -> None:
        """One option.

        Raises:
            ConfigError: at the word that is wrong.
        """
        found = self._find(scope, name)
        if found is None:
            return
        known, row = found
        given: object = self._parsable(value)
        if row.type in LISTS:
            given = [*self._entries.get((known, row.attribute), []), value.text]
            self._entries[known, row.attribute] = given
            if len(given) > ENTRIES_MAX:
                raise self._text.error(f"{row.name} has more than {ENTRIES_MAX} entries", value)
        self._values[known][row.attribute] = self._checked(known, row, value, given)

    def restrict(self, scope: Word, name: Word, otherwise: bool | None, clauses: Sequence[tuple[bool, Word]]) -> None:
        """One option's rules: (allowed, value) in order, and what holds for any other value (None: as said
        before).

        Raises:
            ConfigError: at the word that is wrong.
        """
        found = self._find(scope, name)
        if found is None:
            return
        known, row = found
        before = self._rules[known].get(row.attribute, Rule(True, (), self._text.name, name.line))
        said = [(allowed, self._checked(known, row, word, self._parsable(word))) for allowed, word in clauses]
        self._rules[known][row.attribute] = Rule(
            before.otherwise if otherwise is None else otherwise,
            (*before.clauses, *said),
            self._text.name,
            name.line,
        )

    def layer(self, scope: str) -> Layer:
        """What was said for ``scope``."""
        return Layer(self._values[scope], self._rules[scope])

    def _find(self, scope: Word, name: Word) -> tuple[str, Option] | None:
        """The option and its scope in our spelling; None if it has no effect."""
        known = scope.text.lower().replace("-", "_")
        option = name.text.lower()
        if known in IGNORED_SCOPES:
            self.ignored[option] = None
            return None
        if known not in SCOPES:
            hint = f"one of {', '.join((*SCOPES, IGNORED_SCOPES[0]))}"
            raise self._text.error(f"{scope.text!r} is not a scope", scope, hint)
        row = BY_ANY_NAME.get(option)
        if has_no_effect(option) and (row is None or known not in row.scopes):
            self.ignored[option] = None
            return None
        try:
            row = find(known, option)
        except ConfigError as error:
            raise self._text.error(str(error.args[0]), name, error.hint) from None
        if row.type in FUNCTIONS:
            raise self._text.error(f"{option} is a function", name, f"give it in Python: options={{{option!r}: ...}}")
        return known, row

    def _checked(self, scope: str, row: Option, place: Word, given: object) -> object:
        """The option's value. Raises at ``place``."""
        try:
            return check_value(scope, row, given)
        except ConfigError as error:
            raise self._text.error(str(error.args[0]), place, error.hint) from None

    def _parsable(self, value: Word) -> str:
        if value.text[:1] in {'"', "'"}:
            raise self._text.error("the value is quoted", value, "write it without quotes")
        return value.text
