"""Output of tasks sorted by barriers, whatever the order in which tasks tell of them."""

from __future__ import annotations

from tidemark.protocol.tasks import TaskAcknowledged
from tidemark.runtime.continuous.outputs import TaskOutputs


def rows(outputs, task, *values):
    outputs.add_rows(task, [("s", value) for value in values])


def taken(outputs):
    whole = outputs.take()
    if whole is None:
        return None
    told, produced = whole
    return told[0].checkpoint_id, produced.take_rows("s"), produced.staged


def test_what_lies_in_front_of_a_barrier_is_known_when_the_last_task_has_told_of_it():
    outputs = TaskOutputs(2)
    rows(outputs, 0, b"a")
    outputs.acknowledge(TaskAcknowledged(0, 1))
    rows(outputs, 0, b"behind")
    rows(outputs, 1, b"b")
    assert taken(outputs) is None

    outputs.acknowledge(TaskAcknowledged(1, 1))

    assert taken(outputs) == (1, [b"a", b"b"], {})
    assert taken(outputs) is None
    assert outputs.rest().take_rows("s") == [b"behind"]


def test_rows_come_in_the_order_in_which_the_driver_heard_of_them():
    outputs = TaskOutputs(2)
    rows(outputs, 1, b"1")
    rows(outputs, 0, b"2")
    rows(outputs, 1, b"3")
    for task in (0, 1):
        outputs.acknowledge(TaskAcknowledged(task, 1))

    assert taken(outputs)[1] == [b"1", b"2", b"3"]


def test_files_belong_to_the_barrier_they_were_closed_at():
    outputs = TaskOutputs(2)
    outputs.acknowledge(TaskAcknowledged(0, 1, staged={7: ["x"]}))
    outputs.acknowledge(TaskAcknowledged(0, 2, staged={7: ["z"]}))
    outputs.acknowledge(TaskAcknowledged(1, 1, staged={7: ["y"]}))

    assert taken(outputs) == (1, [], {7: ["x", "y"]})
    outputs.acknowledge(TaskAcknowledged(1, 2))
    assert taken(outputs) == (2, [], {7: ["z"]})


def test_splits_that_ended_in_front_of_an_aborted_barrier_count_for_the_next_one():
    outputs = TaskOutputs(2)
    outputs.acknowledge(TaskAcknowledged(0, 1, ended={3: {"a": 5}}))
    outputs.acknowledge(TaskAcknowledged(0, 2, ended={3: {"b": 6}}))
    outputs.acknowledge(TaskAcknowledged(0, 3, ended={3: {"later": 7}}))
    outputs.acknowledge(TaskAcknowledged(1, 2, ended={3: {"c": 8}}))

    assert outputs.take()[1].ended == {3: {"a": 5, "b": 6, "c": 8}}


def test_output_that_is_given_out_at_once_leaves_barriers_and_ended_splits():
    outputs = TaskOutputs(2)
    rows(outputs, 0, b"a")
    outputs.acknowledge(TaskAcknowledged(0, 1, ended={3: {"x": 5}}))
    rows(outputs, 1, b"b")
    assert outputs.rest().take_rows("s") == [b"a", b"b"]
    outputs.acknowledge(TaskAcknowledged(1, 1))

    told, produced = outputs.take()

    assert [event.task for event in told] == [0, 1]
    assert not produced.rows
    assert produced.ended == {3: {"x": 5}}


def test_a_task_may_be_several_barriers_ahead():
    outputs = TaskOutputs(2)
    for checkpoint in (1, 2, 3):
        rows(outputs, 0, b"%d" % checkpoint)
        outputs.acknowledge(TaskAcknowledged(0, checkpoint))
    for checkpoint in (1, 2, 3):
        outputs.acknowledge(TaskAcknowledged(1, checkpoint))

    assert [taken(outputs) for _ in range(4)] == [
        (1, [b"1"], {}),
        (2, [b"2"], {}),
        (3, [b"3"], {}),
        None,
    ]


def test_output_in_front_of_an_aborted_barrier_counts_for_the_next_one():
    outputs = TaskOutputs(2)
    rows(outputs, 0, b"a")
    outputs.acknowledge(TaskAcknowledged(0, 1, staged={7: ["x"]}))
    rows(outputs, 0, b"b")
    rows(outputs, 1, b"c")
    outputs.acknowledge(TaskAcknowledged(1, 2))
    assert taken(outputs) is None, "task 1 was spared barrier 1; task 0 has not sent barrier 2"

    outputs.acknowledge(TaskAcknowledged(0, 2, staged={7: ["y"]}))

    assert taken(outputs) == (2, [b"a", b"b", b"c"], {7: ["x", "y"]})
    assert not outputs.rest().rows


def test_nothing_is_lost_if_tasks_were_spared_different_barriers():
    outputs = TaskOutputs(2)
    rows(outputs, 0, b"a")
    outputs.acknowledge(TaskAcknowledged(0, 1))
    rows(outputs, 1, b"b")
    outputs.acknowledge(TaskAcknowledged(1, 2))
    rows(outputs, 1, b"c")
    outputs.acknowledge(TaskAcknowledged(1, 3))
    outputs.acknowledge(TaskAcknowledged(0, 3))

    assert taken(outputs) == (3, [b"a", b"b", b"c"], {})
