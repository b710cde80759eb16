"""The channels of one task to one slot vertex: one frame in flight, the rest in order, and what time goes with them."""

from __future__ import annotations

import pytest
from tests.unit.runtime.continuous.links import FakeLink, plan_of

from tidemark import Types
from tidemark.errors import SlotLostError
from tidemark.protocol.channels import FrameKind
from tidemark.protocol.failure import OperatorFailed
from tidemark.protocol.frames import EMPTY
from tidemark.runtime.continuous.channel_exchange import ChannelExchange
from tidemark.runtime.continuous.latency import LatencyProbe
from tidemark.runtime.watermarks import Mark

RECORDS, TOUCH, BARRIER = FrameKind.RECORDS, FrameKind.TOUCH, FrameKind.BARRIER


class Owner:
    def __init__(self):
        self.mark = Mark(0)
        self.log = []
        self.now = 0.0
        self.latency = LatencyProbe(lambda: self.now)

    def claim(self, vertex):
        return self.mark

    def emit(self, vertex_id, tag, records):
        self.log.append(records.values)

    def answered(self, vertex, slot, answer):
        self.log.append(("answered", slot))


@pytest.fixture
def owner():
    return Owner()


def two_slots(env):
    env.from_collection([1]).key_by(lambda v: v, Types.LONG()).map(lambda v: v).print()


@pytest.fixture
def links():
    return {0: FakeLink(), 1: FakeLink()}


@pytest.fixture
def exchange(owner, links):
    vertex = plan_of(two_slots, 2).in_slots()[0]
    return ChannelExchange(owner, vertex, 5, 3, [0, 1], links.__getitem__)


def test_one_frame_is_in_flight_per_subtask_and_the_rest_keep_their_order(exchange, links):
    for body in (b"a", b"b", b"c"):
        exchange.send(0, 0, 1, body)
    assert links[0].bodies == [b"a"]
    assert exchange.backlogged

    for _ in range(3):
        links[0].answer()
        assert exchange.poll()
    assert links[0].bodies == [b"a", b"b", b"c"]
    assert not exchange.backlogged
    assert not exchange.under_way


def test_headers_carry_task_attempt_and_a_sequence_per_subtask(exchange, links):
    exchange.send(0, 0, 1, b"a")
    exchange.send(1, 0, 1, b"b")
    links[0].answer()
    exchange.poll()
    exchange.touch(0)

    assert [(h.channel, h.attempt, h.sequence) for h in links[0].sent] == [(5, 3, 0), (5, 3, 1)]
    assert [h.sequence for h in links[1].sent] == [0]


def test_a_barrier_goes_to_every_subtask_behind_what_was_sent_before(exchange, links):
    exchange.send(0, 0, 1, b"a")
    exchange.barrier(b"request")

    assert links[0].kinds() == [RECORDS]
    assert links[1].kinds() == [BARRIER]
    links[0].answer()
    exchange.poll()
    assert links[0].kinds() == [RECORDS, BARRIER]
    assert links[0].bodies[1] == b"request"


def test_a_frame_claims_the_time_of_the_moment_it_was_made(exchange, links, owner):
    exchange.send(0, 0, 1, b"a")
    owner.mark = Mark(10)
    exchange.send(0, 0, 1, b"b")
    owner.mark = Mark(20)
    links[0].answer()
    exchange.poll()

    assert [header.watermark for header in links[0].sent] == [0, 10], "20 would have overtaken b's records"


def test_subtasks_are_told_of_new_time_once(exchange, links, owner):
    exchange.advance()
    assert links[0].kinds() == links[1].kinds() == [TOUCH]
    for link in links.values():
        link.answer()
    exchange.poll()
    exchange.advance()
    assert links[0].kinds() == [TOUCH], "nothing is new"

    owner.mark = Mark(7, idle=True)
    exchange.advance()
    assert [(h.watermark, h.idle) for h in links[1].sent] == [(0, False), (7, True)]


def test_records_on_their_way_make_a_touch_unnecessary(exchange, links, owner):
    exchange.send(0, 0, 1, b"a")
    exchange.touch(0)
    exchange.send(0, 0, 1, b"b")
    for _ in range(2):
        links[0].answer()
        exchange.poll()

    assert links[0].kinds() == [RECORDS, RECORDS]


def test_a_touch_that_is_wanted_while_a_frame_is_in_flight_follows_it(exchange, links):
    exchange.send(0, 0, 1, b"a")
    exchange.touch(0)
    links[0].answer()
    exchange.poll()

    assert links[0].kinds() == [RECORDS, TOUCH]
    assert links[0].sent[1].flags == EMPTY


def test_what_came_with_an_answer_is_passed_on_before_it_counts(exchange, links, owner):
    exchange.send(0, 0, 1, b"a")
    links[0].answer("x", "y")
    assert exchange.poll()

    assert owner.log == [["x", "y"], ("answered", 0)]


def test_a_touch_that_moved_nothing_is_no_progress(exchange, links):
    exchange.touch(0)
    links[0].answer()
    assert not exchange.poll()
    exchange.touch(0)
    links[0].answer("fired")
    assert exchange.poll()


def test_a_source_function_is_asked_again_when_it_has_answered(exchange, links):
    exchange.pull(0, 5)
    exchange.pull(0, 5)
    assert [header.wait_ms for header in links[0].sent] == [5]
    assert not exchange.backlogged
    links[0].answer()
    exchange.poll()
    exchange.pull(0, 5)
    assert len(links[0].sent) == 2


def test_a_failed_operator_and_a_lost_slot_are_told_apart(exchange, links):
    exchange.send(0, 0, 1, b"a")
    links[0].fail(ValueError("poisoned"))
    with pytest.raises(OperatorFailed, match="poisoned"):
        exchange.poll()

    exchange.send(1, 0, 1, b"a")
    links[1].broken = True
    with pytest.raises(SlotLostError, match="1"):
        exchange.poll()


def test_a_slot_that_is_gone_at_the_start_or_when_sent_to_is_lost(owner, links, exchange):
    links[1].broken = True
    with pytest.raises(SlotLostError):
        exchange.send(1, 0, 1, b"a")
    exchange.close()
    assert links[0].closed


def test_only_links_with_a_frame_in_flight_are_waited_for(exchange, links):
    assert exchange.waiting() == []
    exchange.send(1, 0, 1, b"a")
    assert exchange.waiting() == [links[1]]


def test_latency_lasts_until_the_last_frame_of_a_read_is_answered(exchange, links, owner):
    exchange.send(0, 0, 1, b"before")
    owner.latency.begin()
    exchange.send(0, 0, 1, b"a")
    exchange.send(1, 0, 1, b"b")
    owner.latency.pushed()
    exchange.send(1, 0, 1, b"behind")

    for slot, seconds in ((0, 1.0), (0, 2.0), (1, 4.0)):
        assert owner.latency.take() is None
        owner.now += seconds
        links[slot].answer()
        exchange.poll()

    assert owner.latency.take() == 7000.0
    assert exchange.under_way, "what was sent behind is still on its way"
