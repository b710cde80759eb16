"""A real standalone cluster from the jars that pyspark brings: a master and workers, each with directories of its own.

Nothing is shared but the checkpoint storage. spark-submit brings the program, and `--py-files` a module of the user.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest
from tests.campaign import SEED
from tests.integration.conftest import slot_processes
from tests.integration.test_jobs_on_spark import DEADLINE, wait_for
from tests.watching import completed_checkpoints

pytestmark = pytest.mark.cluster

HOME = Path(pyspark.__file__).parent
LIMIT = 12_000

LIBRARY = """
import time
from pathlib import Path

from tidemark import *


class Numbers(SourceFunction, CheckpointedFunction):
    '''Counts up to a limit, and stops half-way until a file is there.'''

    def __init__(self, limit, gate):
        self.limit, self.gate, self.next, self.running = limit, gate, 0, True

    def initialize_state(self, context):
        descriptor = ListStateDescriptor("next", Types.LONG())
        self.state = context.get_operator_state_store().get_list_state(descriptor)
        self.next = next(iter(self.state.get()), 0)

    def snapshot_state(self, context):
        self.state.update([self.next])

    def run(self, ctx):
        while self.running and self.next < self.limit:
            if self.next < self.limit // 2 or self.gate.exists():
                with ctx.get_checkpoint_lock():
                    for _ in range(50):
                        ctx.collect(self.next)
                        self.next += 1
            time.sleep(0.02)

    def cancel(self):
        self.running = False


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.first = int(Path("tables/first.txt").read_text())
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or self.first - 1) + 1)
        yield ctx.get_current_key(), self.count.value()
"""

PROGRAM = """
from pathlib import Path

from tidemark import *
from userlib import Count, Numbers

configuration = Configuration.from_dict({{
    "execution.mode": {mode!r},
    "state.checkpoints.dir": {folder!r} + "/checkpoints",
    "restart-strategy": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "50",
    "restart-strategy.fixed-delay.delay": "500 ms",
}})
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
env.enable_checkpointing(300)
pair = Types.TUPLE([Types.LONG(), Types.LONG()])
numbers = env.add_source(Numbers({limit}, Path({folder!r}) / "go"), type_info=Types.LONG()).uid("numbers")
counted = numbers.key_by(lambda number: number % 10, Types.LONG()).process(Count(), pair).uid("counts")
counted.sink_to(FileSink.for_row_format({folder!r} + "/out", Encoder.simple_string_encoder()).build()).uid("out")
env.execute("standalone")
"""


class Cluster:
    """One master; workers come and go."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        arguments = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._start("master", "org.apache.spark.deploy.master.Master", *arguments)
        self.url = self._said("master", r"Starting Spark master at (spark://\S+)")

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker of one core; returns when it is registered."""
        name = f"worker-{len(self.workers)}"
        limits = ("--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0")
        work = ("--work-dir", str(self._directory / name / "work"))
        process = self._start(name, "org.apache.spark.deploy.worker.Worker", *limits, *work, self.url)
        self.workers.append(process)
        self._said(name, r"(Successfully registered with master)")
        return process

    def lose(self, worker: subprocess.Popen[bytes]) -> None:
        """Kill a worker and everything that it has started, as when a machine is lost."""
        for process in [*psutil.Process(worker.pid).children(recursive=True), psutil.Process(worker.pid)]:
            process.kill()
        worker.wait()

    def submit(self, program: Path, *options: str) -> subprocess.Popen[bytes]:
        """Run a program by spark-submit in client mode, the only one there is for Python."""
        shared = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1")
        command = [HOME / "bin" / "spark-submit", "--master", self.url, *shared, *options, str(program)]
        return self._run("driver", command)

    def log(self, name: str) -> str:
        """What a process has said."""
        return (self._directory / name / "log").read_text(errors="replace")

    def close(self) -> None:
        """End everything that is left."""
        for process in self._processes:
            if process.poll() is None:
                self.lose(process)

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        return self._run(name, [HOME / "bin" / "spark-class", main, *arguments])

    def _run(self, name: str, command: list[str | Path]) -> subprocess.Popen[bytes]:
        own = self._directory / name
        (own / "tmp").mkdir(parents=True)
        environment = {
            **{
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("SPARK_", "PYTHONPATH"))
            },
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_DIRS": str(own / "tmp"),
            "TMPDIR": str(own / "tmp"),
            "TIDEMARK_HOME": str(own / "home"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with (own / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=own)
        self._processes.append(process)
        return process

    def _said(self, name: str, pattern: str) -> str:
        wait_for(lambda: re.search(pattern, self.log(name)))
        found = re.search(pattern, self.log(name))
        assert found is not None
        return found[1]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "machines")
    yield made
    made.close()


def expected() -> list[str]:
    return sorted(f"({key},{count})" for key in range(10) for count in range(1, LIMIT // 10 + 1))


# A cluster takes its time to start; `make chaos` has both.
@pytest.mark.parametrize("mode", ["continuous", "epochs"] if SEED else ["continuous"])
def test_a_lost_worker_and_a_new_one_lose_and_repeat_nothing(
    tmp_path: Path, cluster: Cluster, mode: str
) -> None:
    others = set(slot_processes())
    shared = tmp_path / "shared"
    shared.mkdir()
    with zipfile.ZipFile(tmp_path / "userlib.zip", "w") as library:
        library.writestr("userlib.py", LIBRARY)
    with zipfile.ZipFile(tmp_path / "shop.zip", "w") as archive:
        archive.writestr("first.txt", "1")
    program = tmp_path / "job.py"
    program.write_text(PROGRAM.format(mode=mode, folder=str(shared), limit=LIMIT))
    cluster.add_worker()
    second = cluster.add_worker()

    def checkpoints() -> set[Path]:
        assert driver.poll() is None, cluster.log("driver")[-4000:]
        return set(completed_checkpoints(shared / "checkpoints"))

    shipped = ("--py-files", f"{tmp_path}/userlib.zip", "--archives", f"{tmp_path}/shop.zip#tables")
    driver = cluster.submit(program, *shipped)
    wait_for(checkpoints)
    cluster.lose(second)
    before = checkpoints()
    cluster.add_worker()
    wait_for(lambda: checkpoints() - before)
    (shared / "go").touch()

    assert driver.wait(DEADLINE) == 0, cluster.log("driver")[-4000:]
    lines = [line for path in (shared / "out").rglob("part-*") for line in path.read_text().splitlines()]
    assert sorted(lines) == expected()
    wait_for(lambda: not set(slot_processes()) - others)
