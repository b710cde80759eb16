"""The Spark session jobs run in: the user's if there is one, else a local one with the settings that matter.

Measured effects of the settings: unix sockets to the Python workers save about 35 ms per Python stage; a
short kill timeout makes cancelling quick. They cannot be changed on a context that is running already.
With a limit of bytes per Arrow batch Spark adds up the size of the batch after every row, a third of its
work for a narrow row; the limit of rows is enough unless a row has tens of kilobytes.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["active_session", "find_or_create_session"]

_log = logging.getLogger(__name__)

_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
_SETTINGS = {
    _UNIX_SOCKETS: "true",
    "spark.python.worker.reuse": "true",
    "spark.python.task.killTimeout": "100ms",
    "spark.sql.adaptive.enabled": "false",
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}


def find_or_create_session(configuration: dict[str, str], spare: int = 0) -> tuple[SparkSession, bool]:
    """The active session, or a new one; True if it is new (and ours to stop).

    Args:
        configuration: The job's configuration; keys that start with `spark.` go to a new session.
        spare: Tasks without end that a new local session must have room for beside everything else.
    """
    from pyspark.sql import SparkSession

    active = active_session()
    if active is not None:
        _advise(active)
        return active, False
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = {key: value for key, value in configuration.items() if key.startswith("spark.")}
    builder = SparkSession.builder.appName(wanted.pop("spark.app.name", "tidemark"))
    if "spark.master" not in wanted:
        default = f"local[{(os.cpu_count() or 1) + spare}]" if spare else "local[*]"
        wanted["spark.master"] = os.environ.get("SPARK_MASTER", default)
    if wanted["spark.master"].startswith("local"):
        wanted.setdefault("spark.driver.host", "127.0.0.1")
        wanted.setdefault("spark.driver.bindAddress", "127.0.0.1")
    for key, value in {**_SETTINGS, **wanted}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get("TIDEMARK_SPARK_LOG_LEVEL", "ERROR"))
    return session, True


def active_session() -> SparkSession | None:
    """The session of this process, if there is one; nothing is started."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or _default_session(SparkSession)


def _default_session(session_class: Any) -> Any:
    session = getattr(session_class, "_instantiatedSession", None)
    if session is None or session._sc is None or session._sc._jsc is None:
        return None
    return session


def _advise(session: SparkSession) -> None:
    conf = session.sparkContext.getConf()
    if conf.get(_UNIX_SOCKETS, "false") != "true":
        _log.info(
            "This Spark session runs without %s=true: every epoch takes about 35 ms longer.", _UNIX_SOCKETS
        )
    if conf.get("spark.speculation", "false") == "true":
        _log.warning("spark.speculation is on: a speculative task makes its epoch fail. Turn it off.")
