"""Who starts the slots of a job on Spark: tasks on the executors, or the driver, where that is the same and sooner."""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, Any

from tidemark.api.executor import JobSettings
from tidemark.config import Options
from tidemark.errors import ConfigError
from tidemark.runtime.artifacts import wants_directory
from tidemark.runtime.control import server_threads_of
from tidemark.runtime.launch import SpareSlots, driver_launches, launch_slots, launch_slots_here
from tidemark.state.allowed_classes import allowed_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SlotLauncher"]

_log = logging.getLogger(__name__)


class SlotLauncher:
    """Starts slots of one job.

    Attributes:
        session: Where tasks start them; there need not be one for `by_driver`.
        by_driver: Whether the driver does it itself.
        spares: Those that are up before they are needed; only the driver keeps some.
    """

    def __init__(
        self, job_id: str, settings: JobSettings, session: SparkSession | None, in_driver: bool
    ) -> None:
        """Decide who does it.

        Args:
            job_id: The job.
            settings: The job's.
            session: The one that is there already.
            in_driver: Whether tasks run in the driver's own JVM.
        """
        self.session = session
        self._artifacts = settings.artifacts
        configuration = settings.configuration
        threads = server_threads_of(settings)
        self._more = {
            "query_threads": (threads.network, threads.query),
            "query_statistics": configuration.get(Options.QUERYABLE_STATISTICS),
            "allowed_classes": allowed_classes(),
        }
        if session is None:
            spark = configuration.to_dict()
            pythons = [spark.get("spark.pyspark.python"), os.environ.get("PYSPARK_PYTHON")]
        else:
            spark = dict(session.sparkContext.getConf().getAll())
            pythons = [str(session.sparkContext.pythonExec)]
        named = [python for python in pythons if python]
        # What `spark-submit` was told only its JVM knows.
        submitted = session is None and "PYSPARK_GATEWAY_PORT" in os.environ
        self.by_driver = in_driver and not submitted and driver_launches(spark, settings.artifacts, named)
        spares = configuration.get(Options.SPARE_SLOTS)
        self.spares = SpareSlots(job_id, spares if self.by_driver else 0)
        if spares and not self.by_driver:
            _log.warning(
                "%s is %s, and no spare slots are kept: the driver starts slots only on a local master, with its own "
                "interpreter and nothing that Spark has to give or ship to them.",
                Options.SPARE_SLOTS.key,
                spares,
            )

    def __call__(self, wanted: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
        """Start a process for each; (slot, pid, log file) of all.

        Raises:
            ConfigError: The Python of the workers cannot run slots.
        """
        settings = [{**slot, **self._more} for slot in wanted]
        if self.by_driver:
            return launch_slots_here(settings, self.spares)
        assert self.session is not None
        shipped = self.runs_beside_files(self.session)
        return _launch(self.session, [{**setting, "shipped_files": shipped} for setting in settings])

    def runs_beside_files(self, session: SparkSession) -> bool:
        """Whether functions of the job run where Spark puts shipped files."""
        return wants_directory(self._artifacts, dict(session.sparkContext.getConf().getAll()))


def _launch(session: SparkSession, wanted: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    context = session.sparkContext
    try:
        launched: list[tuple[int, int, str]] = (
            context.parallelize(wanted, len(wanted)).mapPartitions(launch_slots).collect()
        )
    except Exception as exc:
        trouble = _trouble_of_workers(str(exc))
        if trouble is not None:
            raise ConfigError(
                f"The Python of the Spark workers {trouble}. Install tidemark on every worker, or point "
                "PYSPARK_PYTHON (spark.pyspark.python) at an interpreter that has it, of the driver's version; a "
                "relative PYTHONPATH is not seen by executors."
            ) from None
        raise
    return launched


def _trouble_of_workers(told: str) -> str | None:
    """What is wrong with an interpreter that cannot even launch slots, which takes no code of users."""
    missing = re.search(r"No module named '([^'.]+)", told)
    if missing is not None:
        return (
            "does not have tidemark"
            if missing[1] == "tidemark"
            else f"does not have {missing[1]!r}, which tidemark needs"
        )
    return "is of another version than the driver's" if "PYTHON_VERSION_MISMATCH" in told else None
