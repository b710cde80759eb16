"""Every job of `jobs` in the local executor: any parallelism and backend gives the same answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.programs.jobs import ANSWERS, JOBS, everything, sorted_texts

from tidemark.common import Configuration
from tidemark.datastream import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)

NOT_IN_BATCH = {"iteration", "rolling"}
"""Loops exist in STREAMING only; rolling aggregates emit once per key in BATCH."""


@pytest.fixture
def make_env() -> Callable[..., Any]:
    def make(parallelism: int) -> Any:
        configuration = Configuration()
        configuration.set_string("execution.target", "local")
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        return env

    return make


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_job_gives_its_answer(name: str, parallelism: int, make_env: Callable[..., Any]) -> None:
    results = JOBS[name](make_env(parallelism)).execute_and_collect()

    assert sorted_texts(results) == sorted_texts(ANSWERS[name])


@pytest.mark.parametrize("name", [name for name in JOBS if name not in NOT_IN_BATCH])
def test_job_gives_the_same_answer_in_batch_mode(name: str, make_env: Callable[..., Any]) -> None:
    env = make_env(2)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)

    assert sorted_texts(JOBS[name](env).execute_and_collect()) == sorted_texts(ANSWERS[name])


@pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])
def test_all_jobs_in_one_give_their_answers_on_each_backend(
    backend: Callable[[], Any], make_env: Callable[..., Any]
) -> None:
    env = make_env(2)
    env.set_state_backend(backend())

    results = list(everything(env).execute_and_collect())

    for name, answer in ANSWERS.items():
        assert sorted(text for job, text in results if job == name) == sorted_texts(answer), name
