"""Snapshots through the harness: restore, repartition, asynchrony, limits and time-to-live."""

from __future__ import annotations

import itertools

import pytest

from tidemark.api.functions import (
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListCheckpointed,
    MapFunction,
)
from tidemark.api.specs import WindowSpec
from tidemark.api.state_backends import (
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
)
from tidemark.api.windows.assigners import TumblingEventTimeWindows
from tidemark.api.windows.sessions import EventTimeSessionWindows
from tidemark.clock import ManualClock
from tidemark.errors import (
    CheckpointError,
    ConfigError,
    FailureReason,
    IllegalStateError,
    MaxParallelismError,
    MetadataError,
    StateMigrationException,
)
from tidemark.operators.window import WindowOperator
from tidemark.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidemark.state.key_groups import assign_to_key_group, compute_operator_index_for_key_group
from tidemark.state.key_tokens import key_serializer_for
from tidemark.state.ttl import StateTtlConfig
from tidemark.testing import BroadcastHarness, OneInputHarness, OperatorSnapshot
from tidemark.types.typeinfo import Types

pytestmark = pytest.mark.modes("epochs", reason="operators in a harness know no mode")

GROUPS = 128
BACKENDS = {
    "heap": HashMapStateBackend,
    "rocksdb": EmbeddedRocksDBStateBackend,
    "rocksdb incremental": lambda: EmbeddedRocksDBStateBackend(True),
}
KEYS = [f"key-{number}" for number in range(40)]


def owner(key, parallelism):
    group = assign_to_key_group(key_serializer_for(Types.STRING()).key_bytes(key), GROUPS)
    return compute_operator_index_for_key_group(GROUPS, parallelism, group)


class Everything(KeyedProcessFunction, CheckpointedFunction):
    """Keyed state of several kinds, timers in both domains, split and union lists."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("split", Types.STRING()))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.STRING()))

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.items = runtime_context.get_list_state(ListStateDescriptor("items", Types.LONG()))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", Types.LONG(), Types.STRING()))
        self.sum = runtime_context.get_reducing_state(
            ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
        )

    def process_element(self, value, ctx):
        key, number = value
        self.count.update((self.count.value() or 0) + 1)
        self.items.add(number)
        self.map.put(number, key)
        self.sum.add(number)
        ctx.timer_service().register_event_time_timer(1000 + number)
        ctx.timer_service().register_processing_time_timer(5000)
        yield key, self.count.value(), self.items.get(), dict(self.map.items()), self.sum.get()

    def on_timer(self, timestamp, ctx):
        yield "timer", ctx.get_current_key(), timestamp, ctx.time_domain().name

    def snapshot_state(self, context):
        pass


def harnesses(parallelism, backend, snapshots=None):
    made = []
    for index in range(parallelism):
        harness = OneInputHarness(
            Everything(),
            lambda value: value[0],
            Types.STRING(),
            parallelism=parallelism,
            subtask_index=index,
            max_parallelism=GROUPS,
            state_backend=BACKENDS[backend](),
        )
        if snapshots is not None:
            harness.initialize_state(snapshots[index])
        harness.open()
        made.append(harness)
    return made


def feed(subtasks, number):
    for key in KEYS:
        subtasks[owner(key, len(subtasks))].process_element((key, number))


@pytest.mark.parametrize("backend", BACKENDS)
def test_everything_survives_rescaling_from_one_to_two_to_three_to_one(backend):
    subtasks = harnesses(1, backend)
    feed(subtasks, 0)
    subtasks[0]._operator._functions._functions[0].split.add_all(list("abcde"))
    subtasks[0]._operator._functions._functions[0].union.add_all(["u"])

    for round_number, parallelism in enumerate([2, 3, 1], start=1):
        snapshots = [OperatorSnapshot.from_bytes(h.snapshot(round_number).to_bytes()) for h in subtasks]
        for harness in subtasks:
            harness.close()
        subtasks = harnesses(
            parallelism, backend, OperatorSnapshot.repartition(snapshots, GROUPS, parallelism)
        )
        functions = [h._operator._functions._functions[0] for h in subtasks]
        assert list(itertools.chain(*[f.split.get() for f in functions])) == list("abcde")
        assert [len(f.split.get()) for f in functions] == {2: [3, 2], 3: [2, 2, 1], 1: [5]}[parallelism]
        for harness in subtasks:
            harness.output()
        feed(subtasks, round_number)

    numbers = list(range(4))
    assert sorted(subtasks[0].output()) == [
        (key, 4, numbers, dict.fromkeys(numbers, key), 6) for key in sorted(KEYS)
    ]
    subtasks[0].process_watermark(1003)
    fired = subtasks[0].output()
    assert sorted(fired) == sorted(
        ("timer", key, 1000 + number, "EVENT_TIME") for key in KEYS for number in numbers
    )
    subtasks[0].set_processing_time(5000)
    assert len(subtasks[0].output()) == len(KEYS)
    subtasks[0].close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_union_state_goes_to_everybody(backend):
    subtasks = harnesses(2, backend)
    for name, harness in zip("xy", subtasks, strict=True):
        harness._operator._functions._functions[0].union.add(name)

    snapshots = [harness.snapshot() for harness in subtasks]

    for harness in harnesses(3, backend, OperatorSnapshot.repartition(snapshots, GROUPS, 3)):
        assert harness._operator._functions._functions[0].union.get() == ["x", "y"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_snapshot_can_be_repartitioned_again_before_it_is_restored(backend):
    subtasks = harnesses(1, backend)
    feed(subtasks, 7)

    three = OperatorSnapshot.repartition([subtasks[0].snapshot()], GROUPS, 3)
    two = OperatorSnapshot.repartition(three, GROUPS, 2)
    restored = harnesses(2, backend, two)

    assert sum(harness.num_keyed_state_entries("count") for harness in restored) == len(KEYS)
    feed(restored, 8)
    output = [record for harness in restored for record in harness.output()]
    assert {record[1] for record in output} == {2}
    assert {tuple(record[2]) for record in output} == {(7, 8)}


@pytest.mark.parametrize(("taken", "restored"), [("heap", "rocksdb"), ("rocksdb", "heap")])
def test_savepoints_move_between_backends(taken, restored):
    (before,) = harnesses(1, taken)
    feed([before], 1)

    savepoint = before.savepoint(9)
    (after,) = harnesses(1, restored, [OperatorSnapshot.from_bytes(savepoint.to_bytes())])
    feed([after], 2)

    assert savepoint.is_savepoint
    assert sorted(after.output())[0] == ("key-0", 2, [1, 2], {1: "key-0", 2: "key-0"}, 3)
    before.close()
    after.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_happens_after_the_cut_does_not_show(backend):
    (harness,) = harnesses(1, backend)
    feed([harness], 1)

    snapshot = harness.snapshot()
    feed([harness], 2)
    harness.process_watermark(5000)
    harness.process_element(("new", 1))
    data = snapshot.to_bytes()

    (restored,) = harnesses(1, backend, [OperatorSnapshot.from_bytes(data)])
    assert restored.num_keyed_state_entries("count") == len(KEYS)
    feed([restored], 3)
    assert {tuple(record[2]) for record in restored.output()} == {(1, 3)}
    restored.process_watermark(1001)
    assert len(restored.output()) == len(KEYS)


class Mutating(KeyedProcessFunction):
    def open(self, runtime_context):
        self.box = runtime_context.get_state(ValueStateDescriptor("box", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value, ctx):
        box = self.box.value() or []
        box.append(value)
        self.box.update(box)
        yield box


def test_objects_changed_in_place_after_the_cut_do_not_show():
    def fresh():
        return OneInputHarness(Mutating(), lambda value: 0, Types.LONG(), state_backend=HashMapStateBackend())

    harness = fresh()
    harness.process_element(1)
    snapshot = harness.snapshot()
    harness.process_element(2)

    restored = fresh()
    restored.initialize_state(snapshot)
    restored.process_element(3)

    assert harness.output() == [[1], [1, 2]]
    assert restored.output() == [[1, 3]]


def test_processing_timers_that_became_due_while_down_fire_right_after_the_restore():
    (harness,) = harnesses(1, "heap")
    harness.process_element(("a", 1))
    snapshot = harness.snapshot()

    restored = OneInputHarness(Everything(), lambda value: value[0], Types.STRING(), clock=ManualClock(9000))
    restored.initialize_state(snapshot)
    restored.open()

    assert restored.output() == [("timer", "a", 5000, "PROCESSING_TIME")]


PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (TumblingEventTimeWindows.of(10), [(9, [1, 2]), (19, [3])]),
        (EventTimeSessionWindows.with_gap(10), [(24, [1, 2, 3])]),
    ],
)
def test_windows_survive_a_restore_at_another_parallelism(backend, assigner, expected):
    def make(parallelism, index):
        settings = WindowSpec(
            assigner,
            element_type=PAIR,
            window_function=lambda key, window, inputs: [
                (key, window.max_timestamp(), [value for _, value in inputs])
            ],
            function_kind="apply",
        )
        return OneInputHarness(
            WindowOperator(settings, Types.STRING()),
            lambda value: value[0],
            Types.STRING(),
            parallelism,
            index,
            GROUPS,
            BACKENDS[backend](),
        )

    before = make(1, 0)
    for key in KEYS:
        before.process_element((key, 1), 1)
        before.process_element((key, 2), 5)
    snapshots = OperatorSnapshot.repartition([before.snapshot()], GROUPS, 2)
    after = [make(2, 0), make(2, 1)]
    for harness, snapshot in zip(after, snapshots, strict=True):
        harness.initialize_state(snapshot)
    for key in KEYS:
        after[owner(key, 2)].process_element((key, 3), 15)
    output = []
    for harness in after:
        harness.end_input()
        output += harness.output()

    assert sorted(output) == sorted((key, *result) for key in KEYS for result in expected)
    for harness in [before, *after]:
        harness.close()


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Rules(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(*value)


def test_broadcast_state_is_restored_from_the_copy_of_instance_i_modulo_old():
    def make(parallelism, index, snapshot=None):
        harness = BroadcastHarness(
            Rules(), [RULES], lambda value: value, Types.STRING(), parallelism, index, GROUPS
        )
        if snapshot is not None:
            harness.initialize_state(snapshot)
        return harness

    old = [make(2, 0), make(2, 1)]
    for index, harness in enumerate(old):
        harness.process_broadcast_element(("copy of", index))
    snapshots = OperatorSnapshot.repartition([harness.snapshot() for harness in old], GROUPS, 3)
    new = [make(3, index, snapshot) for index, snapshot in enumerate(snapshots)]
    for harness in new:
        harness.process_element("x")

    assert [harness.output() for harness in new] == [
        [{"copy of": 0}],
        [{"copy of": 1}],
        [{"copy of": 0}],
    ]


class Listed(MapFunction, ListCheckpointed):
    def __init__(self, *state):
        self.state = list(state)

    def map(self, value):
        return value

    def snapshot_state(self, checkpoint_id, timestamp):
        return self.state

    def restore_state(self, state):
        self.state = state


@pytest.mark.parametrize(
    ("old", "parallelism", "new"),
    [
        ([["e1", "e2"]], 2, [["e1"], ["e2"]]),
        ([["a", "b"], ["c"], ["d", "e"]], 2, [["a", "b", "c"], ["d", "e"]]),
        ([["a", "b"], ["c"]], 2, [["a", "b"], ["c"]]),
        ([["one"]], 3, [["one"], [], []]),
    ],
)
def test_list_checkpointed_state_is_split_evenly(old, parallelism, new):
    snapshots = [OneInputHarness(Listed(*state)).snapshot() for state in old]

    functions = [Listed("fresh") for _ in range(parallelism)]
    for function, snapshot in zip(
        functions, OperatorSnapshot.repartition(snapshots, GROUPS, parallelism), strict=True
    ):
        OneInputHarness(function).initialize_state(snapshot)

    assert [function.state for function in functions] == new


class Blob(KeyedProcessFunction):
    def open(self, runtime_context):
        self.blob = runtime_context.get_state(ValueStateDescriptor("blob", Types.STRING()))

    def process_element(self, value, ctx):
        self.blob.update(value)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_memory_backend_refuses_state_above_its_limit(asynchronous):
    harness = OneInputHarness(
        Blob(), lambda value: 0, Types.LONG(), state_backend=MemoryStateBackend(1000, asynchronous)
    )
    harness.process_element("x" * 2000)

    with pytest.raises(CheckpointError, match=r"1000 bytes.*FsStateBackend") as raised:
        harness.snapshot().to_bytes()

    assert raised.value.reason is FailureReason.SIZE_LIMIT
    harness.process_element("x" * 500)
    assert harness.snapshot(2).to_bytes()


def test_the_frame_size_limits_the_memory_backend_too():
    harness = OneInputHarness(Blob(), lambda value: 0, Types.LONG(), configuration={"akka.framesize": "100"})
    harness.process_element("x" * 200)

    with pytest.raises(CheckpointError, match=r"akka\.framesize"):
        harness.snapshot().to_bytes()


def test_file_backends_have_no_size_limit(tmp_path):
    harness = OneInputHarness(
        Blob(), lambda value: 0, Types.LONG(), state_backend=FsStateBackend(str(tmp_path), False)
    )
    harness.process_element("x" * 6_000_000)

    assert len(harness.snapshot().to_bytes()) > 0


def expiring(clock, ttl=None):
    descriptor = ValueStateDescriptor("seen", Types.LONG())
    if ttl is not None:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(ttl).build())

    class Seen(KeyedProcessFunction):
        def open(self, runtime_context):
            self.seen = runtime_context.get_state(descriptor)

        def process_element(self, value, ctx):
            yield self.seen.value()
            self.seen.update(ctx.timer_service().current_processing_time())

    return OneInputHarness(Seen(), lambda value: value, Types.STRING(), clock=clock)


def test_expired_values_are_invisible_also_after_a_restore():
    clock = ManualClock(1000)
    harness = expiring(clock, 100)
    harness.process_element("a")
    harness.set_processing_time(1099)
    harness.process_element("a")
    harness.set_processing_time(1199)
    harness.process_element("a")
    assert harness.output() == [None, 1000, None]
    snapshot = harness.snapshot()

    later = expiring(ManualClock(1298), 100)
    later.initialize_state(snapshot)
    later.process_element("a")
    expired = expiring(ManualClock(1299), 100)
    expired.initialize_state(snapshot)
    assert expired.num_keyed_state_entries("seen") <= 1
    expired.process_element("a")

    assert later.output() == [1199]
    assert expired.output() == [None]


def test_turning_time_to_live_on_across_a_restore_is_refused():
    harness = expiring(ManualClock())
    harness.process_element("a")

    restoring = expiring(ManualClock(), 100)
    restoring.initialize_state(harness.snapshot())

    with pytest.raises(StateMigrationException):
        restoring.open()


def test_incremental_cleanup_for_every_record_runs_on_records_that_touch_nothing():
    clock = ManualClock()
    descriptor = ValueStateDescriptor("seen", Types.LONG())
    descriptor.enable_time_to_live(
        StateTtlConfig.new_builder(10).cleanup_incrementally(5, run_cleanup_for_every_record=True).build()
    )

    class Rarely(MapFunction):
        def open(self, runtime_context):
            self.seen = runtime_context.get_state(descriptor)

        def map(self, value):
            if value[1]:
                self.seen.update(1)
            return value

    harness = OneInputHarness(Rarely(), lambda value: value[0], Types.STRING(), clock=clock)
    for key in "abc":
        harness.process_element((key, True))
    harness.set_processing_time(50)
    assert harness.num_keyed_state_entries("seen") == 3
    harness.process_element(("z", False))
    harness.process_element(("z", False))

    assert harness.num_keyed_state_entries("seen") == 0


def test_misuse_of_snapshots_is_refused():
    (harness,) = harnesses(1, "heap")
    harness.process_element(("a", 1))
    snapshot = harness.snapshot()

    with pytest.raises(IllegalStateError, match="before open"):
        harness.initialize_state(snapshot)
    with pytest.raises(MetadataError):
        OperatorSnapshot.from_bytes(b"something else")
    with pytest.raises(ConfigError, match="none"):
        OperatorSnapshot.repartition([], GROUPS, 2)
    with pytest.raises(MaxParallelismError):
        OperatorSnapshot.repartition([snapshot], 64, 2)
    with pytest.raises(ValueError, match="Parallelism"):
        OperatorSnapshot.repartition([snapshot], GROUPS, 200)
    with pytest.raises(MaxParallelismError, match="64"):
        OneInputHarness(
            Everything(), lambda value: value[0], Types.STRING(), max_parallelism=64
        ).initialize_state(snapshot)
    with pytest.raises(TypeError, match="StateBackend"):
        OneInputHarness(Everything(), lambda value: value[0], state_backend="heap")
    assert repr(snapshot) == "OperatorSnapshot(checkpoint 1)"


def test_a_harness_is_a_context_manager():
    with OneInputHarness(lambda value: value + 1) as harness:
        harness.process_element(1)

        assert harness.output() == [2]
        assert harness.num_keyed_state_entries() == 0
