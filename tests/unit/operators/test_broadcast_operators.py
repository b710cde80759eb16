"""Broadcast functions, keyed and not."""

from __future__ import annotations

import pytest

from tidemark.api.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedStateFunction,
)
from tidemark.api.output_tag import OutputTag
from tidemark.api.state_backends import EmbeddedRocksDBStateBackend, HashMapStateBackend
from tidemark.clock import ManualClock
from tidemark.errors import NoCurrentKeyError, UnsupportedOperationException
from tidemark.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidemark.testing import BroadcastHarness
from tidemark.types.typeinfo import Types

RULES = MapStateDescriptor("rules", Types.STRING(), Types.PICKLED_BYTE_ARRAY())
BACKENDS = [HashMapStateBackend, EmbeddedRocksDBStateBackend]
TAG = OutputTag("side")


class Matching(KeyedBroadcastProcessFunction):
    """The rule example: items are (colour, shape), rules (name, first shape, second shape)."""

    def open(self, runtime_context):
        self.waiting = runtime_context.get_map_state(
            MapStateDescriptor("waiting", Types.STRING(), Types.LIST(Types.PICKLED_BYTE_ARRAY()))
        )

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value[0], value[1:])

    def process_element(self, value, ctx):
        for name, (first, second) in ctx.get_broadcast_state(RULES).immutable_entries():
            stored = list(self.waiting.get(name) or [])
            if value[1] == second and stored:
                for item in stored:
                    yield f"MATCH: {item} - {value}"
                stored = []
            if value[1] == first:
                stored.append(value)
            if stored:
                self.waiting.put(name, stored)
            else:
                self.waiting.remove(name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rule_matching_of_the_specification(backend):
    harness = BroadcastHarness(
        Matching(), [RULES], lambda item: item[0], Types.STRING(), state_backend=backend()
    )
    harness.process_broadcast_element(("r", "square", "circle"))
    harness.process_broadcast_element(("same", "star", "star"))

    for item in [
        ("red", "square"),
        ("blue", "circle"),
        ("red", "square"),
        ("red", "circle"),
        ("red", "circle"),
        ("blue", "star"),
        ("blue", "star"),
    ]:
        harness.process_element(item)

    assert harness.output() == [
        "MATCH: ('red', 'square') - ('red', 'circle')",
        "MATCH: ('red', 'square') - ('red', 'circle')",
        "MATCH: ('blue', 'star') - ('blue', 'star')",
    ]
    assert harness.num_keyed_state_entries("waiting") == 1
    harness.close()


class Plain(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        state = ctx.get_broadcast_state(RULES)
        ctx.output(TAG, value)
        yield state.get(value), ctx.timestamp(), ctx.current_watermark(), ctx.current_processing_time()

    def process_broadcast_element(self, value, ctx):
        state = ctx.get_broadcast_state(RULES)
        if value is None:
            state.clear()
        else:
            state[value[0]] = value[1]
            yield f"rule {value[0]}"


def test_broadcast_without_keys():
    harness = BroadcastHarness(Plain(), RULES, clock=ManualClock(4))
    harness.process_element("a", 1)
    harness.process_broadcast_element(("a", "A"))
    harness.process_watermark(10)
    harness.process_element("a", 2)
    harness.process_broadcast_element(None)
    harness.process_element("a")

    assert harness.output() == [
        (None, 1, -(2**63), 4),
        "rule a",
        ("A", 2, 10, 4),
        (None, None, 10, 4),
    ]
    assert harness.side_output(TAG) == ["a", "a", "a"]


class Writing(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        value(ctx.get_broadcast_state(RULES))

    def process_broadcast_element(self, value, ctx):
        value(ctx)


@pytest.mark.parametrize(
    "write",
    [
        lambda state: state.put("k", 1),
        lambda state: state.put_all({"k": 1}),
        lambda state: state.remove("k"),
        lambda state: state.clear(),
        lambda state: state.__setitem__("k", 1),
        lambda state: state.__delitem__("k"),
    ],
)
def test_the_data_side_cannot_write(write):
    with pytest.raises(UnsupportedOperationException):
        BroadcastHarness(Writing(), [RULES]).process_element(write)


def test_a_state_that_was_not_broadcast_is_refused():
    other = MapStateDescriptor("other", Types.STRING(), Types.LONG())

    with pytest.raises(ValueError, match=r"broadcast\(\.\.\.\)"):
        BroadcastHarness(Writing(), [RULES]).process_broadcast_element(
            lambda ctx: ctx.get_broadcast_state(other)
        )


SEEN = ListStateDescriptor("seen", Types.STRING())
COUNT = ValueStateDescriptor("count", Types.LONG())


class Visiting(KeyedBroadcastProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(100)
        yield ctx.get_current_key(), self.count.value()

    def process_broadcast_element(self, value, ctx):
        return value(self, ctx)

    def on_timer(self, timestamp, ctx):
        rules = dict(ctx.get_broadcast_state(RULES).items())
        yield ctx.get_current_key(), timestamp, ctx.time_domain().name, rules, ctx.timer_service() is not None


def visiting(backend=None):
    harness = BroadcastHarness(Visiting(), [RULES], lambda item: item, Types.STRING(), state_backend=backend)
    for item in ["a", "b", "b"]:
        harness.process_element(item)
    harness.output()
    return harness


@pytest.mark.parametrize("backend", BACKENDS)
def test_apply_to_keyed_state_visits_every_key_that_holds_a_value(backend):
    harness = visiting(backend())
    visited = []

    def double(key, state):
        visited.append((key, state.value()))
        if key == "a":
            state.clear()
        else:
            state.update(2 * state.value())

    harness.process_broadcast_element(lambda function, ctx: ctx.apply_to_keyed_state(COUNT, double))
    harness.process_element("a")
    harness.process_element("b")

    assert sorted(visited) == [("a", 1), ("b", 2)]
    assert harness.output() == [("a", 1), ("b", 5)]
    harness.close()


def test_apply_to_keyed_state_takes_keyed_state_functions():
    class Visitor(KeyedStateFunction):
        def process(self, key, state):
            state.update(0)

    harness = visiting()

    harness.process_broadcast_element(lambda function, ctx: ctx.apply_to_keyed_state(COUNT, Visitor()))
    harness.process_element("a")

    assert harness.output() == [("a", 1)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_keyed_access_on_the_broadcast_side_is_refused(backend):
    harness = visiting(backend())

    with pytest.raises(NoCurrentKeyError):
        harness.process_broadcast_element(lambda function, ctx: function.count.value())
    with pytest.raises(UnsupportedOperationException):
        harness.process_broadcast_element(
            lambda function, ctx: ctx.timer_service().register_event_time_timer(1)
        )
    harness.process_broadcast_element(
        lambda function, ctx: ctx.apply_to_keyed_state(COUNT, lambda key, state: None)
    )
    with pytest.raises(NoCurrentKeyError):
        harness.process_broadcast_element(lambda function, ctx: function.count.value())
    harness.close()


def test_on_timer_reads_broadcast_state():
    harness = visiting()
    harness.process_broadcast_element(lambda function, ctx: ctx.get_broadcast_state(RULES).put("r", 1))

    harness.process_watermark(100)

    assert sorted(harness.output()) == [
        ("a", 100, "EVENT_TIME", {"r": 1}, True),
        ("b", 100, "EVENT_TIME", {"r": 1}, True),
    ]


def test_broadcast_state_with_a_time_to_live_is_refused():
    from tidemark.state.ttl import StateTtlConfig

    descriptor = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(10).build())

    with pytest.raises(ValueError, match="time-to-live"):
        BroadcastHarness(Plain(), [descriptor]).open()
