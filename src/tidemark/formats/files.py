"""Formats of whole files: how a file source reads them, how a bulk file sink writes them.

A format gets an open binary stream and opens nothing itself. While a file is read, its format says how far it has
come in units of its own (bytes, rows); that number goes into checkpoints, and reading continues behind it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tidemark.formats.schemas import known_charset
from tidemark.types.typeinfo import TypeInformation, Types

__all__ = [
    "READ_BATCH",
    "BinaryOutput",
    "BulkFormat",
    "BulkWriter",
    "BulkWriterFactory",
    "ColumnFormat",
    "FileFormat",
    "StreamFormat",
    "TextLineFormat",
]

READ_BATCH = 8192
"""Records that a format hands on together."""


class FileFormat(ABC):
    """How the content of a file becomes elements; plain data that travels to tasks."""

    units_per_epoch: ClassVar[int] = 32 << 20
    """How much of its files a source reads in one epoch at most, in the format's units."""

    def length(self, size: int, open_file: Callable[[], Any]) -> int:
        """Units in a file of that many bytes; asked in the driver when the file is discovered."""
        return size

    @abstractmethod
    def read(self, stream: Any, offset: int, limit: int) -> Iterator[tuple[list[Any], int]]:
        """Elements from unit `offset` on, in batches, each with the unit reached behind it.

        Ends with the file, or with the first whole element at which `limit` units are passed.

        Raises:
            SerializationError: The file does not follow the format.
        """

    @abstractmethod
    def produced_type(self) -> TypeInformation:
        """Type of the elements."""


class StreamFormat(FileFormat):
    """A format that is read record by record (`FileSource.for_record_stream_format`)."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> TextLineFormat:
        """One element per line, without its terminator."""
        return TextLineFormat(known_charset(charset_name))


class BulkFormat(FileFormat):
    """A format that is read in large pieces (`FileSource.for_bulk_file_format`)."""


class ColumnFormat(BulkFormat):
    """A bulk format whose files hold columns."""

    @abstractmethod
    def schema(self) -> Any:
        """The Arrow schema of what `read_columns` gives."""

    @abstractmethod
    def read_columns(self, stream: Any, offset: int, limit: int) -> Iterator[tuple[Any, int]]:
        """What `read` gives as Arrow record batches, of other sizes."""


@dataclass(frozen=True, slots=True)
class TextLineFormat(StreamFormat):
    """Lines of text; the units are bytes."""

    charset: str = "UTF-8"

    def read(self, stream: Any, offset: int, limit: int) -> Iterator[tuple[list[Any], int]]:
        """Lines without their terminators; a last one without a terminator is a line, too."""
        stream.seek(offset)
        lines: list[str] = []
        position = offset
        while position - offset < limit:
            line = stream.readline()
            if not line:
                break
            position += len(line)
            lines.append(line.decode(self.charset).rstrip("\n").removesuffix("\r"))
            if len(lines) >= READ_BATCH:
                yield lines, position
                lines = []
        yield lines, position

    def produced_type(self) -> TypeInformation:
        """`Types.STRING()`."""
        return Types.STRING()


class BinaryOutput(Protocol):
    """Where a bulk writer puts bytes: they can be written and counted, not read or sought."""

    def write(self, data: Any, /) -> int:
        """Append bytes."""

    def tell(self) -> int:
        """Bytes written so far."""

    def flush(self) -> None:
        """Hand everything on."""


class BulkWriter(ABC):
    """Writes the elements of one file; its owner closes the file behind it."""

    @abstractmethod
    def add_elements(self, elements: Sequence[Any]) -> None:
        """Append elements; they may be held back.

        Raises:
            SerializationError: One of them does not fit the format.
        """

    @abstractmethod
    def finish(self) -> None:
        """Write what is held back and whatever the format has at its end. Called once, at last."""


class BulkWriterFactory(ABC):
    """Makes writers for `FileSink.for_bulk_format`; plain data that travels to tasks."""

    @abstractmethod
    def create(self, out: BinaryOutput) -> BulkWriter:
        """Begin a file."""

    @abstractmethod
    def reader(self) -> FileFormat:
        """The format that reads such files back, for compaction."""
