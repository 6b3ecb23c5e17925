"""The guide's table of errors has each public one, with its code, and whether the call may be tried again."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import holdfast as hf
from holdfast.engine import errors

GUIDE = Path(__file__).parents[3] / "bindings/README.md"
ROW = re.compile(r"^\| `(\w+)` \| (`[A-Z_]+`|the errno) \| (yes|no) \| (.+) \|$", re.MULTILINE)


def test_the_table_is_the_module() -> None:
    rows = {name: (code.strip("`"), retry) for name, code, retry, _ in ROW.findall(GUIDE.read_text())}
    public = {
        name: one
        for name, one in vars(errors).items()
        if inspect.isclass(one) and issubclass(one, hf.Error) and one is not hf.Error
    }
    assert set(rows) == set(public)
    assert all(getattr(hf, name) is one for name, one in public.items() if hasattr(hf, name))
    for name, one in public.items():
        code = "the errno" if issubclass(one, hf.SystemCallError) else one.code
        assert rows[name] == (code, "yes" if one.retriable else "no"), name
