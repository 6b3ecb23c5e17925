"""UM's XML file: whom it means, in which order, what it forbids, and what it refuses to read."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.config import Configuration
from holdfast.engine.errors import ConfigError
from holdfast.engine.options.resolve import Options, resolve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEAD = '<?xml version="1.0" encoding="UTF-8" ?>\n<um-configuration version="1.0">'


RULE = (
    '<sources><topic topicname="a"><options type="source">'
    '<option name="ume_flight_size">\n <allow>7</allow><{0}>{1}</{0}></option></options></topic></sources>'
)


def option(name: str, value: object) -> str:
    return f'<option name="{name}" default-value="{value}"/>'


def source(**given: object) -> str:
    return f'<options type="source">{"".join(option(name, value) for name, value in given.items())}</options>'


def application(contexts: str, templates: str = "", attributes: str = "") -> str:
    return (
        f"{HEAD}<templates>{templates}</templates><applications><application {attributes}>{contexts}"
        "</application></applications></um-configuration>"
    )


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Configuration]:
    path = tmp_path / "um.xml"

    def write(text: str, name: str | None = None, context: str | None = None) -> Configuration:
        path.write_text(text)
        return Configuration(path, name, context)

    return write


def view(found: Configuration, scope: str = "source", name: str | None = "quotes", **more: Any) -> Options:
    return resolve(scope, {}, None, found.layers(scope, name, **more))


def refused(load: Callable[..., Configuration], text: str, *words: str, **more: Any) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        view(load(text, **more))
    assert all(word in str(raised.value) for word in words), str(raised.value)
    return raised.value


# Whom it means ----------------------------------------------------------------------------------------------

LAYERS = ["application", "contexts", "context", "options", "sources", "topic", "own"]


@pytest.mark.parametrize("count", range(1, len(LAYERS) + 1))
def test_from_the_outside_in_the_last_word_counts(load: Callable[..., Configuration], count: int) -> None:
    sizes = {layer: number for number, layer in enumerate(LAYERS[:count], 1)}

    def of(layer: str) -> str:
        return f' template="{layer}"' if layer in sizes else ""

    def own(layer: str) -> str:
        return source(ume_flight_size=sizes[layer]) if layer in sizes else ""

    templates = "".join(f'<template name="{name}">{source(ume_flight_size=n)}</template>' for name, n in sizes.items())
    contexts = (
        f"<contexts{of('contexts')}><context{of('context')}>{own('options')}<sources{of('sources')}>"
        f'<topic topicname="quotes"{of("topic")}>{own("own")}</topic></sources></context></contexts>'
    )
    assert view(load(application(contexts, templates, of("application").strip()))).ume_flight_size == count


def test_of_several_templates_the_last_counts_and_lists_grow(load: Callable[..., Configuration]) -> None:
    templates = "".join(
        f'<template name="{name}">{source(ume_flight_size=n, ume_store_name=name)}</template>'
        for n, name in enumerate("abc", 1)
    )
    found = view(load(application("<contexts/>", templates, 'template="c, a,b"')))
    assert found.ume_flight_size == 2
    assert [str(store) for store in found.stores] == ["c", "a", "b"]


def test_every_scope_of_a_template_holds_for_its_objects(load: Callable[..., Configuration]) -> None:
    templates = (
        '<template name="t">'
        f'<options type="context">{option("ume_ack_batching_interval", 7)}</options>'
        f'<options type="RECEIVER">{option("ume_use_ack_batching", 0)}</options>'
        f'<options type="wildcard-receiver">{option("pattern_type", "regex")}</options>'
        f'<options type="event-queue">{option("queue_size_warning", 7)}</options></template>'
    )
    found = load(application("<contexts/>", templates, 'template="t"'))
    assert view(found, "context", None).ume_ack_batching_interval == 7
    assert not view(found, "receiver").ume_use_ack_batching
    assert view(found, "receiver", wildcard=True).pattern_type == "regex"


def test_an_application_is_meant_by_its_name_alone(load: Callable[..., Configuration]) -> None:
    def of(attributes: str, size: int) -> str:
        contexts = f"<contexts><context>{source(ume_flight_size=size)}</context></contexts>"
        return f"<application {attributes}>{contexts}</application>"

    without, named = of("", 1), of('name="a"', 2)
    text = f"{HEAD}<applications>{without}{named}</applications></um-configuration>"
    assert view(load(text)).ume_flight_size == 1
    assert view(load(text, "a")).ume_flight_size == 2
    refused(load, text, "there is no application 'b' in this file; application= one of: a", name="b")
    only_a = text.replace(without, "")
    refused(load, only_a, "there is no application without a name", "one of: a")
    refused(load, f"{HEAD}</um-configuration>", "there is no application without a name")


def test_a_context_is_meant_by_its_name_alone(load: Callable[..., Configuration]) -> None:
    contexts = (
        f"<contexts><context>{source(ume_flight_size=1)}</context>"
        f'<context name="eu">{source(ume_flight_size=2)}</context></contexts>'
    )
    assert view(load(application(contexts))).ume_flight_size == 1
    assert view(load(application(contexts), context="eu")).ume_flight_size == 2
    assert view(load(application(contexts), context="us")).ume_flight_size == 1000


def topic(attributes: str, size: int) -> str:
    return f"<topic {attributes}>{source(ume_flight_size=size)}</topic>"


def test_an_equal_name_counts_before_any_pattern_and_the_first_pattern_before_the_next(
    load: Callable[..., Configuration],
) -> None:
    topics = topic("", 1) + topic('pattern="^quo"', 2) + topic('pattern="otes"', 3) + topic('topicname="quotes.eu"', 4)
    found = load(application(f"<contexts><context><sources>{topics}</sources></context></contexts>"))
    assert view(found, name="quotes.eu").ume_flight_size == 4
    topics = topic('pattern="^quo"', 2) + topic('pattern="otes"', 3) + topic("", 1)
    found = load(application(f"<contexts><context><sources>{topics}</sources></context></contexts>"))
    assert view(found, name="quotes").ume_flight_size == 2
    assert view(found, name="notes").ume_flight_size == 3, "a pattern is found anywhere"
    assert view(found, name="trades").ume_flight_size == 1


def test_receivers_and_receivers_with_a_pattern_have_elements_of_their_own(load: Callable[..., Configuration]) -> None:
    def receiver(interval: int) -> str:
        return f'<options type="receiver">{option("ume_registration_interval", interval)}</options>'

    contexts = (
        "<contexts><context>"
        f'<sources><topic topicname="quotes">{source(ume_registration_interval=1)}</topic></sources>'
        f'<receivers><topic topicname="quotes">{receiver(2)}</topic><topic pattern=".">{receiver(5)}</topic></receivers>'
        f'<wildcard-receivers><wildcard-receiver pattern="^q.*" pattern-type="regex">{receiver(3)}</wildcard-receiver>'
        "</wildcard-receivers></context></contexts>"
    )
    found = load(application(contexts))
    assert view(found).ume_registration_interval == 1
    assert view(found, "receiver").ume_registration_interval == 2
    matched = view(found, "receiver", "^q.*", wildcard=True)
    assert (matched.ume_registration_interval, matched.pattern_type) == (3, "regex")
    assert view(found, "receiver", "^q", wildcard=True).ume_registration_interval == 3000


def test_what_nothing_here_uses_is_passed_over(load: Callable[..., Configuration]) -> None:
    text = application(
        "<!-- <topic> --><contexts><context><?pi x?><options type='source'><application-data><x/></application-data>"
        "<option name='ume_flight_size' default-value='&#53;'/></options></context></contexts>"
        "<event-queues><event-queue><options/></event-queue></event-queues><hfxs><topic><options/></topic></hfxs>"
        "<application-data xml:space='preserve'> <![CDATA[<topic>]]> </application-data>"
    ).replace("<templates>", "<license format='string'>a > b</license><templates>", 1)
    assert view(load(text)).ume_flight_size == 5


# What it forbids --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "topics", "name", "good"),
    [
        ("deny,allow", '<topic topicname="authorize" rule="deny"/>', "authorize", False),
        ("deny,allow", '<topic topicname="authorize" rule="deny"/>', "quotes", True),
        ("allow,deny", '<topic topicname="quotes" rule="allow"/>', "quotes", True),
        ("allow,deny", '<topic topicname="quotes"/>', "trades", False),
        ("deny,allow", '<topic pattern="^t" rule="deny"/><topic pattern="^t.n" rule="allow"/>', "t.n", True),
        ("deny,allow", '<topic pattern="^t" rule="deny"/><topic pattern="^t.n" rule="allow"/>', "t.x", False),
        ("allow,deny", '<topic pattern="^t" rule="allow"/><topic pattern="^t.n" rule="deny"/>', "t.n", False),
        ("allow,deny", "", "anything", False),
    ],
)
def test_topics_can_be_forbidden(
    load: Callable[..., Configuration], order: str, topics: str, name: str, good: bool
) -> None:
    found = load(application(f'<contexts><context><sources order="{order}">{topics}</sources></context></contexts>'))
    if good:
        view(found, name=name)
    else:
        with pytest.raises(ConfigError, match=rf"a source of topic {name} is forbidden"):
            found.layers("source", name)
    view(found, "receiver", name)


def test_contexts_and_patterns_can_be_forbidden(load: Callable[..., Configuration]) -> None:
    text = application(
        '<contexts order="allow,deny"><context name="eu"><wildcard-receivers order="allow,deny"/></context></contexts>'
    )
    refused(load, text, "a context named us is forbidden", context="us")
    refused(load, text, "a context without a name is forbidden")
    with pytest.raises(ConfigError, match=r"a receiver of pattern \.\* is forbidden"):
        load(text, context="eu").layers("receiver", ".*", wildcard=True)


def test_values_can_be_forbidden_and_layers_add_to_each_other(load: Callable[..., Configuration]) -> None:
    def rule(order: str, *clauses: str) -> str:
        return f'<options type="source"><option name="ume_flight_size" order="{order}">{"".join(clauses)}</option></options>'

    templates = f'<template name="t">{rule("deny,allow", "<deny> 7 </deny>", "<deny>0x9</deny>")}</template>'
    contexts = f"<contexts><context>{rule('deny,allow', '<deny>8</deny>')}</context></contexts>"
    layers = load(application(contexts, templates, 'template="t"')).layers("source", "quotes")
    for value, good in ((6, True), (7, False), (8, False), (9, False)):
        if good:
            assert resolve("source", {"ume_flight_size": value}, None, layers).ume_flight_size == value
        else:
            with pytest.raises(ConfigError, match=rf"um.xml:2: .* ume_flight_size = {value} is forbidden here"):
                resolve("source", {"ume_flight_size": value}, None, layers)


# What it refuses --------------------------------------------------------------------------------------------

END = "</contexts></application></applications></um-configuration>"
BODY = f"<applications><application><contexts>{END}"


def within(inside: str) -> str:
    return f"{HEAD}<applications><application><contexts><context>{inside}</context>{END}"


def options(scope: str, inside: str) -> str:
    return f'<options type="{scope}">{inside}</options>'


WRONG: list[tuple[str, str, str]] = [
    (within(options("source", '<option name="qq"/>')), "qq", "source option 'qq' does not exist"),
    (within(source(ume_flight_size="qq")), "qq", "expected a whole number"),
    (within(options("qq", option("ume_flight_size", 1))), "qq", "'qq' is not a scope"),
    (within("<qq/>"), "qq", "<qq> is no part of <context>"),
    (within("<sourcesqq />"), "sourcesqq", "did you mean sources?"),
    (within('<options typo="qq"/>'), "qq", "<options> has no attribute typo; did you mean type?"),
    (within("<options/>"), "options/", "<options> lacks its attribute type"),
    (within('<sources order="qq"/>'), "qq", "order = 'qq': expected deny,allow or allow,deny"),
    (within('<sources><topic rule="qq"/></sources>'), "qq", "expected allow or deny"),
    (within('<sources><topic pattern="qq("/></sources>'), "qq(", "pattern 'qq(':"),
    (within('<sources template="qq"/>'), "qq", "there is no template 'qq'"),
    (HEAD.replace('version="1.0">', 'version="qq">') + BODY, "qq", "version = 'qq': expected 1.0"),
    (HEAD.replace(' version="1.0">', ">") + BODY, "um-conf", "<um-configuration> lacks its attribute version"),
    ("<ume-store version='1.3'/>", "ume-store", "this is the configuration of a store; give it to: holdfast store run"),
    ("<template name='x'/>", "template", "the root is <template>"),
    (
        within('<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="x.xml"/>'),
        "xi:include",
        "other files are not included",
    ),
    (within(RULE.format("deny", "qq7")), "deny>qq7<", "ume_flight_size = 'qq7': expected a whole number"),
    (within(RULE.format("allow", "9,5")), "allow>9,5<", "ume_flight_size = '9,5': expected a whole number"),
    (within(RULE.format("deny", "-55")), "deny>-55<", "ume_flight_size = -55"),
    (within(RULE.format("deny", "'9'")), "deny>'9'<", "the value is quoted"),
    (within(RULE.format("allow", "")), "allow></allow>", "ume_flight_size = '': expected"),
    (
        within(options("receiver", option("source_notification_function", "f"))),
        "source_notification_function",
        "is a function",
    ),
]


@pytest.mark.parametrize(("text", "at", "words"), WRONG, ids=[row[2] for row in WRONG])
def test_a_mistake_is_shown_where_it_is(load: Callable[..., Configuration], text: str, at: str, words: str) -> None:
    error = refused(load, text, words)
    offset = text.index(at)
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    assert (error.line, error.column) == (line, column)
    _, shown, caret = str(error).splitlines()
    assert shown[caret.index("^") :].startswith(at)


@pytest.mark.parametrize(
    "text",
    [
        "<a",
        "<a></b>",
        "<a b=c/>",
        "<a>&undefined;</a>",
        "<a b='1' b='2'/>",
        "<a/><b/>",
        '<a x="&#0;"/>',
        "<a>\x00</a>",
        "<!-- without end",
        "<" * 1000,
        "<a>" * 5000 + "</a>" * 5000,
        '<?xml version="1.0" encoding="UTF-16"?',
    ],
)
def test_what_is_not_xml_is_refused_with_a_place(load: Callable[..., Configuration], text: str) -> None:
    error = refused(load, text, "this is not XML")
    assert error.line is not None


def test_an_element_has_a_limited_number_of_attributes(load: Callable[..., Configuration]) -> None:
    attributes = " ".join(f'a{number}="1"' for number in range(100_000))
    refused(load, f"<um-configuration {attributes}/>", "more than 50 attributes")


BOMB = """<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>
<um-configuration version="&c;"/>"""


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        '<?xml version="1.0"?>\n<!-- <a> --> <?x y?>\n' + BOMB,
        '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><a/>',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><um-configuration version="1.0">&x;</um-configuration>',
        '<!DOCTYPE a [<!ENTITY % x SYSTEM "file:///etc/passwd"> %x;]><a/>',
        '<!DOCTYPE um-configuration><um-configuration version="1.0"/>',
    ],
)
def test_document_types_and_entities_are_refused_before_anything_is_parsed(
    load: Callable[..., Configuration], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lxml.etree.fromstring", lambda *_: pytest.fail("it was parsed"))
    error = refused(load, text, "a document type (DTD) is not read, nor its entities")
    at = text.index("<!DOCTYPE")
    assert error.line == text.count("\n", 0, at) + 1
    assert error.column == at - text.rfind("\n", 0, at)


@pytest.mark.parametrize("encoding", ["UTF-7", "UTF-16", "ISO-8859-1", "EBCDIC-CP-US"])
def test_a_file_is_utf_8_whatever_it_says(load: Callable[..., Configuration], encoding: str) -> None:
    text = within(options("context", option("context_name", "é+AD4-"))).replace("UTF-8", encoding)
    assert view(load(text), "context", None).context_name == "é+AD4-"


def test_other_applications_are_not_looked_into(load: Callable[..., Configuration]) -> None:
    other = (
        f'<application name="other"><contexts><context>{source(no_such_option=1)}</context></contexts></application>'
    )
    text = f"{HEAD}<applications><application/>{other}</applications></um-configuration>"
    view(load(text))
    refused(load, text, "no_such_option", name="other")


def test_options_of_a_network_are_accepted_with_one_warning(
    load: Callable[..., Configuration], caplog: pytest.LogCaptureFixture
) -> None:
    used = f'<template name="t">{source(transport="LBT-RM", ume_flight_size=3)}</template>'
    unused = f'<template name="u">{source(compression=1)}</template>'
    contexts = f"<contexts><context>{source(resolver_multicast_address='&quot;en0&quot;')}</context></contexts>"
    with caplog.at_level(logging.WARNING, "holdfast"):
        found = load(application(contexts, used + unused, 'template="t"'))
        assert view(found).ume_flight_size == 3
    (record,) = caplog.records
    assert record.getMessage().endswith("no effect on one host: transport, resolver_multicast_address")


def test_without_lxml_the_error_names_the_extra(
    load: Callable[..., Configuration], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lxml", None)
    refused(load, application("<contexts/>"), "an XML configuration needs lxml; pip install 'holdfast[cli]'")
