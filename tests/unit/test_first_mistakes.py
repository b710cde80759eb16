"""Mistakes of a first program: the error says what was wrong and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidemark import Configuration, KeyedProcessFunction, StreamExecutionEnvironment, Types
from tidemark.errors import ExecutionError


class Returns(KeyedProcessFunction):
    def __init__(self, result: Any) -> None:
        self.result = result

    def process_element(self, value: Any, ctx: Any) -> Any:
        return self.result


def words() -> Any:
    configuration = Configuration.from_dict({"execution.target": "local"})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    return env.from_collection(["a", "b"], Types.STRING())


def failure_of(stream: Any) -> str:
    with pytest.raises(ExecutionError) as caught:
        list(stream.execute_and_collect())
    return str(caught.value)


@pytest.mark.parametrize("result", ["text", b"bytes", {"a": "dict"}])
def test_one_result_that_is_returned_instead_of_yielded(result: Any) -> None:
    keyed = words().key_by(lambda word: word, Types.STRING()).process(Returns(result))

    assert f"returned {result!r}, and each part of it would be a result. Yield it" in failure_of(keyed)


def test_results_that_are_returned_as_a_list() -> None:
    keyed = words().key_by(lambda word: word, Types.STRING()).process(Returns(["text"]), Types.STRING())

    assert list(keyed.execute_and_collect()) == ["text", "text"]


def test_a_result_that_cannot_be_iterated() -> None:
    wanted = "'int' object is not iterable. The function has to yield its results, or return an iterable"

    assert wanted in failure_of(words().flat_map(len, Types.LONG()))
    assert wanted in failure_of(words().key_by(lambda word: word, Types.STRING()).process(Returns(1)))


def test_an_error_of_the_same_kind_in_the_function_itself_gets_no_advice() -> None:
    told = failure_of(words().map(lambda word: list(len(word)), Types.STRING()))

    assert told.partition("\n")[0].endswith("'int' object is not iterable")


@pytest.mark.parametrize(
    ("declared", "meant"), [(Types.STRING, "STRING"), (int, "LONG"), (str, "STRING"), (bool, "BOOLEAN")]
)
def test_a_type_that_is_named_in_the_words_of_python(declared: Any, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"Did you mean Types\.{meant}\(\)\?"):
        words().map(lambda word: word, declared)


PROGRAM = """
from tidemark import Configuration, StreamExecutionEnvironment, Types

def broken(word):
    raise ValueError("mine")

def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    stream = env.from_collection(["a"], Types.STRING())
    {body}

{main}
"""


def run(
    tmp_path: Path, body: str, main: str = "main()", **environment: str
) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "job.py"
    program.write_text(PROGRAM.format(body=body, main=main))
    told = {
        **os.environ,
        "TIDEMARK_EXECUTION_TARGET": "local",
        "TIDEMARK_HOME": str(tmp_path / "home"),
        **environment,
    }
    command = [sys.executable, str(program)]
    return subprocess.run(command, env=told, capture_output=True, text=True, timeout=300, cwd=tmp_path)


def test_a_program_without_execute_is_told_so(tmp_path: Path) -> None:
    forgot = run(tmp_path, "stream.print()")

    assert (
        forgot.stderr
        == f"{tmp_path / 'job.py'} ended without running a job. Call execute() on its environment.\n"
    )


@pytest.mark.parametrize(
    ("body", "main"),
    [
        ("stream.print(); env.execute()", "main()"),
        ("stream.print()", "main(); 1 / 0"),
        ("pass", "main()"),
        ("stream.print(); env.get_execution_plan()", "main()"),
    ],
    ids=["executed", "failed", "no sink", "planned"],
)
def test_nobody_else_is_told_that(tmp_path: Path, body: str, main: str) -> None:
    assert "without running a job" not in run(tmp_path, body, main).stderr


def test_an_error_of_ours_shows_the_lines_of_the_program_and_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    storage = tmp_path / "file" / "checkpoints"

    refused = run(
        tmp_path,
        "stream.print(); env.enable_checkpointing(1000); env.execute()",
        TIDEMARK_STATE_CHECKPOINTS_DIR=str(storage),
    )

    assert "in main" in refused.stderr
    assert "Not a directory" in refused.stderr
    frames = [line for line in refused.stderr.splitlines() if line.startswith("  File ")]
    assert ["environment.py" in frame for frame in frames[2:]] == [True] * (len(frames) - 2)
    assert len(refused.stderr.splitlines()) <= 20, refused.stderr


def test_an_error_of_a_function_shows_its_line_and_none_of_ours(tmp_path: Path) -> None:
    failed = run(tmp_path, "stream.map(broken, Types.STRING()).print(); env.execute()")

    assert 'raise ValueError("mine")' in failed.stderr
    assert "runtime" not in failed.stderr
    assert len(failed.stderr.splitlines()) <= 20, failed.stderr


def test_all_frames_of_an_error_are_there_for_whoever_asks(tmp_path: Path) -> None:
    asked = "import logging; logging.getLogger('tidemark.tracebacks').setLevel(logging.DEBUG); "

    failed = run(tmp_path, f"{asked}stream.map(broken, Types.STRING()).print(); env.execute()")

    assert "runtime/runner.py" in failed.stderr


def test_a_directory_of_rocksdb_that_cannot_be_made_is_named_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    stream = words()
    env = stream.get_execution_environment()
    place = str(tmp_path / "file" / "below")
    settings = {"state.backend": "rocksdb", "state.backend.rocksdb.localdir": place}
    env.configure(Configuration.from_dict(settings))

    told = failure_of(
        stream.key_by(lambda word: word, Types.STRING()).process(Returns(["x"]), Types.STRING())
    )

    assert f"State cannot be kept in '{place}' (state.backend.rocksdb.localdir)" in told


def test_an_environment_says_what_is_in_it() -> None:
    stream = words()
    stream.print()

    assert (
        repr(stream.get_execution_environment())
        == "<StreamExecutionEnvironment, parallelism 1, 2 nodes, 1 to execute>"
    )
