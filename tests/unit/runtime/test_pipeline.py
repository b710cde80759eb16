"""One task's way through the graph, with slots that only remember what they are sent."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tidemark import (
    KeySelector,
    MapFunction,
    OutputTag,
    ProcessFunction,
    Row,
    RowKind,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
    field,
)
from tidemark.errors import SlotLostError
from tidemark.plan.job_plan import build_plan
from tidemark.protocol.batch import MIN_WATERMARK, Batch
from tidemark.protocol.codec import codec_for
from tidemark.protocol.failure import FailureInfo, OperatorFailed
from tidemark.protocol.frames import EMPTY, BatchHeader
from tidemark.protocol.reports import EpochDirective
from tidemark.runtime.pipeline import Pipeline
from tidemark.runtime.records import ANY_SUBTASK, Records
from tidemark.state.key_groups import assign_to_key_group, compute_operator_index_for_key_group
from tidemark.state.serializers.registry import serializer_for
from tidemark.state.serializers.rows import RowSerializer
from tidemark.wire import WireClosed


class Hosted(MapFunction):
    """Runs in a slot."""

    def open(self, runtime_context: Any) -> None:
        pass

    def map(self, value: Any) -> Any:
        return value


class FakeSlots:
    """Links that remember frames; `answer` gives what a slot sends back for a batch of values."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, BatchHeader, list[Any]]] = []
        self.in_flight: dict[int, int] = {}
        self.most_in_flight = 0
        self.answer: Any = lambda header, values: ([], None)
        self.keys: list[Any] = []
        self.codec = codec_for(None)
        self.answer_codec: Any = None
        self.lost: set[int] = set()

    def connect(self, slot: int) -> Any:
        if slot in self.lost:
            raise WireClosed("gone")
        return _FakeLink(self, slot)

    def sent_to(self, slot: int) -> list[Any]:
        return [value for at, _header, values in self.frames if at == slot for value in values]


class _FakeLink:
    def __init__(self, slots: FakeSlots, slot: int) -> None:
        self._slots, self._slot = slots, slot
        self._pending: list[Any] = []

    def send(self, header: Any, body: Any = b"") -> None:
        batch = Batch([]) if header.flags == EMPTY else self._slots.codec.decode(header.flags, body)
        values = batch.values
        self._slots.keys += batch.keys or []
        self._slots.frames.append((self._slot, header, values))
        self._pending.append((header, values))
        self._slots.most_in_flight = max(self._slots.most_in_flight, len(self._pending))

    def receive(self) -> Any:
        header, values = self._pending.pop(0)
        answer = self._slots.answer(header, values)
        if isinstance(answer, FailureInfo):
            return ("error",), pickle.dumps(answer)
        emitted, timer = answer
        if not emitted:
            return ("ok", timer, [], None), b""
        flags, body = (self._slots.answer_codec or self._slots.codec).encode(Batch(emitted))
        return ("ok", timer, [(None, flags, len(body))], None), body


class Kept:
    """A task sink that keeps what it is given."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.subtasks: list[int] = []
        self.columns: list[Any] = []

    def write(self, records: Records) -> None:
        self.columns.append(records.column)
        self.values += records.values
        self.subtasks.append(records.subtask)

    def rows(self) -> list[tuple[str, bytes]]:
        return []

    def close(self, report: Any) -> None:
        pass


class Task:
    """A pipeline for the graph built on `env`."""

    def __init__(self, parallelism: int = 2) -> None:
        self.env = StreamExecutionEnvironment.get_execution_environment()
        self.env.set_parallelism(parallelism)
        self.slots = FakeSlots()
        self.sinks: dict[str, Kept] = {}

    def source(self, **options: Any) -> Any:
        return self.env.from_collection([0], **options).name("source")

    def start(self, watermarks: dict[str, int] | None = None) -> Task:
        graph, settings, _caches = self.env._prepared("job")
        self.plan = build_plan(graph, settings, "0" * 32)
        self.ids = {vertex.name: vertex.id for vertex in self.plan.vertices.values()}
        marks = {self.ids[name]: mark for name, mark in (watermarks or {}).items()}
        self.pipeline = Pipeline(
            self.plan,
            EpochDirective(0, 0, marks),
            self.ids["source"],
            0,
            self.slots.connect,
            lambda _slot, _link: None,
            lambda vertex, _partition: self.sinks.setdefault(vertex.name, Kept()),
        )
        return self

    def push(self, values: list[Any], subtask: int = 0) -> None:
        self.pipeline.push(self.ids["source"], Records(values, None, subtask))


def test_keys_go_to_the_slot_that_owns_their_key_group() -> None:
    task = Task(parallelism=3)
    task.source().key_by(lambda value: value, key_type=Types.LONG()).map(lambda value: value).print()
    task.start()

    task.push(list(range(50)))
    task.pipeline.finish(closer=False)

    serializer = serializer_for(Types.LONG())
    for slot in range(3):
        owned = [
            key
            for key in range(50)
            if compute_operator_index_for_key_group(
                128, 3, assign_to_key_group(serializer.key_bytes(key), 128)
            )
            == slot
        ]
        assert task.slots.sent_to(slot) == owned


def test_forward_keeps_the_subtask_and_dealt_records_go_round() -> None:
    task = Task(parallelism=1)
    task.source().map(Hosted()).print()
    task.start()
    task.push([1, 2])
    task.pipeline.finish(closer=False)
    assert task.slots.sent_to(0) == [1, 2]

    task = Task(parallelism=2)
    task.source().map(lambda value: value).map(Hosted()).print()
    task.start()
    task.push([1, 2, 3, 4])
    task.pipeline.finish(closer=False)
    assert (task.slots.sent_to(0), task.slots.sent_to(1)) == ([1, 3], [2, 4])


def test_a_fused_operator_of_another_parallelism_deals_its_records() -> None:
    task = Task(parallelism=2)
    task.source().map(lambda value: value).print().name("sink")
    task.start()

    task.push([1, 2])

    assert task.sinks["sink"].subtasks == [ANY_SUBTASK]


def test_broadcast_reaches_every_slot_and_a_partitioner_chooses() -> None:
    task = Task(parallelism=3)
    task.source().broadcast().map(lambda value: value).print()
    task.start()
    task.push([1, 2])
    assert [task.slots.sent_to(slot) for slot in range(3)] == [[1, 2]] * 3

    task = Task(parallelism=3)
    task.source().partition_custom(lambda key, count: key % count, lambda value: value).map(Hosted()).print()
    task.start()
    task.push([1, 2, 4])
    assert [task.slots.sent_to(slot) for slot in range(3)] == [[], [1, 4], [2]]


def test_one_batch_is_in_flight_per_slot() -> None:
    task = Task(parallelism=1)
    task.source().map(Hosted()).print()
    task.start()

    for number in range(5):
        task.push([number])
    task.pipeline.finish(closer=False)

    assert task.slots.most_in_flight == 1
    assert [header.sequence for _slot, header, _values in task.slots.frames] == [0, 1, 2, 3, 4]


def test_answers_flow_on_to_what_follows() -> None:
    task = Task(parallelism=1)
    task.source().map(Hosted()).map(lambda value: value + 1).print().name("sink")
    task.slots.answer = lambda header, values: ([value * 10 for value in values], 77)
    task.start()

    task.push([1, 2])
    report = task.pipeline.finish(closer=False)

    assert task.sinks["sink"].values == [11, 21]
    assert set(report.timers.values()) == {77}
    assert report.records_in == 2


def test_the_closer_touches_slots_nobody_sent_to_with_their_watermark() -> None:
    task = Task(parallelism=3)
    task.source().key_by(lambda value: 0, key_type=Types.LONG()).map(lambda value: value).name("op").print()
    task.start(watermarks={"op": 42})

    task.push([1])
    task.pipeline.finish(closer=True)

    assert sorted(slot for slot, _header, _values in task.slots.frames) == [0, 1, 2]
    assert {header.watermark for _slot, header, _values in task.slots.frames} == {42}


def test_a_task_that_is_not_the_closer_touches_nobody() -> None:
    task = Task(parallelism=3)
    task.source().key_by(lambda value: 0).map(lambda value: value).print()
    task.start()

    task.pipeline.finish(closer=False)

    assert task.slots.frames == []


def test_watermarks_are_the_lowest_until_the_driver_says_otherwise() -> None:
    task = Task(parallelism=1)
    task.source().map(Hosted()).print()
    task.start()

    task.push([1])

    assert task.slots.frames[0][1].watermark == MIN_WATERMARK


def test_feedback_is_drained_before_the_task_ends() -> None:
    task = Task(parallelism=1)
    loop = task.source().map(lambda value: value).iterate()
    body = loop.map(Hosted()).name("body")
    loop.close_with(body.filter(lambda value: value > 0))
    body.filter(lambda value: value <= 0).print().name("sink")
    task.slots.answer = lambda header, values: ([value - 1 for value in values], None)
    task.start()

    task.push([3, 1])
    task.pipeline.finish(closer=False)

    assert task.sinks["sink"].values == [0, 0]
    assert sorted(task.slots.sent_to(0)) == [1, 1, 2, 3]


PAIR = Types.ROW_NAMED(["k", "v"], [Types.LONG(), Types.LONG()])


def pairs(*rows: tuple[int | None, int]) -> Records:
    """Rows as Spark gives them."""
    serializer = serializer_for(PAIR)
    column = serializer.to_arrow([Row(k=k, v=v) for k, v in rows])
    return Records(None, None, 0, column, serializer)


def test_values_that_merely_pass_stay_an_arrow_column(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(parallelism=2)
    timed = task.source(type_info=PAIR).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _stamp: row.v)
    )
    kept = timed.filter(lambda row: row.v > 1)
    kept.key_by(field("k"), Types.LONG()).map(lambda row: row, output_type=PAIR).print().name("sink")
    task.slots.codec = codec_for(PAIR, serializer_for(Types.LONG()))
    task.slots.answer = lambda header, values: (values, None)
    task.start()
    rows = pairs((7, 1), (7, 2), (8, 3))

    with monkeypatch.context() as patch:
        patch.setattr(RowSerializer, "to_arrow", lambda *_args: pytest.fail("made a column of objects"))
        task.pipeline.push(task.ids["source"], rows)
    report = task.pipeline.finish(closer=False)

    assert sorted(task.slots.sent_to(0) + task.slots.sent_to(1), key=lambda row: row.v) == [
        Row(k=7, v=2),
        Row(k=8, v=3),
    ]
    assert sorted(row.v for row in task.sinks["sink"].values) == [2, 3]
    assert set(report.observed.values()) == {3}


def test_timestamps_are_reported_by_the_partition_that_rows_come_from() -> None:
    task = Task(parallelism=2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _stamp: v)
    fused = task.source(type_info=Types.LONG()).map(lambda v: v, Types.LONG())
    fused.assign_timestamps_and_watermarks(strategy).name("fused").print().name("sink")
    kept = fused.key_by(lambda v: v, Types.LONG()).map(lambda v: v, Types.LONG())
    kept.assign_timestamps_and_watermarks(strategy).name("behind").print()
    task.slots.codec = codec_for(Types.LONG(), serializer_for(Types.LONG()))
    task.slots.answer = lambda header, values: (values, None)
    task.start()

    for origin, values in [(("t", 0), [3, 9]), (("t", 1), [4]), (("t", 0), [7]), (("t", 2), [])]:
        task.pipeline.push_from(origin, task.ids["source"], Records(values))
    report = task.pipeline.finish(closer=False)

    assert report.origins == {task.ids["fused"]: {("t", 0): 9, ("t", 1): 4}}
    assert report.observed[task.ids["behind"]] == 9


def test_what_passes_from_an_untyped_stream_into_a_typed_one_is_normalised() -> None:
    task = Task(parallelism=1)
    source = task.source()
    typed = source.map(lambda value: value, output_type=Types.LONG())
    typed.union(source.map(lambda value: value)).filter(lambda value: value != 2).print().name("sink")
    task.start()

    task.push([1, 2, True])

    assert list(map(type, task.sinks["sink"].values)) == [int] * 4


class ByField(KeySelector):
    """A selector of the user's that happens to have an attribute `field`."""

    def __init__(self, field: int) -> None:
        self.field = field

    def get_key(self, value: Any) -> Any:
        return value[self.field] % 2


@pytest.mark.parametrize(
    ("selector", "key_type", "keys"),
    [
        (ByField(0), Types.LONG(), [0, 1]),
        (field(0), Types.LONG(), [10, 11]),
        (field("k"), Types.LONG(), [10, 11]),
        (field(-1), Types.LONG(), [1, 2]),
        (field("v"), Types.INT(), [1, 2]),
        (lambda row: (row.k, row.v), Types.TUPLE([Types.LONG(), Types.LONG()]), [(10, 1), (11, 2)]),
    ],
)
def test_keys_of_columns_are_those_of_their_rows(selector: Any, key_type: Any, keys: list[Any]) -> None:
    task = Task(parallelism=1)
    task.source(type_info=PAIR).key_by(selector, key_type).map(lambda row: row).print()
    task.start()
    task.slots.codec = codec_for(PAIR, serializer_for(key_type))
    rows = [Row.of_kind(RowKind.DELETE, *row) for row in ((10, 1), (11, 2))]
    column = serializer_for(PAIR).to_arrow(rows)

    task.pipeline.push(task.ids["source"], Records(None, None, 0, column, serializer_for(PAIR)))

    assert task.slots.keys == keys


def test_a_field_of_another_type_than_the_key_is_refused_also_as_a_column() -> None:
    task = Task(parallelism=2)
    task.source(type_info=PAIR).key_by(field("k"), Types.STRING()).map(lambda row: row).name("op").print()
    task.start()

    with pytest.raises(OperatorFailed, match="STRING"):
        task.pipeline.push(task.ids["source"], pairs((1, 1)))


def test_fields_of_maps_are_keys_too() -> None:
    kind = Types.MAP(Types.STRING(), Types.LONG())
    task = Task(parallelism=1)
    task.source(type_info=kind).key_by(field("k"), Types.LONG()).map(lambda row: row).print()
    task.start()
    task.slots.codec = codec_for(kind, serializer_for(Types.LONG()))
    serializer = serializer_for(kind)

    column = serializer.to_arrow([{"k": 7}, {"k": 8}])
    task.pipeline.push(task.ids["source"], Records(None, None, 0, column, serializer))

    assert task.slots.keys == [7, 8]


def test_a_sink_of_an_untyped_union_gets_objects() -> None:
    task = Task(parallelism=1)
    untyped = task.source().map(lambda value: value)
    typed = task.source(type_info=Types.STRING()).name("typed source")
    untyped.union(typed).print().name("sink")
    task.start()
    serializer = serializer_for(Types.STRING())

    task.pipeline.push(
        task.ids["typed source"], Records(None, None, 0, serializer.to_arrow(["a"]), serializer)
    )

    assert task.sinks["sink"].values == ["a"]
    assert task.sinks["sink"].columns == [None]


def test_what_is_fed_back_comes_as_objects() -> None:
    task = Task(parallelism=1)
    loop = task.source().map(lambda value: value).iterate()
    body = loop.map(Hosted(), output_type=Types.LONG())
    loop.close_with(body.filter(lambda value: value > 0))
    loop.print().name("sink")
    task.slots.answer = lambda header, values: ([value - 1 for value in values], None)
    task.start()
    task.slots.answer_codec = codec_for(Types.LONG())

    task.push([2])
    task.pipeline.finish(closer=False)

    assert task.sinks["sink"].values == [2, 1]
    assert task.sinks["sink"].columns == [None, None]


def test_a_missing_key_of_a_column_is_refused_by_name() -> None:
    task = Task(parallelism=2)
    task.source(type_info=PAIR).key_by(field("k"), Types.LONG()).map(lambda row: row).name("op").print()
    task.start()

    with pytest.raises(OperatorFailed, match="LONG") as failed:
        task.pipeline.push(task.ids["source"], pairs((1, 1), (None, 2)))

    assert failed.value.info.operator == "key selector of op"


class Tagged(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield OutputTag("read", Types.INT()), value
        yield OutputTag("unread"), value


def test_side_outputs_nobody_reads_are_dropped() -> None:
    task = Task(parallelism=1)
    result = task.source().process(Tagged())
    result.get_side_output(OutputTag("read", Types.INT())).print().name("sink")
    task.start()

    task.push([1, 2])

    assert task.sinks["sink"].values == [1, 2]


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda s: s.map(lambda value: 1 / 0).name("m"), "m"),
        (lambda s: s.map(lambda value: "text", output_type=Types.INT()).name("typed"), "typed"),
        (lambda s: s.key_by(lambda value: 1 / 0).map(lambda value: value).name("k"), "key selector of k"),
        (
            lambda s: s.partition_custom(lambda key, count: 9, lambda value: value).map(Hosted()).name("p"),
            "partitioner of p",
        ),
    ],
)
def test_failures_of_user_code_name_the_operator(build: Any, named: str) -> None:
    task = Task(parallelism=2)
    build(task.source()).print()
    task.start()

    with pytest.raises(OperatorFailed) as failed:
        task.push([1])

    assert failed.value.info.operator == named


def test_the_failure_of_a_slot_is_raised_as_it_was_described() -> None:
    task = Task(parallelism=1)
    task.source().map(Hosted()).print()
    task.slots.answer = lambda header, values: FailureInfo.of(ValueError("no"), "op", "uid", 0)
    task.start()
    task.push([1])

    with pytest.raises(OperatorFailed, match="ValueError: no"):
        task.pipeline.finish(closer=False)


def test_a_slot_that_is_gone_is_named() -> None:
    task = Task(parallelism=1)
    task.source().map(Hosted()).print()
    task.slots.lost = {0}
    task.start()

    with pytest.raises(SlotLostError, match="Slot 0"):
        task.push([1])
