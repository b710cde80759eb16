"""Who holds the instruments: groups that nest, and the registry that turns them into a snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tidemark.clock import Clock, SystemClock
from tidemark.errors import ConfigError
from tidemark.metrics.instruments import Counter, Distribution, Gauge, Instrument, Meter

__all__ = ["MetricGroup", "MetricRegistry"]

AnyInstrument = TypeVar("AnyInstrument", bound=Instrument)


class MetricRegistry:
    """All instruments of one process, by scope and name."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Start empty; meters take their time from `clock`."""
        self.clock: Clock = clock or SystemClock()
        self._instruments: dict[tuple[str, ...], Instrument] = {}
        self._lock = threading.Lock()

    def group(self, *scope: str) -> MetricGroup:
        """Return the group with this scope."""
        return MetricGroup(self, scope)

    def register(self, path: tuple[str, ...], instrument: AnyInstrument) -> AnyInstrument:
        """Return the instrument at `path`: `instrument`, or the one of its kind that is there already.

        Raises:
            ConfigError: The name is empty, or taken by an instrument of another kind.
        """
        if not path[-1]:
            raise ConfigError("A metric needs a non-empty name.")
        with self._lock:
            present = self._instruments.setdefault(path, instrument)
        if type(present) is not type(instrument):
            raise ConfigError(
                f"Metric {'.'.join(path)!r} exists as {type(present).__name__}; "
                f"choose another name for the {type(instrument).__name__}."
            )
        return present

    def replace(self, path: tuple[str, ...], instrument: Instrument) -> None:
        """Put `instrument` at `path`, in place of one of the same kind."""
        self.register(path, instrument)
        with self._lock:
            self._instruments[path] = instrument

    def remove(self, *scope: str) -> None:
        """Forget every instrument under `scope`; whoever still holds one writes unseen."""
        with self._lock:
            for path in [path for path in self._instruments if path[: len(scope)] == scope]:
                del self._instruments[path]

    def snapshot(self) -> dict[str, Any]:
        """Return every value as plain data, by dotted path; safe to call from any thread."""
        with self._lock:
            instruments = list(self._instruments.items())
        return {".".join(path): instrument.read() for path, instrument in instruments}


class MetricGroup:
    """A named place for instruments; what `RuntimeContext.get_metrics_group()` hands out."""

    def __init__(self, registry: MetricRegistry, scope: tuple[str, ...]) -> None:
        """Work on `registry` under `scope`."""
        self._registry = registry
        self._scope = scope

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return the sub-group `name`, or `name.extra` for a key and its value."""
        return MetricGroup(self._registry, (*self._scope, name, *(() if extra is None else (extra,))))

    def counter(self, name: str) -> Counter:
        """Return the counter of that name, new or known."""
        return self._registry.register((*self._scope, name), Counter())

    def gauge(self, name: str, obj: Callable[[], Any]) -> None:
        """Report what `obj()` returns; a later gauge of the same name takes its place.

        Raises:
            TypeError: `obj` cannot be called.
        """
        if not callable(obj):
            raise TypeError(f"Gauge {name!r} needs a function without arguments, got {obj!r}.")
        self._registry.replace((*self._scope, name), Gauge(obj))

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Return the meter of that name, new or known."""
        return self._registry.register(
            (*self._scope, name), Meter(self._registry.clock, time_span_in_seconds)
        )

    def distribution(self, name: str) -> Distribution:
        """Return the distribution of that name, new or known."""
        return self._registry.register((*self._scope, name), Distribution())

    def get_scope_components(self) -> tuple[str, ...]:
        """Return the names from the root to this group."""
        return self._scope

    def get_metric_identifier(self, metric_name: str) -> str:
        """Return the dotted path of a metric of this group, as snapshots use it."""
        return ".".join((*self._scope, metric_name))
