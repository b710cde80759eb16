from __future__ import annotations

import pytest

from tidemark.api.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TriggerResult,
)
from tidemark.api.windows.window import GlobalWindow, TimeWindow
from tidemark.errors import UnsupportedOperationException

WINDOW = TimeWindow(0, 100)


class Reducing:
    def __init__(self, function):
        self.function = function
        self.value = None

    def add(self, value):
        self.value = value if self.value is None else self.function(self.value, value)

    def get(self):
        return self.value

    def clear(self):
        self.value = None


class FakeTriggerContext:
    def __init__(self, watermark=-(2**63), now=0):
        self.watermark = watermark
        self.now = now
        self.event_timers = set()
        self.clock_timers = set()
        self.states = {}
        self.merged = []

    def get_current_processing_time(self):
        return self.now

    def get_current_watermark(self):
        return self.watermark

    def register_event_time_timer(self, time):
        self.event_timers.add(time)

    def register_processing_time_timer(self, time):
        self.clock_timers.add(time)

    def delete_event_time_timer(self, time):
        self.event_timers.discard(time)

    def delete_processing_time_timer(self, time):
        self.clock_timers.discard(time)

    def get_partitioned_state(self, descriptor):
        return self.states.setdefault(descriptor.name, Reducing(descriptor.reduce_function))

    def merge_partitioned_state(self, descriptor):
        self.merged.append(descriptor.name)


def test_event_time_trigger_fires_at_the_end_and_on_late_elements():
    trigger, ctx = EventTimeTrigger.create(), FakeTriggerContext()

    assert trigger.on_element("x", 5, WINDOW, ctx) is TriggerResult.CONTINUE
    assert ctx.event_timers == {99}
    assert trigger.on_event_time(50, WINDOW, ctx) is TriggerResult.CONTINUE
    assert trigger.on_event_time(99, WINDOW, ctx) is TriggerResult.FIRE
    assert trigger.on_processing_time(99, WINDOW, ctx) is TriggerResult.CONTINUE
    ctx.watermark = 99
    assert trigger.on_element("x", 5, WINDOW, ctx) is TriggerResult.FIRE
    trigger.clear(WINDOW, ctx)
    assert ctx.event_timers == set()


def test_event_time_trigger_waits_for_the_end_of_a_merged_window():
    trigger, ctx = EventTimeTrigger(), FakeTriggerContext(watermark=50)

    trigger.on_merge(WINDOW, ctx)
    trigger.on_merge(TimeWindow(0, 40), ctx)

    assert trigger.can_merge()
    assert ctx.event_timers == {99}


def test_processing_time_trigger_fires_by_the_clock():
    trigger, ctx = ProcessingTimeTrigger.create(), FakeTriggerContext()

    assert trigger.on_element("x", None, WINDOW, ctx) is TriggerResult.CONTINUE
    assert trigger.on_event_time(99, WINDOW, ctx) is TriggerResult.CONTINUE
    assert trigger.on_processing_time(99, WINDOW, ctx) is TriggerResult.FIRE
    trigger.on_merge(TimeWindow(0, 200), ctx)
    assert ctx.clock_timers == {99, 199}
    trigger.clear(WINDOW, ctx)
    assert ctx.clock_timers == {199}
    assert trigger.can_merge()


def test_count_trigger_fires_on_every_nth_element_and_counts_anew():
    trigger, ctx = CountTrigger.of(2), FakeTriggerContext()

    fired = [trigger.on_element("x", None, WINDOW, ctx).is_fire() for _ in range(5)]

    assert fired == [False, True, False, True, False]
    assert trigger.on_event_time(1, WINDOW, ctx) is TriggerResult.CONTINUE
    assert trigger.on_processing_time(1, WINDOW, ctx) is TriggerResult.CONTINUE
    trigger.on_merge(WINDOW, ctx)
    assert ctx.merged == ["trigger-count"]
    trigger.clear(WINDOW, ctx)
    assert ctx.states["trigger-count"].get() is None
    with pytest.raises(ValueError, match="positive"):
        CountTrigger.of(0)


def test_continuous_event_time_trigger_fires_at_each_interval_and_at_the_end():
    trigger, ctx = ContinuousEventTimeTrigger.of(30), FakeTriggerContext()

    assert trigger.on_element("x", 35, WINDOW, ctx) is TriggerResult.CONTINUE
    assert ctx.event_timers == {60, 99}
    assert trigger.on_event_time(60, WINDOW, ctx) is TriggerResult.FIRE
    assert 90 in ctx.event_timers
    assert trigger.on_event_time(61, WINDOW, ctx) is TriggerResult.CONTINUE
    assert trigger.on_event_time(99, WINDOW, ctx) is TriggerResult.FIRE
    trigger.on_merge(TimeWindow(0, 200), ctx)
    assert ctx.merged == ["trigger-fire-time"]
    assert 199 in ctx.event_timers
    trigger.clear(WINDOW, ctx)
    assert not {90, 99} & ctx.event_timers
    ctx.watermark = 99
    assert trigger.on_element("x", 35, WINDOW, ctx) is TriggerResult.FIRE
    assert trigger.on_processing_time(1, WINDOW, ctx) is TriggerResult.CONTINUE


def test_continuous_processing_time_trigger_stops_at_the_end_of_the_window():
    trigger, ctx = ContinuousProcessingTimeTrigger.of(60), FakeTriggerContext(now=10)

    assert trigger.on_element("x", None, WINDOW, ctx) is TriggerResult.CONTINUE
    assert ctx.clock_timers == {60}
    assert trigger.on_processing_time(60, WINDOW, ctx) is TriggerResult.FIRE
    assert trigger.on_processing_time(61, WINDOW, ctx) is TriggerResult.CONTINUE
    assert trigger.on_processing_time(99, WINDOW, ctx) is TriggerResult.FIRE
    assert ctx.states["trigger-fire-time"].get() is None
    ctx.now = 70
    trigger.on_element("x", None, WINDOW, ctx)
    trigger.on_merge(WINDOW, ctx)
    trigger.clear(WINDOW, ctx)
    assert 99 not in ctx.clock_timers
    assert trigger.can_merge()
    assert trigger.on_event_time(1, WINDOW, ctx) is TriggerResult.CONTINUE
    with pytest.raises(ValueError, match="positive"):
        ContinuousProcessingTimeTrigger.of(0)


def test_purging_trigger_drops_what_it_fires():
    trigger, ctx = PurgingTrigger.of(CountTrigger.of(1)), FakeTriggerContext()

    assert trigger.on_element("x", None, WINDOW, ctx) is TriggerResult.FIRE_AND_PURGE
    assert trigger.on_event_time(1, WINDOW, ctx) is TriggerResult.CONTINUE
    assert trigger.on_processing_time(1, WINDOW, ctx) is TriggerResult.CONTINUE
    assert trigger.can_merge()
    trigger.on_merge(WINDOW, ctx)
    trigger.clear(WINDOW, ctx)
    with pytest.raises(TypeError, match="Trigger"):
        PurgingTrigger.of("count")


def test_never_trigger_never_fires_and_cannot_merge():
    trigger, ctx = NeverTrigger(), FakeTriggerContext()

    assert trigger.on_element("x", None, GlobalWindow.get(), ctx) is TriggerResult.CONTINUE
    assert trigger.on_event_time(1, GlobalWindow.get(), ctx) is TriggerResult.CONTINUE
    assert trigger.on_processing_time(1, GlobalWindow.get(), ctx) is TriggerResult.CONTINUE
    assert not trigger.can_merge()
    trigger.clear(GlobalWindow.get(), ctx)
    with pytest.raises(UnsupportedOperationException):
        trigger.on_merge(GlobalWindow.get(), ctx)


@pytest.mark.parametrize(
    ("result", "fire", "purge"),
    [
        ("CONTINUE", False, False),
        ("FIRE", True, False),
        ("PURGE", False, True),
        ("FIRE_AND_PURGE", True, True),
    ],
)
def test_trigger_results_say_what_happens(result, fire, purge):
    assert TriggerResult[result].is_fire() is fire
    assert TriggerResult[result].is_purge() is purge
