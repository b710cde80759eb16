"""`SavepointWriter`: a new savepoint from data, from an existing one, or from both."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidemark.api.state_backends import StateBackend
from tidemark.checkpoint.metadata import CheckpointMetadata, OperatorState, SubtaskState, TableHandle
from tidemark.clock import SystemClock
from tidemark.errors import ConfigError
from tidemark.ids import new_job_id
from tidemark.state.key_groups import MAX_KEY_GROUPS
from tidemark.state.snapshot import StateMeta
from tidemark.state_processor.bootstrap import BootstrapKind, BootstrapWork, StateBootstrapTransformation
from tidemark.state_processor.canonical_copy import canonical_subtask
from tidemark.state_processor.input_splits import split_groups
from tidemark.state_processor.open_snapshot import OpenSnapshot, metas_of
from tidemark.state_processor.spark_bootstrap import bootstrap_local, bootstrap_on_spark
from tidemark.state_processor.state_edit import EditedState, write_frame
from tidemark.state_processor.streams import is_frame
from tidemark.state_processor.target import NewSavepoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemark.api.environment import StreamExecutionEnvironment

__all__ = ["SavepointWriter"]


class SavepointWriter:
    """Collects what the new savepoint shall hold; `write` makes it. Methods return the writer."""

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        existing: OpenSnapshot | None,
        backend: StateBackend | None,
        max_parallelism: int,
    ) -> None:
        """Use `new_savepoint` or `from_existing_savepoint`."""
        if backend is not None and not isinstance(backend, StateBackend):
            raise TypeError(f"state_backend must be a StateBackend, not {backend!r}.")
        self._environment = environment
        self._existing = existing
        self._backend = backend
        self._max_parallelism = max_parallelism
        self._kept = {} if existing is None else {op.uid: op for op in existing.metadata.operators}
        self._removed: dict[str, OperatorState] = {}
        self._removed_uids: set[str] = set()
        self._made: dict[str, StateBootstrapTransformation] = {}
        self._edits: dict[str, dict[str, Any]] = defaultdict(dict)

    @staticmethod
    def new_savepoint(
        env: StreamExecutionEnvironment, state_backend: StateBackend | None = None, max_parallelism: int = 128
    ) -> SavepointWriter:
        """Begin an empty savepoint.

        Args:
            env: Its target says whether Spark does the work, its parallelism how many tasks do.
            state_backend: Store that tasks keep the state of their key groups in until it is written; the
                heap by default. The savepoint can be restored with any backend.
            max_parallelism: Number of key groups of its keyed operators.

        Raises:
            ConfigError: `max_parallelism` is not between 1 and 32768.
        """
        if not isinstance(max_parallelism, int) or not 1 <= max_parallelism <= MAX_KEY_GROUPS:
            raise ConfigError(
                f"max_parallelism must be between 1 and {MAX_KEY_GROUPS}, not {max_parallelism!r}."
            )
        return SavepointWriter(env, None, state_backend, max_parallelism)

    @staticmethod
    def from_existing_savepoint(
        env: StreamExecutionEnvironment, path: str, state_backend: StateBackend | None = None
    ) -> SavepointWriter:
        """Begin with everything an existing savepoint or retained checkpoint holds.

        Operators that are not touched are copied, source positions and sink commits included. New keyed
        operators get the maximum parallelism of the existing ones.

        Raises:
            SavepointNotFoundError: No `_metadata` there.
        """
        existing = OpenSnapshot.open(path)
        keyed = [op.max_parallelism for op in existing.metadata.operators if op.is_keyed]
        every = [op.max_parallelism for op in existing.metadata.operators]
        return SavepointWriter(env, existing, state_backend, max(keyed or every or [128]))

    def with_operator(self, uid: str, transformation: StateBootstrapTransformation) -> SavepointWriter:
        """Add an operator whose state `transformation` makes.

        Raises:
            ConfigError: The uid is taken; remove the operator first to replace it.
            TypeError: Not the result of `transform()`.
        """
        if not isinstance(transformation, StateBootstrapTransformation):
            raise TypeError(f"with_operator() needs the result of transform(), not {transformation!r}.")
        if not isinstance(uid, str) or not uid:
            raise ConfigError(f"An operator needs a non-empty uid (str), not {uid!r}.")
        if uid in self._kept or uid in self._made:
            raise ConfigError(
                f"The savepoint has an operator with uid '{uid}' already. Call remove_operator('{uid}') "
                "first to replace it."
            )
        self._made[uid] = transformation
        return self

    def remove_operator(self, uid: str) -> SavepointWriter:
        """Leave an operator out; also the position of a source and the commits of a sink of that uid.

        Raises:
            ConfigError: There is no such operator.
        """
        metadata = None if self._existing is None else self._existing.metadata
        others = {} if metadata is None else {**metadata.source_positions, **metadata.sink_commits}
        if uid in self._made:
            del self._made[uid]
        elif uid in self._kept:
            self._removed[uid] = self._kept.pop(uid)
            self._removed_uids.add(uid)
            self._edits.pop(uid, None)
        elif uid in others and uid not in self._removed_uids:
            self._removed_uids.add(uid)
        else:
            known = ", ".join(repr(known) for known in [*self._kept, *self._made]) or "none"
            raise ConfigError(f"The savepoint has no operator with uid '{uid}'. It has: {known}.")
        return self

    def write_state(self, uid: str, state: str, df: DataFrame) -> SavepointWriter:
        """Replace one keyed state, or the timers of one domain, of an existing operator by rows.

        The frame has the columns `spark.read.format("tidemark")` gives for that state; a key without a row
        loses its value. Everything else of the operator stays.

        Args:
            uid: An operator of the existing savepoint.
            state: Name of the state; `_timers/event` and `_timers/processing` for timers.
            df: The new content.

        Raises:
            ConfigError: There is no such operator, or `df` is streaming.
            UnknownStateError: The operator has no such state.
            TypeError: Not a DataFrame.
        """
        if not is_frame(df):
            raise TypeError(f"write_state() needs a Spark DataFrame, not {df!r}.")
        if df.isStreaming:
            raise ConfigError("write_state() needs a batch DataFrame, not a streaming one.")
        if self._existing is None or uid not in self._kept:
            raise ConfigError(f"write_state() changes existing operators; there is none with uid '{uid}'.")
        self._existing.meta(uid, state)
        self._edits[uid][state] = df
        return self

    def write(self, path: str) -> str:
        """Write the savepoint at once and return its directory.

        Raises:
            ConfigError: Something is at `path` already.
            StorageError: It could not be written; nothing is left at the path.
        """
        with NewSavepoint(path) as target:
            base = self._metadata()
            operators = []
            for operator in self._kept.values():
                assert self._existing is not None
                edits = self._edits.get(operator.uid)
                operators.append(
                    self._edited(target, operator, edits) if edits else target.carry(self._existing, operator)
                )
            operators += [self._bootstrapped(target, uid, base.checkpoint_id) for uid in self._made]
            return target.commit(replace(base, operators=tuple(operators)))

    def _metadata(self) -> CheckpointMetadata:
        now = SystemClock().now()
        if self._existing is None:
            return CheckpointMetadata(1, now, str(new_job_id()), "State processor", True)
        old = self._existing.metadata
        gone = self._removed_uids
        return replace(
            old,
            timestamp=now,
            source_positions={uid: p for uid, p in old.source_positions.items() if uid not in gone},
            sink_commits={uid: c for uid, c in old.sink_commits.items() if uid not in gone},
            watermarks={uid: w for uid, w in old.watermarks.items() if uid not in gone},
            partition_marks={uid: m for uid, m in old.partition_marks.items() if uid not in gone},
        )

    def _bootstrapped(self, target: NewSavepoint, uid: str, checkpoint_id: int) -> OperatorState:
        transformation = self._made[uid]
        replaced = self._removed.get(uid)
        groups = self._max_parallelism
        if replaced is not None and replaced.is_keyed:
            groups = replaced.max_parallelism
        parallelism = self._environment.get_parallelism()
        keyed = transformation.kind is BootstrapKind.KEYED
        ranges = split_groups(groups, parallelism) if keyed else []
        work = BootstrapWork.of(
            uid, transformation, groups, ranges, target.location, checkpoint_id, self._backend
        )
        staging = f"{target.directory}.staging"
        with transformation.data.elements(self._environment, target.storage, staging) as data:
            if data.values is not None:
                subtasks = bootstrap_local(work, data.values)
            else:
                subtasks = bootstrap_on_spark(work, data, parallelism)
        subtasks = [replace(subtask, index=at) for at, subtask in enumerate(subtasks)]
        name = uid if replaced is None else replaced.name
        return OperatorState(uid, name, len(subtasks), groups, tuple(subtasks))

    def _edited(self, target: NewSavepoint, operator: OperatorState, edits: dict[str, Any]) -> OperatorState:
        assert self._existing is not None
        subtasks = [self._without(target, operator, subtask, edits) for subtask in operator.subtasks]
        for meta in metas_of(operator):
            if meta.name in edits:
                handles = self._write_frame(target, operator, meta, edits[meta.name])
                subtasks = [_with_tables(subtask, handles) for subtask in subtasks]
        return replace(operator, subtasks=tuple(subtasks))

    def _without(
        self, target: NewSavepoint, operator: OperatorState, subtask: SubtaskState, edits: dict[str, Any]
    ) -> SubtaskState:
        """A subtask without the states that are replaced; native files are turned into tables."""
        assert self._existing is not None
        if subtask.native is not None and any(meta.name in edits for meta in subtask.native.metas):
            return canonical_subtask(
                self._existing, operator, subtask, target, lambda meta: meta.name not in edits
            )
        # A state without rows still has to be known by its types.
        tables = [
            table if table.meta.name not in edits else TableHandle(table.meta) for table in subtask.tables
        ]
        tables = list(dict.fromkeys(tables))
        return target.carry_subtask(self._existing, operator.uid, replace(subtask, tables=tuple(tables)))

    def _write_frame(
        self, target: NewSavepoint, operator: OperatorState, meta: StateMeta, frame: Any
    ) -> list[tuple[tuple[int, int], TableHandle]]:
        ranges = _file_ranges(operator, self._environment.get_parallelism())
        edited = EditedState(operator.uid, meta, operator.max_parallelism, tuple(ranges), target.location)
        written = write_frame(edited, frame)
        return [(ranges[part], handle) for part, handle in written]


def _file_ranges(operator: OperatorState, at_least: int) -> list[tuple[int, int]]:
    """Key-group ranges for the files of a state: those of subtasks, cut further to have enough."""
    owned = sorted(subtask.key_groups for subtask in operator.subtasks if subtask.key_groups is not None)
    pieces = -(-at_least // max(len(owned), 1))
    ranges = []
    for first, last in owned:
        count = min(pieces, last - first + 1)
        size = last - first + 1
        ranges += [(first + size * i // count, first + size * (i + 1) // count - 1) for i in range(count)]
    return ranges


def _with_tables(subtask: SubtaskState, handles: list[tuple[tuple[int, int], TableHandle]]) -> SubtaskState:
    """The subtask with the tables whose key groups it owns."""
    if subtask.key_groups is None:
        return subtask
    first, last = subtask.key_groups
    mine = [handle for (low, high), handle in handles if first <= low and high <= last and handle.rows]
    size = sum(handle.state_size for handle in (*subtask.tables, *mine))
    operator = sum(len(element) for part in subtask.operator for element in part.elements)
    native = subtask.native.size if subtask.native is not None else 0
    return replace(subtask, tables=(*subtask.tables, *mine), state_size=size + operator + native)
