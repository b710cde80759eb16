"""What readers outside of the operator see of a state: keys that are listed, queries, nothing that is expired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.backends.table import ABSENT
from tidemark.state.descriptors import AggregatingStateDescriptor, StateKind
from tidemark.state.expiry import Living
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.namespace import NamespaceKind

if TYPE_CHECKING:
    from tidemark.backends.registration import StateSpec
    from tidemark.clock import Clock
    from tidemark.state.backend import KeyContext
    from tidemark.state.serializers.base import TypeSerializer
    from tidemark.state.snapshot import StateMeta

__all__ = ["OutsideView"]


@dataclass(frozen=True, slots=True)
class OutsideView:
    """One state, registered or merely restored, at one moment.

    Attributes:
        kind: Kind of the state.
        namespace: Its namespaces.
        stamped: Whether units are `(value, stamp)`.
        living: The units that are visible; None: all of them.
        map_key: Serializer of map keys, for map state.
        get_result: From an accumulator to the result; None: whoever asks gets what is stored.
    """

    kind: StateKind
    namespace: NamespaceKind
    stamped: bool
    living: Living | None = None
    map_key: TypeSerializer[Any] | None = None
    get_result: Callable[[Any], Any] | None = None

    @staticmethod
    def of(spec: StateSpec, context: KeyContext, clock: Clock) -> OutsideView:
        """A registered state, as visible now."""
        expiry = spec.expiry
        living = None if expiry is None else expiry.visible_at(context.time_of(expiry, clock))
        get_result = None
        if isinstance(spec.descriptor, AggregatingStateDescriptor):
            get_result = spec.descriptor.agg_function.get_result
        return OutsideView(spec.kind, spec.namespace, spec.ttl is not None, living, spec.map_key, get_result)

    @staticmethod
    def of_restored(meta: StateMeta, map_key: TypeSerializer[Any] | None) -> OutsideView:
        """A state nobody has registered: how long its units live is not known, so all are visible."""
        return OutsideView(meta.kind, meta.namespace, meta.ttl, None, map_key)

    def address(self, token: Any, namespace: Any) -> Any:
        """Where the units of a key lie."""
        return token if self.namespace is NamespaceKind.VOID else (token, namespace)

    def visible(self, held: Any) -> Any:
        """The visible part of what an address holds, `ABSENT` if there is none."""
        if held is ABSENT or self.living is None:
            return held
        part = self.living.part(self.kind, held)
        return ABSENT if part is None else part

    def answer(self, held: Any, accumulator: bool) -> tuple[bool, Any]:
        """`(found, value)` of what an address holds; `accumulator` asks for that instead of the result."""
        held = self.visible(held)
        if held is ABSENT:
            return False, None
        if self.kind is StateKind.LIST:
            values = [unit[0] for unit in held] if self.stamped else list(held)
            return bool(values), values or None
        if self.kind is StateKind.MAP:
            assert self.map_key is not None
            units = [unit[0] for unit in held.values()] if self.stamped else held.values()
            entries = dict(zip(KeyTokens(self.map_key).keys(list(held)), units, strict=True))
            return bool(entries), entries or None
        value = held[0] if self.stamped else held
        return True, value if accumulator or self.get_result is None else self.get_result(value)
