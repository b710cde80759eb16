from __future__ import annotations

import pytest
from tests.unit.api.recording_executor import RecordingExecutor

from tidemark import Configuration, StreamExecutionEnvironment


@pytest.fixture(autouse=True)
def _no_configuration_from_outside(monkeypatch, tmp_path):
    monkeypatch.setenv("TIDEMARK_CONF_DIR", str(tmp_path))


@pytest.fixture
def new_env():
    """Makes environments whose jobs go to a `RecordingExecutor` (`env.executor`)."""

    def make(**options):
        settings = {"execution.target": "recording", "parallelism.default": "2"}
        env = StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict({**settings, **{k.replace("_", "."): v for k, v in options.items()}})
        )
        env.executor = env._executors["recording"] = RecordingExecutor()
        return env

    return make


@pytest.fixture
def env(new_env):
    return new_env()


@pytest.fixture
def last_node():
    """The node added last."""

    def last(env):
        nodes = env._builder.graph.nodes
        return nodes[max(nodes)]

    return last
