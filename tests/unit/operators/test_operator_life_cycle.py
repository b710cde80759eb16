"""Life cycle of user functions and their hooks."""

from __future__ import annotations

import pytest

from tidemark.api.functions import (
    CheckpointedFunction,
    CheckpointListener,
    KeyedProcessFunction,
    ListCheckpointed,
    MapFunction,
    SinkFunction,
)
from tidemark.errors import IllegalStateError, UnmappedStateError
from tidemark.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidemark.testing import OneInputHarness
from tidemark.types.typeinfo import Types


class Recording(MapFunction, CheckpointedFunction, CheckpointListener):
    def __init__(self, calls):
        self.calls = calls

    def initialize_state(self, context):
        self.get_runtime_context()
        self.calls.append(("initialize_state", context.is_restored()))

    def open(self, runtime_context):
        self.calls.append(("open", runtime_context is self.get_runtime_context()))

    def map(self, value):
        self.calls.append(("map", value))
        return value

    def snapshot_state(self, context):
        self.calls.append(("snapshot_state", context.get_checkpoint_id(), context.get_checkpoint_timestamp()))

    def notify_checkpoint_complete(self, checkpoint_id):
        self.calls.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id):
        self.calls.append(("aborted", checkpoint_id))

    def close(self):
        self.calls.append(("close",))


@pytest.mark.parametrize("key_selector", [None, lambda value: value])
def test_callbacks_come_in_the_order_of_the_specification(key_selector):
    calls = []
    harness = OneInputHarness(Recording(calls), key_selector, Types.LONG())

    harness.open()
    harness.process_element(1)
    snapshot = harness.snapshot(4, 99)
    harness.notify_checkpoint_complete(4)
    harness.notify_checkpoint_complete(4)
    harness.notify_checkpoint_aborted(5)
    harness.close()
    harness.close()

    assert calls == [
        ("initialize_state", False),
        ("open", True),
        ("map", 1),
        ("snapshot_state", 4, 99),
        ("complete", 4),
        ("aborted", 5),
        ("close",),
    ]
    calls.clear()
    again = OneInputHarness(Recording(calls), key_selector, Types.LONG())
    again.initialize_state(snapshot)
    again.open()
    assert calls == [("initialize_state", True), ("open", True)]


def test_a_function_has_no_runtime_context_before_it_runs():
    with pytest.raises(IllegalStateError):
        Recording([]).get_runtime_context()


class FailingOpen(MapFunction):
    closed = 0

    def open(self, runtime_context):
        raise ValueError("no")

    def map(self, value):
        return value

    def close(self):
        self.closed += 1


def test_close_is_called_once_after_a_failed_open():
    function = FailingOpen()
    harness = OneInputHarness(function)

    with pytest.raises(ValueError, match="no"):
        harness.open()
    harness.close()
    harness.close()

    assert function.closed == 1


def test_close_of_a_function_that_never_started_is_not_called():
    function = FailingOpen()

    OneInputHarness(function).close()

    assert function.closed == 0


class Listing(MapFunction, ListCheckpointed):
    def __init__(self, state=None):
        self.state = state
        self.restored = "not called"

    def map(self, value):
        return value

    def snapshot_state(self, checkpoint_id, timestamp):
        return self.state

    def restore_state(self, state):
        self.restored = state


@pytest.mark.parametrize(("state", "restored"), [(["x", None], ["x", None]), ([], []), (None, [])])
def test_list_checkpointed_gets_its_list_back_only_on_a_restore(state, restored):
    function = Listing(state)
    harness = OneInputHarness(function)
    harness.open()

    snapshot = harness.snapshot()

    assert function.restored == "not called"
    again = Listing()
    restoring = OneInputHarness(again)
    restoring.initialize_state(snapshot)
    assert again.restored == restored


class Both(MapFunction, CheckpointedFunction, ListCheckpointed):
    def map(self, value):
        return value

    def initialize_state(self, context):
        self.initialized = True

    def snapshot_state(self, context):
        self.snapshot = context.get_checkpoint_id()

    def restore_state(self, state):
        raise AssertionError("CheckpointedFunction wins")


def test_a_function_that_is_both_counts_as_checkpointed_function():
    function = Both()
    harness = OneInputHarness(function)

    snapshot = harness.snapshot(3)
    OneInputHarness(Both()).initialize_state(snapshot)

    assert function.initialized
    assert function.snapshot == 3


class BufferingSink(SinkFunction, CheckpointedFunction):
    def __init__(self, threshold, target):
        self.threshold = threshold
        self.target = target
        self.buffer = []

    def invoke(self, value, context):
        self.buffer.append(value)
        if len(self.buffer) == self.threshold:
            self.target.append(list(self.buffer))
            self.buffer.clear()

    def snapshot_state(self, context):
        self.state.clear()
        for element in self.buffer:
            self.state.add(element)

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("buffered-elements", Types.STRING()))
        if context.is_restored():
            self.buffer.extend(self.state.get())


def test_buffering_sink_of_the_specification():
    target = []
    harness = OneInputHarness(BufferingSink(3, target))
    for value in "abcd":
        harness.process_element(value)
    harness.snapshot(1)
    harness.process_element("e")
    snapshot = harness.snapshot(2)
    harness.process_element("lost")

    restored_target = []
    restored = OneInputHarness(BufferingSink(3, restored_target))
    restored.initialize_state(snapshot)
    restored.process_element("f")

    assert target == [["a", "b", "c"], ["d", "e", "lost"]]
    assert restored_target == [["d", "e", "f"]]
    assert restored.output() == []


class Stores(KeyedProcessFunction, CheckpointedFunction):
    def initialize_state(self, context):
        self.count = context.get_keyed_state_store().get_state(ValueStateDescriptor("count", Types.LONG()))
        store = context.get_operator_state_store()
        store.get_list_state(ListStateDescriptor("l", Types.LONG()))
        store.get_union_list_state(ListStateDescriptor("u", Types.LONG()))
        store.get_broadcast_state(MapStateDescriptor("b", Types.LONG(), Types.LONG()))
        self.names = store.get_registered_state_names(), store.get_registered_broadcast_state_names()

    def snapshot_state(self, context):
        pass

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield self.count.value()


def test_keyed_state_can_be_registered_in_initialize_state():
    function = Stores()
    harness = OneInputHarness(function, lambda value: value, Types.STRING())

    harness.process_element("a")
    harness.process_element("a")

    assert harness.output() == [1, 2]
    assert function.names == ({"l", "u"}, {"b"})


class KeyedStoreWithoutKey(MapFunction, CheckpointedFunction):
    def map(self, value):
        return value

    def initialize_state(self, context):
        context.get_keyed_state_store()

    def snapshot_state(self, context):
        pass


def test_the_keyed_state_store_of_an_operator_without_keys_is_refused():
    with pytest.raises(RuntimeError, match="KeyedStream"):
        OneInputHarness(KeyedStoreWithoutKey()).open()


class Facts(MapFunction):
    def map(self, value):
        context = self.get_runtime_context()
        context.get_metrics_group().counter("seen").inc()
        return (
            context.get_task_name_with_subtasks(),
            context.get_number_of_parallel_subtasks(),
            context.get_max_number_of_parallel_subtasks(),
            context.get_index_of_this_subtask(),
            context.get_attempt_number(),
            context.get_job_parameter("k", "default"),
            context.get_task_name(),
        )


def test_the_runtime_context_knows_its_subtask():
    harness = OneInputHarness(Facts(), parallelism=6, subtask_index=2, max_parallelism=64)

    harness.process_element(1)

    assert harness.output() == [("harness (3/6)", 6, 64, 2, 0, "default", "harness")]
    assert harness.metrics()["seen"] == 1


def test_keyed_state_is_not_restored_into_an_operator_without_keys():
    keyed = OneInputHarness(Stores(), lambda value: value, Types.STRING())
    keyed.process_element("a")
    snapshot = keyed.snapshot()

    with pytest.raises(UnmappedStateError, match="not keyed"):
        OneInputHarness(Facts()).initialize_state(snapshot)


def test_a_failing_snapshot_state_passes_through():
    class Declining(Recording):
        def snapshot_state(self, context):
            raise OSError("disk")

    harness = OneInputHarness(Declining([]))

    with pytest.raises(OSError, match="disk"):
        harness.snapshot()
