"""Schemas that data sources give as text, as Spark's types; without a JVM as far as their columns are simple."""

from __future__ import annotations

import re
from typing import Any

from tidemark.errors import ConfigError

__all__ = ["struct_of"]

_COLUMN = re.compile(
    r"\s*`?(?P<name>[^`\s:,]+)`?\s*[\s:]\s*(?P<type>[a-z_]+(\s*\(\s*\d+\s*(,\s*\d+\s*)?\))?)"
    r"(?P<required>\s+not\s+null)?\s*(?:,|$)",
    re.IGNORECASE,
)
_NAMES = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte", "real": "float"}
_SIMPLE = {
    *("string", "boolean", "byte", "short", "integer", "long", "float", "double", "binary"),
    *("date", "timestamp", "timestamp_ntz", "decimal"),
}


def struct_of(schema: Any) -> Any:
    """The `StructType` of what a `DataSource.schema` gave.

    Raises:
        ConfigError: It is text with nested or special types, and no session is there to read it.
    """
    if not isinstance(schema, str):
        return schema
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    struct, at = StructType(), 0
    while at < len(schema):
        column = _COLUMN.match(schema, at)
        name = "" if column is None else _json_name(column["type"])
        if column is None or name.partition("(")[0] not in _SIMPLE:
            if SparkSession.getActiveSession() is not None:
                return StructType.fromDDL(schema)
            raise ConfigError(
                f"Only Spark can read the schema '{schema}' of the data source, from '{schema[at:].strip()}' on, and "
                "there is no session yet. Let schema() return a StructType, or create the session first."
            )
        struct.add(column["name"], name, nullable=column["required"] is None)
        at = column.end()
    return struct


def _json_name(ddl: str) -> str:
    """A type in Spark's JSON form."""
    name, bracket, rest = re.sub(r"\s", "", ddl.lower()).partition("(")
    name = _NAMES.get(name, name)
    return "decimal(10,0)" if name == "decimal" and not bracket else name + bracket + rest
