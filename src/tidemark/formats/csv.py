"""CSV: its schema, single rows as messages, and whole files."""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemark.errors import ConfigError, SerializationError
from tidemark.formats.csv_schema import CsvDialect, CsvSchema
from tidemark.formats.files import READ_BATCH, BinaryOutput, BulkWriter, BulkWriterFactory, StreamFormat
from tidemark.formats.json import row_type
from tidemark.formats.schemas import DeserializationSchema, SerializationSchema
from tidemark.formats.values import (
    base64_bytes,
    base64_text,
    format_value,
    is_byte_array,
    parse_value,
    unsupported,
)
from tidemark.types.row import Row, row_of
from tidemark.types.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TypeInformation,
)

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
]

_ARRAYS = (ListTypeInfo, PrimitiveArrayTypeInfo, BasicArrayTypeInfo, ObjectArrayTypeInfo)


class _Cells:
    """Rows of a type, and the cells they are in."""

    def __init__(self, type_info: RowTypeInfo, dialect: CsvDialect) -> None:
        self._names = tuple(type_info.get_field_names())
        self._null = dialect.null_literal
        separators = dialect.array_separators(self._names)
        pairs = list(zip(type_info.get_field_types(), separators, strict=True))
        self._parse = [_parser(kind, separator, self._null) for kind, separator in pairs]
        self._format = [_formatter(kind, separator, self._null) for kind, separator in pairs]

    def row(self, cells: Sequence[str]) -> Row:
        if len(cells) != len(self._names):
            raise ValueError(f"{len(self._names)} fields expected, {len(cells)} found")
        return row_of([parse(cell) for parse, cell in zip(self._parse, cells, strict=True)], self._names)

    def cells(self, row: Any) -> list[str]:
        values = [row[name] for name in self._names] if isinstance(row, dict) else row
        return [write(value) for write, value in zip(self._format, values, strict=True)]


def _parser(kind: TypeInformation, separator: str, null: str | None) -> Callable[[str], Any]:
    if isinstance(kind, BasicTypeInfo):
        parse = parse_value(kind.basic_type)
        if kind.basic_type is BasicType.STRING:
            return (lambda cell: None if cell == null else cell) if null is not None else parse
        # An empty cell is no number and no date, whatever stands for null.
        return lambda cell: None if cell == null or not cell.strip() else parse(cell)
    if is_byte_array(kind):
        return lambda cell: None if cell == null else base64_bytes(cell)
    if isinstance(kind, _ARRAYS):
        element = _parser(kind.element_type, "", null)
        return lambda cell: None if cell == null else [element(item) for item in _split(cell, separator)]
    raise unsupported("A CSV column", kind)


def _formatter(kind: TypeInformation, separator: str, null: str | None) -> Callable[[Any], str]:
    empty = null or ""
    if isinstance(kind, BasicTypeInfo):
        text = format_value(kind.basic_type)
    elif is_byte_array(kind):
        text = base64_text
    elif isinstance(kind, _ARRAYS):
        element = _formatter(kind.element_type, "", null)
        text = lambda value: separator.join([element(item) for item in value])  # noqa: E731
    else:
        raise unsupported("A CSV column", kind)
    return lambda value: empty if value is None else text(value)


def _split(cell: str, separator: str) -> list[str]:
    return (cell.split(separator) if separator else [cell]) if cell else []


def _writer(dialect: CsvDialect, out: Any) -> Any:
    return csv.writer(out, lineterminator=dialect.line_separator, **dialect.arguments())


# Messages


class CsvRowDeserializationSchema(DeserializationSchema):
    """Messages that hold one CSV row each."""

    def __init__(self, type_info: RowTypeInfo, dialect: CsvDialect, *, ignore_parse_errors: bool) -> None:
        self._type = type_info
        self._dialect = dialect
        self._ignore_parse_errors = ignore_parse_errors

    def get_produced_type(self) -> TypeInformation:
        """The row type."""
        return self._type

    @functools.cached_property
    def _cells(self) -> _Cells:
        return _Cells(self._type, self._dialect)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_cells"}

    def deserialize(self, message: bytes) -> Any:
        """The row of a message; None for a comment, and for a bad row if errors are ignored."""
        try:
            text = message.decode("utf-8")
            if self._dialect.is_comment(text):
                return None
            rows = list(csv.reader([text], strict=True, **self._dialect.arguments()))
            if len(rows) != 1:
                raise ValueError(f"one row expected, {len(rows)} found")
            return self._cells.row(rows[0])
        except (csv.Error, ValueError, ArithmeticError) as exc:
            if self._ignore_parse_errors:
                return None
            raise _bad_row(self._type, exc, bytes(message[:100])) from exc

    class Builder:
        """Collects the settings; every method returns the builder."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._type = row_type(type_info, "type_info")
            self._dialect = CsvDialect()
            self._ignore_parse_errors = False

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Put this character between columns; a comma by default."""
            self._dialect = replace(self._dialect, column_separator=delimiter)
            return self

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Leave out messages that begin with `#`."""
            self._dialect = replace(self._dialect, allow_comments=allow_comments)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Put this text between the elements of arrays; `;` by default."""
            self._dialect = replace(self._dialect, array_separator=delimiter)
            return self

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Quote cells with this character; `"` by default."""
            self._dialect = replace(self._dialect, quote=c)
            return self

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Take the character behind this one as it is; none by default."""
            self._dialect = replace(self._dialect, escape=c)
            return self

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Read this text as None."""
            self._dialect = replace(self._dialect, null_literal=null_literal)
            return self

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            """Leave out messages that are no such rows instead of failing."""
            self._ignore_parse_errors = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """The finished schema."""
            _Cells(self._type, self._dialect)
            return CsvRowDeserializationSchema(
                self._type, self._dialect, ignore_parse_errors=self._ignore_parse_errors
            )


class CsvRowSerializationSchema(SerializationSchema):
    """Rows as messages of one CSV row each, terminated as a line is."""

    def __init__(self, type_info: RowTypeInfo, dialect: CsvDialect) -> None:
        self._type = type_info
        self._dialect = dialect

    @functools.cached_property
    def _cells(self) -> _Cells:
        return _Cells(self._type, self._dialect)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_cells"}

    def serialize(self, element: Any) -> bytes:
        """The CSV row of a row."""
        out = io.StringIO(newline="")
        try:
            _writer(self._dialect, out).writerow(self._cells.cells(element))
        except (csv.Error, TypeError, ValueError, AttributeError, LookupError) as exc:
            raise SerializationError(f"{element!r} does not fit {self._type!r}: {exc}.") from exc
        return out.getvalue().encode("utf-8")

    class Builder:
        """Collects the settings; every method returns the builder."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._type = row_type(type_info, "type_info")
            self._dialect = CsvDialect()

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Put this character between columns; a comma by default."""
            self._dialect = replace(self._dialect, column_separator=c)
            return self

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            r"""Put this text behind a row: `\n` (the default), `\r`, `\r\n` or nothing.

            Raises:
                ConfigError: Another text.
            """
            if delimiter not in ("\n", "\r", "\r\n", ""):
                raise ConfigError(f"A CSV row ends with \\n, \\r, \\r\\n or nothing, not {delimiter!r}.")
            self._dialect = replace(self._dialect, line_separator=delimiter)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Put this text between the elements of arrays; `;` by default."""
            self._dialect = replace(self._dialect, array_separator=delimiter)
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Quote nothing; cells that would need it are refused unless there is an escape character."""
            self._dialect = replace(self._dialect, quote=None)
            return self

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Quote cells with this character; `"` by default."""
            self._dialect = replace(self._dialect, quote=c)
            return self

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Put this character in front of special ones; none by default."""
            self._dialect = replace(self._dialect, escape=c)
            return self

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Write this text for None; nothing by default."""
            self._dialect = replace(self._dialect, null_literal=s)
            return self

        def build(self) -> CsvRowSerializationSchema:
            """The finished schema."""
            _Cells(self._type, self._dialect)
            return CsvRowSerializationSchema(self._type, self._dialect)


# Files


@dataclass(frozen=True, slots=True)
class CsvReaderFormat(StreamFormat):
    """CSV files as rows; the units are bytes."""

    schema: CsvSchema

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Read files of this schema.

        Raises:
            TypeError: Not a `CsvSchema`.
        """
        return CsvReaderFormat(_checked(schema))

    def read(self, stream: Any, offset: int, limit: int) -> Iterator[tuple[list[Any], int]]:
        """Rows; the heading, comments and empty lines are left out."""
        schema = self.schema
        cells = _Cells(schema.row_type, schema.dialect)
        stream.seek(offset)
        position = offset

        def lines() -> Iterator[str]:
            nonlocal position
            for line in stream:
                position += len(line)
                text = line.decode("utf-8")
                if not schema.dialect.is_comment(text):
                    yield text

        # The reader takes just the lines that a row needs, so the position behind each row is known.
        found = csv.reader(lines(), **schema.dialect.arguments())
        rows: list[Row] = []
        try:
            if offset == 0:
                schema.skip_heading(found)
            while position - offset < limit and (row := next(found, None)) is not None:
                if row:
                    rows.append(cells.row(row))
                if len(rows) >= READ_BATCH:
                    yield rows, position
                    rows = []
        except (csv.Error, ValueError, ArithmeticError) as exc:
            raise _bad_row(schema.row_type, exc, f"in front of byte {position}") from exc
        yield rows, position

    def produced_type(self) -> TypeInformation:
        """The row type of the schema."""
        return self.schema.row_type


class CsvBulkWriters:
    """Bulk writers of CSV files."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """Write files of this schema.

        Raises:
            TypeError: Not a `CsvSchema`.
        """
        return _CsvWriterFactory(_checked(schema))


@dataclass(frozen=True, slots=True)
class _CsvWriterFactory(BulkWriterFactory):
    schema: CsvSchema

    def create(self, out: BinaryOutput) -> BulkWriter:
        return _CsvWriter(self.schema, out)

    def reader(self) -> CsvReaderFormat:
        return CsvReaderFormat(self.schema)


class _CsvWriter(BulkWriter):
    def __init__(self, schema: CsvSchema, out: BinaryOutput) -> None:
        self._schema = schema
        self._cells = _Cells(schema.row_type, schema.dialect)
        self._out = out
        if schema.dialect.use_header:
            self._write([schema.row_type.get_field_names()])

    def add_elements(self, elements: Sequence[Any]) -> None:
        try:
            self._write(map(self._cells.cells, elements))
        except (csv.Error, TypeError, ValueError, AttributeError, LookupError) as exc:
            raise SerializationError(f"A record does not fit {self._schema.row_type!r}: {exc}.") from exc

    def _write(self, rows: Iterable[Sequence[str]]) -> None:
        text = io.StringIO(newline="")
        _writer(self._schema.dialect, text).writerows(rows)
        self._out.write(text.getvalue().encode("utf-8"))

    def finish(self) -> None:
        """Nothing is held back."""


def _checked(schema: Any) -> CsvSchema:
    if not isinstance(schema, CsvSchema):
        raise TypeError(f"Expected a CsvSchema, not {schema!r}.")
    _Cells(schema.row_type, schema.dialect)
    return schema


def _bad_row(type_info: RowTypeInfo, problem: Exception, where: Any) -> SerializationError:
    return SerializationError(f"A CSV row ({where!r}) does not fit {type_info!r}: {problem}.")
