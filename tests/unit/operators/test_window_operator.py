"""Windows of every kind, driven through the harness."""

from __future__ import annotations

import pytest

from tidemark.api.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from tidemark.api.output_tag import OutputTag
from tidemark.api.specs import WindowSpec
from tidemark.api.state_backends import EmbeddedRocksDBStateBackend, HashMapStateBackend
from tidemark.api.windows.assigners import (
    GlobalWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tidemark.api.windows.counts import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from tidemark.api.windows.sessions import EventTimeSessionWindows, ProcessingTimeSessionWindows
from tidemark.api.windows.triggers import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from tidemark.api.windows.window import TimeWindow
from tidemark.errors import UnsupportedOperationException
from tidemark.operators.window import WindowOperator
from tidemark.protocol.batch import SMALL_BATCH
from tidemark.state.descriptors import ReducingStateDescriptor, ValueStateDescriptor
from tidemark.testing import OneInputHarness
from tidemark.types.typeinfo import Types

BACKENDS = [HashMapStateBackend, EmbeddedRocksDBStateBackend]
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
LATE = OutputTag("late", PAIR)


class Collect(WindowFunction):
    def apply(self, key, window, inputs):
        yield key, window.max_timestamp(), [value for _, value in inputs]


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator):
        return accumulator[1] / accumulator[0]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


def windowed(assigner, *, backend=None, clock=None, configuration=None, **settings):
    if not {"reduce", "aggregate", "window_function"} & set(settings):
        settings.update(window_function=Collect(), function_kind="apply")
    operator = WindowOperator(WindowSpec(assigner, element_type=PAIR, **settings), Types.STRING())
    selector = None if settings.get("all_windows") else (lambda value: value[0])
    return OneInputHarness(
        operator,
        selector,
        Types.STRING(),
        state_backend=backend,
        clock=clock,
        configuration=configuration,
    )


def test_windows_filled_together_take_batches_of_any_size():
    def limit(assigner, **settings):
        with windowed(assigner, **settings) as harness:
            return harness._operator.batch_limit

    assert limit(TumblingEventTimeWindows.of(10)) > SMALL_BATCH
    assert limit(EventTimeSessionWindows.with_gap(10)) > SMALL_BATCH
    assert limit(TumblingEventTimeWindows.of(10), trigger=CountTrigger(2)) == SMALL_BATCH


def feed(harness, elements):
    for element in elements:
        harness.process_element(element[:2], element[2] if len(element) > 2 else None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("trigger", [None, PurgingTrigger.of(EventTimeTrigger())])
def test_tumbling_event_time_windows_fire_per_key_with_the_windows_end(backend, trigger):
    harness = windowed(TumblingEventTimeWindows.of(10), backend=backend(), trigger=trigger)
    feed(harness, [("a", 1, 0), ("a", 2, 9), ("b", 3, 5), ("a", 4, 10), ("a", 5, -1)])

    harness.process_watermark(8)
    assert harness.output_with_timestamps() == [(("a", -1, [5]), -1)]
    harness.process_watermark(9)

    assert sorted(harness.output_with_timestamps()) == [(("a", 9, [1, 2]), 9), (("b", 9, [3]), 9)]
    harness.end_input()
    assert harness.output() == [("a", 19, [4])]
    assert harness.num_keyed_state_entries() == 0
    harness.close()


@pytest.mark.parametrize("trigger", [None, PurgingTrigger.of(EventTimeTrigger())])
def test_sliding_windows_hold_an_element_several_times(trigger):
    harness = windowed(SlidingEventTimeWindows.of(10, 5), trigger=trigger)
    feed(harness, [("a", 1, 0), ("a", 2, 7)])

    harness.end_input()

    assert harness.output() == [("a", 4, [1]), ("a", 9, [1, 2]), ("a", 14, [2])]


def test_sliding_windows_with_gaps_drop_what_falls_between_without_calling_it_late():
    harness = windowed(SlidingEventTimeWindows.of(2, 10), late_tag=LATE)
    feed(harness, [("a", 1, 1), ("a", 2, 5)])

    harness.end_input()

    assert harness.output() == [("a", 1, [1])]
    assert harness.side_output(LATE) == []


@pytest.mark.parametrize("trigger", [None, PurgingTrigger.of(EventTimeTrigger())])
def test_late_elements_go_to_the_side_output(trigger):
    harness = windowed(TumblingEventTimeWindows.of(10), late_tag=LATE, trigger=trigger)
    feed(harness, [("a", 1, 5)])
    harness.process_watermark(9)
    feed(harness, [("a", 2, 6), ("a", 3, 10)])

    assert harness.side_output(LATE) == [("a", 2)]
    harness.end_input()
    assert harness.output() == [("a", 9, [1]), ("a", 19, [3])]


def test_late_elements_without_a_side_output_are_counted():
    harness = windowed(TumblingEventTimeWindows.of(10))
    harness.process_watermark(100)
    feed(harness, [("a", 1, 5), ("a", 2, 6)])

    assert harness.output() == []
    assert harness.metrics()["numLateRecordsDropped"] == 2


class Custom(EventTimeTrigger):
    """The same trigger by another type, so that the general path is taken."""


@pytest.mark.parametrize("trigger", [None, Custom()])
def test_allowed_lateness_fires_again_until_the_window_is_dropped(trigger):
    harness = windowed(TumblingEventTimeWindows.of(10), allowed_lateness=5, late_tag=LATE, trigger=trigger)
    feed(harness, [("a", 1, 5)])
    harness.process_watermark(9)
    feed(harness, [("a", 2, 6)])
    harness.process_watermark(13)
    feed(harness, [("a", 3, 7)])
    harness.process_watermark(14)
    feed(harness, [("a", 4, 8)])

    assert harness.output() == [("a", 9, [1]), ("a", 9, [1, 2]), ("a", 9, [1, 2, 3])]
    assert harness.side_output(LATE) == [("a", 4)]
    assert harness.num_keyed_state_entries() == 0


def test_an_element_without_timestamp_is_refused_by_event_time_windows():
    for assigner in [TumblingEventTimeWindows.of(10), EventTimeSessionWindows.with_gap(5)]:
        with pytest.raises(Exception, match="assign_timestamps_and_watermarks"):
            feed(windowed(assigner), [("a", 1)])


def test_processing_time_windows_follow_the_clock():
    harness = windowed(TumblingProcessingTimeWindows.of(10))
    harness.set_processing_time(3)
    feed(harness, [("a", 1), ("a", 2, 77)])
    harness.set_processing_time(8)
    assert harness.output() == []
    harness.set_processing_time(9)

    assert harness.output_with_timestamps() == [(("a", 9, [1, 2]), 9)]
    assert harness.num_keyed_state_entries() == 0
    sliding = windowed(SlidingProcessingTimeWindows.of(10, 5))
    feed(sliding, [("a", 1)])
    sliding.set_processing_time(20)
    assert sliding.output() == [("a", 4, [1]), ("a", 9, [1])]


def test_processing_time_windows_are_dropped_at_end_of_input():
    harness = windowed(TumblingProcessingTimeWindows.of(10))
    feed(harness, [("a", 1)])

    harness.end_input()

    assert harness.output() == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_sessions_merge_when_they_overlap_or_touch(backend):
    harness = windowed(EventTimeSessionWindows.with_gap(10), backend=backend())
    feed(harness, [("a", 1, 0), ("a", 2, 20), ("a", 3, 10), ("a", 4, 41), ("b", 5, 5)])

    harness.process_watermark(29)
    assert sorted(harness.output()) == [("a", 29, [1, 2, 3]), ("b", 14, [5])]
    harness.end_input()

    assert harness.output() == [("a", 50, [4])]
    assert harness.num_keyed_state_entries() == 0
    harness.close()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"aggregate": Mean(), "accumulator_type": Types.TUPLE([Types.LONG(), Types.LONG()])}, 4.0),
        ({"reduce": lambda a, b: (a[0], a[1] + b[1])}, ("a", 12)),
    ],
)
def test_incremental_contents_hold_one_accumulator_and_merge(backend, settings, expected):
    harness = windowed(EventTimeSessionWindows.with_gap(10), backend=backend(), **settings)
    feed(harness, [("a", 1, 0), ("a", 8, 20)])
    assert harness.num_keyed_state_entries("window-contents") == 2
    feed(harness, [("a", 3, 10)])
    assert harness.num_keyed_state_entries("window-contents") == 1

    harness.end_input()

    assert harness.output_with_timestamps() == [(expected, 29)]
    harness.close()


def test_a_session_inside_another_changes_nothing_and_duplicates_join():
    harness = windowed(
        EventTimeSessionWindows.with_dynamic_gap(lambda value: value[1]),
    )
    feed(harness, [("a", 100, 0), ("a", 5, 10), ("a", 100, 0)])

    harness.end_input()

    assert harness.output() == [("a", 99, [100, 5, 100])]


def test_late_sessions_are_dropped():
    harness = windowed(EventTimeSessionWindows.with_gap(10), late_tag=LATE)
    harness.process_watermark(50)
    feed(harness, [("a", 1, 20), ("a", 2, 45)])

    assert harness.side_output(LATE) == [("a", 1)]
    harness.end_input()
    assert harness.output() == [("a", 54, [2])]


def test_processing_time_sessions():
    harness = windowed(ProcessingTimeSessionWindows.with_gap(10))
    feed(harness, [("a", 1)])
    harness.set_processing_time(8)
    feed(harness, [("a", 2)])
    harness.set_processing_time(16)
    assert harness.output() == []
    harness.set_processing_time(17)

    assert harness.output() == [("a", 17, [1, 2])]
    assert harness.num_keyed_state_entries() == 0


def test_sessions_refuse_triggers_that_cannot_merge():
    with pytest.raises(TypeError, match="NeverTrigger"):
        windowed(EventTimeSessionWindows.with_gap(10), trigger=NeverTrigger())


@pytest.mark.parametrize("backend", BACKENDS)
def test_count_windows_fire_when_full_and_never_otherwise(backend):
    harness = windowed(CountTumblingWindowAssigner.of(2), backend=backend())
    feed(harness, [("a", 1), ("b", 2), ("a", 3), ("a", 4)])

    assert [(key, values) for key, _, values in harness.output()] == [("a", [1, 3])]
    harness.end_input()
    assert harness.output() == []
    sliding = windowed(CountSlidingWindowAssigner.of(3, 2), backend=backend())
    feed(sliding, [("a", n) for n in range(1, 8)])
    assert [values for _, _, values in sliding.output()] == [[1, 2, 3], [3, 4, 5], [5, 6, 7]]
    harness.close()
    sliding.close()


def test_global_windows_need_a_trigger():
    silent = windowed(GlobalWindows.create())
    feed(silent, [("a", 1), ("a", 2)])
    silent.end_input()
    counted = windowed(GlobalWindows.create(), trigger=CountTrigger.of(2))
    feed(counted, [("a", n) for n in range(4)])
    purging = windowed(GlobalWindows.create(), trigger=PurgingTrigger.of(CountTrigger.of(2)))
    feed(purging, [("a", n) for n in range(4)])

    assert silent.output() == []
    assert [values for _, _, values in counted.output()] == [[0, 1], [0, 1, 2, 3]]
    assert [values for _, _, values in purging.output()] == [[0, 1], [2, 3]]


def test_continuous_trigger_fires_at_every_interval_and_at_the_end():
    harness = windowed(TumblingEventTimeWindows.of(30), trigger=ContinuousEventTimeTrigger.of(10))
    feed(harness, [("a", 1, 2)])
    harness.process_watermark(10)
    feed(harness, [("a", 2, 12)])
    harness.process_watermark(29)

    assert [values for _, _, values in harness.output()] == [[1], [1, 2], [1, 2]]
    assert harness.num_keyed_state_entries() == 0


class Thirds(Trigger):
    """Fires on every third element, over merged windows too."""

    count = ReducingStateDescriptor("seen", lambda a, b: a + b, Types.LONG())

    def on_element(self, element, timestamp, window, ctx):
        count = ctx.get_partitioned_state(self.count)
        count.add(1)
        return TriggerResult.FIRE if count.get() % 3 == 0 else TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def can_merge(self):
        return True

    def on_merge(self, window, ctx):
        ctx.merge_partitioned_state(self.count)

    def clear(self, window, ctx):
        ctx.get_partitioned_state(self.count).clear()


@pytest.mark.parametrize("backend", BACKENDS)
def test_trigger_state_is_per_window_and_merges(backend):
    harness = windowed(EventTimeSessionWindows.with_gap(10), trigger=Thirds(), backend=backend())
    feed(harness, [("a", 1, 0), ("a", 2, 20), ("a", 3, 100), ("a", 4, 10)])

    assert [sorted(values) for _, _, values in harness.output()] == [[1, 2, 4]]
    harness.end_input()
    assert harness.num_keyed_state_entries() == 0
    harness.close()


def test_state_that_cannot_merge_is_refused():
    class Unmergeable(Thirds):
        count = ValueStateDescriptor("seen", Types.LONG())

        def on_element(self, element, timestamp, window, ctx):
            return TriggerResult.CONTINUE

    harness = windowed(EventTimeSessionWindows.with_gap(10), trigger=Unmergeable())

    with pytest.raises(UnsupportedOperationException, match="merge"):
        feed(harness, [("a", 1, 0), ("a", 2, 5)])


class Firings(ProcessWindowFunction):
    """Counts firings per window and per key."""

    per_window = ValueStateDescriptor("per-window", Types.LONG())
    per_key = ValueStateDescriptor("per-key", Types.LONG())
    cleared = 0

    def process(self, key, context, elements):
        counts = []
        for store, descriptor in [
            (context.window_state(), self.per_window),
            (context.global_state(), self.per_key),
        ]:
            state = store.get_state(descriptor)
            state.update((state.value() or 0) + 1)
            counts.append(state.value())
        context.output(LATE, len(list(elements)))
        yield (
            key,
            context.window().start,
            counts,
            context.current_watermark(),
            context.current_processing_time(),
        )

    def clear(self, context):
        Firings.cleared += 1
        context.window_state().get_state(self.per_window).clear()


@pytest.mark.parametrize("backend", BACKENDS)
def test_process_window_functions_have_state_per_window_and_per_key(backend):
    Firings.cleared = 0
    harness = windowed(
        TumblingEventTimeWindows.of(10),
        backend=backend(),
        allowed_lateness=100,
        window_function=Firings(),
        function_kind="process",
    )
    feed(harness, [("a", 1, 0), ("a", 2, 15)])
    harness.process_watermark(9)
    feed(harness, [("a", 3, 1)])
    harness.process_watermark(19)

    assert harness.output() == [
        ("a", 0, [1, 1], 9, 0),
        ("a", 0, [2, 2], 9, 0),
        ("a", 10, [1, 3], 19, 0),
    ]
    assert harness.side_output(LATE) == [1, 2, 1]
    harness.end_input()
    assert Firings.cleared == 2
    assert harness.num_keyed_state_entries("per-window") == 0
    assert harness.num_keyed_state_entries("per-key") == 1
    harness.close()


def test_merging_windows_have_no_per_window_state():
    harness = windowed(
        EventTimeSessionWindows.with_gap(10), window_function=Firings(), function_kind="process"
    )
    feed(harness, [("a", 1, 0)])

    with pytest.raises(UnsupportedOperationException, match="global_state"):
        harness.process_watermark(50)


class Pairs(ProcessWindowFunction):
    def process(self, key, context, elements):
        return [(key, context.window(), list(elements))]


def test_a_window_function_after_an_aggregate_sees_a_one_element_list():
    harness = windowed(
        TumblingEventTimeWindows.of(10), aggregate=Mean(), window_function=Pairs(), function_kind="process"
    )
    feed(harness, [("a", 2, 0), ("a", 4, 3)])

    harness.end_input()

    assert harness.output() == [("a", TimeWindow(0, 10), [3.0])]


class AllApply(AllWindowFunction):
    def apply(self, window, inputs):
        yield window.start, sorted(value for _, value in inputs)


class AllProcess(ProcessAllWindowFunction):
    def process(self, context, elements):
        return [(context.window().start, len(list(elements)))]


def test_all_windows_put_every_key_into_one_window():
    elements = [("a", 2, 0), ("b", 1, 3), ("c", 5, 10)]
    applied = windowed(
        TumblingEventTimeWindows.of(10), all_windows=True, window_function=AllApply(), function_kind="apply"
    )
    processed = windowed(
        TumblingEventTimeWindows.of(10),
        all_windows=True,
        window_function=AllProcess(),
        function_kind="process",
    )
    for harness in (applied, processed):
        feed(harness, elements)
        harness.end_input()

    assert applied.output() == [(0, [1, 2]), (10, [5])]
    assert processed.output() == [(0, 2), (10, 1)]


def test_results_do_not_change_when_the_accumulator_does():
    class Growing(AggregateFunction):
        def create_accumulator(self):
            return []

        def add(self, value, accumulator):
            accumulator.append(value[1])
            return accumulator

        def get_result(self, accumulator):
            return accumulator

        def merge(self, a, b):
            return a + b

    harness = windowed(GlobalWindows.create(), trigger=CountTrigger.of(1), aggregate=Growing())
    feed(harness, [("a", 1), ("a", 2)])

    assert harness.output() == [[1], [1, 2]]
