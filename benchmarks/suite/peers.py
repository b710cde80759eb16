"""Environments of the systems we compare with: created once under `benchmarks/.peers`, never in ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from suite.worker import MARK, Case

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent / ".peers"

ENVIRONMENTS: dict[str, list[str]] = {
    "spark": ["pyspark=={pyspark}", "pandas<3", "pyarrow", "protobuf"],
    "flink": ["apache-flink"],
    "bytewax": ["bytewax", "numpy"],
    "quix": ["quixstreams", "numpy"],
    "pathway": ["pathway", "numpy"],
    "plot": ["matplotlib"],
}
"""What pip installs into each; PySpark is the same version that tidemark runs on."""

SYSTEMS: dict[str, tuple[str, str]] = {
    "tidemark": ("", "worker_tidemark.py"),
    "spark-pandas": ("spark", "worker_spark.py"),
    "spark-row": ("spark", "worker_spark.py"),
    "spark-sql": ("", "worker_spark.py"),
    "flink-process": ("flink", "worker_flink.py"),
    "flink-thread": ("flink", "worker_flink.py"),
    "bytewax": ("bytewax", "worker_bytewax.py"),
    "quix": ("quix", "worker_quix.py"),
    "pathway": ("pathway", "worker_pathway.py"),
}
"""Environment ("" is ours) and worker of each system."""


class PeerMissingError(Exception):
    """A peer's environment cannot be installed here."""


def python_of(environment: str) -> Path:
    """The interpreter of an environment, which is created and filled if need be.

    Raises:
        PeerMissingError: pip failed; its last lines are the message.
    """
    if not environment:
        return Path(sys.executable)
    folder = ROOT / environment
    interpreter, stamp = folder / "bin" / "python", folder / ".installed"
    if stamp.exists():
        return interpreter
    print(f"  .. installing {environment} into {folder}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    wanted = [item.format(pyspark=_version("pyspark")) for item in ENVIRONMENTS[environment]]
    pip = subprocess.run(
        [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted],
        capture_output=True,
        text=True,
    )
    if pip.returncode:
        raise PeerMissingError(" ".join(pip.stderr.split())[-300:])
    stamp.write_text("\n".join(wanted))
    return interpreter


def drawn(script: str | Path, results: Path) -> bool:
    """Let a script draw results with matplotlib, which has an environment of its own.

    Args:
        script: Of the suite by its name, another one by its path.
        results: The folder, or file, that it gets as its argument.

    Returns:
        False if it could not; why is printed.
    """
    try:
        interpreter = python_of("plot")
    except PeerMissingError as exc:
        print(f"No plot: {exc}")
        return False
    done = subprocess.run(
        [str(interpreter), str(HERE / script), str(results)], capture_output=True, text=True
    )
    if done.returncode:
        print(f"No plot: {done.stderr[-500:]}")
    return done.returncode == 0


def jars_of(*artifacts: str) -> list[Path]:
    """Jars by their Maven names (`group:artifact:version`), kept under `.peers/jars`.

    Raises:
        PeerMissingError: Maven is not there, or has none of that name.
    """
    folder = ROOT / "jars"
    jars = []
    for artifact in artifacts:
        _group, name, version = artifact.split(":")
        jar = folder / f"{name}-{version}.jar"
        jars.append(jar)
        if jar.exists():
            continue
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
        command = ["mvn", "-q", "-B", goal, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        try:
            done = subprocess.run([*command, "-Dmdep.useBaseVersion=true"], capture_output=True, text=True)
        except OSError as exc:
            raise PeerMissingError(f"{artifact}: {exc}") from exc
        if not jar.exists():
            raise PeerMissingError(f"{artifact}: {' '.join(done.stdout.split())[:200]}")
    return jars


def versions(environment: str) -> str:
    """`name version` of the packages asked for, as installed."""
    if not environment:
        names = ["tidemark", "pyspark", "pyarrow", "rocksdict"]
    else:
        names = [item.split("=")[0].split("<")[0] for item in ENVIRONMENTS[environment]]
    code = (
        "import importlib.metadata as m, sys\n"
        "def v(n):\n"
        "    try: return n + ' ' + m.version(n)\n"
        "    except Exception: return n + ' (source tree)'\n"
        "print(', '.join(v(n) for n in sys.argv[1:]))"
    )
    return subprocess.run(
        [str(python_of(environment)), "-c", code, *names], capture_output=True, text=True
    ).stdout.strip()


def run_case(case: Case, timeout_s: float) -> dict[str, Any]:
    """Measure a case in a new process; a failure becomes an `error` in the result."""
    environment, script = SYSTEMS[case.system]
    try:
        interpreter = python_of(environment)
    except PeerMissingError as exc:
        return {"error": f"not installable here: {exc}"}
    surroundings = dict(os.environ, PYSPARK_PYTHON=str(interpreter), PYSPARK_DRIVER_PYTHON=str(interpreter))
    ours = [str(HERE.parent)]
    if not environment:
        ours += [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    surroundings["PYTHONPATH"] = os.pathsep.join(ours)
    process = subprocess.Popen(
        [str(interpreter), str(HERE / script), case.text()],
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return {"error": f"no result within {timeout_s:.0f} s"}
    for line in reversed(out.splitlines()):
        if line.startswith(MARK):
            result: dict[str, Any] = json.loads(line.removeprefix(MARK))
            if "error" in result:
                result["stderr"] = err[-2000:]
            return result
    return {"error": f"exit code {process.returncode} without a result", "stderr": err[-2000:]}


def _end(process: subprocess.Popen[str]) -> None:
    """End the worker and what it started: it leads a process group of its own."""
    import signal

    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _version(package: str) -> str:
    import importlib.metadata

    return importlib.metadata.version(package)
