"""The serializer of anything picklable, used where the user declared no type.

Values are written with protocol 5. A class that only exists in the user's script (`__main__`) is written
by value, because no other process could import it.

Key bytes must not depend on how an object was built, but plain pickle remembers objects by identity:
`("a", "a")` has other bytes when both strings are one object. Keys are therefore written without that
memory, and sets and dictionaries inside them in a sorted order. Keys that refer to themselves are
written plainly; attributes of custom objects are taken in the order in which they were set.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from tidemark.errors import ForbiddenClassError, MissingClassError, SerializationError
from tidemark.state.allowed_classes import is_only_data, loads
from tidemark.state.serializers.base import BinarySerializer
from tidemark.state.serializers.compatibility import SimpleTypeSerializerSnapshot, TypeSerializerSnapshot

__all__ = ["PickleSerializer", "PickleSerializerSnapshot"]

_PROTOCOL = 5
_ATOMIC = frozenset({int, str, float, bytes, bool, type(None)})
_dumps = pickle.dumps


class PickleSerializer(BinarySerializer[Any]):
    """PICKLED_BYTE_ARRAY. One that is made where stored state is only looked at leaves pickles closed."""

    def __new__(cls) -> PickleSerializer:
        """Make one for the place it is made in."""
        return super().__new__(_ClosedPickles if is_only_data() else cls)

    def to_bytes(self, value: Any) -> bytes:
        """Return the pickled value.

        Raises:
            SerializationError: The value cannot be pickled.
        """
        try:
            data = _dumps(value, _PROTOCOL)
        except Exception:
            return _by_value(value)
        return _by_value(value) if b"__main__" in data else data

    def key_bytes(self, value: Any) -> bytes:
        """Return pickled bytes that are the same for equal keys of the same types.

        Raises:
            SerializationError: The key cannot be pickled.
        """
        try:
            if type(value) in _ATOMIC:
                return _dumps(value, _PROTOCOL)
            return _canonical(value)
        except Exception as exc:
            raise SerializationError(
                f"A key of type {type(value).__name__} cannot be pickled: {exc}. Its class must be "
                "importable in every process of the job."
            ) from exc

    def from_bytes(self, data: bytes) -> Any:
        """Return the value.

        Raises:
            MissingClassError: A class inside it is gone, or may not be loaded (`ForbiddenClassError`).
            SerializationError: The bytes are damaged.
        """
        try:
            return loads(data)
        except ForbiddenClassError:
            raise
        except (ImportError, AttributeError) as exc:
            raise MissingClassError(
                f"A pickled value cannot be read: {type(exc).__name__}: {exc}. Classes of pickled values must stay "
                "importable under the same name: bring the class back, or drop the state by giving the operator "
                "a new uid."
            ) from exc
        except Exception as exc:
            raise SerializationError(
                f"A pickled value cannot be read: {type(exc).__name__}: {exc}. Classes of pickled values "
                "must stay importable under the same name."
            ) from exc

    def snapshot_configuration(self) -> TypeSerializerSnapshot[Any]:
        """Return a snapshot without settings: pickled state is compatible with pickled state only."""
        return PickleSerializerSnapshot()

    def __repr__(self) -> str:
        return "PICKLED"


class _ClosedPickles(PickleSerializer):
    """The same bytes, both ways."""

    def to_bytes(self, value: bytes) -> bytes:
        """Return what was stored."""
        return value

    key_bytes = to_bytes

    def from_bytes(self, data: bytes) -> bytes:
        """Return the pickle."""
        return data


class PickleSerializerSnapshot(SimpleTypeSerializerSnapshot[Any]):
    """Snapshot of PICKLED_BYTE_ARRAY."""

    def __init__(self) -> None:
        super().__init__(PickleSerializer)


def _by_value(value: Any) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(value, _PROTOCOL)
    except Exception as exc:
        raise SerializationError(
            f"A value of type {type(value).__name__} cannot be pickled: {type(exc).__name__}: {exc}"
        ) from exc
    return data


def _canonical(value: Any) -> bytes:
    try:
        if type(value) is tuple and _ATOMIC.issuperset(map(type, value)):
            return _without_memory(value)
        return _without_memory(_sorted_inside(value))
    except (RecursionError, ValueError):
        return _dumps(value, _PROTOCOL)


def _without_memory(value: Any) -> bytes:
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, _PROTOCOL)
    pickler.fast = True
    pickler.dump(value)
    return buffer.getvalue()


def _sorted_inside(value: Any) -> Any:
    kind = type(value)
    if kind is tuple:
        return tuple([_sorted_inside(item) for item in value])
    if kind is list:
        return [_sorted_inside(item) for item in value]
    if kind is dict:
        pairs = [(_sorted_inside(key), _sorted_inside(item)) for key, item in value.items()]
        return dict(sorted(pairs, key=_pair_bytes))
    if kind is set or kind is frozenset:
        return _SortedSet(kind, sorted([_sorted_inside(item) for item in value], key=_without_memory))
    return value


def _pair_bytes(pair: tuple[Any, Any]) -> bytes:
    return _without_memory(pair[0])


class _SortedSet:
    """Pickles as a set whose elements come in the given order."""

    __slots__ = ("_items", "_kind")

    def __init__(self, kind: type[Any], items: list[Any]) -> None:
        self._kind = kind
        self._items = items

    def __reduce__(self) -> tuple[Any, ...]:
        return self._kind, (self._items,)
