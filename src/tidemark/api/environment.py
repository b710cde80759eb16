"""`StreamExecutionEnvironment`: where a program starts, and what it hands to an `Executor`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tidemark.api.brief_errors import brief
from tidemark.api.builder import GraphBuilder, optional_type, stream_from_source
from tidemark.api.cache import CacheRun, StreamCache
from tidemark.api.checkpoint_config import CheckpointConfig
from tidemark.api.checkpoint_storage import resolve_checkpoint_storage
from tidemark.api.connectors.base import Source
from tidemark.api.connectors.file_source import FileSource
from tidemark.api.environment_options import EnvironmentOptions
from tidemark.api.execution_config import ExecutionConfig
from tidemark.api.execution_plan import execution_plan
from tidemark.api.executor import (
    Executor,
    JobSettings,
    PlansModes,
    executor_for,
    is_batch,
)
from tidemark.api.functions import ParallelSourceFunction, SourceFunction
from tidemark.api.graph import Graph
from tidemark.api.job import JobClient, JobExecutionResult
from tidemark.api.legacy import LegacyEnvironment
from tidemark.api.programmed_options import options_of
from tidemark.api.spark_schema import type_of_schema
from tidemark.api.spark_sources import stream_spec
from tidemark.api.specs import (
    CollectionSourceSpec,
    FunctionSourceSpec,
    SocketSourceSpec,
    SparkBatchSourceSpec,
)
from tidemark.api.state_backends import (
    MemoryStateBackend,
    StateBackend,
    backend_by_name,
    resolve_state_backend,
)
from tidemark.api.stream import DataStream
from tidemark.api.submission import SubmissionRules, prepare, settle_edges
from tidemark.api.watermarks import WatermarkStrategy
from tidemark.config import (
    CheckpointingMode,
    CheckpointSettings,
    Configuration,
    Options,
    RestartStrategyConfiguration,
    RuntimeExecutionMode,
    effective_configuration,
    resolve_restart_strategy,
    retained_checkpoints,
)
from tidemark.config.loader import layers_of, overlay
from tidemark.errors import ConfigError, TidemarkError, UnsupportedOperationException
from tidemark.formats.avro import AvroInputFormat
from tidemark.types.time import TimeLike
from tidemark.types.typeinfo import TypeInformation, Types

__all__ = ["StreamExecutionEnvironment"]

DEFAULT_JOB_NAME = "Flink Streaming Job"

_CANCEL_S = 30.0
"""How long Ctrl-C waits for the job to let go of its slots."""


class StreamExecutionEnvironment(EnvironmentOptions, LegacyEnvironment):
    """Builds streams, holds their settings and executes them. Setters return the environment."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        """Use `get_execution_environment`."""
        self._given = Configuration(configuration)
        base = effective_configuration(None, self._given, fill_defaults=False)
        super().__init__(base)
        self._config = ExecutionConfig(base)
        self._checkpoint_config = CheckpointConfig(base)
        self._state_backend: StateBackend | None = None
        self._builder = GraphBuilder()
        self._caches: list[StreamCache] = []
        self._executors: dict[str, Executor] = {}

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """A new environment; `configuration` is laid over environment variables and the config file.

        Raises:
            ConfigError: A configured value does not fit its option.
        """
        return StreamExecutionEnvironment(configuration)

    def get_config(self) -> ExecutionConfig:
        """The live execution settings."""
        return self._config

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The live checkpoint settings; the same object every time."""
        return self._checkpoint_config

    def get_configuration(self) -> Configuration:
        """Effective value of every option: setters, configuration, environment, file, defaults."""
        return effective_configuration(self._programmatic(), self._given)

    def configure(self, configuration: Configuration) -> StreamExecutionEnvironment:
        """Apply the keys present in `configuration`; everything else keeps its value.

        Raises:
            ConfigError: A value does not fit its option; nothing was applied.
        """
        effective_configuration(configuration, self._given)
        self._config.configure(configuration)
        self._checkpoint_config.configure(configuration)
        self._programmed = overlay(self._programmed, configuration)
        if configuration.contains(Options.STATE_BACKEND):
            self._state_backend = None
        return self

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the parallelism of every operator that has none of its own.

        Raises:
            ConfigError: Not between 1 and 32768.
        """
        self._config.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """The parallelism; the number of local cores when nobody set it."""
        return self._config.get_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of key groups of every keyed operator that has none of its own.

        Raises:
            ConfigError: Not between 1 and 32768.
        """
        self._config.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The number of key groups, -1 when nobody set it."""
        return self._config.get_max_parallelism()

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Set the parallelism that holds while nobody sets one.

        Raises:
            ConfigError: Not between 1 and 32768.
        """
        self._config.set_default_local_parallelism(parallelism)

    def get_default_local_parallelism(self) -> int:
        """The parallelism that holds while nobody sets one: the number of local cores, if not set here."""
        return self._config.get_default_local_parallelism()

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Choose streaming, batch or automatic.

        Raises:
            TypeError: Not a `RuntimeExecutionMode`.
        """
        self._config.set_runtime_mode(execution_mode)
        return self

    def enable_checkpointing(
        self, interval: TimeLike, mode: CheckpointingMode | None = None, force: bool = False
    ) -> StreamExecutionEnvironment:
        """Take a checkpoint every so often; `force` permits it for iterative jobs.

        Raises:
            ConfigError: An interval below 10 ms.
        """
        self._checkpoint_config.set_checkpoint_interval(interval)
        if mode is not None:
            self._checkpoint_config.set_checkpointing_mode(mode)
        if force:
            self._checkpoint_config.set_force_checkpointing(True)
        return self

    def get_checkpoint_interval(self) -> int:
        """Milliseconds between checkpoints, -1 when they are off."""
        return self._checkpoint_config.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The guarantee."""
        return self._checkpoint_config.get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """The guarantee."""
        return self._checkpoint_config.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """What the checkpoint settings say."""
        return self._checkpoint_config.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """What the checkpoint settings say."""
        return self._checkpoint_config.is_force_unaligned_checkpoints()

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Keep state in this backend, whatever `state.backend` says.

        Raises:
            TypeError: Not a `StateBackend`.
        """
        if not isinstance(state_backend, StateBackend):
            raise TypeError(f"set_state_backend() needs a StateBackend, not {state_backend!r}.")
        self._state_backend = state_backend
        return self

    def get_state_backend(self) -> StateBackend:
        """The backend set here, else the one named by `state.backend`, else `MemoryStateBackend`.

        Raises:
            ConfigError: `state.backend` names no backend.
        """
        return self._state_backend or backend_by_name(self.get_configuration())

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> StreamExecutionEnvironment:
        """Choose what happens when the job fails.

        Raises:
            TypeError: Not a `RestartStrategyConfiguration`.
        """
        self._config.use_restart_strategy(restart_strategy_configuration)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """What was set; the fallback to the configuration when nothing was."""
        return self._config.get_restart_strategy()

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Where savepoints go that are triggered without a target.

        Raises:
            ConfigError: An empty directory.
        """
        if not directory:
            raise ConfigError("The savepoint directory must not be empty.")
        self._programmed.set(Options.SAVEPOINTS_DIR, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Where savepoints go that are triggered without a target, None if unset."""
        return self._option(Options.SAVEPOINTS_DIR)

    def from_collection(self, collection: Iterable[Any], type_info: Any = None) -> DataStream:
        """A bounded stream of these elements, in order, with parallelism 1."""
        spec = CollectionSourceSpec(list(collection))
        return stream_from_source(self, spec, "Collection Source", optional_type(type_info), 1)

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: Any = None,
    ) -> DataStream:
        """The stream of a built-in `Source`, or of a `SplitSource` of your own.

        Raises:
            TypeError: Not a `Source`, or not a `WatermarkStrategy`.
            ConfigError: The attributes of a `SplitSource` contradict each other.
        """
        if not isinstance(source, Source):
            raise TypeError(f"from_source() needs a Source, not {source!r}.")
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise TypeError(f"from_source() needs a WatermarkStrategy, not {watermark_strategy!r}.")
        spec = replace(source.source_spec(), strategy=watermark_strategy)
        return stream_from_source(self, spec, source_name, optional_type(type_info) or source.produced_type())

    def create_input(self, input_format: AvroInputFormat, type_info: Any = None) -> DataStream:
        """The records of an input format.

        Raises:
            UnsupportedOperationException: A Java input format; use `from_source` or `from_spark_stream`.
        """
        if not isinstance(input_format, AvroInputFormat):
            raise UnsupportedOperationException(
                f"create_input() reads Avro files (AvroInputFormat), not {input_format!r}. Use from_source() or "
                "from_spark_stream()."
            )
        source = FileSource.for_bulk_file_format(input_format, input_format.path).build()
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Avro Input", type_info)

    def add_source(
        self, source_func: SourceFunction, source_name: str = "Custom Source", type_info: Any = None
    ) -> DataStream:
        """The stream of a user-written source; parallel only for a `ParallelSourceFunction`.

        Raises:
            TypeError: Not a `SourceFunction`.
        """
        if not isinstance(source_func, SourceFunction):
            raise TypeError(f"add_source() needs a SourceFunction, not {source_func!r}.")
        spec = FunctionSourceSpec(source_func)
        parallelism = None if isinstance(source_func, ParallelSourceFunction) else 1
        return stream_from_source(self, spec, source_name, optional_type(type_info), parallelism)

    def socket_text_stream(
        self, hostname: str, port: int, delimiter: str = "\n", max_retry: int = 0
    ) -> DataStream:
        """The text that a server sends, cut at the delimiter, with parallelism 1; for trying things out.

        A socket cannot be read again: text that was read behind the last checkpoint is lost when the job fails. On
        Spark the driver connects, or in continuous execution a worker.

        Args:
            hostname: Where the server listens.
            port: There.
            delimiter: What ends a record; with a line feed, a carriage return before it is removed too.
            max_retry: How many connections in all may be made if the server closes them; 0 or 1: the stream ends
                when it closes the first, negative: it never ends.

        Raises:
            ConfigError: No such port, or an empty delimiter.
        """
        if not 0 < port < 1 << 16:
            raise ConfigError(f"The port must be between 1 and 65535, not {port}.")
        if not delimiter:
            raise ConfigError("The delimiter of a socket stream must not be empty.")
        spec = SocketSourceSpec(hostname, port, delimiter, max_retry)
        return stream_from_source(self, spec, "Socket Stream", Types.STRING(), 1)

    def from_python_data_source(
        self,
        data_source: Any,
        watermark_strategy: WatermarkStrategy,
        source_name: str = "Python Data Source",
        type_info: Any = None,
    ) -> DataStream:
        """The rows of a streaming data source that was written for Spark in Python, read without Spark's streaming.

        Args:
            data_source: An object of a class derived from `pyspark.sql.datasource.DataSource`. Its stream reader
                works in one task, and has to give the rows between two offsets in the same order each time.
            watermark_strategy: Timestamps and watermarks of the rows.
            source_name: Of the source.
            type_info: Type of the rows; from the source's schema if it is not given.

        Raises:
            TypeError: Not a `DataSource`, or not a `WatermarkStrategy`.
            ConfigError: Its schema is text that only Spark can read, and there is no session.
        """
        module = importlib.import_module("tidemark.runtime.sources.python_data_source")
        return self.from_source(
            module.PythonDataSource(data_source), watermark_strategy, source_name, type_info
        )

    def from_spark_stream(
        self, df: Any, type_info: Any = None, *, partition_by: str | Sequence[str] | None = None
    ) -> DataStream:
        """The rows of a Spark `DataFrame`, streaming or not, as `Row`s.

        Args:
            df: The frame.
            type_info: Type of the rows; from the frame's schema if it is not given.
            partition_by: Columns that say which partition of the external system a row is from. A watermark then
                follows the slowest of their values, however Spark deals partitions out to tasks. For Kafka
                frames with the columns `topic` and `partition` it is these. Meant for a few values per task.

        Raises:
            TypeError: Not a `DataFrame`.
            ConfigError: The frame reads from a source that cannot be replayed, such as a socket, or
                `partition_by` names a column it does not have.
        """
        if not hasattr(df, "schema") or not hasattr(df, "isStreaming"):
            raise TypeError(f"from_spark_stream() needs a Spark DataFrame, not {df!r}.")
        row_type: TypeInformation = optional_type(type_info) or type_of_schema(df.schema)
        spec = stream_spec(df, partition_by) if df.isStreaming else SparkBatchSourceSpec(df)
        return stream_from_source(self, spec, "Spark DataFrame", row_type)

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run all sinks added since the last time and wait for the end.

        Raises:
            IllegalStateError: No sink.
            JobExecutionException: The job failed.
            KeyboardInterrupt: Ctrl-C; the job has been cancelled.
        """
        client: JobClient | None = None
        try:
            client = self._submit(job_name)
            return client.get_job_execution_result().result()
        except KeyboardInterrupt as exc:
            if client is not None:
                client.cancel().result(_CANCEL_S)
            raise brief(exc) from None
        except TidemarkError as exc:
            raise brief(exc) from exc.__cause__

    def execute_async(self, job_name: str = DEFAULT_JOB_NAME) -> JobClient:
        """Start all sinks added since the last time and return at once.

        Raises:
            IllegalStateError: No sink.
        """
        try:
            return self._submit(job_name)
        except TidemarkError as exc:
            raise brief(exc) from exc.__cause__

    def get_execution_plan(self) -> str:
        """The graph of the sinks added so far, or of everything without sinks, as JSON, and how it would run."""
        GraphBuilder.planned += 1
        sinks = self._builder.sinks
        graph = self._builder.graph.reachable_to(sinks) if sinks else self._builder.graph
        settings = JobSettings(
            parallelism=self.get_parallelism(),
            configuration=self.get_configuration(),
            batch_mode=is_batch(graph, self._config.get_runtime_mode()),
        )
        settled = settle_edges(graph, settings)
        executor = self._executor(settings)
        mode = executor.planned_mode(settled, settings) if isinstance(executor, PlansModes) else None
        return execution_plan(settled, settings, mode)

    def __repr__(self) -> str:
        nodes, sinks = len(self._builder.graph.nodes), len(self._builder.sinks)
        return f"<StreamExecutionEnvironment, parallelism {self.get_parallelism()}, {nodes} nodes, {sinks} to execute>"

    def close(self) -> None:
        """Release cached results and any Spark session that was created for this environment."""
        for cache in self._caches:
            cache.clear()
        for executor in self._executors.values():
            release = getattr(executor, "close", None)
            if callable(release):
                release()
        self._executors.clear()

    def _submit(self, job_name: str | None) -> JobClient:
        graph, settings, run = self._prepared(job_name)
        executor = self._executor(settings)
        self._builder.sinks = []
        GraphBuilder.submitted += 1
        client = executor.submit(graph, settings)
        run.finish_with(client.get_job_execution_result())
        return client

    def _executor(self, settings: JobSettings) -> Executor:
        target = settings.configuration.get(Options.EXECUTION_TARGET)
        if target not in self._executors:
            self._executors[target] = executor_for(target)
        return self._executors[target]

    def _prepared(self, job_name: str | None) -> tuple[Graph, JobSettings, CacheRun]:
        """The checked graph of the sinks added so far, and the settings to run it with."""
        builder = self._builder
        run = CacheRun(self._caches, builder.graph, builder.sinks)
        settings = self._settings(job_name or DEFAULT_JOB_NAME, run.graph)
        config = self._checkpoint_config
        config.validate()
        rules = SubmissionRules(
            checkpointing_asked=config.is_checkpointing_enabled(),
            force_checkpointing=config.is_force_checkpointing(),
            auto_generated_uids=self._config.has_auto_generated_uids_enabled(),
        )
        return prepare(run.graph, settings, rules), settings, run

    def _settings(self, job_name: str, graph: Graph) -> JobSettings:
        configuration = self.get_configuration()
        batch = is_batch(graph, self._config.get_runtime_mode())
        checkpointing = CheckpointSettings()
        programmed_storage = self._checkpoint_config.get_checkpoint_storage()
        backend: StateBackend = MemoryStateBackend()
        if not batch:
            checkpointing = self._checkpoint_config.settings(retained_checkpoints(configuration))
            backend = resolve_state_backend(
                configuration,
                self._state_backend,
                needs_directory=checkpointing.enabled
                and programmed_storage is None
                and not configuration.get(Options.CHECKPOINTING_STORAGE),
            )
        storage = resolve_checkpoint_storage(configuration, backend, programmed_storage)
        max_parallelism = self._config.get_max_parallelism()
        programmed_directory = self._programmed.get(Options.SAVEPOINTS_DIR)
        return JobSettings(
            job_name=job_name,
            parallelism=self.get_parallelism(),
            max_parallelism=max_parallelism if max_parallelism > 0 else None,
            configuration=configuration,
            layers=layers_of(self._programmatic(), self._given),
            checkpointing=checkpointing,
            state_backend=backend,
            checkpoint_storage=storage,
            restart_strategy=resolve_restart_strategy(
                self._config.restart_strategy, configuration, checkpointing.enabled
            ),
            batch_mode=batch,
            savepoint_path=configuration.get(Options.SAVEPOINT_PATH),
            allow_non_restored_state=configuration.get(Options.SAVEPOINT_IGNORE_UNCLAIMED_STATE),
            savepoint_directory=programmed_directory
            or backend.get_savepoint_path()
            or configuration.get(Options.SAVEPOINTS_DIR),
            job_parameters=self._config.get_global_job_parameters(),
            snapshot_compression=self._config.is_use_snapshot_compression(),
            artifacts=self._artifacts(),
        )

    def _programmatic(self) -> Configuration:
        """Everything that was set by methods, as the top layer."""
        layer = overlay(self._programmed, self._config.programmatic)
        layer = overlay(layer, self._checkpoint_config.programmatic)
        return overlay(layer, options_of(self._state_backend, self._config.restart_strategy))

    def _spark_bridge(self) -> Any:
        return importlib.import_module("tidemark.runtime.spark_bridge")
