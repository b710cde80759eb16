"""Timers of keyed process functions."""

from __future__ import annotations

import pytest

from tidemark.api.functions import KeyedProcessFunction, ProcessFunction
from tidemark.api.output_tag import OutputTag
from tidemark.api.time_domain import TimeDomain
from tidemark.clock import ManualClock, SystemClock
from tidemark.errors import UnsupportedOperationException
from tidemark.testing import OneInputHarness
from tidemark.types.typeinfo import Types

TAG = OutputTag("side")


class Scripted(KeyedProcessFunction):
    """Elements are (key, method of the timer service, time); on_timer reports."""

    def process_element(self, value, ctx):
        if value[1] is not None:
            getattr(ctx.timer_service(), value[1])(value[2])

    def on_timer(self, timestamp, ctx):
        ctx.output(TAG, ctx.timestamp())
        yield ctx.get_current_key(), timestamp, ctx.time_domain()


def scripted(**options):
    return OneInputHarness(Scripted(), lambda value: value[0], Types.STRING(), **options)


EVENT, PROCESSING = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME
ON_EVENT, ON_CLOCK = "register_event_time_timer", "register_processing_time_timer"


def test_event_timers_fire_in_time_order_once_each_and_stamp_what_they_emit():
    harness = scripted()
    for key, time in [("a", 30), ("b", 10), ("a", 20), ("a", 20)]:
        harness.process_element((key, ON_EVENT, time))

    harness.process_watermark(9)
    assert harness.output() == []
    harness.process_watermark(20)

    assert harness.output_with_timestamps() == [(("b", 10, EVENT), 10), (("a", 20, EVENT), 20)]
    assert harness.side_output(TAG) == [10, 20]
    harness.process_watermark(29)
    harness.process_watermark(30)
    assert harness.output() == [("a", 30, EVENT)]


def test_a_timer_behind_the_watermark_fires_at_the_next_advance():
    harness = scripted()
    harness.process_watermark(100)

    harness.process_element(("a", ON_EVENT, 50))
    harness.process_watermark(100)
    assert harness.output() == []
    harness.process_watermark(101)

    assert harness.output() == [("a", 50, EVENT)]


def test_the_watermark_never_goes_back():
    harness = scripted()
    harness.process_watermark(10)
    harness.process_watermark(5)
    harness.process_element(("a", ON_EVENT, 20))
    harness.process_watermark(20)

    assert harness.output() == [("a", 20, EVENT)]


def test_deleted_timers_do_not_fire():
    harness = scripted()
    harness.process_element(("a", ON_EVENT, 10))
    harness.process_element(("b", ON_EVENT, 10))
    harness.process_element(("a", ON_CLOCK, 10))
    harness.process_element(("a", "delete_event_time_timer", 10))
    harness.process_element(("a", "delete_event_time_timer", 11))
    harness.process_element(("a", "delete_processing_time_timer", 10))

    harness.process_watermark(10)
    harness.set_processing_time(10)

    assert harness.output() == [("b", 10, EVENT)]


def test_processing_timers_follow_the_injected_clock():
    clock = ManualClock(5)
    harness = scripted(clock=clock)
    harness.process_element(("a", ON_CLOCK, 20))
    harness.process_element(("a", ON_EVENT, 20))

    harness.set_processing_time(19)
    assert harness.output() == []
    harness.set_processing_time(20)

    assert harness.output_with_timestamps() == [(("a", 20, PROCESSING), 20)]
    assert clock.now() == 20


def test_a_processing_timer_in_the_past_fires_when_the_call_is_over():
    harness = scripted(clock=ManualClock(100))

    harness.process_element(("a", ON_CLOCK, 50))

    assert harness.output() == [("a", 50, PROCESSING)]


def test_only_a_manual_clock_can_be_set():
    with pytest.raises(TypeError, match="ManualClock"):
        scripted(clock=SystemClock()).set_processing_time(1)


def test_end_of_input_fires_event_timers_and_drops_processing_timers():
    harness = scripted()
    harness.process_element(("a", ON_EVENT, 2**62))
    harness.process_element(("a", ON_CLOCK, 10))

    harness.end_input()
    harness.set_processing_time(1000)

    assert harness.output() == [("a", 2**62, EVENT)]
    assert harness._operator.next_processing_timer() is None


class Repeating(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(10)

    def on_timer(self, timestamp, ctx):
        yield timestamp, ctx.timer_service().current_watermark()
        if timestamp < 30:
            ctx.timer_service().register_event_time_timer(timestamp + 10)
        ctx.timer_service().register_event_time_timer(timestamp)


def test_timers_registered_by_timers_fire_in_the_same_advance_if_they_are_later():
    harness = OneInputHarness(Repeating(), lambda value: value, Types.STRING())
    harness.process_element("a")

    harness.process_watermark(100)

    assert harness.output() == [(10, 100), (20, 100), (30, 100)]


class Times(ProcessFunction):
    def process_element(self, value, ctx):
        service = ctx.timer_service()
        if value is not None:
            getattr(service, value)(1)
        yield ctx.timestamp(), service.current_watermark(), service.current_processing_time()


def test_streams_without_keys_can_read_time_but_not_register_timers():
    harness = OneInputHarness(Times(), clock=ManualClock(3))

    harness.process_element(None)
    harness.process_watermark(8)
    harness.process_element(None, 9)

    assert harness.output() == [(None, -(2**63), 3), (9, 8, 3)]
    for method in [
        ON_EVENT,
        ON_CLOCK,
        "delete_event_time_timer",
        "delete_processing_time_timer",
    ]:
        with pytest.raises(UnsupportedOperationException, match="key"):
            harness.process_element(method)


def test_the_next_processing_timer_is_told_to_the_host():
    harness = scripted()
    harness.open()

    assert harness._operator.next_processing_timer() is None
    harness.process_element(("a", ON_CLOCK, 70))
    harness.process_element(("b", ON_CLOCK, 30))

    assert harness._operator.next_processing_timer() == 30
