"""Mistakes of a first program: the error says what was wrong and what to do."""

from __future__ import annotations

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
