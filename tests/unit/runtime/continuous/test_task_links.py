"""The control links of tasks over real sockets: who is let in, who is told what, and what is noticed."""

from __future__ import annotations

import pickle
import threading
import time

import pytest

from tidemark.protocol.tasks import (
    AddSplits,
    Drain,
    EndTask,
    Heartbeat,
    Pause,
    Resume,
    TaskAlive,
    TaskLost,
    TaskRows,
    TaskStarted,
)
from tidemark.runtime.continuous.task_links import TaskLinks
from tidemark.wire import WireClosed, connect

TOKEN = b"t" * 32
DEADLINE = 60


@pytest.fixture
def links(tmp_path):
    made = TaskLinks(TOKEN, f"unix:{tmp_path}/links.sock", 3600, 3600)
    made.begin(1)
    yield made
    made.close()


def introduce(links, task, attempt=1, token=TOKEN):
    connection = connect(links.address, token, DEADLINE)
    connection.set_timeout(DEADLINE)
    connection.send([task, attempt])
    return connection


def command(connection):
    return pickle.loads(connection.receive()[1])


def tell(connection, event):
    connection.send([], pickle.dumps(event))


def eventually(ask, what):
    deadline = time.monotonic() + DEADLINE
    while not (found := ask()):
        assert time.monotonic() < deadline, what
        time.sleep(0.005)
    return found


def joined(links, task, attempt=1):
    """A task that has certainly been let in."""
    before = links.connected()
    connection = introduce(links, task, attempt)
    eventually(lambda: links.connected() > before, "the task was let in")
    return connection


def is_dropped(connection):
    with pytest.raises(WireClosed):
        connection.receive()
    return True


def test_commands_reach_a_task_in_their_order_also_those_from_before_it_connected(links):
    links.tell(0, Pause())
    links.tell(0, Resume())
    task = joined(links, 0)
    links.tell(0, Drain())

    assert [command(task) for _ in range(3)] == [Pause(), Resume(), Drain()]


def test_events_come_in_the_order_of_each_task_and_wake_the_driver(links):
    woken = threading.Event()
    links.on_event = woken.set
    task = joined(links, 0)
    tell(task, TaskStarted(0))
    tell(task, TaskRows(0, [("s", b"1")]))

    assert woken.wait(DEADLINE)
    events = []
    eventually(lambda: events.extend(links.events()) or len(events) == 2, "both events")
    assert events == [TaskStarted(0), TaskRows(0, [("s", b"1")])]


def test_a_task_whose_connection_breaks_is_lost(links):
    joined(links, 4).close()

    [lost] = eventually(links.events, "the loss is told")
    assert isinstance(lost, TaskLost)
    assert lost.task == 4


def test_a_task_that_spark_has_started_twice_is_turned_away_and_the_first_one_stays(links):
    first = joined(links, 0)
    second = introduce(links, 0)

    assert is_dropped(second)
    links.tell(0, Pause())
    assert command(first) == Pause()
    assert links.events() == []


def test_a_task_of_another_attempt_is_turned_away(links):
    for attempt in (0, 2):
        assert is_dropped(introduce(links, 0, attempt))
    assert links.connected() == 0


def test_a_stranger_without_the_token_is_not_let_in(links):
    with pytest.raises((WireClosed, OSError)):
        stranger = connect(links.address, b"x" * 32, DEADLINE)
        stranger.set_timeout(DEADLINE)
        stranger.send([0, 1])
        stranger.receive()
    assert links.connected() == 0


@pytest.mark.parametrize("header", [["no number", 1], [float("inf"), 1], [], [0], {"task": 0}, None])
def test_whoever_introduces_itself_badly_is_dropped_and_others_are_served(links, header):
    connection = connect(links.address, TOKEN, DEADLINE)
    connection.set_timeout(DEADLINE)
    connection.send(header)

    assert is_dropped(connection)
    assert joined(links, 0)


class Unwilling:
    """Cannot be unpickled, in a way of its own."""

    def __reduce__(self):
        return (int, ("no number",))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no pickle",
        pickle.dumps(TaskStarted(0))[:-5],
        pickle.dumps(Unwilling()),
        b"cno_such_module\nThing\n.",
        pickle.dumps("no event"),
        pickle.dumps(TaskStarted(1)),
    ],
    ids=["empty", "garbage", "cut off", "raises", "unknown class", "no event", "of another task"],
)
def test_a_task_that_says_what_cannot_be_read_is_lost_and_let_go(links, body):
    task = joined(links, 0)

    task.send([], body)

    [lost] = eventually(links.events, "the loss is told")
    assert isinstance(lost, TaskLost)
    assert lost.task == 0
    assert "cannot be read" in lost.why
    assert is_dropped(task)


def test_a_new_attempt_forgets_the_tasks_their_commands_and_their_events(links):
    old = joined(links, 0)
    links.tell(1, Pause())
    tell(old, TaskStarted(0))
    eventually(lambda: not links._events.empty(), "the event is there")

    links.begin(2)

    assert is_dropped(old)
    assert links.events() == []
    late = joined(links, 1, attempt=2)
    links.tell(1, Resume())
    assert command(late) == Resume(), "not the pause of the attempt before"


def test_what_a_task_of_an_attempt_that_is_over_says_is_not_heard(links):
    old = joined(links, 0)
    links.end()
    assert command(old) == EndTask()
    tell(old, TaskStarted(0))
    old.close()
    links.begin(2)
    late = joined(links, 0, attempt=2)

    assert links.events() == []
    late.close()


def test_the_end_turns_away_whoever_comes_later(links):
    links.end()
    assert is_dropped(introduce(links, 0))


def test_telling_a_task_that_is_gone_does_no_harm(links):
    joined(links, 0).close()
    eventually(links.events, "the loss is told")
    links.tell(0, Pause())


def test_tasks_hear_that_the_driver_is_there(tmp_path):
    links = TaskLinks(TOKEN, f"unix:{tmp_path}/links.sock", 0.01, 3600)
    links.begin(1)
    task = joined(links, 0)

    assert command(task) == Heartbeat()
    assert command(task) == Heartbeat()
    links.close()


def test_a_task_that_says_nothing_for_too_long_is_lost_and_let_go(tmp_path):
    links = TaskLinks(TOKEN, f"unix:{tmp_path}/links.sock", 0.01, 0.05)
    links.begin(1)
    try:
        task = joined(links, 3)

        [lost] = eventually(links.events, "the loss is told")

        assert isinstance(lost, TaskLost)
        assert lost.task == 3
        assert "heartbeat.timeout" in lost.why
        with pytest.raises(WireClosed):
            while True:
                command(task)
    finally:
        links.close()


def test_a_sign_of_life_is_no_event(links):
    task = joined(links, 0)
    tell(task, TaskAlive(0))
    tell(task, TaskStarted(0))

    assert eventually(links.events, "the event is there") == [TaskStarted(0)]


def test_a_task_that_floods_a_driver_that_does_not_listen_waits_and_loses_nothing(links):
    task = joined(links, 0)
    count = 20_000
    sender = threading.Thread(
        target=lambda: [tell(task, TaskRows(0, [("s", b"%d" % n)])) for n in range(count)], daemon=True
    )
    sender.start()
    eventually(lambda: links._events.full(), "the queue is full")

    seen = 0
    deadline = time.monotonic() + DEADLINE
    while seen < count:
        assert time.monotonic() < deadline
        for event in links.events():
            assert event.rows == [("s", b"%d" % seen)]
            seen += 1
    sender.join(DEADLINE)


def test_the_driver_never_waits_for_a_task_that_waits_for_the_driver(links):
    task = joined(links, 0)
    flood = threading.Thread(
        target=lambda: [tell(task, TaskRows(0, [("s", bytes(10_000))])) for _ in range(5_000)], daemon=True
    )
    flood.start()
    eventually(lambda: links._events.full(), "the queue is full")
    splits = AddSplits(0, [bytes(8 << 20)])

    telling = threading.Thread(target=lambda: links.tell(0, splits), daemon=True)
    telling.start()
    telling.join(DEADLINE)
    assert not telling.is_alive(), "more than the buffers of a socket hold"

    seen = []
    eventually(lambda: seen.extend(links.events()) or len(seen) == 5_000, "all rows")
    flood.join(DEADLINE)
    assert command(task) == splits


def test_closing_lets_go_of_every_task(tmp_path):
    links = TaskLinks(TOKEN, f"unix:{tmp_path}/links.sock", 3600, 3600)
    links.begin(1)
    task = joined(links, 0)
    links.close()

    assert is_dropped(task)
    with pytest.raises((WireClosed, OSError)):
        introduce(links, 1).receive()
