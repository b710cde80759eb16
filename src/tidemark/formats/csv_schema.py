"""What CSV text looks like: columns and their types, separators, quotes, headings."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidemark.errors import ConfigError
from tidemark.types.typeinfo import RowTypeInfo, TypeInformation, Types, to_type_info

__all__ = ["CsvDialect", "CsvSchema", "CsvSchemaBuilder"]


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """Everything about CSV text but its columns.

    Raises:
        ConfigError: A separator, quote or escape is not one character.
    """

    column_separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    line_separator: str = "\n"
    null_literal: str | None = None
    array_separator: str = ";"
    column_array_separators: tuple[tuple[str, str], ...] = ()
    """Columns whose arrays have a separator of their own."""
    allow_comments: bool = False
    use_header: bool = False
    strict_headers: bool = False
    skip_first_data_row: bool = False

    def __post_init__(self) -> None:
        for name in ("column_separator", "quote", "escape"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or len(value) != 1):
                raise ConfigError(f"The {name.replace('_', ' ')} of CSV is one character, not {value!r}.")

    def arguments(self) -> dict[str, Any]:
        """The same in the words of Python's `csv`."""
        return {
            "delimiter": self.column_separator,
            "quotechar": self.quote,
            "quoting": csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
            "escapechar": self.escape,
        }

    def array_separators(self, columns: Sequence[str]) -> list[str]:
        """Separator of array elements for each column."""
        own = dict(self.column_array_separators)
        return [own.get(column, self.array_separator) for column in columns]

    def is_comment(self, line: str) -> bool:
        """Whether a line is to be left out."""
        return self.allow_comments and line.lstrip().startswith("#")


@dataclass(frozen=True, slots=True)
class CsvSchema:
    """The columns of CSV text and how they are written."""

    row_type: RowTypeInfo
    dialect: CsvDialect = field(default_factory=CsvDialect)

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Start a schema."""
        return CsvSchemaBuilder()

    def skip_heading(self, rows: Iterator[list[str]]) -> None:
        """Take from the start of a file what is no data.

        Raises:
            ValueError: Headings are strict, and this one has other columns.
        """
        if self.dialect.use_header:
            heading = next(rows, None)
            names = self.row_type.get_field_names()
            if self.dialect.strict_headers and heading is not None and heading != names:
                raise ValueError(f"the heading is {heading}, not {names}")
        if self.dialect.skip_first_data_row:
            next(rows, None)

    def size(self) -> int:
        """Number of columns."""
        return len(self.row_type.get_field_names())

    def __len__(self) -> int:
        return self.size()

    def __str__(self) -> str:
        pairs = zip(self.row_type.get_field_names(), self.row_type.get_field_types(), strict=True)
        return f"CsvSchema({', '.join([f'{name}: {kind!r}' for name, kind in pairs])})"

    def __repr__(self) -> str:
        return str(self)


class CsvSchemaBuilder:
    """Collects columns and settings; every method returns the builder."""

    def __init__(self) -> None:
        self._columns: list[tuple[str, TypeInformation]] = []
        self._separators: dict[str, str] = {}
        self._dialect = CsvDialect()

    def build(self) -> CsvSchema:
        """The finished schema.

        Raises:
            ConfigError: A column twice.
        """
        names = [name for name, _ in self._columns]
        dialect = replace(self._dialect, column_array_separators=tuple(self._separators.items()))
        return CsvSchema(Types.ROW_NAMED(names, [kind for _, kind in self._columns]), dialect)

    def _add(self, name: str, kind: Any) -> CsvSchemaBuilder:
        self._columns.append((name, to_type_info(kind)))
        return self

    def add_array_column(self, name: str, separator: str = ";", element_type: Any = None) -> CsvSchemaBuilder:
        """Add a column of lists, of strings by default."""
        self._separators[name] = separator
        return self._add(name, Types.LIST(element_type or Types.STRING()))

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of `true` and `false`."""
        return self._add(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: Any = None) -> CsvSchemaBuilder:
        """Add a column of numbers, 64-bit integers by default."""
        return self._add(name, number_type or Types.LONG())

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of text."""
        return self._add(name, Types.STRING())

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add all columns of another schema."""
        row_type = schema.row_type
        self._columns += zip(row_type.get_field_names(), row_type.get_field_types(), strict=True)
        self._separators.update(schema.dialect.column_array_separators)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Forget all columns."""
        self._columns, self._separators = [], {}
        return self

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Leave out lines that begin with `#`."""
        return self._set(allow_comments=allow)

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """Let arrays have one element."""
        return self._set(array_separator="")

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Let the arrays of the column at `index` have one element."""
        self._separators[self._columns[index][0]] = ""
        return self

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Put this text between elements of the arrays of columns that have no separator of their own."""
        return self._set(array_separator=separator)

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Put this character between columns; a comma by default."""
        return self._set(column_separator=char)

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """Let no character escape others; the default."""
        return self._set(escape=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """Take the character behind this one as it is."""
        return self._set(escape=char)

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        r"""End written lines with this text; when reading, `\n` and `\r\n` end lines."""
        return self._set(line_separator=separator)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Let this text stand for None; by default an empty cell does, except for text."""
        return self._set(null_literal=null_value)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Quote nothing."""
        return self._set(quote=None)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """Quote cells with this character; `"` by default."""
        return self._set(quote=char)

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Leave out the first row of every file."""
        return self._set(skip_first_data_row=skip)

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Refuse files whose heading has other columns; takes `set_use_header()`."""
        return self._set(strict_headers=strict)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Files have a heading: it is left out when reading, written when writing."""
        return self._set(use_header=use)

    def _set(self, **settings: Any) -> CsvSchemaBuilder:
        self._dialect = replace(self._dialect, **settings)
        return self

    def size(self) -> int:
        """Number of columns so far."""
        return len(self._columns)

    def __len__(self) -> int:
        return len(self._columns)
