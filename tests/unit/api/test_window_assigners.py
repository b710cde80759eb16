from __future__ import annotations

import pytest

from tidemark.api.windows.assigners import (
    GlobalWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from tidemark.api.windows.counts import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from tidemark.api.windows.serializers import CountWindowSerializer, TimeWindowSerializer
from tidemark.api.windows.sessions import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from tidemark.api.windows.triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger
from tidemark.api.windows.window import CountWindow, GlobalWindow, TimeWindow
from tidemark.state.namespace import NamespaceKind
from tidemark.types.time import Time


class Value:
    def __init__(self):
        self.stored = None

    def value(self):
        return self.stored

    def update(self, value):
        self.stored = value


class Context:
    """Both an assigner context and, with one counter, the runtime context behind it."""

    def __init__(self, now=0):
        self.now = now
        self.counter = Value()

    def get_current_processing_time(self):
        return self.now

    def get_runtime_context(self):
        return self

    def get_state(self, descriptor):
        return self.counter


def spans(windows):
    return [(window.start, window.end) for window in windows]


def test_tumbling_windows_hold_the_timestamp():
    assigner = TumblingEventTimeWindows.of(Time.seconds(5), 1)

    assert spans(assigner.assign_windows("x", 0, Context())) == [(-4999, 1)]
    assert spans(assigner.assign_windows("x", 1, Context())) == [(1, 5001)]
    assert spans(assigner.assign_windows("x", 5000, Context())) == [(1, 5001)]
    assert assigner.is_event_time()
    assert isinstance(assigner.get_default_trigger(), EventTimeTrigger)


def test_processing_time_windows_follow_the_clock_and_not_the_timestamp():
    tumbling = TumblingProcessingTimeWindows.of(10)
    sliding = SlidingProcessingTimeWindows.of(10, 5)

    assert spans(tumbling.assign_windows("x", None, Context(23))) == [(20, 30)]
    assert spans(sliding.assign_windows("x", None, Context(23))) == [(20, 30), (15, 25)]
    assert not tumbling.is_event_time()
    assert not sliding.is_event_time()
    assert isinstance(sliding.get_default_trigger(), ProcessingTimeTrigger)


def test_sliding_windows_are_all_that_hold_the_timestamp_also_negative_ones():
    assigner = SlidingEventTimeWindows.of(10, 5)

    assert spans(assigner.assign_windows("x", 3, Context())) == [(0, 10), (-5, 5)]
    assert spans(SlidingEventTimeWindows.of(5, 10).assign_windows("x", 7, Context())) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: TumblingEventTimeWindows.of(5, 5),
        lambda: TumblingEventTimeWindows.of(0),
        lambda: TumblingProcessingTimeWindows.of(5, -5),
        lambda: SlidingEventTimeWindows.of(10, 5, 5),
        lambda: SlidingEventTimeWindows.of(10, 0),
        lambda: EventTimeSessionWindows.with_gap(0),
        lambda: ProcessingTimeSessionWindows.with_gap(-1),
        lambda: CountTumblingWindowAssigner.of(0),
        lambda: CountSlidingWindowAssigner.of(2, 0),
    ],
)
def test_impossible_sizes_are_refused(make):
    with pytest.raises(ValueError, match=r"need|must"):
        make()


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of(5),
        SlidingEventTimeWindows.of(5, 5),
        EventTimeSessionWindows.with_gap(5),
    ],
)
def test_an_element_without_timestamp_in_an_event_time_window_is_an_error(assigner):
    for missing in (None, -(2**63)):
        with pytest.raises(Exception, match="assign_timestamps_and_watermarks"):
            assigner.assign_windows("x", missing, Context())


def test_sessions_reach_from_the_element_to_the_end_of_the_gap():
    class ByLength(SessionWindowTimeGapExtractor):
        def extract(self, element):
            return len(element)

    assert spans(EventTimeSessionWindows.with_gap(5).assign_windows("x", 3, Context())) == [(3, 8)]
    assert spans(ProcessingTimeSessionWindows.with_gap(5).assign_windows("x", 3, Context(9))) == [(9, 14)]
    dynamic = EventTimeSessionWindows.with_dynamic_gap(ByLength())
    assert spans(dynamic.assign_windows("xyz", 1, Context())) == [(1, 4)]
    with pytest.raises(ValueError, match="gap"):
        dynamic.assign_windows("", 1, Context())
    clock = ProcessingTimeSessionWindows.with_dynamic_gap(len)
    assert spans(clock.assign_windows("xy", None, Context(1))) == [(1, 3)]
    with pytest.raises(TypeError, match="GapExtractor"):
        EventTimeSessionWindows.with_dynamic_gap(5)


def test_windows_that_overlap_or_touch_merge():
    merged = []

    class Callback:
        def merge(self, to_be_merged, merge_result):
            merged.append((sorted(spans(to_be_merged)), (merge_result.start, merge_result.end)))

    windows = [TimeWindow(20, 25), TimeWindow(0, 5), TimeWindow(5, 8), TimeWindow(30, 31), TimeWindow(24, 26)]
    EventTimeSessionWindows.with_gap(5).merge_windows(windows, Callback())

    assert merged == [([(0, 5), (5, 8)], (0, 8)), ([(20, 25), (24, 26)], (20, 26))]


def test_count_windows_number_the_elements_of_a_key():
    context = Context()
    tumbling = CountTumblingWindowAssigner.of(2)

    ids = [[w.id for w in tumbling.assign_windows("x", None, context)] for _ in range(5)]

    assert ids == [[0], [0], [1], [1], [2]]


@pytest.mark.parametrize(
    ("size", "slide", "expected"),
    [
        (3, 2, [[0], [0], [0, 1], [1], [1, 2], [2]]),
        (2, 3, [[0], [0], [], [1], [1], []]),
        (4, 1, [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]),
    ],
)
def test_sliding_count_windows_overlap_or_leave_gaps(size, slide, expected):
    context = Context()
    assigner = CountSlidingWindowAssigner.of(size, slide)

    ids = [[w.id for w in assigner.assign_windows("x", None, context)] for _ in range(6)]

    assert ids == expected


def test_the_global_window_never_fires_by_itself():
    assigner = GlobalWindows.create()

    assert list(assigner.assign_windows("x", None, Context())) == [GlobalWindow.get()]
    assert isinstance(assigner.get_default_trigger(), NeverTrigger)


@pytest.mark.parametrize(
    ("assigner", "kind", "window"),
    [
        (TumblingEventTimeWindows.of(5), NamespaceKind.WINDOW, TimeWindow(-5, 10)),
        (EventTimeSessionWindows.with_gap(5), NamespaceKind.WINDOW, TimeWindow(1, 2)),
        (CountTumblingWindowAssigner.of(5), NamespaceKind.SINGLE, CountWindow(7)),
        (GlobalWindows.create(), NamespaceKind.SINGLE, GlobalWindow()),
    ],
)
def test_windows_survive_the_way_through_their_namespace(assigner, kind, window):
    assert assigner.namespace_kind() is kind
    assert assigner.window_from_namespace(window.to_namespace()) == window
    serializer = assigner.get_window_serializer()
    assert serializer.from_bytes(serializer.to_bytes(window)) == window


def test_an_assigner_of_the_users_deals_in_time_windows_unless_it_says_otherwise():
    class Mine(WindowAssigner[int, TimeWindow]):
        def assign_windows(self, element, timestamp, context):
            return [TimeWindow(0, 1)]

        def get_default_trigger(self, env=None):
            return EventTimeTrigger()

        def is_event_time(self):
            return True

    class Strange(Mine):
        def get_window_serializer(self):
            return "pickle"

    assert Mine().namespace_kind() is NamespaceKind.WINDOW
    with pytest.raises(TypeError, match="TimeWindowSerializer"):
        Strange().namespace_kind()


def test_time_windows_compare_by_start_and_end():
    assert TimeWindow(1, 5) < TimeWindow(2, 3)
    assert TimeWindow(1, 5) > TimeWindow(1, 4)
    assert TimeWindow(1, 5) == TimeWindow(1, 5)
    assert TimeWindow(1, 5) != CountWindow(1)
    assert TimeWindow(0, 5).max_timestamp() == 4
    assert TimeWindow(0, 5).intersects(TimeWindow(5, 6))
    assert not TimeWindow(0, 5).intersects(TimeWindow(6, 7))
    assert TimeWindow(0, 5).cover(TimeWindow(3, 9)) == TimeWindow(0, 9)
    assert TimeWindow.get_window_start_with_offset(-1, 0, 5) == -5
    assert len({TimeWindow(0, 1), TimeWindow(0, 1)}) == 1
    assert CountWindow(1) < CountWindow(2)
    assert TimeWindowSerializer().namespace_kind is not CountWindowSerializer().namespace_kind
