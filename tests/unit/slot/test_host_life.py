"""A slot between deployments: one call at a time, everything closed once, nothing left for the next attempt."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemark import (
    CheckpointedFunction,
    CheckpointListener,
    Configuration,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidemark.checkpoint.layout import savepoint_location
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.clock import ManualClock
from tidemark.errors import ExecutionError
from tidemark.plan.job_plan import JobPlan, build_plan
from tidemark.plan.vertex import dump_functions
from tidemark.protocol.batch import MIN_WATERMARK, Batch
from tidemark.protocol.codec import codec_for
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.frames import BatchHeader, CutRequest
from tidemark.slot.host import SlotHost
from tidemark.state.serializers.registry import serializer_for

DEADLINE = 60.0
CHANCE = 0.3
"""How long something that must not happen gets the chance to."""
JOB = "0" * 32
REQUEST = CutRequest(1, 0, savepoint_location("/savepoint"))

HOOKS: dict[str, Callable[[], Any]] = {}
"""What functions do at their hooks; functions are copies by the time they run, so they look here."""
EVENTS: list[str] = []


def hook(name: str) -> None:
    EVENTS.append(name)
    HOOKS.get(name, lambda: None)()


class Count(KeyedProcessFunction, CheckpointedFunction, CheckpointListener):
    """Counts per key, tells everything that happens to it."""

    def __init__(self, name: str = "count") -> None:
        self.name = name

    def initialize_state(self, context: Any) -> None:
        pass

    def open(self, runtime_context: Any) -> None:
        hook(f"open {self.name}")
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.set_queryable(f"counts of {self.name}")
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        hook(f"process {value}")
        self.count.update((self.count.value() or 0) + 1)
        yield self.count.value()

    def snapshot_state(self, context: Any) -> None:
        hook(f"snapshot {self.name}")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        hook(f"complete {checkpoint_id} {self.name}")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        hook(f"aborted {checkpoint_id} {self.name}")

    def close(self) -> None:
        hook(f"close {self.name}")


@pytest.fixture(autouse=True)
def _clean() -> None:
    HOOKS.clear()
    EVENTS.clear()


def plan_of(*names: str, parallelism: int = 1) -> JobPlan:
    environment = StreamExecutionEnvironment.get_execution_environment(Configuration())
    environment.set_parallelism(parallelism)
    source = environment.from_collection(["a"])
    for name in names:
        keyed = source.key_by(lambda value: value, Types.STRING())
        keyed.process(Count(name), Types.LONG()).uid(name).name(name).print()
    graph, settings, _ = environment._prepared("job")
    return build_plan(graph, settings, JOB)


@pytest.fixture
def host(tmp_path: Path) -> SlotHost:
    return SlotHost(ManualClock(), MemoryStorage(), tmp_path / "scratch")


def deploy(host: SlotHost, plan: JobPlan, attempt: int = 0, slot: int = 0) -> None:
    host.deploy(Deployment(JOB, attempt, slot, dump_functions(plan.in_slots()), queryable=True))


def frame(
    host: SlotHost, plan: JobPlan, value: str = "a", sequence: int = 0, attempt: int = 0, epoch: int = 0
) -> Any:
    flags, body = codec_for(None, serializer_for(Types.STRING())).encode(Batch([value], None, [value]))
    vertex = plan.in_slots()[0].id
    header = BatchHeader(vertex, 0, 1, 0, sequence, attempt, epoch, MIN_WATERMARK, flags)
    (status, *_), answer = host.handle(list(header), body)
    return status, answer


def refusal(answer: tuple[str, Any]) -> str:
    status, body = answer
    assert status == "error"
    return str(pickle.loads(body).summary)


def test_a_new_attempt_starts_from_the_first_epoch_with_new_sequences_and_empty_state(host):
    plan = plan_of("count")
    deploy(host, plan)
    assert frame(host, plan, epoch=5)[0] == "ok"
    assert frame(host, plan, sequence=1, epoch=5)[0] == "ok"

    deploy(host, plan, attempt=1)

    assert frame(host, plan, attempt=1, epoch=0)[0] == "ok"
    assert "expected" in refusal(frame(host, plan, attempt=1, epoch=0))
    assert host.stats()["entries"] == 1
    assert "Attempt 0" in refusal(frame(host, plan, sequence=2, epoch=5))


def test_a_deployment_clears_the_failure_of_the_one_before(host):
    plan = plan_of("count")
    deploy(host, plan)
    HOOKS["process a"] = lambda: 1 / 0
    assert "ZeroDivisionError" in refusal(frame(host, plan))
    assert host.current_attempt() == -1

    HOOKS.clear()
    deploy(host, plan, attempt=1)

    assert host.current_attempt() == 1
    assert frame(host, plan, attempt=1)[0] == "ok"


def test_a_reset_slot_has_closed_everything_once_and_tells_nobody_anything(host, tmp_path):
    deploy(host, plan_of("first", "second"))
    assert set(host.published()) == {"counts of first", "counts of second"}
    (tmp_path / "scratch").mkdir(exist_ok=True)
    (tmp_path / "scratch" / "left").write_text("over")

    host.reset()
    host.notify_complete(1)
    host.notify_aborted(2)
    host.reset()
    host.finish()

    assert EVENTS == ["open first", "open second", "close second", "close first"]
    assert host.published() == {}
    assert host.stats()["entries"] == 0
    assert not (tmp_path / "scratch").exists()


def test_a_close_that_fails_does_not_keep_the_others_from_closing(host, caplog):
    deploy(host, plan_of("first", "second"))
    HOOKS["close second"] = lambda: 1 / 0

    host.reset()

    assert EVENTS[-2:] == ["close second", "close first"]
    assert "close() of operator 'second' failed" in caplog.text


def test_finishing_closes_everything_and_raises_the_first_failure(host):
    deploy(host, plan_of("first", "second"))
    HOOKS["close second"] = lambda: 1 / 0
    HOOKS["close first"] = lambda: {}["nothing"]

    with pytest.raises(ExecutionError, match="ZeroDivisionError") as caught:
        host.finish()

    assert caught.value.operator_uid == "second"
    assert EVENTS[-2:] == ["close second", "close first"]
    assert host.published() == {}
    host.finish()


def test_a_deployment_that_fails_is_raised_and_leaves_an_empty_slot(host):
    plan = plan_of("first", "second")
    HOOKS["open second"] = lambda: 1 / 0

    with pytest.raises(ExecutionError, match="ZeroDivisionError") as caught:
        deploy(host, plan)

    assert caught.value.operator_uid == "second"
    assert host.current_attempt() == -1
    assert "close first" in EVENTS
    assert "slot of attempt None" in refusal(frame(host, plan))


def test_a_closed_host_has_closed_its_operators(host):
    deploy(host, plan_of("first"))

    host.close()

    assert EVENTS == ["open first", "close first"]
    assert host.current_attempt() == -1


def test_a_slot_hosts_only_operators_that_reach_it(host):
    plan = plan_of("count", parallelism=2)

    deploy(host, plan, slot=2)
    assert EVENTS == []
    deploy(host, plan, slot=1)
    assert EVENTS == ["open count"]


@pytest.mark.parametrize(
    ("call", "event"),
    [
        pytest.param(lambda host: host.reset(), "close count", id="reset"),
        pytest.param(lambda host: host.finish(), "close count", id="finish"),
        pytest.param(lambda host: host.cut(REQUEST), "snapshot count", id="cut"),
        pytest.param(lambda host: host.notify_complete(1), "complete 1 count", id="complete"),
        pytest.param(lambda host: host.notify_aborted(1), "aborted 1 count", id="aborted"),
        pytest.param(lambda host: deploy(host, plan_of("count"), 1), "close count", id="deploy"),
    ],
)
def test_no_call_comes_into_the_middle_of_a_record(host, call, event):
    plan = plan_of("count")
    deploy(host, plan)
    inside, called = threading.Event(), threading.Event()

    def in_the_middle() -> None:
        inside.set()
        EVENTS.append("early" if called.wait(CHANCE) else "alone")

    HOOKS["process a"] = in_the_middle
    HOOKS[event] = called.set
    other = threading.Thread(target=lambda: inside.wait(DEADLINE) and call(host))
    other.start()

    assert frame(host, plan)[0] == "ok"
    other.join(DEADLINE)

    assert "alone" in EVENTS
    assert called.is_set()


def test_what_is_cut_is_written_once_and_an_aborted_cut_never(host):
    deploy(host, plan_of("count"))
    host.cut(REQUEST)
    states = host.write(REQUEST)
    assert list(states) == ["count"]
    with pytest.raises(Exception, match="not known to this slot any more"):
        host.write(REQUEST)

    host.cut(REQUEST)
    host.notify_aborted(1)

    with pytest.raises(Exception, match="not known to this slot any more"):
        host.write(REQUEST)


def test_listeners_hear_of_checkpoints_that_complete_and_of_those_given_up(host):
    deploy(host, plan_of("first", "second"))
    EVENTS.clear()

    host.notify_complete(3)
    host.notify_aborted(4)

    assert EVENTS == ["complete 3 first", "complete 3 second", "aborted 4 first", "aborted 4 second"]


def test_only_what_is_deployed_is_published(host):
    deploy(host, plan_of("old"))
    assert list(host.published()) == ["counts of old"]

    deploy(host, plan_of("new"), attempt=1)
    assert list(host.published()) == ["counts of new"]

    host.reset()
    assert not host.published()
    assert not host.queryable


def test_two_operators_cannot_publish_one_name(host):
    environment = StreamExecutionEnvironment.get_execution_environment(Configuration())
    environment.set_parallelism(1)
    source = environment.from_collection(["a"])
    for uid in ("one", "two"):
        keyed = source.key_by(lambda value: value, Types.STRING())
        keyed.process(Count("same"), Types.LONG()).uid(uid).print()
    graph, settings, _ = environment._prepared("job")

    with pytest.raises(ExecutionError, match="published under the queryable name 'counts of same'"):
        deploy(host, build_plan(graph, settings, JOB))


class Pair(Count):
    """Has two states, both published under one name."""

    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        other = ValueStateDescriptor("other", Types.LONG())
        other.set_queryable(f"counts of {self.name}")
        runtime_context.get_state(other)


def test_two_states_of_one_operator_cannot_publish_one_name(host):
    environment = StreamExecutionEnvironment.get_execution_environment(Configuration())
    environment.set_parallelism(1)
    keyed = environment.from_collection(["a"]).key_by(lambda value: value, Types.STRING())
    keyed.process(Pair("pair"), Types.LONG()).uid("pair").print()
    graph, settings, _ = environment._prepared("job")

    with pytest.raises(ExecutionError, match="published under the queryable name 'counts of pair'"):
        deploy(host, build_plan(graph, settings, JOB))
