"""Which options hold for a topic at a store: docs/semantics.md A.1, I.1, I.3, I.4."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.engine.errors import ConfigError
from holdfast.engine.options.topic_rules import TopicOptions, Topics, kept_type

MIB = 1 << 20


def topics(*patterns: TopicOptions, kind: str = "disk", acknowledge: str | None = None, **options: object) -> Topics:
    return Topics(kind, acknowledge, {name.replace("_", "-"): value for name, value in options.items()}, patterns)


def pattern(text: str, kind: str = "direct", **options: object) -> TopicOptions:
    return TopicOptions(text, kind, {name.replace("_", "-"): value for name, value in options.items()})


def test_without_patterns_every_topic_has_the_stores_options() -> None:
    rules = topics(receiver_new_registration_rollback=5).of("anything")
    assert rules is not None
    assert (rules.type, rules.acknowledge, rules.options.receiver_new_registration_rollback) == ("disk", "disk", 5)


@pytest.mark.parametrize(
    ("types", "shown"),
    [((), "disk"), (("memory",), "memory"), (("memory", "memory"), "memory"), (("memory", "disk"), "mixed")],
)
def test_a_store_has_a_type_if_all_of_its_topics_have_the_same(types: tuple[str, ...], shown: str) -> None:
    assert topics(*(pattern(f"t{i}", repository_type=kind) for i, kind in enumerate(types))).type == shown


@pytest.mark.parametrize(
    ("text", "kind", "topic", "matches"),
    [
        ("quotes", "direct", "quotes", True),
        ("quotes", "direct", "quotes.a", False),
        (".", "direct", "quotes", False),
        (".", "PCRE", "quotes", True),  # UM's own example of "every topic"
        ("quot", "PCRE", "md.quotes", True),  # anywhere in it
        ("^quot", "PCRE", "md.quotes", False),
        (r"^md\.(eu|us)$", "PCRE", "md.us", True),
        (r"^md\.(eu|us)$", "PCRE", "md.asia", False),
        ("quot", "regexp", "md.quotes", True),
    ],
)
def test_i1_a_direct_pattern_is_the_topic_and_a_pcre_pattern_is_found_in_it(
    text: str, kind: str, topic: str, matches: bool
) -> None:
    assert (topics(pattern(text, kind)).of(topic) is not None) is matches


def test_a1_the_first_pattern_that_matches_holds() -> None:
    it = topics(
        pattern("md.eu", source_state_lifetime=1),
        pattern("^md", "PCRE", source_state_lifetime=2),
        pattern(".", "PCRE", source_state_lifetime=3),
    )
    found = [it.kept(topic).options.source_state_lifetime for topic in ("md.eu", "md.us", "news")]
    assert found == [1, 2, 3]


def test_a_topics_options_go_before_the_stores_which_go_before_the_defaults() -> None:
    it = topics(pattern("a", source_state_lifetime=1), pattern("b"), source_state_lifetime=2, receiver_state_lifetime=4)
    a, b = it.kept("a").options, it.kept("b").options
    assert (a.source_state_lifetime, a.receiver_state_lifetime, a.source_check_interval) == (1, 4, 750)
    assert (b.source_state_lifetime, b.receiver_state_lifetime) == (2, 4)


def test_a_topic_that_no_pattern_matches_is_not_kept_but_what_is_kept_already_has_the_stores_options() -> None:
    it = topics(pattern("quotes"), pattern("^md", "PCRE"), source_state_lifetime=2)
    assert it.of("news") is None
    assert it.kept("news").options.source_state_lifetime == 2
    refusal = it.refusal("news")
    assert refusal.code == "topic_not_kept"
    for words in ("'news'", "'quotes', '^md'", "add one to its configuration"):
        assert words in refusal.text


@pytest.mark.parametrize(
    ("kind", "acknowledge", "options", "expected"),
    [
        ("disk", None, {}, ("disk", "disk")),
        ("disk", "memory", {}, ("disk", "memory")),
        ("memory", None, {}, ("memory", "memory")),
        ("no-cache", None, {}, ("no-cache", "memory")),
        ("disk", None, {"repository_type": "memory"}, ("memory", "memory")),
        ("memory", None, {"repository_type": "Disk"}, ("disk", "disk")),
        ("disk", "memory", {"holdfast_acknowledge": "disk"}, ("disk", "disk")),
        ("disk", None, {"holdfast_acknowledge": "memory"}, ("disk", "memory")),
    ],
)
def test_i2_the_type_and_what_stable_means_of_each_topic(
    kind: str, acknowledge: str | None, options: dict[str, Any], expected: tuple[str, str]
) -> None:
    rules = topics(pattern("a", **options), kind=kind, acknowledge=acknowledge).of("a")
    assert rules is not None
    assert (rules.type, rules.acknowledge) == expected


def test_a_disk_repository_keeps_the_disk_limit_and_a_memory_repository_the_threshold() -> None:
    rules = topics(
        repository_disk_file_size_limit=9 * MIB, repository_size_limit=8 * MIB, repository_size_threshold=MIB
    ).store
    assert (rules.retain_bytes("disk"), rules.retain_bytes("memory")) == (9 * MIB, MIB)
    assert topics(kind="memory", repository_size_limit=8 * MIB).store.retain_bytes("memory") == 8 * MIB


@pytest.mark.parametrize(
    ("configured", "kept", "expected"),
    [("disk", "", "disk"), ("disk", "disk", "disk"), ("disk", "memory", "memory"), ("memory", "disk", "disk")],
)
def test_i4_a_repository_that_exists_keeps_its_type_and_a_warning_says_so(
    configured: str, kept: str, expected: str
) -> None:
    found, warning = kept_type(configured, kept, "RegID 5")
    assert found == expected
    assert bool(warning) is (kept not in {"", configured})
    assert not warning or all(words in warning for words in ("RegID 5", configured, kept, "until it is deregistered"))


BAD: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("an unknown type", {"kind": "ssd"}, ("'ssd'", "disk, memory, no-cache")),
    ("an unknown repository type", {"repository_type": "reduced-fd"}, ("reduced-fd", "disk, memory, no-cache")),
    ("memory that acknowledges disk", {"kind": "memory", "acknowledge": "disk"}, ("memory repository", "'disk'")),
    (
        "threshold above the limit",
        {"repository_size_threshold": 2 * MIB, "repository_size_limit": MIB},
        ("2097152", "1048576"),
    ),
    (
        "limit above 90 % of the disk limit",
        {"repository_size_limit": 950_000, "repository_disk_file_size_limit": 1_000_000},
        ("950000", "1000000", "90 %"),
    ),
    (
        "a disk size on a memory repository",
        {"kind": "memory", "repository_disk_file_size_limit": 1_000_000},
        ("1000000", "memory repository", "repository-size-limit"),
    ),
    (
        "a disk size on a no-cache repository",
        {"kind": "no-cache", "repository_disk_file_size_limit": 1_000_000},
        ("1000000", "no-cache repository"),
    ),
    (
        "a buffer as large as the file",
        {"repository_disk_async_buffer_length": 200_000, "repository_disk_file_size_limit": 200_000},
        ("repository-disk-async-buffer-length = 200000", "repository-disk-file-size-limit is 200000"),
    ),
    (
        "a source's timeout below two keepalives",
        {"keepalive_interval": 5000, "source_activity_timeout": 9999},
        ("source-activity-timeout = 9999", "keepalive-interval = 5000"),
    ),
    (
        "a receiver's timeout below two keepalives",
        {"keepalive_interval": 5000, "receiver_activity_timeout": 9999},
        ("receiver-activity-timeout = 9999", "keepalive-interval = 5000"),
    ),
    ("below the disk minimum", {"repository_disk_file_size_limit": 196991}, ("196991", "196992 bytes")),
    ("below the buffer minimum", {"repository_disk_async_buffer_length": 65663}, ("65663", "65664 bytes")),
    ("an unknown option", {"repository_size": 1}, ("repository-size", "did you mean")),
]


@pytest.mark.parametrize(("row", "given", "words"), BAD, ids=[row[0] for row in BAD])
def test_i3_values_that_contradict_each_other_are_named_both(
    row: str, given: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as raised:
        topics(**given)
    for word in words:
        assert word in str(raised.value), row


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("the defaults", {}),
    ("the defaults of a memory store", {"kind": "memory"}),
    ("a small disk limit alone", {"repository_disk_file_size_limit": 800_000}),
    ("exactly 90 %", {"repository_size_limit": 900_000, "repository_disk_file_size_limit": 1_000_000}),
    ("exactly two keepalives", {"keepalive_interval": 5000, "source_activity_timeout": 10_000}),
    ("timeouts that are off", {"keepalive_interval": 5000, "source_activity_timeout": 0}),
    ("a short timeout where no keepalive is given", {"source_activity_timeout": 20}),
    ("the threshold at the limit", {"repository_size_threshold": MIB, "repository_size_limit": MIB}),
]


@pytest.mark.parametrize(("row", "given"), GOOD, ids=[row[0] for row in GOOD])
def test_i3_what_contradicts_nothing_passes(row: str, given: dict[str, Any]) -> None:
    assert topics(**given).of(row) is not None


def test_a_disk_limit_for_all_topics_does_not_forbid_a_topic_in_memory() -> None:
    it = topics(pattern("a", repository_type="memory"), pattern("b"), repository_disk_file_size_limit=1_000_000)
    assert [it.kept(topic).type for topic in "ab"] == ["memory", "disk"]


BAD_PATTERNS: list[tuple[str, TopicOptions, tuple[str, ...]]] = [
    ("empty", pattern(""), ("it is empty",)),
    ("of an unknown type", pattern("a", "glob"), ("'glob'", "direct or PCRE")),
    ("no regular expression", pattern("(", "PCRE"), ("'('", "not a regular expression")),
    ("an option of the whole store", pattern("a", allow_proxy_source=1), ("allow-proxy-source", "whole store")),
    ("a value out of range", pattern("a", source_check_interval=0), ("'a'", "source-check-interval = 0")),
    (
        "a contradiction",
        pattern("a", repository_type="memory", repository_disk_file_size_limit=10**6),
        ("'a'", "memory"),
    ),
    ("too many hours", TopicOptions("a", restore_last=337), ("337 hours", "336")),
    ("hours below zero", TopicOptions("a", restore_last=-1), ("-1 hours",)),
]


@pytest.mark.parametrize(("row", "wrong", "words"), BAD_PATTERNS, ids=[row[0] for row in BAD_PATTERNS])
def test_a_pattern_that_cannot_be_is_named(row: str, wrong: TopicOptions, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as raised:
        topics(pattern("good"), wrong)
    assert "topic pattern" in str(raised.value)
    for word in words:
        assert word in str(raised.value), row
