from __future__ import annotations

import pytest

from tidemark.config.loader import environment_variable
from tidemark.config.options import all_options
from tidemark.config.spelling import nearest_key, suspicious_keys, suspicious_variables


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("state.backnd", "state.backend"),
        ("stat.backend", "state.backend"),
        ("paralelism.default", "parallelism.default"),
        ("execution.checkpointing.intervall", "execution.checkpointing.interval"),
        ("state.checkpoint.dir", "state.checkpoints.dir"),
    ],
)
def test_a_misspelt_key_is_told_with_the_one_that_was_meant(key: str, meant: str) -> None:
    assert suspicious_keys([key]) == {key: meant}


@pytest.mark.parametrize("key", ["shop.currency", "my.state.backend.name", "spark.app.name", "currency"])
def test_keys_of_users_and_of_spark_are_nobody_elses_business(key: str) -> None:
    assert suspicious_keys([key]) == {}


def test_a_key_that_only_begins_like_an_option_is_suspicious_without_a_guess() -> None:
    assert suspicious_keys(["execution.xyzzy"]) == {"execution.xyzzy": None}


def test_every_key_of_the_table_is_known_and_nearest_to_itself() -> None:
    keys = [key for option in all_options() for key in option.spellings]

    assert suspicious_keys(keys) == {}
    assert all(nearest_key(key) == key for key in keys)


def test_a_misspelt_environment_variable_is_told_with_the_one_that_was_meant() -> None:
    found = suspicious_variables(
        ["TIDEMARK_STATE_BACKND", "TIDEMARK_EXECUTION_TARGETS", "STATE_BACKND", "HOME"]
    )

    assert found == {
        "TIDEMARK_EXECUTION_TARGETS": "TIDEMARK_EXECUTION_TARGET",
        "TIDEMARK_STATE_BACKND": "TIDEMARK_STATE_BACKEND",
    }


def test_variables_that_mean_something_are_not_suspicious() -> None:
    ours = [
        "HOME",
        "TOKEN",
        "CONF_DIR",
        "PROPERTIES",
        "SPARK_LOG_LEVEL",
        "SPARK_CLASS_ARCHIVE",
        "CHAOS",
        "CHAOS_FACTOR",
    ]
    keys = [environment_variable(key) for option in all_options() for key in option.spellings]

    assert suspicious_variables([*keys, *(f"TIDEMARK_{name}" for name in ours)]) == {}
