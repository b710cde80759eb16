"""From a state's content to an `Entry` and back; the same object on the job's and on the client's side."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from tidemark.errors import SerializationError
from tidemark.queryablestate.protocol import Entry, Signature
from tidemark.state.descriptors import MapStateDescriptor, StateDescriptor, StateKind
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import Types

__all__ = ["StateCodec"]

_MODULE_OF_CLASS = re.compile(r"DATACLASS\([\w.<>]*?(\w+): ")


def _type_text(serializer: TypeSerializer[Any]) -> str:
    """Text that is equal where the bytes mean the same.

    The module of a dataclass is left out: client and job may keep their copies in different places.
    """
    return _MODULE_OF_CLASS.sub(r"DATACLASS(\1: ", repr(serializer))


def _untyped() -> TypeSerializer[Any]:
    return serializer_for(Types.PICKLED_BYTE_ARRAY())


@dataclass(frozen=True, slots=True)
class StateCodec:
    """Serializers of one state, by role."""

    kind: StateKind
    key: TypeSerializer[Any]
    value: TypeSerializer[Any]
    map_key: TypeSerializer[Any] | None = None

    @classmethod
    def of(cls, descriptor: StateDescriptor, key: TypeSerializer[Any] | None) -> StateCodec:
        """Codec of a described state; without a key serializer keys have no declared type."""
        map_key = (
            serializer_for(descriptor.key_type_info) if isinstance(descriptor, MapStateDescriptor) else None
        )
        return cls(descriptor.kind, key or _untyped(), serializer_for(descriptor.type_info), map_key)

    def signature(self) -> Signature:
        """Kind and types as text."""
        return Signature(
            self.kind.value,
            _type_text(self.key),
            _type_text(self.value),
            None if self.map_key is None else _type_text(self.map_key),
        )

    def with_keys_of(self, job: Signature) -> StateCodec | None:
        """This codec, with pickled keys if that is all the job's types differ in; None if they differ in more.

        A client may know a type of keys that the job did not bother to declare, and keys of a lookup are only written.
        What is read is never unpickled on a peer's word: for that the client itself has to name no type.
        """
        for codec in (self, replace(self, key=_untyped())):
            if codec.signature() == job:
                return codec
        return None

    def encode(self, content: Any) -> Entry:
        """Encode what `KeyedStateBackend.query` found."""
        write = self.value.to_bytes
        if self.kind is StateKind.LIST:
            return [_optional(write, element) for element in content]
        if self.kind is StateKind.MAP:
            assert self.map_key is not None
            write_key = self.map_key.to_bytes
            entry: Entry = []
            for key, value in content.items():
                entry += (write_key(key), _optional(write, value))
            return entry
        return [_optional(write, content)]

    def decode(self, entry: Entry) -> Any:
        """The content again: a value, a list or a dict, shared with nobody.

        Raises:
            SerializationError: The bytes do not fit the types.
        """
        read = self.value.from_bytes
        if self.kind is StateKind.LIST:
            return [_optional(read, element) for element in entry]
        if self.kind is StateKind.MAP:
            assert self.map_key is not None
            read_key = self.map_key.from_bytes
            pairs = zip(entry[::2], entry[1::2], strict=True)
            return {_optional(read_key, key): _optional(read, value) for key, value in pairs}
        if len(entry) != 1:
            raise SerializationError(f"One value was expected, {len(entry)} came.")
        return _optional(read, entry[0])


def _optional(function: Any, value: Any) -> Any:
    return None if value is None else function(value)
