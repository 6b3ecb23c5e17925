"""A half-published batch belongs to a place: which changes leave it the same one."""

from __future__ import annotations

import pytest

from holdfast.spark.written_place import WrittenPlace

BEFORE = WrittenPlace("host", "boot-1", "/run/hf/default", "65:12", {"a": "0a", "b": "0b"})


def after(
    boot: str = "boot-1", domain: str = "/run/hf/default", identity: str = "65:12", **stores: str
) -> WrittenPlace:
    return WrittenPlace("host", boot, domain, identity, stores)


@pytest.mark.parametrize(
    ("now", "same"),
    [
        pytest.param(after(a="0a", b="0b"), True, id="nothing has changed"),
        pytest.param(after("boot-2", identity="9:9", a="0a", b="0b"), True, id="a reboot has made the domain anew"),
        pytest.param(after(domain="/srv/hf", identity="9:9", b="0b", c="0c"), True, id="moved, with one of the stores"),
        pytest.param(after(a="1a", b="1b"), True, id="the stores were wiped"),
        pytest.param(after(), True, id="no store is known now"),
        pytest.param(after(c="0c"), False, id="other stores of the domain"),
        pytest.param(after(identity="9:9", a="1a", b="1b"), False, id="another domain under the same path"),
        pytest.param(after("boot-2", a="1a", b="1b"), False, id="another host that looks the same"),
        pytest.param(after("boot-2"), False, id="another boot, and no store is known"),
    ],
)
def test_where_a_batch_may_go_on(now: WrittenPlace, same: bool) -> None:
    assert BEFORE.is_same(now) is same
