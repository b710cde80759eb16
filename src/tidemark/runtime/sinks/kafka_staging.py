"""Where exactly-once Kafka sinks keep records until their checkpoint is complete."""

from __future__ import annotations

from tidemark.api.checkpoint_storage import FileSystemCheckpointStorage, JobManagerCheckpointStorage
from tidemark.api.executor import JobSettings
from tidemark.config import Options
from tidemark.errors import ConfigError
from tidemark.paths import absolute, join
from tidemark.plan.vertex import Vertex

__all__ = ["staging_directory"]

_BELOW_CHECKPOINTS = "kafka-staging"


def staging_directory(vertex: Vertex, settings: JobSettings) -> str:
    """The staging directory of a sink that publishes with checkpoints.

    Raises:
        ConfigError: The job takes no checkpoints, or there is no directory.
    """
    what = f"The Kafka sink '{vertex.name}' (uid {vertex.uid}) is EXACTLY_ONCE, which"
    if not settings.checkpointing.enabled and not settings.batch_mode:
        raise ConfigError(
            f"{what} needs checkpoints: records become visible when one is complete. Call enable_checkpointing() or "
            f"set {Options.CHECKPOINTING_INTERVAL.key}, or choose AT_LEAST_ONCE.",
            key=Options.CHECKPOINTING_INTERVAL.key,
        )
    chosen = settings.configuration.get(Options.KAFKA_STAGING_DIR)
    if chosen:
        return absolute(chosen)
    path = settings.configuration.get(Options.CHECKPOINTS_DIR)
    # What a storage of the program's own calls a path only that storage understands.
    if isinstance(settings.checkpoint_storage, FileSystemCheckpointStorage | JobManagerCheckpointStorage):
        path = settings.checkpoint_storage.get_checkpoint_path() or path
    if not path:
        raise ConfigError(
            f"{what} needs a directory for records that wait for their checkpoint, visible to driver and workers. Set "
            f"{Options.CHECKPOINTS_DIR.key} or {Options.KAFKA_STAGING_DIR.key}.",
            key=Options.KAFKA_STAGING_DIR.key,
        )
    return join(absolute(path), _BELOW_CHECKPOINTS)
