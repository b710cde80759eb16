"""The DataStream surface on Spark: the same answers as in the local executor, whatever the parallelism."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_jobs_on_spark import DEADLINE, wait_for
from tests.programs.jobs import ANSWERS, everything, sorted_texts
from tests.programs.test_rule_matching import ITEM, RULES, Match

from tidemark.common import Duration, RestartStrategies, Types, WatermarkStrategy
from tidemark.datastream import EmbeddedRocksDBStateBackend, HashMapStateBackend, RuntimeExecutionMode
from tidemark.datastream.connectors.file_system import FileSource, StreamFormat
from tidemark.datastream.functions import BroadcastProcessFunction, MapFunction, ReduceFunction
from tidemark.datastream.state import MapStateDescriptor, ValueStateDescriptor
from tidemark.errors import JobExecutionException

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("mode", "parallelism", "backend"),
    [
        ("epochs", 2, EmbeddedRocksDBStateBackend),
        ("epochs", 5, HashMapStateBackend),
        ("continuous", 2, HashMapStateBackend),
        ("continuous", 3, EmbeddedRocksDBStateBackend),
    ],
)
def test_every_job_gives_its_answer_on_spark(
    mode: str, parallelism: int, backend: Callable[[], Any], make_env: Callable[..., Any]
) -> None:
    env = make_env(parallelism)
    env.set_state_backend(backend())

    results = list(everything(env).execute_and_collect())

    for name, answer in ANSWERS.items():
        assert sorted(text for job, text in results if job == name) == sorted_texts(answer), name


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.BATCH, RuntimeExecutionMode.AUTOMATIC])
def test_batch_mode_on_spark_reads_rules_first_and_emits_once_per_key(
    mode: RuntimeExecutionMode, make_env: Callable[..., Any]
) -> None:
    env = make_env(2)
    env.set_runtime_mode(mode)
    pairs = env.from_collection([("a", 1), ("b", 2), ("a", 3)])
    rules = env.from_collection([("double", 2), ("triple", 3)])
    descriptor = MapStateDescriptor("rules", Types.STRING(), Types.INT())

    totals = pairs.key_by(lambda pair: pair[0]).reduce(Add())
    applied = pairs.connect(rules.broadcast(descriptor)).process(Apply(descriptor))
    results = list(totals.union(applied).execute_and_collect())

    expected = [("a", 4), ("b", 2)]
    expected += [(key, value * factor) for key, value in [("a", 1), ("b", 2), ("a", 3)] for factor in (2, 3)]
    assert sorted(results) == sorted(expected)


class Add(ReduceFunction):
    """Adds up in keyed state of its own beside the rolling value; both must agree."""

    def open(self, runtime_context: Any) -> None:
        self.added = runtime_context.get_state(ValueStateDescriptor("added", Types.LONG()))

    def reduce(self, value1: Any, value2: Any) -> Any:
        self.added.update((self.added.value() or value1[1]) + value2[1])
        return value1[0], self.added.value()


class Apply(BroadcastProcessFunction):
    """Applies every rule known so far."""

    def __init__(self, descriptor: Any) -> None:
        self.descriptor = descriptor

    def process_element(self, value: Any, ctx: Any) -> Any:
        for factor in ctx.get_broadcast_state(self.descriptor).values():
            yield value[0], value[1] * factor

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(self.descriptor).put(*value)


class ReadShipped(MapFunction):
    """Runs in a slot, which has a working directory of its own."""

    def open(self, runtime_context: Any) -> None:
        self.number = read_shipped(0)

    def map(self, value: Any) -> Any:
        return value + self.number


def read_shipped(value: int) -> int:
    from shipped_for_surface import number

    return value + number + int(Path("data/data.txt").read_text()) + int(Path("cached").read_text())


@pytest.mark.parametrize("target", ["spark", "local"])
def test_shipped_files_are_found_by_name_in_tasks_and_in_slots(
    target: str, make_env: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "shipped_for_surface.py").write_text("number = 100\n")
    (tmp_path / "cached-file").write_text("10")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("data.txt", "1000")
    env = make_env(1, target)
    env.add_python_file(str(tmp_path / "shipped_for_surface.py"))
    env.add_python_archive(str(tmp_path / "data.zip"), "data")
    env.register_cached_file(str(tmp_path / "cached-file"), "cached")

    numbers = env.from_collection([1, 2])
    both = numbers.map(read_shipped).union(numbers.rebalance().map(ReadShipped()))

    assert sorted(both.execute_and_collect()) == [1111, 1111, 1112, 1112]


class Announced(Match):
    """Also tells which subtask has taken which rule, so that the test knows when to go on."""

    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        self.index = runtime_context.get_index_of_this_subtask()

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        super().process_broadcast_element(value, ctx)
        yield f"rule {value[0]} on {self.index}"


class RuleJob:
    """The rule-matching job over two directories that the test fills while it runs."""

    def __init__(self, env: Any, folder: Path) -> None:
        env.enable_checkpointing(200)
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 100))
        self._seen: list[str] = []
        rules = self._lines(env, folder / "rules").map(_rule).broadcast(RULES)
        items = self._lines(env, folder / "items").map(_item, output_type=ITEM)
        matched = (
            items.key_by(lambda item: item[0], key_type=Types.STRING()).connect(rules).process(Announced())
        )
        self._results = matched.uid("match").execute_and_collect()
        self.client = self._results.get_job_client()

    def _lines(self, env: Any, folder: Path) -> Any:
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder))
        source = source.monitor_continuously(Duration.of_millis(50)).build()
        return env.from_source(source, WatermarkStrategy.no_watermarks(), folder.name).uid(folder.name)

    def wait_for(self, *lines: str) -> None:
        """Read results until these have come, and nothing else."""
        got = [next(self._results) for _ in lines]
        assert sorted(got) == sorted(lines)

    def rest(self) -> list[str]:
        return list(self._results)


def _rule(line: str) -> Any:
    name, *shapes = line.split()
    return name, tuple(shapes) or None


def _item(line: str) -> Any:
    colour, shape, number = line.split()
    return colour, shape, int(number)


def test_rules_change_on_spark_through_a_crash_and_a_rescale(
    make_env: Callable[..., Any], checkpoints: str, tmp_path: Path
) -> None:
    counter = iter(range(100))

    def write(kind: str, *lines: str) -> None:
        """A new file appears at once, with all of its lines."""
        (tmp_path / kind).mkdir(exist_ok=True)
        hidden = tmp_path / kind / f".{next(counter)}"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        hidden.rename(hidden.with_name(f"{next(counter)}.txt"))

    settings = {"state__checkpoints__dir": checkpoints}
    write("rules", "a square circle")
    write("items")
    job = RuleJob(make_env(2, **settings), tmp_path)
    job.wait_for("rule a on 0", "rule a on 1")
    write("items", "red square 1", "blue square 2", "red circle 3")
    job.wait_for("a: 1-3")

    os.kill(job.client.get_progress()["slot_pids"][1], signal.SIGKILL)
    wait_for(lambda: job.client.get_progress()["attempt"] > 0)
    write("rules", "b circle star")
    job.wait_for("rule b on 0", "rule b on 1")
    write("items", "blue circle 4", "green circle 5")
    job.wait_for("a: 2-4")

    savepoint = job.client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(DEADLINE)
    assert job.rest() == []
    job = RuleJob(make_env(3, **settings, **{"execution__savepoint__path": savepoint}), tmp_path)
    write("items", "blue star 6", "green star 7", "red square 8")
    job.wait_for("b: 4-6", "b: 5-7")
    write("rules", "a")
    job.wait_for("rule a on 0", "rule a on 1", "rule a on 2")
    write("items", "red circle 9", "red star 10")
    job.wait_for("b: 9-10")
    job.client.cancel().result(DEADLINE)


def test_failures_on_spark_name_the_operator_the_code_belongs_to(make_env: Callable[..., Any]) -> None:
    env = make_env(2)
    env.from_collection([1]).key_by(lambda value: 1 / 0).map(lambda value: value).name("after-key").print()
    with pytest.raises(JobExecutionException, match=r"key selector of after-key.*ZeroDivisionError"):
        env.execute()

    env.from_collection([1]).map(lambda value: "text", output_type=Types.INT()).name("wrong-type").print()
    with pytest.raises(JobExecutionException, match=r"'wrong-type'.*INT must be an integer.*'text'"):
        env.execute()


@pytest.mark.parametrize(
    "name",
    [
        "word_count",
        "session_with_gap_window",
        "event_time_timer",
        "late_data",
        "side_outputs",
        "iteration",
        "connected_components",
        "page_rank",
    ],
)
def test_example_prints_the_same_lines_on_spark(
    name: str, spark: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_EXECUTION_TARGET", "spark")
    monkeypatch.setattr(sys, "argv", [name])
    root = Path(__file__).parents[2]
    capfd.readouterr()

    runpy.run_path(str(root / "examples" / f"{name}.py"), run_name="__main__")

    expected = (root / "tests" / "programs" / "expected" / f"{name}.txt").read_text().splitlines()
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(expected)
