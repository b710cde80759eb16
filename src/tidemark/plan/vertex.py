"""A vertex of the physical plan, and how vertices with their user code travel to tasks and slots."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import cloudpickle

from tidemark.api.graph import Edge, NodeKind, Ship
from tidemark.api.specs import WindowSpec
from tidemark.errors import ExecutionError
from tidemark.state.key_groups import compute_key_group_range_for_operator_index
from tidemark.types.typeinfo import TypeInformation

__all__ = ["Placement", "SubtaskInfo", "Vertex", "dump_functions", "load_functions"]


class Placement(Enum):
    """Where a vertex runs."""

    TASK = "task"
    SLOT = "slot"


@dataclass(frozen=True, slots=True)
class Vertex:
    """A node of the graph with everything resolved."""

    id: int
    kind: NodeKind
    name: str
    uid: str
    spec: Any
    inputs: tuple[Edge, ...]
    input_types: tuple[TypeInformation | None, ...]
    """Declared type of the stream on each edge of `inputs`."""
    parallelism: int
    max_parallelism: int
    placement: Placement
    output_type: TypeInformation | None
    side_types: dict[str, TypeInformation | None]

    @property
    def keyed(self) -> bool:
        """Whether records arrive by key."""
        return any(edge.ship is Ship.HASH for edge in self.inputs)

    @property
    def single_key(self) -> bool:
        """Whether all records share one made-up key (`window_all`)."""
        return not self.keyed and isinstance(self.spec, WindowSpec) and self.spec.all_windows

    def key_type(self) -> TypeInformation | None:
        """Declared key type of a keyed vertex."""
        return next(edge.key_type for edge in self.inputs if edge.ship is Ship.HASH)

    def subtask(
        self, index: int, attempt: int = 0, job_parameters: dict[str, str] | None = None
    ) -> SubtaskInfo:
        """Who subtask `index` is."""
        return SubtaskInfo(
            self.name,
            self.uid,
            index,
            self.parallelism,
            self.max_parallelism,
            attempt,
            job_parameters or {},
            self.keyed or self.single_key,
        )


@dataclass(frozen=True, slots=True)
class SubtaskInfo:
    """Which subtask of which operator this is."""

    name: str
    uid: str
    index: int = 0
    parallelism: int = 1
    max_parallelism: int = 128
    attempt: int = 0
    job_parameters: dict[str, str] = field(default_factory=dict)
    keyed: bool = False

    @property
    def key_groups(self) -> tuple[int, int] | None:
        """First and last key group it owns; None if its records have no key."""
        if not self.keyed:
            return None
        return compute_key_group_range_for_operator_index(self.max_parallelism, self.parallelism, self.index)


def dump_functions(vertices: list[Vertex]) -> bytes:
    """Pickle vertices with their user code for tasks or slots.

    Raises:
        ExecutionError: Some function cannot be pickled; names the operator and the cause.
    """
    parts = []
    for vertex in vertices:
        try:
            parts.append(cloudpickle.dumps(vertex))
        except Exception as exc:
            raise ExecutionError(
                f"The function of operator '{vertex.name}' (uid {vertex.uid}) cannot be shipped to the workers: "
                f"{type(exc).__name__}: {exc}. Create sockets, locks, sessions and open files in open() instead "
                "of capturing them.",
                operator_uid=vertex.uid,
            ) from exc
    blob: bytes = cloudpickle.dumps(parts)
    return blob


def load_functions(blob: bytes) -> list[Vertex]:
    """The vertices behind `dump_functions`.

    Raises:
        ExecutionError: A module the user code needs is missing on this machine.
    """
    try:
        return [cloudpickle.loads(part) for part in cloudpickle.loads(blob)]
    except ModuleNotFoundError as exc:
        raise ExecutionError(
            f"Module '{exc.name}' is needed by the job's functions but is not installed on this worker. "
            "Ship it with env.add_python_file(path) or install it on every worker."
        ) from exc
