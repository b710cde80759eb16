"""User code that does not return blocks nothing but itself: control, checkpoint timeouts, cancel and restarts go on.

Every function here blocks until its test lets it go, and every assertion is made while it is still blocked.
"""

from __future__ import annotations

import logging
import threading

import pytest
from tests.recovery.local_jobs import DEADLINE, Count, Numbers, board, lane_threads, local_env, new_board

from tidemark import (
    CheckpointedFunction,
    CheckpointListener,
    CustomCheckpointStorage,
    Encoder,
    FileSink,
    JobStatus,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    RestartStrategies,
    SourceFunction,
    Types,
)
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.errors import CheckpointError, FailureReason, JobExecutionException
from tidemark.runtime.job_facts import job_facts

IMPATIENT = {"task.cancellation.timeout": "100 ms"}


@pytest.fixture
def seen():
    """A board; whoever still blocks on it is let go at the end, and must not have done anything since."""
    others = lane_threads()
    made = new_board()
    yield made
    threads = lane_threads(others)
    made.set("release")
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


def block(name, once=False):
    """Block on the board until the test lets go (only the first caller, if `once`)."""
    if once and board(name).values.get("blocked"):
        return
    board(name).set("blocked")
    board(name).wait_set("release")
    board(name).note("returned")


class BlocksIn(KeyedProcessFunction, CheckpointedFunction, CheckpointListener):
    """Passes values on, and blocks in the call it is told, the first time only if `once`."""

    def __init__(self, board_name, place, once=False):
        self.board_name, self.place, self.once = board_name, place, once

    def reach(self, place):
        if place == self.place:
            block(self.board_name, self.once)

    def open(self, runtime_context):
        self.reach("open")
        runtime_context.get_metrics_group().gauge("level", lambda: self.reach("gauge"))

    def process_element(self, value, ctx):
        self.reach("process_element")
        yield value

    def initialize_state(self, context):
        self.reach("initialize_state")

    def snapshot_state(self, context):
        self.reach("snapshot_state")

    def notify_checkpoint_complete(self, checkpoint_id):
        self.reach("notify_checkpoint_complete")

    def close(self):
        self.reach("close")


class BlocksInMap(MapFunction):
    """Blocks in a fused task; swallows whatever is thrown at it if `stubborn`."""

    def __init__(self, board_name, stubborn=False):
        self.board_name, self.stubborn = board_name, stubborn

    def map(self, value):
        try:
            block(self.board_name)
        except BaseException:
            if not self.stubborn:
                raise
        return value


class HoldsTheLock(SourceFunction):
    """Emits one element, then never gives the checkpoint lock back."""

    def __init__(self, board_name):
        self.board_name = board_name

    def run(self, ctx):
        with ctx.get_checkpoint_lock():
            ctx.collect(1)
            block(self.board_name)

    def cancel(self):
        pass


PLACES = [
    "open",
    "initialize_state",
    "process_element",
    "snapshot_state",
    "notify_checkpoint_complete",
    "close",
    "map",
    "checkpoint lock",
]


def submit(seen, place, settings=None, once=False, tolerated=0, restarts=None, checkpoint_timeout=None):
    env = local_env(settings)
    env.enable_checkpointing(20)
    env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(tolerated)
    if checkpoint_timeout is not None:
        env.get_checkpoint_config().set_checkpoint_timeout(checkpoint_timeout)
    env.set_restart_strategy(restarts or RestartStrategies.no_restart())
    source = HoldsTheLock(seen.name) if place == "checkpoint lock" else Numbers(seen.name, blocks=1)
    stream = env.add_source(source, type_info=Types.LONG())
    if place == "map":
        stream = stream.map(BlocksInMap(seen.name), Types.LONG())
    else:
        stream = stream.key_by(lambda n: n % 3, Types.LONG()).process(
            BlocksIn(seen.name, place, once), Types.LONG()
        )
    stream.name("the blocked one").print()
    client = env.execute_async("blocked")
    seen.wait_set("blocked")
    return client


def while_blocked(seen, what):
    """The result of `what()`, which must come while the function is still blocked."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(what()), daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert answers, "no answer while user code blocks"
    assert "returned" not in seen.events
    return answers[0]


def failed(client):
    with pytest.raises(JobExecutionException) as caught:
        client.get_job_execution_result().result(DEADLINE)
    return caught.value


def records(client):
    return client.runner.execution.coordinator.statistics.records()


def first_expired(client):
    while not (expired := [r for r in records(client) if r.reason is FailureReason.EXPIRED]):
        threading.Event().wait(0.01)
    return expired[0]


@pytest.mark.parametrize("place", PLACES)
def test_info_and_cancel_are_served_while_user_code_blocks(seen, place, caplog):
    client = submit(seen, place, IMPATIENT)

    facts = while_blocked(seen, lambda: job_facts(client.runner))
    assert facts["status"] == "RUNNING"
    assert "unavailable" not in facts["progress"]

    with caplog.at_level(logging.WARNING):
        while_blocked(seen, lambda: client.cancel().result(DEADLINE))
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert "returned" not in seen.events
    if place != "checkpoint lock":
        assert "the blocked one" in caplog.text, "the log names the operator that hangs"
        assert "in block" in caplog.text, "and shows where"


def test_a_gauge_that_blocks_holds_up_neither_info_nor_cancel(seen):
    env = local_env(IMPATIENT)
    numbers = env.add_source(Numbers(seen.name, bounded=False), type_info=Types.LONG())
    env.enable_checkpointing(20)
    numbers.key_by(lambda n: n % 3, Types.LONG()).process(BlocksIn(seen.name, "gauge"), Types.LONG()).print()
    client = env.execute_async("gauge")
    seen.wait_set("emitted")

    for _ in range(3):
        assert while_blocked(seen, lambda: job_facts(client.runner))["status"] == "RUNNING"
    assert seen.values["blocked"]

    while_blocked(seen, lambda: client.cancel().result(DEADLINE))
    assert client.get_job_status().result() is JobStatus.CANCELED


def test_a_gauge_that_blocks_at_the_end_of_a_job_does_not_hold_up_its_cancellation(seen):
    client = submit(seen, "gauge", IMPATIENT)

    while_blocked(seen, lambda: client.cancel().result(DEADLINE))

    assert client.get_job_status().result() is JobStatus.CANCELED


@pytest.mark.parametrize("place", ["snapshot_state", "checkpoint lock", "process_element", "map"])
@pytest.mark.parametrize("mode", ["epochs", "continuous"])
def test_a_checkpoint_expires_while_user_code_keeps_it_from_beginning_or_ending(seen, place, mode):
    settings = {**IMPATIENT, "execution.mode": mode}
    client = submit(seen, place, settings, tolerated=1000, checkpoint_timeout=50)

    assert while_blocked(seen, lambda: first_expired(client)).checkpoint_id == 1
    assert client.get_job_status().result() is JobStatus.RUNNING, "the failure is tolerated"
    while_blocked(seen, lambda: client.cancel().result(DEADLINE))


ASK = {
    "savepoint": lambda client, path: client.trigger_savepoint(path),
    "stop": lambda client, path: client.stop_with_savepoint(False, path),
}


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize("place", ["process_element", "open"])
def test_a_savepoint_that_cannot_begin_expires_while_user_code_blocks(seen, tmp_path, place, ask):
    client = submit(seen, place, IMPATIENT, tolerated=1000, checkpoint_timeout=50)

    error = while_blocked(seen, lambda: ASK[ask](client, str(tmp_path)).exception(DEADLINE))

    assert isinstance(error, CheckpointError)
    assert error.reason is FailureReason.EXPIRED
    assert client.get_job_status().result() is JobStatus.RUNNING, "a savepoint that fails costs nothing else"
    while_blocked(seen, lambda: client.cancel().result(DEADLINE))


@pytest.mark.parametrize("place", ["snapshot_state", "process_element", "checkpoint lock"])
def test_an_expired_checkpoint_that_is_not_tolerated_fails_the_job_while_user_code_blocks(seen, place):
    client = submit(seen, place, IMPATIENT, checkpoint_timeout=50)

    error = while_blocked(seen, lambda: failed(client))

    assert isinstance(error.__cause__, CheckpointError)
    assert error.__cause__.reason is FailureReason.EXPIRED


class WritesWhileBlocked(FileSystemStorage):
    """Lets slots write their state only when the function blocks, so that they acknowledge amid the epoch."""

    def __init__(self, seen):
        super().__init__(sync=False)
        self.seen = seen

    def write(self, path, data):
        if not path.endswith("_metadata"):
            self.seen.wait_set("blocked")
        super().write(path, data)


class EmitsBehindABarrier(SourceFunction, CheckpointedFunction):
    """Its only element comes when the first checkpoint has been cut."""

    def __init__(self, board_name):
        self.board_name = board_name

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("offset", Types.LONG()))

    def snapshot_state(self, context):
        self.state.update([0])
        board(self.board_name).set("cut")

    def run(self, ctx):
        board(self.board_name).wait_set("cut")
        ctx.collect(1)

    def cancel(self):
        pass


@pytest.mark.parametrize("mode", ["epochs", "continuous"])
def test_a_checkpoint_that_only_waits_for_the_end_of_a_blocked_epoch_expires_and_fails_the_job(
    seen, tmp_path, mode
):
    env = local_env({**IMPATIENT, "execution.mode": mode, "state.backend.fs.memory-threshold": "0"})
    env.enable_checkpointing(20)
    env.get_checkpoint_config().set_checkpoint_timeout(1000)
    env.get_checkpoint_config().set_checkpoint_storage(
        CustomCheckpointStorage(WritesWhileBlocked(seen), str(tmp_path))
    )
    env.set_restart_strategy(RestartStrategies.no_restart())
    numbers = env.add_source(EmitsBehindABarrier(seen.name), type_info=Types.LONG())
    numbers.key_by(lambda n: n, Types.LONG()).process(
        BlocksIn(seen.name, "process_element"), Types.LONG()
    ).print()
    client = env.execute_async("held")
    seen.wait_set("blocked")

    error = while_blocked(seen, lambda: failed(client))

    assert isinstance(error.__cause__, CheckpointError)
    assert error.__cause__.reason is FailureReason.EXPIRED
    assert not list(tmp_path.rglob("_metadata"))


def test_a_job_restarts_without_the_thread_that_blocks(seen):
    client = submit(
        seen,
        "snapshot_state",
        IMPATIENT,
        once=True,
        restarts=RestartStrategies.fixed_delay_restart(1, 0),
        checkpoint_timeout=2000,
    )

    while_blocked(seen, lambda: client.get_job_execution_result().result(DEADLINE))

    assert client.get_progress()["attempt"] == 1


def test_a_tolerated_late_snapshot_does_not_complete_and_the_next_one_does(seen):
    client = submit(seen, "snapshot_state", once=True, tolerated=1000, checkpoint_timeout=2000)
    late = while_blocked(seen, lambda: first_expired(client))

    seen.set("release")
    client.get_job_execution_result().result(DEADLINE)

    by_id = {record.checkpoint_id: record for record in records(client)}
    assert by_id[late.checkpoint_id].reason is FailureReason.EXPIRED
    assert any(record.is_completed for record in by_id.values())


def test_a_cancelled_job_whose_function_returns_in_time_is_waited_for(seen):
    client = submit(seen, "process_element", {"task.cancellation.timeout": "0 ms"})

    ended = client.cancel()
    seen.set("release")

    ended.result(DEADLINE)
    assert "returned" in seen.events


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_thread_left_behind_writes_nothing(seen, tmp_path, stubborn):
    env = local_env(IMPATIENT)
    env.enable_checkpointing(20)
    env.from_collection([1, 2, 3], Types.LONG()).map(BlocksInMap(seen.name, stubborn), Types.LONG()).sink_to(
        FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    )
    others = lane_threads()
    client = env.execute_async("left behind")
    seen.wait_set("blocked")
    left = lane_threads(others)

    while_blocked(seen, lambda: client.cancel().result(DEADLINE))
    seen.set("release")
    for thread in left:
        thread.join(DEADLINE)

    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_statistics_of_a_busy_slot_are_the_last_known_ones_with_their_age(seen):
    env = local_env(IMPATIENT)
    source = env.add_source(Numbers(seen.name, blocks=2), type_info=Types.LONG())
    env.enable_checkpointing(20)
    counted = source.key_by(lambda n: n % 3, Types.LONG()).process(
        Count(), Types.TUPLE([Types.LONG(), Types.LONG()])
    )
    counted.key_by(lambda pair: pair[0], Types.LONG()).process(BlocksAtLast(seen.name), Types.LONG()).print()
    client = env.execute_async("busy")
    while client.get_progress()["state_entries"] != 3:
        threading.Event().wait(0.01)
    seen.set("block now")
    seen.wait_set("blocked")

    progress = while_blocked(seen, client.get_progress)

    assert progress["state_entries"] == 3
    assert progress["state_age_ms"] > 0
    while_blocked(seen, lambda: client.cancel().result(DEADLINE))


class BlocksAtLast(KeyedProcessFunction):
    """Blocks at the eleventh element, once the test has said so."""

    def __init__(self, board_name):
        self.board_name, self.count = board_name, 0

    def process_element(self, value, ctx):
        self.count += 1
        if self.count > 10:
            board(self.board_name).wait_set("block now")
            block(self.board_name)
        yield value[1]
