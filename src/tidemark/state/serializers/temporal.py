"""Serializers of dates, times and instants.

Encodings, version 1 (big-endian, None is empty)::

    SQL_DATE       i32, days since 1970-01-01
    SQL_TIME       i64, microseconds since midnight
    SQL_TIMESTAMP  i64, microseconds since 1970-01-01T00:00 without a time zone
    INSTANT        i64 seconds since the epoch | i32 nanoseconds within the second

Times with a time zone are refused: neither the columns nor Flink's types keep one, and dropping it
silently would change the value. An Arrow column of instants is a struct of seconds and nanoseconds,
because Arrow's nanosecond timestamps end in the year 2262.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidemark.errors import SerializationError
from tidemark.state.serializers.leaf import LeafSerializer, misfit
from tidemark.types.time import Instant

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["InstantSerializer", "SqlDateSerializer", "SqlTimeSerializer", "SqlTimestampSerializer"]

_DAYS = struct.Struct(">i")
_MICROS = struct.Struct(">q")
_INSTANT = struct.Struct(">qi")
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1)
_MICRO = datetime.timedelta(microseconds=1)


class SqlDateSerializer(LeafSerializer["datetime.date | None"]):
    """SQL_DATE."""

    type_name = "SQL_DATE"
    exact = frozenset({datetime.date})
    nullable = True

    def coerce(self, value: Any) -> datetime.date:
        """Accept a datetime and keep its date."""
        if isinstance(value, datetime.date):
            return datetime.date(value.year, value.month, value.day)
        raise misfit("SQL_DATE", value, "a datetime.date or None")

    def to_bytes(self, value: datetime.date | None) -> bytes:
        """Return the number of days."""
        if value is None:
            return b""
        return _DAYS.pack(self.coerce(value).toordinal() - _EPOCH_DAY)

    def from_bytes(self, data: bytes) -> datetime.date | None:
        """Return the date."""
        if not data:
            return None
        (days,) = _unpack(_DAYS, data, self.type_name)
        try:
            return datetime.date.fromordinal(days + _EPOCH_DAY)
        except (ValueError, OverflowError) as exc:
            raise _undecodable(data, self.type_name) from exc

    def arrow_type(self) -> pa.DataType:
        """Return the date type."""
        import pyarrow as pa

        return pa.date32()


class _ZonelessSerializer(LeafSerializer[Any]):
    """A type whose Python values may carry a time zone that must not be there."""

    nullable = True

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a check for the type and against time zones."""
        exact, coerce = self.exact, self.coerce

        def normalize(value: Any) -> Any:
            if value is None or (type(value) in exact and value.tzinfo is None):
                return value
            return coerce(value)

        return normalize

    def _build(self, values: Sequence[Any]) -> pa.Array:
        # Arrow would convert zoned values to UTC without a word.
        if any([value is not None and value.tzinfo is not None for value in values]):
            values = self._normalized(values, True)
        return super()._build(values)


class SqlTimeSerializer(_ZonelessSerializer):
    """SQL_TIME."""

    type_name = "SQL_TIME"
    exact = frozenset({datetime.time})

    def coerce(self, value: Any) -> datetime.time:
        """Accept subclasses of `time` without a zone."""
        if isinstance(value, datetime.time) and value.tzinfo is None:
            return datetime.time(value.hour, value.minute, value.second, value.microsecond)
        raise misfit("SQL_TIME", value, "a datetime.time without a time zone, or None")

    def to_bytes(self, value: datetime.time | None) -> bytes:
        """Return the number of microseconds."""
        if value is None:
            return b""
        time = self.coerce(value)
        seconds = (time.hour * 60 + time.minute) * 60 + time.second
        return _MICROS.pack(seconds * 1_000_000 + time.microsecond)

    def from_bytes(self, data: bytes) -> datetime.time | None:
        """Return the time of day."""
        if not data:
            return None
        seconds, micros = divmod(_unpack(_MICROS, data, self.type_name)[0], 1_000_000)
        try:
            return datetime.time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)
        except (ValueError, OverflowError) as exc:
            raise _undecodable(data, self.type_name) from exc

    def arrow_type(self) -> pa.DataType:
        """Return the microsecond time type."""
        import pyarrow as pa

        return pa.time64("us")


class SqlTimestampSerializer(_ZonelessSerializer):
    """SQL_TIMESTAMP."""

    type_name = "SQL_TIMESTAMP"
    exact = frozenset({datetime.datetime})

    def coerce(self, value: Any) -> datetime.datetime:
        """Accept subclasses of `datetime` without a zone."""
        if isinstance(value, datetime.datetime) and value.tzinfo is None:
            return _EPOCH + (value - _EPOCH)
        raise misfit(
            "SQL_TIMESTAMP", value, "a datetime without a time zone, or None (use INSTANT for a moment)"
        )

    def to_bytes(self, value: datetime.datetime | None) -> bytes:
        """Return the number of microseconds."""
        return b"" if value is None else _MICROS.pack((self.coerce(value) - _EPOCH) // _MICRO)

    def from_bytes(self, data: bytes) -> datetime.datetime | None:
        """Return the timestamp."""
        if not data:
            return None
        (micros,) = _unpack(_MICROS, data, self.type_name)
        try:
            return _EPOCH + datetime.timedelta(microseconds=micros)
        except OverflowError as exc:
            raise _undecodable(data, self.type_name) from exc

    def arrow_type(self) -> pa.DataType:
        """Return the microsecond timestamp type without a zone."""
        import pyarrow as pa

        return pa.timestamp("us")


class InstantSerializer(LeafSerializer["Instant | None"]):
    """INSTANT."""

    type_name = "INSTANT"
    exact = frozenset({Instant})
    nullable = True

    def coerce(self, value: Any) -> Instant:
        """Accept a datetime with a time zone."""
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            moment = value.astimezone(datetime.UTC).replace(tzinfo=None)
            seconds, micros = divmod((moment - _EPOCH) // _MICRO, 1_000_000)
            return Instant(seconds, micros * 1000)
        raise misfit("INSTANT", value, "an Instant within 64 bits of seconds, or None")

    def normalizer(self) -> Callable[[Any], Any]:
        """Return a check of type and range."""
        coerce = self.coerce

        def normalize(value: Any) -> Instant | None:
            if value is None:
                return None
            if (
                type(value) is Instant
                and -(1 << 63) <= value.seconds < 1 << 63
                and 0 <= value.nanos < 1 << 31
            ):
                return value
            return coerce(value)

        return normalize

    def to_bytes(self, value: Instant | None) -> bytes:
        """Return seconds and nanoseconds."""
        if value is None:
            return b""
        instant = value if type(value) is Instant else self.coerce(value)
        if instant.nanos >= 0:
            try:
                return _INSTANT.pack(instant.seconds, instant.nanos)
            except struct.error:
                pass
        raise misfit("INSTANT", value, "an Instant within 64 bits of seconds, or None")

    def from_bytes(self, data: bytes) -> Instant | None:
        """Return the instant."""
        if not data:
            return None
        seconds, nanos = _unpack(_INSTANT, data, self.type_name)
        if nanos < 0:
            raise _undecodable(data, self.type_name)
        return Instant(seconds, nanos)

    def arrow_type(self) -> pa.DataType:
        """Return a struct of seconds and nanoseconds."""
        import pyarrow as pa

        return pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])

    def _build(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        seconds = [None if value is None else value.seconds for value in values]
        nanos = [None if value is None else value.nanos for value in values]
        return pa.StructArray.from_arrays(
            [pa.array(seconds, pa.int64()), pa.array(nanos, pa.int32())],
            fields=list(self.arrow_type()),
            mask=pa.array([value is None for value in values], pa.bool_()),
        )

    def _from_array(self, array: pa.Array) -> list[Any]:
        seconds, nanos = array.field(0).to_pylist(), array.field(1).to_pylist()
        valid = array.is_valid().to_pylist()
        return [Instant(s, n) if v else None for s, n, v in zip(seconds, nanos, valid, strict=True)]


def _unpack(codec: struct.Struct, data: bytes, type_name: str) -> tuple[Any, ...]:
    try:
        return codec.unpack(data)
    except struct.error as exc:
        raise _undecodable(data, type_name) from exc


def _undecodable(data: bytes, type_name: str) -> SerializationError:
    return SerializationError(f"These bytes are no {type_name}: {data!r}")
