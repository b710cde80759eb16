from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.errors import ConfigError
from tidemark.runtime.session import (
    _quiet,
    _warn_of_open_ports,
    find_or_create_session,
    java_command,
    java_version,
    use_this_interpreter,
)


def context(master: str, **conf: str) -> Any:
    return SimpleNamespace(master=master, pythonExec="python3", getConf=lambda: conf)


def script(path: Path, line: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


def test_workers_of_a_local_master_are_this_interpreter() -> None:
    spark = context("local[2]")

    use_this_interpreter(spark, {})

    assert spark.pythonExec == sys.executable


@pytest.mark.parametrize(
    ("spark", "environ"),
    [
        (context("spark://host:7077"), {}),
        (context("local[2]"), {"PYSPARK_PYTHON": "/opt/python"}),
        (context("local[2]", **{"spark.pyspark.python": "/opt/python"}), {}),
    ],
)
def test_workers_that_the_user_or_a_cluster_names_stay(spark: Any, environ: dict[str, str]) -> None:
    use_this_interpreter(spark, environ)

    assert spark.pythonExec == "python3"


def test_java_is_looked_for_where_spark_looks(tmp_path: Path) -> None:
    in_path = script(tmp_path / "bin" / "java", "true")
    at_home = script(tmp_path / "jdk" / "bin" / "java", "true")

    assert java_command({"PATH": str(tmp_path / "bin")}) == in_path
    assert java_command({"PATH": str(tmp_path / "bin"), "JAVA_HOME": str(tmp_path / "jdk")}) == at_home
    assert java_command({"PATH": str(tmp_path / "bin"), "JAVA_HOME": str(tmp_path / "gone")}) is None
    assert java_command({"PATH": str(tmp_path)}) is None


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.9" 2023', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21"', 21),
        ("?", sys.maxsize),
    ],
)
def test_the_version_of_java_is_read_from_what_it_says(tmp_path: Path, told: str, version: int) -> None:
    assert java_version(script(tmp_path / "java", f"echo '{told}' >&2")) == version


def test_without_java_a_job_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))

    with pytest.raises(
        ConfigError, match=r"Java 17 or newer, and none was found.*TIDEMARK_EXECUTION_TARGET=local"
    ):
        find_or_create_session({})


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else nobody sees why the Java of the path is not taken."""
    monkeypatch.setenv("PATH", os.path.dirname(script(tmp_path / "bin" / "java", "true")))
    monkeypatch.setenv("JAVA_HOME", os.fspath(tmp_path / "gone"))

    with pytest.raises(ConfigError, match=f"none in JAVA_HOME, {tmp_path / 'gone'}"):
        find_or_create_session({})


def test_a_java_that_is_too_old_is_refused_before_it_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Spark's launcher and the old JVM would say lines that nobody understands."""
    java = script(tmp_path / "bin" / "java", "echo 'openjdk version \"11.0.22\"' >&2")
    monkeypatch.setenv("JAVA_HOME", os.fspath(tmp_path))

    with pytest.raises(ConfigError, match=f"Java 17 or newer, {java} is 11.*JAVA_HOME") as raised:
        find_or_create_session({})

    assert raised.value.__cause__ is None
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("line", "version"), [("17.0.15", 17), ("1.8.0_292", 8), ("25", 25)])
def test_the_version_of_java_is_read_without_starting_it(tmp_path: Path, line: str, version: int) -> None:
    java = script(tmp_path / "jdk" / "bin" / "java", f"touch {tmp_path / 'started'}")
    (tmp_path / "jdk" / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{line}"\n')
    (tmp_path / "java").symlink_to(java)

    assert java_version(os.fspath(tmp_path / "java")) == version
    assert not (tmp_path / "started").exists()


def test_a_jvm_that_we_start_says_only_errors_unless_the_user_has_a_say(tmp_path: Path) -> None:
    (tmp_path / "log4j2.properties").touch()
    option = "spark.driver.extraJavaOptions"

    quiet = _quiet("-Xss4m", {})[option]

    assert quiet.startswith("-Xss4m ")
    file = Path(quiet.rpartition("=file://")[2].rstrip('"'))
    assert "rootLogger.level = error" in file.read_text()
    # Without a level of its own the gateway says two lines about the one it sets.
    assert "logger.gateway.level = error" in file.read_text()
    assert _quiet("-Dlog4j2.configurationFile=mine", {}) == {}
    assert _quiet("", {"SPARK_CONF_DIR": str(tmp_path)}) == {}
    assert _quiet("", {"TIDEMARK_SPARK_LOG_LEVEL": "INFO"}) == {}


START = """
from pyspark.errors import PySparkRuntimeError
from tidemark.runtime.session import find_or_create_session
try:
    find_or_create_session({"spark.master": "local[2]", "spark.hadoop.fs.s3a.secret.key": "nobody-may-read-this"})
except PySparkRuntimeError:
    print("refused")
"""


def test_secrets_are_on_no_command_line(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script(tmp_path / "spark" / "bin" / "spark-submit", f'echo "$@" > {told}; exit 1')
    (tmp_path / "spark" / "jars").mkdir()
    environment = {**os.environ, "SPARK_HOME": str(tmp_path / "spark"), "TMPDIR": str(tmp_path)}
    environment["PATH"] = os.pathsep.join([str(tmp_path), environment["PATH"]])
    environment.pop("JAVA_HOME", None)
    script(tmp_path / "java", "echo 'openjdk version \"17\"' >&2")

    command = [sys.executable, "-c", START]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    assert done.stdout == "refused\n", done.stderr
    assert "spark.master=local[2]" in told.read_text()
    assert "spark.authenticate=true" in told.read_text()
    assert "nobody-may-read-this" not in told.read_text()


def test_a_session_whose_ports_ask_nobody_who_they_are_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    closed = context("spark://host:7077", **{"spark.authenticate": "true"})

    _warn_of_open_ports(SimpleNamespace(sparkContext=closed))  # type: ignore[arg-type]
    assert caplog.messages == []
    _warn_of_open_ports(SimpleNamespace(sparkContext=context("spark://host:7077")))  # type: ignore[arg-type]

    [message] = caplog.messages
    assert message.startswith("spark.authenticate is off")
