"""A restore that can never work ends the job at once, however many restarts are allowed, and names the remedy."""

from __future__ import annotations

import sys
import types
from dataclasses import make_dataclass

import pytest
from tests.recovery.local_jobs import DEADLINE, Numbers, local_env, new_board

from tidemark import (
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    HashMapStateBackend,
    JobStatus,
    KeyedProcessFunction,
    RestartStrategies,
    Types,
    ValueStateDescriptor,
)

MODULE = "tidemark_test_vanishing"


class Keeps(KeyedProcessFunction):
    """Keeps a value of the given type per key."""

    def __init__(self, kind, make):
        self.kind, self.make = kind, make

    def open(self, runtime_context):
        self.state = runtime_context.get_state(ValueStateDescriptor("kept", self.kind))

    def process_element(self, value, ctx):
        self.state.value()
        self.state.update(self.make(value))
        yield value


def job(tmp_path, backend, kind, make, key_type=None, path=None):
    seen = new_board()
    settings = {"state.checkpoints.dir": str(tmp_path / "checkpoints")}
    if path is not None:
        settings["execution.savepoint.path"] = str(path)
    env = local_env(settings, 2, backend)
    env.enable_checkpointing(10)
    retention = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2**31 - 1, 1))
    numbers = env.add_source(
        Numbers(seen.name, 2 if path is None else 3, 5, bounded=False), type_info=Types.LONG()
    ).uid("numbers")
    select = (lambda n: str(n % 3)) if key_type == Types.STRING() else (lambda n: n % 3)
    keyed = numbers.key_by(select, key_type or Types.LONG())
    results = keyed.process(Keeps(kind, make), Types.LONG()).uid("keeps").execute_and_collect()
    return results.get_job_client(), seen


def retained(tmp_path, backend, kind, make):
    client, seen = job(tmp_path, backend, kind, make)
    seen.wait_set("emitted")
    client.cancel().result(DEADLINE)
    return max(tmp_path.glob("checkpoints/*/chk-*"), key=lambda path: int(path.name[4:]))


def failed_at_once(client):
    error = client.get_job_execution_result().exception(DEADLINE)
    assert client.get_job_status().result() is JobStatus.FAILED
    assert client.runner.execution.attempt == 0, "another attempt cannot help"
    return str(error)


def test_native_rocksdb_state_under_the_heap_backend(tmp_path):
    path = retained(tmp_path, EmbeddedRocksDBStateBackend(True), Types.LONG(), int)

    client, _seen = job(tmp_path, HashMapStateBackend(), Types.LONG(), int, path=path)

    told = failed_at_once(client)
    assert "heap backend cannot read a native snapshot" in told
    assert "take a savepoint there, and restore that one here" in told
    assert (path / "_metadata").is_file()


@pytest.mark.parametrize("backend", [HashMapStateBackend(), EmbeddedRocksDBStateBackend(True)])
def test_another_type(tmp_path, backend):
    path = retained(tmp_path, backend, Types.LONG(), int)

    client, _seen = job(tmp_path, backend, Types.STRING(), str, path=path)

    assert "give the operator a new uid" in failed_at_once(client)


def test_another_key_type(tmp_path):
    path = retained(tmp_path, HashMapStateBackend(), Types.LONG(), int)

    client, _seen = job(tmp_path, HashMapStateBackend(), Types.LONG(), int, Types.STRING(), path)

    assert "key" in failed_at_once(client)


@pytest.fixture
def vanishing():
    """A module with a class in it; `del` takes it away again."""
    module = types.ModuleType(MODULE)
    module.Thing = make_dataclass("Thing", [("count", int)], namespace={"__module__": MODULE})
    sys.modules[MODULE] = module
    yield module
    sys.modules.pop(MODULE, None)


class MakeThing:
    """Makes an object of the class as it is in the module now."""

    def __call__(self, number):
        return sys.modules[MODULE].Thing(number)


@pytest.mark.parametrize("backend", [HashMapStateBackend(), EmbeddedRocksDBStateBackend(True)])
def test_a_class_of_pickled_values_that_is_gone(tmp_path, backend, vanishing):
    path = retained(tmp_path, backend, Types.PICKLED_BYTE_ARRAY(), MakeThing())
    del sys.modules[MODULE]

    client, _seen = job(tmp_path, backend, Types.PICKLED_BYTE_ARRAY(), int, path=path)

    told = failed_at_once(client)
    assert MODULE in told
    assert "bring the class back" in told
