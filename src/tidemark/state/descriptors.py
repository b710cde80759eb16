"""State descriptors: what a user says about a state before it exists."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any

from tidemark.errors import ConfigError, IllegalStateError
from tidemark.state.ttl import StateTtlConfig
from tidemark.types.typeinfo import TypeInformation, to_type_info

__all__ = [
    "AggregatingStateDescriptor",
    "FoldingStateDescriptor",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "ReducingStateDescriptor",
    "StateDescriptor",
    "StateKind",
    "ValueStateDescriptor",
]


class StateKind(Enum):
    """The six kinds of keyed state, and the timers of an operator, which are stored like one."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    FOLDING = "folding"
    TIMER = "timer"


class StateDescriptor:
    """Name, type and options of one state. Equal when class and name are equal."""

    kind: StateKind

    def __init__(self, name: str, type_info: Any) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"A state needs a non-empty name (str), not {name!r}.")
        self.name = name
        self.type_info: TypeInformation = to_type_info(type_info)
        self.ttl_config: StateTtlConfig | None = None
        self.migrations: list[tuple[TypeInformation, Callable[[Any], Any]]] = []
        self._query_name: str | None = None

    def get_name(self) -> str:
        """Name, unique among the states of one operator."""
        return self.name

    def get_type_info(self) -> TypeInformation:
        """Type of the stored value (list: of an element; map: of a value; aggregating: accumulator)."""
        return self.type_info

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values of this state expire.

        Raises:
            TypeError: Not a `StateTtlConfig`.
            ConfigError: The state is queryable; the two exclude each other.
        """
        if not isinstance(ttl_config, StateTtlConfig):
            raise TypeError(f"enable_time_to_live() needs a StateTtlConfig, not {ttl_config!r}.")
        if ttl_config.is_enabled() and self._query_name is not None:
            raise self._ttl_and_query()
        self.ttl_config = ttl_config if ttl_config.is_enabled() else None

    def set_queryable(self, query_name: str) -> None:
        """Publish the state to `QueryableStateClient`s under `query_name`.

        Raises:
            IllegalStateError: A name was already set.
            ConfigError: The state has a time-to-live, or the name is empty.
        """
        if self.ttl_config is not None:
            raise self._ttl_and_query()
        if not isinstance(query_name, str) or not query_name:
            raise ConfigError(f"State '{self.name}': the queryable name must be a non-empty str.")
        if self._query_name is not None:
            raise IllegalStateError(
                f"State '{self.name}' is already queryable as '{self._query_name}'; set the name once."
            )
        self._query_name = query_name

    def is_queryable(self) -> bool:
        """Whether `set_queryable` was called."""
        return self._query_name is not None

    def get_queryable_state_name(self) -> str | None:
        """Name for clients, or None."""
        return self._query_name

    def migrate_from(self, old_type: Any, function: Callable[[Any], Any]) -> StateDescriptor:
        """Declare how values written as `old_type` become values of this state's type. Beyond Flink.

        Applied on restore, once for every stored value, if the stored type equals `old_type` and is not the
        state's own; also if the stored type cannot become the state's own but can evolve into `old_type`.
        Several may be declared. A dataclass marked with `written_as` describes an old form of another class.

        Args:
            old_type: A type, or a serializer of the user's.
            function: From a value of the old type to one of the new type.
        """
        self.migrations.append((to_type_info(old_type), function))
        return self

    def _ttl_and_query(self) -> ConfigError:
        return ConfigError(
            f"State '{self.name}' cannot both be queryable and have a time-to-live. Drop one of the two."
        )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.name == other.name

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, type={self.type_info})"


class ValueStateDescriptor(StateDescriptor):
    """One value per key; `default_value` (deprecated) is returned, as a copy, when nothing is stored."""

    kind = StateKind.VALUE

    def __init__(self, name: str, value_type_info: Any, default_value: Any = None) -> None:
        super().__init__(name, value_type_info)
        self.default_value = default_value


class ListStateDescriptor(StateDescriptor):
    """A list per key."""

    kind = StateKind.LIST

    def __init__(self, name: str, elem_type_info: Any) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """A map per key; also describes broadcast state."""

    kind = StateKind.MAP

    def __init__(self, name: str, key_type_info: Any, value_type_info: Any) -> None:
        super().__init__(name, value_type_info)
        self.key_type_info: TypeInformation = to_type_info(key_type_info)


class ReducingStateDescriptor(StateDescriptor):
    """One value per key, combined with `reduce_function` (a callable or an object with `reduce`)."""

    kind = StateKind.REDUCING

    def __init__(self, name: str, reduce_function: Any, type_info: Any) -> None:
        super().__init__(name, type_info)
        self.reduce_function = _two_argument_function(reduce_function, "reduce", "ReduceFunction")
        self._given = reduce_function

    def get_reduce_function(self) -> Any:
        """The function as it was given."""
        return self._given


class AggregatingStateDescriptor(StateDescriptor):
    """One accumulator per key, driven by an `AggregateFunction`; the type is the accumulator's."""

    kind = StateKind.AGGREGATING

    def __init__(self, name: str, agg_function: Any, state_type_info: Any) -> None:
        super().__init__(name, state_type_info)
        needed = ("create_accumulator", "add", "get_result", "merge")
        if not all(callable(getattr(agg_function, method, None)) for method in needed):
            raise TypeError(f"State '{name}' needs an AggregateFunction, not {type(agg_function).__name__}.")
        self.agg_function = agg_function

    def get_agg_function(self) -> Any:
        """The function as it was given."""
        return self.agg_function


class FoldingStateDescriptor(StateDescriptor):
    """One folded value per key. Deprecated: use `AggregatingStateDescriptor`."""

    kind = StateKind.FOLDING

    def __init__(self, name: str, initial_value: Any, fold_function: Any, type_info: Any) -> None:
        warnings.warn(
            "FoldingStateDescriptor is deprecated; use AggregatingStateDescriptor.",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(name, type_info)
        self.initial_value = initial_value
        self.fold_function = _two_argument_function(fold_function, "fold", "FoldFunction")


def _two_argument_function(function: Any, method: str, class_name: str) -> Callable[[Any, Any], Any]:
    bound = getattr(function, method, None)
    if callable(bound):
        return bound  # type: ignore[no-any-return]
    if callable(function):
        return function  # type: ignore[no-any-return]
    raise TypeError(f"Expected a callable or a {class_name}, not {type(function).__name__}.")
