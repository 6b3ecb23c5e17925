"""UM's umestored XML: what each element becomes, and each mistake with its place. The schema says the same as
the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lxml import etree

import holdfast as hf
from holdfast.config.text import Text, read
from holdfast.daemon.config import DaemonConfig, LogConfig
from holdfast.daemon.preflight import preflight
from holdfast.daemon.schema import schema
from holdfast.daemon.store_xml import NOT_HERE, StoreFile, read_store_file

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = '<topics><topic pattern="." type="PCRE"/></topics>'
STORES = f'<stores><store name="one" port="14567"><ume-attributes/>{TOPICS}</store></stores>'


def option(name: str, value: object, kind: str = "store") -> str:
    return f'<option type="{kind}" name="{name}" value="{value}"/>'


def store(options: str = "", topics: str = TOPICS, attributes: str = 'name="one" port="14567"', more: str = "") -> str:
    return f"<store {attributes}>{more}<ume-attributes>{options}</ume-attributes>{topics}</store>"


def whole(stores: str = STORES, daemon: str = "", version: str = "1.3") -> str:
    if not stores.startswith("<stores"):
        stores = f"<stores>{stores}</stores>"
    return f'<ume-store version="{version}"><daemon>{daemon}</daemon>{stores}</ume-store>'


def load(text: str) -> DaemonConfig:
    """What a file without mistakes says."""
    file = StoreFile(Text("store.xml", text))
    assert [str(error) for error in file.errors] == []
    return file.config


def mistakes(text: str) -> list[hf.ConfigError]:
    return StoreFile(Text("store.xml", text)).errors


def valid_by_schema(text: str) -> bool:
    return bool(etree.RelaxNG(etree.fromstring(schema().encode())).validate(etree.fromstring(text.encode())))


# What the elements become -----------------------------------------------------------------------------------


def test_the_smallest_file() -> None:
    config = load(whole())
    (one,) = config.stores
    assert (one.name, one.port, one.type, one.aliases) == ("127.0.0.1:14567", 14567, "memory", ("one",))
    assert (one.directory, one.cache) == ("umestored-state", None)
    assert [(topic.pattern, topic.type) for topic in one.topics] == [(".", "PCRE")]
    assert (config.log, config.pidfile, config.uid, config.gid, config.warnings) == (LogConfig(), None, None, None, ())


def test_port_0_lets_the_store_go_by_its_name() -> None:
    """In UM it takes a port by itself; here nothing listens on one, and what sources need is a name."""
    (one,) = load(whole(store(attributes='name="one" port="0"'))).stores
    assert (one.name, one.port, one.aliases) == ("one", None, ())
    (two,) = load(whole(store(option("context-name", "two"), attributes='name="one" port="0"'))).stores
    assert (two.name, two.port, two.aliases) == ("two", None, ("one",))


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2", "1.3"])
def test_every_version_is_read(version: str) -> None:
    assert len(load(whole(version=version)).stores) == 1


@pytest.mark.parametrize(
    ("element", "log"),
    [
        ("<log/>", LogConfig()),
        ('<log type="console"/>', LogConfig()),
        ('<log type="file"> a.log </log>', LogConfig("a.log")),
        ('<log type="file" size="23" frequency="daily">a.log</log>', LogConfig("a.log", 23, "daily")),
        (
            '<log type="file" size="0" frequency="hourly" holdfast-keep="9">a.log</log>',
            LogConfig("a.log", 0, "hourly", 9),
        ),
        ('<log type="file" xml:space="preserve"> a </log>', LogConfig(" a ")),
        ('<log type="file" xml:space="default"> a </log>', LogConfig("a")),
        ('<log type="file">a<!-- not this -->b</log>', LogConfig("ab")),
    ],
)
def test_the_log(element: str, log: LogConfig) -> None:
    assert load(whole(daemon=element)).log == log


def test_pidfile_user_and_group() -> None:
    config = load(whole(daemon="<pidfile>/run/s.pid</pidfile><uid>1000</uid><gid> 100 </gid>"))
    assert (config.pidfile, config.uid, config.gid) == ("/run/s.pid", 1000, 100)


def test_names_ports_and_directories_of_a_store() -> None:
    options = option("context-name", "a") + option("disk-state-directory", "s") + option("disk-cache-directory", "c")
    (one,) = load(whole(store(options, attributes='name="The first" port="0" interface="127.0.0.1"'))).stores
    assert (one.name, one.port, one.aliases, one.directory, one.cache) == ("a", None, (), "s", "c")
    (same,) = load(whole(store(option("disk-state-directory", "s") + option("disk-cache-directory", "s")))).stores
    assert (same.directory, same.cache) == ("s", None)


@pytest.mark.parametrize("interface", ["", "0.0.0.0", "*", "127.0.0.1", "127.0.0.0/8", "localhost"])
def test_interfaces_of_this_host_are_accepted(interface: str) -> None:
    load(whole(store(attributes=f'name="one" port="1" interface="{interface}"')))


def test_options_of_topics_go_before_those_of_the_store_and_keep_their_order() -> None:
    topics = (
        '<topics><topic pattern="a"><ume-attributes>'
        + option("repository-type", "disk")
        + option("receiver-activity-timeout", 7000)
        + option("receiver-activity-timeout", 9000)
        + '</ume-attributes></topic></topics><topics><topic pattern="^b" type="regexp"/></topics>'
    )
    (one,) = load(whole(store(option("source-activity-timeout", 8000), topics))).stores
    assert dict(one.options) == {"source-activity-timeout": 8000}
    assert [(topic.pattern, topic.type, dict(topic.options)) for topic in one.topics] == [
        ("a", "direct", {"repository-type": "disk", "receiver-activity-timeout": 9000}),
        ("^b", "regexp", {}),
    ]
    assert one.cache == "umestored-cache"  # some of its topics are on disk


def test_restore_last_of_a_topic_goes_before_the_one_of_the_store() -> None:
    topics = (
        '<topics><topic pattern="a"><restore-last value="3"/></topic><topic pattern="b"/>'
        '<topic pattern="c"><restore-last behavior="none"/></topic><topic pattern="d"><restore-last/></topic></topics>'
    )
    (one,) = load(whole(store("", topics, more='<restore-last behavior="hours" value="336"/>'))).stores
    assert [topic.restore_last for topic in one.topics] == [3, 336, None, 0]


def test_what_has_no_meaning_here_is_accepted_with_one_warning_each() -> None:
    daemon = (
        "<lbm-config>a</lbm-config><xml-config application-name='x'>b</xml-config><lbm-license-file>c</lbm-license-file>"
        "<web-monitor>*:15304</web-monitor><daemon-monitor topic='t'><lbm-config>a</lbm-config><publishing-interval>"
        "<group name='default' ivl='5'/></publishing-interval><remote-snapshot-request allow='1'/>"
        "<remote-config-changes-request allow='0'/></daemon-monitor>"
    )
    more = "<publishing-interval><group name='disk' ivl='1'/></publishing-interval>"
    config = load(whole(store(more=more), daemon))
    for tag in NOT_HERE:
        assert sum(f"<{tag}> has no effect: " in warning for warning in config.warnings) == 1, tag
    assert len(config.warnings) == len(NOT_HERE)
    assert sum("the file is not opened: " in warning for warning in config.warnings) == 2, "nor need it be there"


def test_options_without_effect_are_accepted_with_one_warning_each() -> None:
    topics = '<topics><topic pattern="."><ume-attributes>{}</ume-attributes></topic></topics>'.format(
        option("stability-ack-minimum-number", 3)
        + option("otr_request_minimum_interval", 3, "lbm-receiver")
        + option("late_join", 1, "lbm-source")
    )
    options = option("request_tcp_port_high", 5, "lbm-context") * 2 + option("proxy-election-interval", 5)
    warnings = load(whole(store(options, topics))).warnings
    names = ("stability-ack-minimum-number", "otr_request_minimum_interval", "late_join", "request_tcp_port_high")
    assert [sum(f" {name}: no effect: " in warning for warning in warnings) for name in names] == [1, 1, 1, 1]
    assert len(warnings) == 5


# Mistakes ---------------------------------------------------------------------------------------------------

NAMED = option("context-name", "{}")
TOPIC = '<topics><topic pattern="{}" type="{}"><ume-attributes>{}</ume-attributes></topic></topics>'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (whole(version="2.0"), "version = '2.0': expected 1.0 or 1.1 or 1.2 or 1.3"),
        ("<ume-store><stores/></ume-store>", "<ume-store> lacks its attribute version|<stores> lacks <store>"),
        ('<ume-store version="1.3"/>', "<ume-store> lacks <stores>"),
        (whole(daemon="<logs/>"), "<logs> is no part of <daemon>; did you mean log?"),
        (whole(daemon="<log/><log/>"), "<daemon> has <log> twice"),
        (whole(daemon='<log typ="file"/>'), "<log> has no attribute typ; did you mean type?"),
        (whole(daemon='<log frequency="weekly"/>'), "frequency = 'weekly': expected disable or daily or hourly or test"),
        (whole(daemon='<log size="10M"/>'), "size of <log> = '10M': expected a number from 0 to 2147483647"),
        (whole(daemon='<log type="file"/>'), "<log> is empty; it names a file"),
        (whole(daemon="<uid>root</uid>"), "<uid> = 'root': expected a number from 0 to 4294967294"),
        (whole(daemon="words"), "<daemon> contains text"),
        (whole(daemon="<daemon-monitor><remote-snapshot-request/></daemon-monitor>"), "lacks its attribute allow"),
        (whole(store(topics="")), "<store> lacks <topics>"),
        (whole(store(topics="<topics/>")), "<topics> lacks <topic>"),
        (whole(store(attributes='port="1"')), "<store> lacks its attribute name"),
        (whole(store(attributes='name="one"')), "<store> lacks its attribute port"),
        (whole(store(attributes='name="one" port="70000"')), "port = '70000': expected a number from 0 to 65535"),
        (whole(store(attributes='name="The first" port="0"')), "and 'The first' is none; a port, a context-name"),
        (whole(store(attributes='name="one" port="1" interface="10.29.3.16"')), "'10.29.3.16': expected a loopback address"),
        (whole(store(NAMED.format("a" * 128))), "is not a name; letters, digits and _ . + -, 31 at most"),
        (whole(store(option("disk-state-directory", ""))), "disk-state-directory has 0 characters: expected 1 to 230"),
        (whole(store(option("disk-cache-directory", "x" * 231))), "has 231 characters: expected 1 to 230"),
        (whole(store(option("contxt-name", "a"))), "store option 'contxt-name' does not exist"),
        (whole(store(option("source-activity-timeout", "1s"))), "source-activity-timeout = '1s': expected a whole number"),
        (whole(store(option("late_join", "1", "lbm-source"))), "options of type lbm-source do not belong to a <store>"),
        (whole(store(option("no_such_thing", "1", "lbm-context"))), "context option 'no_such_thing' does not exist"),
        (whole(store(topics=TOPIC.format("(", "PCRE", ""))), "not a regular expression"),
        (whole(store(topics=TOPIC.format("", "direct", ""))), "topic pattern '': it is empty"),
        (whole(store(topics=TOPIC.format(".", "glob", ""))), "type = 'glob': expected direct or PCRE or regexp"),
        (whole(store(topics=TOPIC.format(".", "PCRE", option("repository-type", "tape")))), "'tape': expected one of disk,"),
        (
            whole(store(topics=TOPIC.format(".", "PCRE", option("repository-disk-file-size-limit", 10**8)))),
            "repository-disk-file-size-limit = 100000000 on a memory repository",
        ),
        (whole(store(topics=TOPIC.format(".", "PCRE", option("context-name", "a")))), "context-name"),
        (whole(store(more='<restore-last value="337"/>')), "value of <restore-last> = '337': expected a number from 0 to 336"),
        (
            whole(store() + store(option("context-name", "b") + option("disk-state-directory", "b"))),
            "port '14567' belongs to the store of line 2 as well",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_value_limit_and_place(text: str, words: str) -> None:
    text = text.replace("><store ", ">\n<store ").replace("</store><store ", "</store>\n<store ")
    found = mistakes(text)
    told = "\n".join(str(error) for error in found)
    for part in words.split("|"):
        assert part in told
    assert len(found) == words.count("|") + 1, told
    assert all(str(error).startswith("LBM_EINVAL: store.xml:") and error.excerpt for error in found)


def test_every_mistake_is_told_in_the_order_of_lines() -> None:
    text = whole(store(option("nonsense", 1), attributes='name="one" port="x"'), "<uid>me</uid>\n<log size='big'/>\n")
    found = mistakes(text)
    assert [error.line for error in found] == [1, 2, 3, 3]
    with pytest.raises(hf.ConfigError, match=r"<uid>.*3 more: holdfast store run --validate"):
        raise_first(text)


def raise_first(text: str) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(text)
        file.flush()
        read_store_file(file.name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('<!DOCTYPE ume-store SYSTEM "x.dtd">' + whole(), "a document type (DTD) is not read"),
        ('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>' + whole(daemon="<pidfile>&b;</pidfile>"), "(DTD) is not read"),
        (
            whole(daemon='<x:include xmlns:x="http://www.w3.org/2001/XInclude" href="http://host/part.xml"/>'),
            "other files are not included",
        ),
        (
            whole(daemon='<x:include xmlns:x="http://www.w3.org/2001/XInclude" href="part.xml"/>'),
            "other files are not included; put what they contain here",
        ),
        (whole() + "<", "this is not XML"),
        ('<um-configuration version="1.0"/>', "give it to Context(config=...)"),
        ("<stores/>", "the root of a store's configuration is <ume-store>"),
    ],
)  # fmt: skip
def test_another_kind_of_file_is_refused(text: str, words: str) -> None:
    with pytest.raises(hf.ConfigError) as refused:
        mistakes(text)
    assert words in str(refused.value)


def test_two_stores_may_not_share_what_belongs_to_one() -> None:
    text = whole(store() + store(attributes='name="two" port="2"'))  # also in one line
    (found,) = mistakes(text)
    assert "disk-state-directory 'umestored-state' belongs to the store of line 1 as well" in str(found)


# The schema -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (whole(), True),
        (whole(daemon='<pidfile>a</pidfile><log type="file" xml:space="preserve" holdfast-keep="3"> a </log>'), True),
        (whole(store(option("context-name", "a"), more='<restore-last value="3"/>')), True),
        (whole(version="2.0"), False),
        (whole(daemon="<log/><log/>"), False),
        (whole(daemon="<logs/>"), False),
        (whole(daemon='<log typ="file"/>'), False),
        (whole(daemon="words"), False),
        (whole(store(topics="")), False),
        (whole(store(attributes='name="one"')), False),
        (whole(store(topics=TOPIC.format(".", "glob", ""))), False),
    ],
)
def test_the_schema_and_the_reader_agree_about_structure(text: str, valid: bool) -> None:
    assert valid_by_schema(text) is valid
    assert (mistakes(text) == []) is valid


# What is around ---------------------------------------------------------------------------------------------


def test_directories_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = option("disk-state-directory", tmp_path / "new" / "state") + option(
        "disk-cache-directory", tmp_path / "file" / "c"
    )
    daemon = f'<log type="file">{tmp_path}/none/a.log</log><pidfile>{tmp_path}/a.pid</pidfile>'
    path = tmp_path / "store.xml"
    path.write_text(whole(store(options), daemon))
    found = [str(error) for error in preflight(StoreFile(read(path)).config)]
    assert len(found) == 2
    assert "none/a.log: its directory does not exist" in found[0]
    assert f"{tmp_path}/file/c of store 127.0.0.1:14567 cannot be used; {tmp_path}/file is no directory" in found[1]
