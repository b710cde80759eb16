"""Time-to-live in event time, and callbacks about what has expired, on both backends."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BatchProcessFunction,
    EmbeddedRocksDBStateBackend,
    ExpiredState,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ReducingStateDescriptor,
    StateTtlConfig,
    Types,
    ValueStateDescriptor,
)
from tidemark.errors import ConfigError, UnsupportedOperationException
from tidemark.testing import (
    ADVANCE,
    AT,
    CHECKPOINT,
    CRASH,
    END,
    WATERMARK,
    ManualClock,
    OneInputHarness,
    run_script,
)

Clock = StateTtlConfig.TtlTimeCharacteristic
TTL = 100
GONE = OutputTag("gone")
BACKENDS = pytest.mark.parametrize("backend", [HashMapStateBackend, EmbeddedRocksDBStateBackend])


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


DESCRIPTORS = {
    "value": lambda: ValueStateDescriptor("s", Types.LONG()),
    "list": lambda: ListStateDescriptor("s", Types.LONG()),
    "map": lambda: MapStateDescriptor("s", Types.STRING(), Types.LONG()),
    "reducing": lambda: ReducingStateDescriptor("s", lambda a, b: a + b, Types.LONG()),
    "aggregating": lambda: AggregatingStateDescriptor("s", Count(), Types.LONG()),
}
KINDS = pytest.mark.parametrize("kind", list(DESCRIPTORS))


class Store(KeyedProcessFunction):
    """Elements are (key, number or None): a number is written, None reads."""

    def __init__(self, kind: str, config: StateTtlConfig, lazily: bool = False) -> None:
        self.kind, self.config, self.lazily = kind, config, lazily

    def open(self, runtime_context):
        if not self.lazily:
            self.register(runtime_context)

    def register(self, context):
        descriptor = DESCRIPTORS[self.kind]()
        descriptor.enable_time_to_live(self.config)
        kind = "state" if self.kind == "value" else f"{self.kind}_state"
        self.state = getattr(context, f"get_{kind}")(descriptor)

    def process_element(self, value, ctx):
        if self.lazily:
            self.register(self.get_runtime_context())
        if value[1] is None:
            yield value[0], self.read()
        elif self.kind == "map":
            self.state.put("entry", value[1])
        elif self.kind == "value":
            self.state.update(value[1])
        else:
            self.state.add(value[1])

    def read(self):
        if self.kind == "map":
            return self.state.get("entry")
        if self.kind == "value":
            return self.state.value()
        return self.state.get() or None if self.kind != "list" else list(self.state.get()) or None

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.read()


def config(**calls: Any) -> StateTtlConfig:
    builder = StateTtlConfig.new_builder(TTL).set_ttl_time_characteristic(Clock.EVENT_TIME)
    for name, arguments in calls.items():
        getattr(builder, name)(*arguments)
    return builder.build()


def store(kind: str, settings: StateTtlConfig, backend: Any, **options: Any) -> OneInputHarness:
    harness = OneInputHarness(
        Store(kind, settings, options.pop("lazily", False)),
        lambda value: value[0],
        Types.STRING(),
        state_backend=backend(),
        **options,
    )
    harness.open()
    return harness


def read(harness: OneInputHarness, key: str = "a") -> Any:
    harness.process_element((key, None))
    return harness.output()[-1][1]


def test_characteristics_have_names_of_both_styles() -> None:
    assert Clock.EVENT_TIME is Clock.EventTime
    assert Clock.PROCESSING_TIME is Clock.ProcessingTime
    assert config().get_ttl_time_characteristic() is Clock.EVENT_TIME
    assert (
        StateTtlConfig.new_builder(1).use_event_time().build().get_ttl_time_characteristic()
        is Clock.EventTime
    )
    assert StateTtlConfig.new_builder(1).build().get_ttl_time_characteristic() is Clock.ProcessingTime
    with pytest.raises(ConfigError, match="EventTime"):
        StateTtlConfig.new_builder(1).set_ttl_time_characteristic("event")  # type: ignore[arg-type]


@BACKENDS
@KINDS
def test_the_watermark_expires_what_a_record_stamped(kind: str, backend: Any) -> None:
    clock = ManualClock(5)
    harness = store(kind, config(), backend, clock=clock)
    harness.process_element(("a", 1), 1_000)

    clock.advance(10 * TTL)
    harness.process_watermark(1_000 + TTL - 1)
    assert read(harness) in (1, [1])
    harness.process_watermark(1_000 + TTL)

    assert read(harness) is None


@BACKENDS
def test_late_records_and_records_without_time_count_as_of_the_watermark(backend: Any) -> None:
    harness = store("value", config(), backend)
    harness.process_watermark(500)
    harness.process_element(("late", 1), 10)
    harness.process_element(("timeless", 1))

    harness.process_watermark(500 + TTL - 1)
    assert [read(harness, "late"), read(harness, "timeless")] == [1, 1]
    harness.process_watermark(500 + TTL)

    assert [read(harness, "late"), read(harness, "timeless")] == [None, None]


@BACKENDS
@KINDS
def test_reads_renew_where_asked_and_never_move_a_stamp_back(kind: str, backend: Any) -> None:
    harness = store(kind, config(update_ttl_on_read_and_write=()), backend)
    harness.process_element(("a", 1), 1_000)
    harness.process_element(("a", None), 1_050)
    harness.process_element(("a", None), 900)
    harness.output()

    harness.process_watermark(1_050 + TTL - 1)

    assert read(harness) in (1, [1])


@BACKENDS
def test_every_record_of_a_batch_has_its_own_time(backend: Any) -> None:
    def build(stream):
        return stream.key_by(lambda value: value[0]).process(Store("value", config()))

    result = run_script(
        build,
        [
            AT(0, ("a", 1)),
            AT(50, ("b", 2)),
            WATERMARK(TTL),
            AT(TTL, ("a", None)),
            AT(TTL, ("b", None)),
            CHECKPOINT,
            WATERMARK(TTL + 49),
            CRASH,
            AT(TTL, ("b", None)),
            WATERMARK(TTL + 50),
            AT(TTL, ("b", None)),
            END,
        ],
        state_backend=backend(),
    )

    assert result == [("a", None), ("b", 2), ("b", 2), ("b", None)]


@BACKENDS
def test_a_timer_sees_what_lives_at_its_own_time_and_the_end_expires_the_rest(backend: Any) -> None:
    class WithTimer(Store):
        def process_element(self, value, ctx):
            yield from super().process_element(value, ctx)
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + TTL - 1)
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + TTL)

    harness = OneInputHarness(
        WithTimer("value", config()), lambda value: value[0], Types.STRING(), state_backend=backend()
    )
    harness.open()
    harness.process_element(("a", 1), 0)
    harness.process_watermark(10 * TTL)
    assert harness.output() == [("a", 1), ("a", None)]

    harness.process_element(("b", 2), 20 * TTL)
    harness.process_watermark(2**63 - 1)

    assert harness.output() == [("b", 2), ("b", None)]
    harness.process_element(("c", 3), 20 * TTL)
    harness.process_element(("c", None), 20 * TTL)
    assert harness.output() == [("c", 3)]  # after the end nothing gets older


@BACKENDS
def test_state_registered_by_a_record_lives_as_long_as_its_batch_asks(backend: Any) -> None:
    harness = store("value", config(), backend, lazily=True)
    harness.process_element(("a", 1), 1_000)
    harness.process_watermark(1_000 + TTL - 1)
    assert read(harness) == 1
    harness.process_watermark(1_000 + TTL)
    assert read(harness) is None


@BACKENDS
def test_full_snapshots_and_keys_from_outside_go_by_the_watermark(backend: Any) -> None:
    harness = store("value", config(cleanup_full_snapshot=()), backend)
    harness.process_element(("a", 1), 0)
    harness.process_element(("b", 1), 50)
    harness.process_watermark(TTL)
    restored = store_from(harness.snapshot(), backend)

    assert restored.num_keyed_state_entries("s") == 1


def store_from(snapshot: Any, backend: Any) -> OneInputHarness:
    harness = OneInputHarness(
        Store("value", config(cleanup_full_snapshot=())),
        lambda value: value[0],
        Types.STRING(),
        state_backend=backend(),
    )
    harness.initialize_state(snapshot)
    harness.open()
    return harness


@BACKENDS
def test_batch_mode_expires_at_the_end_of_a_key(backend: Any) -> None:
    harness = store(
        "value", config(on_expiry=(tell,)), backend, configuration={"execution.runtime-mode": "BATCH"}
    )
    harness.process_element(("a", 1), 0)
    harness.process_element(("a", None), 10 * TTL)
    harness.end_input()

    assert harness.output() == [("a", 1), ("gone", "a", None, 1, TTL)]


# Callbacks


def tell(expired: ExpiredState) -> Any:
    yield "gone", expired.key, expired.map_key, expired.value, expired.expired_at
    yield GONE, expired.state_name


@BACKENDS
@KINDS
def test_a_watermark_tells_what_it_expires_with_the_time_it_expired(kind: str, backend: Any) -> None:
    harness = store(kind, config(on_expiry=(tell,)), backend)
    harness.process_element(("a", 7), 1_000)
    harness.process_watermark(1_000 + TTL - 1)
    assert harness.output() == []

    harness.process_watermark(1_000 + 5 * TTL)
    for now in range(1_000, 8_000, 1_000):  # RocksDB looks once a second, at some of its rows
        harness.set_processing_time(now)

    map_key = "entry" if kind == "map" else None
    assert harness.output_with_timestamps() == [(("gone", "a", map_key, 7, 1_100), 1_100)]
    assert harness.side_output(GONE) == ["s"]
    assert harness.num_keyed_state_entries("s") == 0
    assert read(harness) is None


@BACKENDS
@KINDS
@pytest.mark.parametrize("touch", ["read", "write", "clear"])
def test_whatever_touches_an_expired_unit_tells_once(kind: str, backend: Any, touch: str) -> None:
    class Touch(Store):
        def process_element(self, value, ctx):
            if value[1] == "clear":
                self.state.clear()
            else:
                yield from super().process_element(value, ctx)

    settings = StateTtlConfig.new_builder(TTL).on_expiry(tell).disable_cleanup_in_background().build()
    clock = ManualClock(0)
    harness = OneInputHarness(
        Touch(kind, settings), lambda value: value[0], Types.STRING(), state_backend=backend(), clock=clock
    )
    harness.open()
    harness.process_element(("a", 7))
    clock.advance(TTL)

    for _ in range(2):
        harness.process_element(("a", {"read": None, "write": 9, "clear": "clear"}[touch]))
    if kind == "list" and touch == "write":
        harness.process_element(("a", None))  # appending does not look at what is there

    told = [each for each in harness.output() if each[0] == "gone"]
    assert told == [("gone", "a", "entry" if kind == "map" else None, 7, TTL)]


@BACKENDS
def test_the_clock_alone_expires_and_tells(backend: Any) -> None:
    settings = StateTtlConfig.new_builder(TTL).on_expiry(tell).build()
    harness = store("value", settings, backend, clock=ManualClock(0))
    for key in range(50):
        harness.process_element((str(key), key))

    for now in range(1_000, 8_000, 1_000):
        harness.set_processing_time(now)

    assert sorted(each[3] for each in harness.output()) == list(range(50))
    assert harness.num_keyed_state_entries("s") == 0


@BACKENDS
@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_the_end_of_time_tells_of_everything_however_much_there_is(kind: str, backend: Any) -> None:
    """More than is looked at behind one watermark, and in the middle of a round."""
    harness = store(kind, config(on_expiry=(tell,)), backend, clock=ManualClock(0))
    for key in range(1_500):
        harness.process_element((str(key), key), 1_000 + key)
    harness.process_watermark(1_000 + TTL + 20)
    told = harness.output()

    harness.process_watermark(2**63 - 1)
    told += harness.output()

    assert sorted(each[3] for each in told) == list(range(1_500))
    assert harness.num_keyed_state_entries("s") == 0


@BACKENDS
def test_the_end_of_time_ends_though_its_callbacks_write_again(backend: Any) -> None:
    class Renews(Store):
        def open(self, runtime_context):
            self.config = config(on_expiry=(self.renew,))
            super().open(runtime_context)

        def renew(self, expired):
            self.state.update(expired.value + 1)
            yield expired.value

    harness = OneInputHarness(
        Renews("value", config()), lambda value: value[0], Types.STRING(), state_backend=backend()
    )
    harness.open()
    for key in range(1_100):
        harness.process_element((str(key), key), 0)
    harness.process_watermark(2**63 - 1)

    assert sorted(harness.output()) == list(range(1_100))


@BACKENDS
def test_a_callback_may_use_other_states_of_its_key(backend: Any) -> None:
    class Sessions(KeyedProcessFunction):
        """Counts records per session; the end of a session is the expiry of its last record."""

        def open(self, runtime_context):
            self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
            last = ValueStateDescriptor("last", Types.LONG())
            last.enable_time_to_live(config(on_expiry=(self.end,)))
            self.last = runtime_context.get_state(last)

        def end(self, expired):
            yield expired.key, self.total.value()
            self.total.clear()

        def process_element(self, value, ctx):
            self.last.update(ctx.timestamp())
            self.total.update((self.total.value() or 0) + 1)

    events = [
        AT(0, "a"),
        AT(10, "b"),
        AT(60, "a"),
        CHECKPOINT,
        WATERMARK(120),
        CRASH,
        AT(130, "c"),
        WATERMARK(300),
        *[ADVANCE(1_000)] * 5,
        END,
    ]
    result = run_script(
        lambda stream: stream.key_by(lambda value: value).process(Sessions()),
        events,
        state_backend=backend(),
    )

    assert sorted(result) == [("a", 2), ("b", 1), ("c", 1)]


@pytest.mark.parametrize(
    "calls",
    [
        {"return_expired_if_not_cleaned_up": ()},
        {"cleanup_full_snapshot": ()},
    ],
)
def test_what_would_hide_an_expiry_is_refused(calls: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        config(on_expiry=(tell,), **calls)
    with pytest.raises(ConfigError, match="callable"):
        config(on_expiry=("tell",))


class Totals(BatchProcessFunction):
    """Adds up a column."""

    def __init__(self, settings: StateTtlConfig | None = None) -> None:
        self.settings = settings

    def open(self, ctx):
        descriptor = ValueStateDescriptor("total", Types.LONG())
        if self.settings is not None:
            descriptor.enable_time_to_live(self.settings)
        self.total = ctx.get_state(descriptor)

    def process_batch(self, batch, keys, ctx):
        self.total.write(keys, self.total.read(keys) + keys.sum(batch["f1"]))


def totals(backend: Any, settings: StateTtlConfig | None = None) -> OneInputHarness:
    return OneInputHarness(
        Totals(settings),
        lambda value: value[0],
        Types.STRING(),
        state_backend=backend(),
        input_type=Types.TUPLE([Types.STRING(), Types.LONG()]),
    )


@BACKENDS
@pytest.mark.parametrize("settings", [config(), config(on_expiry=(tell,))])
def test_batch_functions_refuse_what_goes_record_by_record(backend: Any, settings: Any) -> None:
    with pytest.raises(UnsupportedOperationException, match="total"):
        totals(backend, settings).open()


@BACKENDS
def test_an_erased_key_is_gone_from_columns(backend: Any) -> None:
    harness = totals(backend)
    harness.open()
    for number in range(10):
        harness.process_element((f"k{number}", number))
    operator: Any = harness._operator

    assert operator.erase_key(b"k7") == {"total": 1}
    assert operator.erase_key(b"k7") == {}

    assert operator.backend.query("total", operator.backend.parameters.tokens.of(["k7"])[0])[0] is False
    harness.process_element(("k7", 1))
    assert operator.backend.query("total", operator.backend.parameters.tokens.of(["k7"])[0]) == (True, 1)
    assert operator.backend.num_entries("total") == 10
