"""What a Spark session says about tasks that last: how many cores there are, and which settings forbid them."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.api.executor import JobSettings
from tidemark.config import Configuration
from tidemark.runtime.spark_executor import _cores, _obstacle

CONTINUOUS, AUTO = (
    JobSettings(configuration=Configuration.from_dict({"execution.mode": mode}))
    for mode in ("continuous", "auto")
)


def session(master: str = "local[4]", **settings: str) -> Any:
    """As much of a session as is asked; reading the context's settings falls back as Spark's does."""
    plain = {key.replace("__", "."): value for key, value in settings.items()}
    context = SimpleNamespace(master=master, getConf=lambda: plain, defaultParallelism=8)
    return SimpleNamespace(sparkContext=context, conf=plain)


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[4]", 4),
        ("local[4,2]", 4),
        ("local[*]", os.cpu_count()),
        ("local-cluster[2,3,1024]", 6),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_local_masters_say_how_many_cores_there_are(master: str, cores: int | None) -> None:
    assert _cores(session(master), CONTINUOUS) == cores


def test_tasks_that_take_several_cores_are_fewer() -> None:
    assert _cores(session("local[5]", spark__task__cpus="2"), CONTINUOUS) == 2


def test_on_a_cluster_auto_counts_the_cores_that_have_registered() -> None:
    """A job that nobody wanted to be continuous must not wait for executors, and fail."""
    assert _cores(session("spark://host:7077"), AUTO) == 8
    assert _cores(session("spark://host:7077", spark__task__cpus="2"), AUTO) == 4
    assert _cores(session("yarn", spark__default__parallelism="200"), AUTO) == 0


def test_speculation_is_an_obstacle() -> None:
    assert _obstacle(session()) is None
    assert "spark.speculation is on" in str(_obstacle(session(spark__speculation="true")))


@pytest.mark.parametrize("prefix", ["spark__python__worker__", "spark__sql__execution__pyspark__udf__"])
def test_an_idle_timeout_is_an_obstacle_only_if_it_kills(prefix: str) -> None:
    idle, kill = prefix + "idleTimeoutSeconds", prefix + "killOnIdleTimeout"

    assert _obstacle(session(**{idle: "60"})) is None
    assert _obstacle(session(**{kill: "true", idle: "0"})) is None
    named = str(_obstacle(session(**{kill: "true", idle: "60"})))
    assert "killOnIdleTimeout is on" in named
    assert "idleTimeoutSeconds" in named
