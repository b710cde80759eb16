"""Which mode a job runs in, and what is told about it."""

from __future__ import annotations

import pytest

from tidemark import (
    Configuration,
    NumberSequenceSource,
    RuntimeExecutionMode,
    SourceFunction,
    StreamExecutionEnvironment,
    WatermarkStrategy,
)
from tidemark.config import Options
from tidemark.errors import ConfigError
from tidemark.runtime.continuous.choice import choose_mode, might_be_continuous, number_of_tasks


class Never(SourceFunction):
    def run(self, ctx):
        pass

    def cancel(self):
        pass


def prepared(mode, build=lambda env: env.from_collection([1]).print(), **settings):
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({Options.EXECUTION_MODE.key: mode, **settings})
    )
    env.set_parallelism(3)
    build(env)
    graph, job, _ = env._prepared("job")
    return graph, job


def test_auto_is_continuous_where_every_source_and_sink_can():
    choice = choose_mode(*prepared("auto"))
    assert choice.continuous
    assert might_be_continuous(*prepared("auto"))


def test_epochs_is_obeyed_and_says_so():
    choice = choose_mode(*prepared("epochs"))
    assert not choice.continuous
    assert "execution.mode is EPOCHS" in choice.reason
    assert not might_be_continuous(*prepared("epochs"))


def batch(env):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.from_collection([1]).print()


def frame_sink(env):
    env.from_collection([1]).foreach_batch(lambda frame, epoch: None).name("the frames")


def wide(env):
    env.from_source(NumberSequenceSource(0, 10), WatermarkStrategy.no_watermarks(), "numbers").print()


def test_batch_mode_is_always_epochs():
    assert "BATCH" in choose_mode(*prepared("auto", batch)).reason
    with pytest.raises(ConfigError, match="cannot run continuously: it runs in BATCH mode"):
        choose_mode(*prepared("continuous", batch))


def test_a_sink_that_wants_frames_is_named():
    types = {"execution.target": "spark"}
    assert "sink 'the frames'" in choose_mode(*prepared("auto", frame_sink, **types)).reason
    with pytest.raises(ConfigError, match="sink 'the frames' wants a DataFrame for each epoch"):
        choose_mode(*prepared("continuous", frame_sink, **types))


def test_too_few_cores_name_how_many_are_missing():
    choice = choose_mode(*prepared("auto", wide), cores=2)
    assert not choice.continuous
    assert "needs 3 cores" in choice.reason
    with pytest.raises(ConfigError, match="needs 3 cores"):
        choose_mode(*prepared("continuous", wide), cores=2)
    assert choose_mode(*prepared("continuous", wide), cores=3).continuous


def test_another_obstacle_is_named():
    assert (
        choose_mode(*prepared("auto"), obstacle="spark.speculation is on").reason == "spark.speculation is on"
    )
    with pytest.raises(ConfigError, match=r"speculation is on.*Set execution\.mode to auto or epochs"):
        choose_mode(*prepared("continuous"), obstacle="spark.speculation is on")


def test_a_job_has_as_many_tasks_as_its_widest_source_has_subtasks():
    assert number_of_tasks(*prepared("auto")) == 1, "a collection is read by one"
    assert number_of_tasks(*prepared("auto", wide)) == 3


def test_functions_in_slots_can():
    assert choose_mode(*prepared("auto", lambda env: env.add_source(Never()).print())).continuous
