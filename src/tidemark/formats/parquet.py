"""Parquet files of rows and of Avro records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemark.errors import ConfigError, SerializationError
from tidemark.formats.arrow_types import arrow_schema, rows_of_batch, table_of_rows
from tidemark.formats.avro import checked_schema
from tidemark.formats.avro_rows import record_of_row, row_of_record, row_type_of_schema
from tidemark.formats.files import (
    READ_BATCH,
    BinaryOutput,
    BulkWriter,
    BulkWriterFactory,
    ColumnFormat,
    FileFormat,
    StreamFormat,
)
from tidemark.formats.json import row_type as checked_row_type
from tidemark.types.avro import AvroSchema, GenericRecordAvroTypeInfo
from tidemark.types.typeinfo import RowTypeInfo, TypeInformation

__all__ = ["AvroParquetReaders", "AvroParquetWriters", "ParquetBulkWriters", "ParquetColumnarRowInputFormat"]

_ROW_GROUP = 1 << 16
"""Rows that a writer holds back: a group of rows is what readers can take by itself."""
_COLUMN_ROWS = 1 << 16
_COLUMN_BYTES = 8 << 20
"""What is read together as columns: so many rows, or as many as take about so many bytes."""


class _RowUnits(FileFormat):
    """Parquet counts rows, and its footer says how many there are."""

    __slots__ = ()

    units_per_epoch: ClassVar[int] = 1_000_000

    def length(self, size: int, open_file: Callable[[], Any]) -> int:
        """Rows in the file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with open_file() as stream:
                return int(pq.read_metadata(stream).num_rows)
        except (pa.ArrowException, OSError) as exc:
            raise SerializationError(f"A file is no Parquet file: {exc}.") from exc


def _batches(
    stream: Any, offset: int, limit: int, size: int | None, columns: list[str]
) -> Iterator[tuple[Any, int]]:
    """Batches of a file's rows from `offset` on, each with the number of the row behind it.

    Groups in front of it are not read. Without a `size` it goes by the bytes of the rows.
    """
    import pyarrow.parquet as pq

    file = pq.ParquetFile(stream)
    first = 0
    for group in range(file.num_row_groups):
        metadata = file.metadata.row_group(group)
        last = first + metadata.num_rows
        at = first
        if last > offset:
            rows = size or _rows_together(metadata)
            for batch in file.iter_batches(rows, row_groups=[group], columns=columns):
                skipped = min(len(batch), max(0, offset - at))
                at += len(batch)
                if skipped < len(batch):
                    yield batch.slice(skipped), at
                    if at - offset >= limit:
                        return
        first = last


def _rows_together(group: Any) -> int:
    row_bytes: int = max(1, group.total_byte_size // max(1, group.num_rows))
    return max(1, min(_COLUMN_ROWS, _COLUMN_BYTES // row_bytes))


class ParquetColumnarRowInputFormat(_RowUnits, ColumnFormat):
    """Parquet files as rows; columns are found by name, others are not read."""

    def __init__(
        self,
        row_type: RowTypeInfo,
        hadoop_config: Any = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        """Read these columns.

        Args:
            row_type: Names and types of the columns.
            hadoop_config: There is no Hadoop here; anything but None is refused.
            batch_size: Rows that are read together.
            is_utc_timestamp: Time stamps are as they are in the file, in either case.
            is_case_sensitive: Whether `A` is another column than `a`.

        Raises:
            ConfigError: A type that Parquet does not hold, a batch size below 1, or a Hadoop configuration.
        """
        self._row_type = checked_row_type(row_type, "row_type")
        arrow_schema(self._row_type)
        _refuse_hadoop(hadoop_config)
        if batch_size < 1:
            raise ConfigError(f"batch_size must be positive, got {batch_size}.")
        self._batch_size = batch_size
        self._is_case_sensitive = is_case_sensitive

    def read(self, stream: Any, offset: int, limit: int) -> Iterator[tuple[list[Any], int]]:
        """Rows, with the number of the row behind them."""
        schema = self.schema()
        for batch, at in self._read(stream, offset, limit, self._batch_size):
            with self._named():
                rows = rows_of_batch(batch, self._row_type, schema)
            yield rows, at

    def schema(self) -> Any:
        """The Arrow schema of the row type."""
        return arrow_schema(self._row_type)

    def read_columns(self, stream: Any, offset: int, limit: int) -> Iterator[tuple[Any, int]]:
        """The rows as record batches, larger than `batch_size` where rows are small."""
        schema = self.schema()
        for batch, at in self._read(stream, offset, limit, None):
            with self._named():
                columns = batch.cast(schema)
            yield columns, at

    def _read(self, stream: Any, offset: int, limit: int, size: int | None) -> Iterator[tuple[Any, int]]:
        import pyarrow.parquet as pq

        names = self.schema().names
        with self._named():
            columns = self._columns(pq.read_schema(stream).names, names)
            for batch, at in _batches(stream, offset, limit, size, columns):
                yield batch.select(columns).rename_columns(names), at

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Lets what is wrong with a file say what was expected."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, KeyError) as exc:
            raise SerializationError(f"A Parquet file does not hold {self._row_type!r}: {exc}.") from exc

    def _columns(self, there: list[str], wanted: list[str]) -> list[str]:
        known = {name if self._is_case_sensitive else name.lower(): name for name in there}
        return [known[name if self._is_case_sensitive else name.lower()] for name in wanted]

    def produced_type(self) -> TypeInformation:
        """The row type."""
        return self._row_type


@dataclass(frozen=True)
class _AvroParquetFormat(_RowUnits, StreamFormat):
    """Parquet files as Avro records."""

    schema: AvroSchema

    def read(self, stream: Any, offset: int, limit: int) -> Iterator[tuple[list[Any], int]]:
        rows = ParquetColumnarRowInputFormat(row_type_of_schema(self.schema), batch_size=READ_BATCH)
        to_record = record_of_row(self.schema)
        for batch, at in rows.read(stream, offset, limit):
            yield list(map(to_record, batch)), at

    def produced_type(self) -> TypeInformation:
        return GenericRecordAvroTypeInfo(self.schema)


class AvroParquetReaders:
    """Formats that read Parquet files as Avro records."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> StreamFormat:
        """Dictionaries of this schema.

        Raises:
            TypeError: Not an `AvroSchema`.
            ConfigError: Not a record, or a field of a type that Parquet does not hold.
        """
        arrow_schema(row_type_of_schema(checked_schema(schema)))
        return _AvroParquetFormat(schema)


class AvroParquetWriters:
    """Bulk writers of Parquet files from Avro records."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Write dictionaries that follow a schema.

        Raises:
            TypeError: Not an `AvroSchema`.
            ConfigError: Not a record, or a field of a type that Parquet does not hold.
        """
        row_type = row_type_of_schema(checked_schema(schema))
        arrow_schema(row_type)
        return _ParquetWriterFactory(row_type, schema)


class ParquetBulkWriters:
    """Bulk writers of Parquet files from rows."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo, hadoop_config: Any = None, utc_timestamp: bool = False
    ) -> BulkWriterFactory:
        """Write rows of this type.

        Args:
            row_type: Names and types of the columns.
            hadoop_config: There is no Hadoop here; anything but None is refused.
            utc_timestamp: Time stamps have no time zone and are written as they are, in either case.

        Raises:
            ConfigError: A type that Parquet does not hold, or a Hadoop configuration.
        """
        _refuse_hadoop(hadoop_config)
        arrow_schema(checked_row_type(row_type, "row_type"))
        return _ParquetWriterFactory(row_type)


@dataclass(frozen=True, slots=True)
class _ParquetWriterFactory(BulkWriterFactory):
    row_type: RowTypeInfo
    avro: AvroSchema | None = None

    def create(self, out: BinaryOutput) -> BulkWriter:
        return _ParquetWriter(self.row_type, self.avro, out)

    def reader(self) -> FileFormat:
        if self.avro is not None:
            return _AvroParquetFormat(self.avro)
        return ParquetColumnarRowInputFormat(self.row_type, batch_size=READ_BATCH)


class _ParquetWriter(BulkWriter):
    def __init__(self, row_type: RowTypeInfo, avro: AvroSchema | None, out: BinaryOutput) -> None:
        import pyarrow.parquet as pq

        self._row_type = row_type
        self._to_row = None if avro is None else row_of_record(avro)
        self._schema = arrow_schema(row_type)
        self._writer = pq.ParquetWriter(out, self._schema)
        self._held: list[Any] = []

    def add_elements(self, elements: Sequence[Any]) -> None:
        self._held += (
            elements
            if self._to_row is None
            else [self._to_row(element) if isinstance(element, dict) else element for element in elements]
        )
        if len(self._held) >= _ROW_GROUP:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        try:
            self._writer.write_table(table_of_rows(self._held, self._row_type, self._schema))
        except (pa.ArrowException, ValueError, TypeError, LookupError) as exc:
            raise SerializationError(f"A record does not fit {self._row_type!r}: {exc}.") from exc
        self._held = []

    def finish(self) -> None:
        if self._held:
            self._write()
        self._writer.close()


def _refuse_hadoop(hadoop_config: Any) -> None:
    if hadoop_config is not None:
        raise ConfigError("There is no Hadoop here to configure; leave hadoop_config out.")
