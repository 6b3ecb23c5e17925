"""The columns of the data source: what there is, what is asked for, and that it is the same.

Spark prunes no columns of a Python source: every column of the schema is built and sent for every query
(docs/design.md S.2). So the schema *is* the selection: ``columns=``, or the user's own schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as t

from .options import OptionError

if TYPE_CHECKING:
    from .options import Options
    from .record_ddl import Field

__all__ = ["ASKED", "METADATA", "checked", "columns_of"]

METADATA: dict[str, t.DataType] = {
    "topic": t.StringType(),
    "source_reg_id": t.LongType(),
    "sequence_number": t.LongType(),
    "timestamp": t.TimestampType(),
    "timestamp_ns": t.LongType(),
    "flags": t.IntegerType(),
}
"""Beside the payload. Numbers of 64 bits without sign are given as their bit pattern."""
ASKED: dict[str, t.DataType] = {"store": t.StringType(), "crc": t.LongType()}
"""There with includeStore and includeCrc, or where they are named."""
VALUE: dict[str, t.DataType] = {"value": t.BinaryType()}

KINDS: dict[str, t.DataType] = {
    "boolean": t.BooleanType(),
    "tinyint": t.ByteType(),
    "smallint": t.ShortType(),
    "int": t.IntegerType(),
    "bigint": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "date": t.DateType(),
    "timestamp": t.TimestampType(),
    "char": t.StringType(),
    "binary": t.BinaryType(),
}
"""Spark's type of each kind of field of a record (record_ddl.py)."""


def columns_of(options: Options) -> t.StructType:
    """The columns that a query gets which brings no schema of its own.

    Raises:
        OptionError: ``columns`` names one that is not there, or Arrow payloads, whose columns nobody can
            know.
    """
    if options.value_format.kind == "arrow":
        raise OptionError(
            "with valueFormat=arrow the columns are the payloads' own, and Spark must know them before it reads",
            hint='give them: .schema("price DOUBLE, sequence_number BIGINT")',
        )
    asked = {name for name, wanted in (("store", options.include_store), ("crc", options.include_crc)) if wanted}
    known = _known(options)
    chosen = options.columns or tuple(name for name in known if name not in ASKED or name in asked)
    for name in chosen:
        if name not in known:
            raise OptionError(f"option columns names {name!r}; the columns are {_listed(known)}")
    return t.StructType([t.StructField(name, known[name]) for name in chosen])


def checked(schema: t.StructType, options: Options) -> t.StructType:
    """``schema`` itself, which Spark hands over: the one of :func:`columns_of`, or the user's.

    Raises:
        OptionError: a column that is not there, is there twice, or has another type.
    """
    known = _known(options)
    names = schema.fieldNames()
    if options.columns and names != list(options.columns):
        raise OptionError(
            f"option columns says {', '.join(options.columns)}, the schema {', '.join(names)}", hint="give one"
        )
    if not names:
        raise OptionError(f"a schema without columns; the columns are {_listed(known)}")
    if len(set(names)) < len(names):
        raise OptionError(f"a schema with a column twice: {', '.join(names)}")
    for field in schema.fields:
        kind = known.get(field.name)
        if kind is None and options.value_format.kind == "arrow":
            continue  # the payloads' own
        if kind is None:
            raise OptionError(f"the schema has a column {field.name!r}; the columns are {_listed(known)}")
        if field.dataType != kind:
            given = field.dataType.simpleString()
            raise OptionError(f"column {field.name!r} is {given} in the schema; the columns are {_listed(known)}")
    return schema


def _known(options: Options) -> dict[str, t.DataType]:
    """Every column that these options allow, in their order."""
    payload = VALUE if options.value_format.kind == "binary" else _fields(options.value_format.fields)
    return {**payload, **METADATA, **ASKED}


def _fields(fields: tuple[Field, ...]) -> dict[str, t.DataType]:
    for field in fields:
        if field.name.lower() in {
            *METADATA,
            *ASKED,
        }:  # Spark tells names apart by more than case only where it is asked to
            raise OptionError(
                f"a field of the record is called {field.name!r}, as a column of every message is", hint="rename it"
            )
    return {field.name: KINDS[field.kind] for field in fields}


def _listed(known: dict[str, t.DataType]) -> str:
    return ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
