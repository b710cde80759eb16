"""`StreamingFileSink`: the file sink of the 1.x line, given to `add_sink`; a `FileSink` under its old name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self

from tidemark.api.connectors.file_system import FileSink, RollingPolicy
from tidemark.api.deprecation import deprecated
from tidemark.formats.files import BulkWriterFactory
from tidemark.formats.schemas import Encoder

__all__ = ["StreamingFileSink"]


class StreamingFileSink(FileSink):
    """A `FileSink` for `add_sink`. Deprecated: give a `FileSink` to `sink_to`."""

    __slots__ = ()

    @staticmethod
    def for_row_format(base_path: Any, encoder: Encoder) -> StreamingFileSink.DefaultRowFormatBuilder:
        """Start a sink that appends encoded elements.

        Raises:
            TypeError: `encoder` is no `Encoder`.
            ConfigError: No path.
        """
        deprecated("StreamingFileSink", "use FileSink with sink_to()")
        built = FileSink.for_row_format(base_path, encoder).build()
        return StreamingFileSink.DefaultRowFormatBuilder(_renamed(built))

    @staticmethod
    def for_bulk_format(
        base_path: Any, writer_factory: BulkWriterFactory
    ) -> StreamingFileSink.DefaultBulkFormatBuilder:
        """Start a sink that writes whole files.

        Raises:
            TypeError: `writer_factory` is no `BulkWriterFactory`.
            ConfigError: No path.
        """
        deprecated("StreamingFileSink", "use FileSink with sink_to()")
        built = FileSink.for_bulk_format(base_path, writer_factory).build()
        return StreamingFileSink.DefaultBulkFormatBuilder(_renamed(built))

    class BaseBuilder(FileSink.BaseBuilder):
        """Collects the settings; every method returns the builder."""

        def with_rolling_policy(self, policy: RollingPolicy) -> Self:
            """Finish files by this policy."""
            return super().with_rolling_policy(policy)

    class DefaultRowFormatBuilder(BaseBuilder, FileSink.RowFormatBuilder):
        """Collects the settings of a sink that appends encoded elements."""

    class DefaultBulkFormatBuilder(BaseBuilder, FileSink.BulkFormatBuilder):
        """Collects the settings of a sink that writes whole files."""


def _renamed(sink: FileSink) -> StreamingFileSink:
    return StreamingFileSink(*[getattr(sink, field.name) for field in fields(sink)])
