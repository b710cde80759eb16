"""Avro schemas and the type of the records that follow them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidemark.errors import ConfigError
from tidemark.types.typeinfo import TypeInformation

__all__ = ["AvroSchema", "GenericRecordAvroTypeInfo"]


class AvroSchema:
    """A checked Avro schema. Two schemas are equal if their JSON documents are."""

    def __init__(self, schema: Any) -> None:
        """Check a schema given as a JSON document or as its parsed form.

        Raises:
            ConfigError: The text is no JSON, or the document is no Avro schema.
        """
        import fastavro

        try:
            document = json.loads(schema) if isinstance(schema, str) and _is_json(schema) else schema
            self._parsed: Any = fastavro.parse_schema(document)
        except Exception as exc:
            reason = f"{type(exc).__name__}: {exc}"
            raise ConfigError(f"This is not an Avro schema ({reason}): {schema!r}") from exc
        self._document: Any = document
        self._text = json.dumps(document, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Return the schema in a JSON text.

        Raises:
            ConfigError: The text is no Avro schema.
        """
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str | Path) -> AvroSchema:
        """Return the schema in a JSON file.

        Raises:
            ConfigError: The file cannot be read or holds no Avro schema.
        """
        try:
            text = Path(file_path).read_text(encoding="utf-8")
        except OSError as exc:
            raise ConfigError(f"The Avro schema file {file_path} cannot be read: {exc}") from exc
        return AvroSchema(text)

    @property
    def parsed(self) -> Any:
        """The schema in the form fastavro reads and writes with."""
        return self._parsed

    @property
    def document(self) -> Any:
        """The schema as parsed JSON."""
        return self._document

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, AvroSchema) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroSchema, (self._document,)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"AvroSchema({self._text})"


def _is_json(text: str) -> bool:
    """Whether a schema text is a JSON document rather than the bare name of a primitive type."""
    return text.lstrip()[:1] in ("{", "[", '"')


class GenericRecordAvroTypeInfo(TypeInformation):
    """Dictionaries that follow an Avro schema; may be None, and may evolve by Avro's rules."""

    def __init__(self, schema: AvroSchema) -> None:
        if not isinstance(schema, AvroSchema):
            raise TypeError(f"GenericRecordAvroTypeInfo needs an AvroSchema, got {schema!r}.")
        self.schema = schema

    def _identity(self) -> tuple[Any, ...]:
        return (self.schema,)

    def __repr__(self) -> str:
        return f"GenericRecordAvroTypeInfo<{self.schema}>"
