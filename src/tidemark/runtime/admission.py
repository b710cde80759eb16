"""What an executor looks at before a job is started: settings it can follow, a place for checkpoints that works."""

from __future__ import annotations

from tidemark.api.executor import JobSettings
from tidemark.api.graph import Graph
from tidemark.config import Configuration, Options
from tidemark.config.file_systems import file_system_options
from tidemark.config.tls import internal_tls
from tidemark.errors import ConfigError
from tidemark.paths import use_file_systems
from tidemark.runtime.control import live_jobs
from tidemark.runtime.left_behind import sweep_at_start
from tidemark.runtime.sinks.shared_paths import warn_of_shared_outputs
from tidemark.runtime.storage_plan import StoragePlan, probe, storage_plan, warn_of_others
from tidemark.state.allowed_classes import OPTION, allow_classes, allowed_classes, parse_allowed
from tidemark.tls import TlsFiles, server_side

__all__ = ["admit", "restrict_classes"]


def admit(graph: Graph, settings: JobSettings) -> tuple[StoragePlan, TlsFiles | None]:
    """Refuse what cannot work, warn of what is risky, and tidy up behind jobs that died.

    Returns:
        Where the job's snapshots go, and what its connections are encrypted with.

    Raises:
        ConfigError: Names the option and the remedy.
    """
    restrict_classes(settings.configuration)
    tls = internal_tls(settings.configuration)
    # Files that cannot be used are told before anything is started.
    server_side(tls)
    use_file_systems(file_system_options(settings.configuration))
    sweep_at_start(settings.configuration)
    storage = storage_plan(settings)
    probe(storage, settings)
    warn_of_others(storage, settings)
    warn_of_shared_outputs(graph)
    return storage, tls


def restrict_classes(configuration: Configuration) -> None:
    """Let stored state of this process name only what `state.restore.allowed-classes` says.

    Raises:
        ConfigError: A job that runs in this process says something else.
    """
    wanted = parse_allowed(configuration.get(Options.ALLOWED_CLASSES))
    if wanted != allowed_classes() and any(not job.status.is_terminal_state() for job in live_jobs()):
        raise ConfigError(
            f"{OPTION} holds for a whole process, and a job that runs in this one has another value. Give both the "
            "same, or run them in processes of their own.",
            key=OPTION,
        )
    allow_classes(wanted)
