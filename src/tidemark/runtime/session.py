"""The Spark session jobs run in: the user's if there is one, else a local one with the settings that matter.

Measured effects of the settings: unix sockets to the Python workers save about 35 ms per Python stage; a
short kill timeout makes cancelling quick. They cannot be changed on a context that is running already.
With a limit of bytes per Arrow batch Spark adds up the size of the batch after every row, a third of its
work for a narrow row; the limit of rows is enough unless a row has tens of kilobytes.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.errors import ConfigError
from tidemark.redaction import is_secret
from tidemark.rpc.addresses import socket_base
from tidemark.runtime.class_archive import class_archive_options
from tidemark.runtime.jvm_console import filtered_console
from tidemark.scratch import scratch_for_life

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "GET_JAVA",
    "OLDEST_JAVA",
    "active_session",
    "find_or_create_session",
    "java_command",
    "java_version",
    "lost",
    "master_of_session",
    "no_java",
    "runs_in_driver",
    "use_this_interpreter",
]

_log = logging.getLogger(__name__)

OLDEST_JAVA = 17
GET_JAVA = (
    "Install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or point JAVA_HOME at it; without Spark, "
    "jobs run with TIDEMARK_EXECUTION_TARGET=local."
)
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LEVEL = "TIDEMARK_SPARK_LOG_LEVEL"
_AUTHENTICATE = "spark.authenticate"
_LOOPBACK = "127.0.0.1"
_LOCAL_IP = "SPARK_LOCAL_IP"
_LOCAL_CLUSTER = {"spark.ui.killEnabled": "false", "spark.master.ui.decommission.allow.mode": "DENY"}
"""Its master and workers have web pages that cannot be turned off, with buttons that end executors."""
_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
_UNIX_SOCKET_DIRECTORY = "spark.python.unix.domain.socket.dir"
_LONGEST_SOCKET_BASE = 36
"""Our directory there and the sockets that Spark names in it take 69 of the 107 characters a path may have."""
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

    Raises:
        ConfigError: A new session needs Java, and there is none or one that is too old.
    """
    from pyspark.sql import SparkSession

    active = active_session()
    if active is not None:
        _advise(active)
        use_this_interpreter(active.sparkContext, os.environ)
        return active, False
    java = java_command(os.environ)
    if java is None:
        raise ConfigError(f"Spark needs Java {OLDEST_JAVA} or newer, and {no_java(os.environ)}. {GET_JAVA}")
    if (version := java_version(java)) < OLDEST_JAVA:
        raise ConfigError(f"Spark needs Java {OLDEST_JAVA} or newer, {java} is {version}. {GET_JAVA}")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = {key: value for key, value in configuration.items() if key.startswith("spark.")}
    builder = SparkSession.builder.appName(wanted.pop("spark.app.name", "tidemark"))
    wanted["spark.master"] = _new_master(wanted, spare)
    environment: dict[str, str] = {}
    if wanted["spark.master"].startswith("local"):
        wanted.setdefault("spark.driver.host", _LOOPBACK)
        wanted.setdefault("spark.driver.bindAddress", _LOOPBACK)
        # RPC and block manager ports hand blocks (broadcast closures, with the job's token in them) to whoever asks,
        # on the loopback interface as well.
        wanted.setdefault(_AUTHENTICATE, "true")
        if not runs_in_driver(wanted["spark.master"]):
            wanted = {**_LOCAL_CLUSTER, **wanted}
            # Where there are executors, Spark wants a secret and makes none up; it tells them by their environment.
            wanted.setdefault(f"{_AUTHENTICATE}.secret", secrets.token_hex(32))
            # Master, workers and executors would listen on the network, whatever the driver binds to.
            environment = {} if _LOCAL_IP in os.environ else {_LOCAL_IP: _LOOPBACK}
        if _UNIX_SOCKET_DIRECTORY not in wanted:
            # Whoever connects is obeyed by a Python worker; in /tmp only the umask kept others out.
            wanted[_UNIX_SOCKET_DIRECTORY] = scratch_for_life(
                "tidemark-workers-", socket_base(_LONGEST_SOCKET_BASE)
            )
    wanted.update(_quiet(wanted.get(_JAVA_OPTIONS, ""), os.environ))
    shared = class_archive_options(java, wanted.get(_JAVA_OPTIONS, ""), os.environ)
    if shared:
        wanted[_JAVA_OPTIONS] = f"{wanted.get(_JAVA_OPTIONS, '')} {shared}".strip()
    settings = {**_SETTINGS, **wanted}
    for key, value in settings.items():
        builder = builder.config(key, value)
    _start_jvm(settings, environment)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get(_LEVEL, "ERROR"))
    _warn_of_open_ports(session)
    return session, True


def master_of_session(configuration: Mapping[str, str], spare: int = 0) -> str:
    """The master of the session that `find_or_create_session` will give; nothing is started."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None and context._jsc is not None:
        return str(context.master)
    return _new_master(configuration, spare)


def _new_master(configuration: Mapping[str, str], spare: int) -> str:
    default = f"local[{(os.cpu_count() or 1) + spare}]" if spare else "local[*]"
    return configuration.get("spark.master") or os.environ.get("SPARK_MASTER", default)


def _start_jvm(settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Start the JVM, if none runs yet, without the secrets among the settings: everybody may read its command line.

    The session gets them when it is made, over PySpark's gateway.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    shown = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        if not is_secret(key):
            shown.set(key, value)
    os.environ.update(environment)
    try:
        if _LEVEL in os.environ:
            SparkContext._ensure_initialized(conf=shown)
        else:
            with filtered_console() as console:
                gateway = launch_gateway(shown, {"stderr": console})
            SparkContext._ensure_initialized(gateway=gateway)
    finally:
        for name in environment:
            del os.environ[name]


def _quiet(java_options: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The option with which a JVM says nothing but errors while it starts; none where the user has a say."""
    homes = [environ.get("SPARK_CONF_DIR", ""), os.path.join(environ.get("SPARK_HOME", ""), "conf")]
    configured = any(os.path.exists(os.path.join(home, "log4j2.properties")) for home in homes)
    if configured or "log4j" in java_options or _LEVEL in environ:
        return {}
    file = Path(__file__).with_name("log4j2-quiet.properties")
    return {_JAVA_OPTIONS: f'{java_options} "-Dlog4j2.configurationFile={file.as_uri()}"'.strip()}


def runs_in_driver(master: str) -> bool:
    """Whether tasks run in the driver's own JVM; `local-cluster` has executors, and stands in for real clusters."""
    return master == "local" or master.startswith("local[")


def active_session() -> SparkSession | None:
    """The session of this process, if there is one; nothing is started."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or _default_session(SparkSession)


def lost(session: SparkSession) -> str | None:
    """Why a session can run nothing any more, None while it can."""
    from py4j.protocol import Py4JNetworkError

    context = session.sparkContext
    if context._jsc is None:
        return "The SparkContext was stopped"
    # A JVM that PySpark has not started itself (spark-submit) is known by its port alone.
    process = getattr(context._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        return f"The JVM of Spark's driver (process {process.pid}) has ended"
    try:
        stopped = context._jsc.sc().isStopped()
    except (Py4JNetworkError, OSError) as exc:
        return f"The JVM of Spark's driver has ended ({exc})"
    return "The SparkContext was stopped" if stopped else None


def java_command(environ: Mapping[str, str]) -> str | None:
    """The Java that Spark's launcher will take; None if it finds none."""
    home = environ.get("JAVA_HOME")
    if home:
        return shutil.which(os.path.join(home, "bin", "java"))
    return shutil.which("java", path=environ.get("PATH"))


def no_java(environ: Mapping[str, str]) -> str:
    """Why `java_command` finds none; the launcher looks nowhere else if JAVA_HOME is set."""
    home = environ.get("JAVA_HOME")
    return f"there is none in JAVA_HOME, {home}" if home else "none was found"


def java_version(command: str) -> int:
    """The feature version of that Java, 8 for "1.8"; a huge number if it does not tell.

    It is read from the file that every JDK has; only without one Java is asked, which takes a process.
    """
    try:
        release = (
            Path(os.path.realpath(command)).parent.parent.joinpath("release").read_text(errors="replace")
        )
    except OSError:
        release = ""
    if found := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE):
        return int(found[1])
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired):
        return sys.maxsize
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else sys.maxsize


def use_this_interpreter(context: Any, environ: Mapping[str, str]) -> None:
    """Let workers of a local master be the interpreter that runs this program, unless the user named another one.

    PySpark takes whatever `python3` the path has, which need not have our dependencies.
    """
    named = "PYSPARK_PYTHON" in environ or context.getConf().get("spark.pyspark.python") is not None
    if str(context.master).startswith("local") and not named:
        context.pythonExec = sys.executable


def _default_session(session_class: Any) -> Any:
    session = getattr(session_class, "_instantiatedSession", None)
    if session is None or session._sc is None or session._sc._jsc is None:
        return None
    return session


def _advise(session: SparkSession) -> None:
    _warn_of_open_ports(session)
    conf = session.sparkContext.getConf()
    if conf.get(_UNIX_SOCKETS, "false") != "true":
        _log.info(
            "This Spark session runs without %s=true: every epoch takes about 35 ms longer.", _UNIX_SOCKETS
        )
    if conf.get("spark.speculation", "false") == "true":
        _log.warning("spark.speculation is on: a speculative task makes its epoch fail. Turn it off.")


def _warn_of_open_ports(session: SparkSession) -> None:
    """Tell that Spark's own ports would give plan and token to whoever reaches them."""
    if session.sparkContext.getConf().get(_AUTHENTICATE, "false") != "true":
        _log.warning(
            "%s is off: whoever reaches the ports of Spark's driver and executors, every user of these machines, can "
            "read the code, the records and the token of this job. Turn it on, on a standalone cluster with %s.secret "
            "in spark-defaults.conf.",
            _AUTHENTICATE,
            _AUTHENTICATE,
        )
