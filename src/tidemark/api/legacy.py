"""What programs of Flink's 1.x line still call on the environment: accepted, with a deprecation warning."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from tidemark.api.connectors.file_source import FileSource
from tidemark.api.deprecation import deprecated
from tidemark.api.watermarks import WatermarkStrategy
from tidemark.errors import UnsupportedOperationException
from tidemark.formats.files import StreamFormat
from tidemark.types.typeinfo import Types

if TYPE_CHECKING:
    from tidemark.api.stream import DataStream

__all__ = ["LegacyEnvironment", "TimeCharacteristic"]


class TimeCharacteristic(Enum):
    """Which time a job of the 1.x line went by. Deprecated: windows and timers say so themselves."""

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2


class LegacyEnvironment:
    """Mixed into the environment."""

    _time_characteristic = TimeCharacteristic.EventTime

    if TYPE_CHECKING:

        def from_source(
            self, source: Any, watermark_strategy: WatermarkStrategy, source_name: str, type_info: Any = None
        ) -> DataStream:
            """The stream of a built-in `Source`."""

    def set_stream_time_characteristic(self, characteristic: TimeCharacteristic) -> Self:
        """Choose between event and processing time. Deprecated: window assigners and timers name their time.

        Both are always there: event time follows the watermark strategy of a stream.

        Raises:
            TypeError: Not a `TimeCharacteristic`.
            UnsupportedOperationException: Ingestion time.
        """
        deprecated("set_stream_time_characteristic()", "assigners and timers name the time they go by")
        if not isinstance(characteristic, TimeCharacteristic):
            raise TypeError(f"Expected a TimeCharacteristic, not {characteristic!r}.")
        if characteristic is TimeCharacteristic.IngestionTime:
            raise UnsupportedOperationException(
                "There is no ingestion time. Assign the time of arrival as timestamp: "
                "assign_timestamps_and_watermarks() behind the source."
            )
        self._time_characteristic = characteristic
        return self

    def get_stream_time_characteristic(self) -> TimeCharacteristic:
        """What was set; event time by default."""
        return self._time_characteristic

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream:
        """The lines of a file, or of the files in a directory. Deprecated: use `FileSource`.

        Raises:
            ConfigError: Unknown character set.
        """
        deprecated("read_text_file()", "use from_source() with a FileSource of text lines")
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(charset_name), file_path)
        return self.from_source(
            source.build(), WatermarkStrategy.no_watermarks(), "Text File Source", Types.STRING()
        )
