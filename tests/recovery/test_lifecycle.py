"""Restart strategies, statuses, savepoints, stop and cancel, through the local executor with its real threads."""

from __future__ import annotations

import threading

import pytest
from tests.recovery.local_jobs import DEADLINE, Count, Numbers, board, finals, local_env, new_board
from tests.recovery.test_hung_storage import until

from tidemark import (
    CheckpointedFunction,
    CheckpointListener,
    JobStatus,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    RestartStrategies,
    SourceFunction,
    Types,
    ValueStateDescriptor,
)
from tidemark.clock import ManualClock
from tidemark.config.restart import ExponentialDelayRestart
from tidemark.errors import (
    CheckpointError,
    ConfigError,
    FailureReason,
    IllegalStateError,
    JobExecutionException,
    StateMigrationException,
)
from tidemark.runtime.local_executor import LocalExecutor


class Fails(MapFunction):
    """Raises for its first elements, one per attempt; notes attempts on the board."""

    def __init__(self, board_name, times, error=ValueError):
        self.board_name, self.times, self.error = board_name, times, error

    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()
        board(self.board_name).note("open", self.attempt)

    def map(self, value):
        if self.attempt < self.times:
            raise self.error(f"failure {self.attempt} at {value}")
        return value

    def close(self):
        board(self.board_name).note("close", self.attempt)


def run_failing(times, strategy=None, settings=None, checkpointing=False, error=ValueError):
    seen = new_board()
    env = local_env(settings)
    if strategy is not None:
        env.set_restart_strategy(strategy)
    if checkpointing:
        env.enable_checkpointing(60_000)
    results = env.from_collection([7, 8], Types.LONG()).map(Fails(seen.name, times, error), Types.LONG())
    with results.execute_and_collect() as stream:
        try:
            return seen, list(stream), None
        except JobExecutionException as exc:
            assert stream.get_job_client().get_job_status().result() is JobStatus.FAILED
            return seen, [], exc


def opened(seen):
    return [event[1] for event in seen.events if event[0] == "open"]


def test_fixed_delay_runs_an_always_failing_job_n_plus_one_times():
    seen, _, error = run_failing(99, RestartStrategies.fixed_delay_restart(2, 1))
    assert opened(seen) == [0, 1, 2]
    assert "ValueError: failure 2 at 7" in str(error)
    assert isinstance(error.__cause__, ValueError)
    assert str(error.__cause__) == "failure 2 at 7"


def test_fixed_delay_gets_over_as_many_failures_as_it_allows():
    seen, results, error = run_failing(2, RestartStrategies.fixed_delay_restart(2, 1))
    assert (opened(seen), results, error) == ([0, 1, 2], [7, 8], None)


def test_a_restart_does_not_wait_for_a_clock_that_was_set_back():
    seen, clock = new_board(), ManualClock(10**9)
    env = local_env()
    env._executors["local"] = LocalExecutor(clock)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 60_000))
    failing = env.from_collection([7, 8], Types.LONG()).map(Fails(seen.name, 1), Types.LONG())
    with failing.execute_and_collect() as results:
        until(lambda: results.get_job_client().get_job_status().result() is JobStatus.RESTARTING)
        clock.set(0)

        assert list(results) == [7, 8]


def test_failure_rate_gives_up_at_one_failure_too_many_within_the_interval():
    strategy = RestartStrategies.failure_rate_restart(2, 60_000, 1)
    assert opened(run_failing(2, strategy)[0]) == [0, 1, 2]
    seen, _, error = run_failing(99, strategy)
    assert opened(seen) == [0, 1, 2]
    assert "failure 2" in str(error)


def test_no_restart_fails_at_the_first_failure():
    seen, _, error = run_failing(99, RestartStrategies.no_restart())
    assert opened(seen) == [0]
    assert "failure 0" in str(error)


def test_the_strategy_can_be_configured():
    settings = {
        "restart-strategy": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1",
        "restart-strategy.fixed-delay.delay": "1 ms",
    }
    assert opened(run_failing(99, settings=settings)[0]) == [0, 1]
    fallback = RestartStrategies.fall_back_restart()
    assert opened(run_failing(99, fallback, settings)[0]) == [0, 1]


def test_without_checkpointing_the_default_is_no_restart():
    assert opened(run_failing(99)[0]) == [0]


def test_with_checkpointing_the_default_is_to_try_for_ever():
    env = local_env()
    env.enable_checkpointing(1000)
    env.from_collection([1]).print()
    _, settings, _ = env._prepared("job")
    assert settings.restart_strategy == ExponentialDelayRestart(1000, 60_000, 1.5, 3_600_000, 0.1)
    seen, results, _ = run_failing(1, checkpointing=True)
    assert (opened(seen), results) == ([0, 1], [7, 8])


def test_errors_that_retrying_cannot_cure_are_not_retried():
    strategy = RestartStrategies.fixed_delay_restart(5, 1)
    seen, _, error = run_failing(99, strategy, error=StateMigrationException)
    assert opened(seen) == [0]
    assert isinstance(error.__cause__, StateMigrationException)


def test_a_function_that_cannot_be_pickled_is_refused_at_once():
    env = local_env()
    env.enable_checkpointing(1000)
    lock = threading.Lock()
    stream = env.from_collection([1]).key_by(lambda v: v).process(HoldsALock(lock))
    stream.print()
    with pytest.raises(JobExecutionException, match=r"cannot pickle '_thread\.lock' object"):
        env.execute()


class HoldsALock(KeyedProcessFunction):
    def __init__(self, lock):
        self.lock = lock

    def process_element(self, value, ctx):
        yield value


def test_close_is_called_once_per_attempt_also_after_a_failure():
    seen, _, _ = run_failing(1, RestartStrategies.fixed_delay_restart(1, 1))
    assert seen.events == [("open", 0), ("close", 0), ("open", 1), ("close", 1)]


def test_waiting_for_a_restart_shows_as_restarting_and_can_be_cancelled():
    seen = new_board()
    env = local_env()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 3_600_000))
    env.from_collection([1]).map(Fails(seen.name, 99)).print()
    client = env.execute_async()
    pause = threading.Event()
    while client.get_job_status().result() is not JobStatus.RESTARTING:
        pause.wait(0.005)
        assert not client.get_job_execution_result().done()
    client.cancel().result(DEADLINE)
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert opened(seen) == [0]
    with pytest.raises(JobExecutionException, match="cancelled"):
        client.get_job_execution_result().result()


class Life(MapFunction, CheckpointedFunction, CheckpointListener):
    """Notes every call of its life."""

    def __init__(self, board_name):
        self.board_name = board_name

    def note(self, name, *facts):
        board(self.board_name).note(name, *facts)

    def initialize_state(self, context):
        self.get_runtime_context()
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("s", Types.LONG()))
        self.note("initialize", context.is_restored(), list(self.state.get()))

    def open(self, runtime_context):
        self.note("open")

    def map(self, value):
        self.note("map", value)
        self.state.add(value)
        if board(self.board_name).values.get("fail at") == value:
            board(self.board_name).set("fail at", None)
            raise OSError("once")
        return value

    def snapshot_state(self, context):
        self.note("snapshot", context.get_checkpoint_id())

    def notify_checkpoint_complete(self, checkpoint_id):
        self.note("notify", checkpoint_id)

    def close(self):
        self.note("close")
        if self.get_runtime_context().get_attempt_number() == 0:
            raise RuntimeError("only logged, because the attempt has failed already")


def test_the_life_of_a_function_over_a_failure():
    seen = new_board()
    env = local_env()
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    env.add_source(Numbers(seen.name, 2, 1)).map(Life(seen.name)).print()
    seen.set("fail at", 1)
    env.execute()
    life = [
        event for event in seen.events if event[0] not in ("snapshot", "notify", "complete", "source starts")
    ]
    assert life == [
        ("initialize", False, []),
        ("open"),
        ("map", 0),
        ("map", 1),
        ("close"),
        ("initialize", True, [0]),
        ("open"),
        ("map", 1),
        ("close"),
    ]
    snapshots = [event[1] for event in seen.events if event[0] == "snapshot"]
    notified = [event[1] for event in seen.events if event[0] == "notify"]
    assert snapshots == sorted(set(snapshots))
    assert notified == sorted(set(notified))
    assert set(notified) <= set(snapshots)


class AtTheEnd(KeyedProcessFunction):
    """Counts, and tells the count when time ends."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(1_000_000)
        yield "element", value

    def on_timer(self, timestamp, ctx):
        yield "time is over", self.count.value()


def start_stoppable(seen, tmp_path, savepoint=None, bounded=False, blocks=2):
    settings = {"state.savepoints.dir": str(tmp_path / "default")}
    if savepoint is not None:
        settings["execution.savepoint.path"] = savepoint
    env = local_env(settings, parallelism=2)
    env.enable_checkpointing(10)
    numbers = env.add_source(Numbers(seen.name, blocks, 5, bounded), type_info=Types.LONG()).uid("numbers")
    return numbers.key_by(lambda n: "all").process(AtTheEnd()).uid("count").execute_and_collect()


@pytest.mark.parametrize("drain", [False, True])
def test_stop_with_savepoint_and_resume(tmp_path, drain):
    seen = new_board()
    results = start_stoppable(seen, tmp_path)
    client = results.get_job_client()
    seen.wait_set("emitted")
    path = client.stop_with_savepoint(drain, str(tmp_path / "chosen")).result(DEADLINE)
    first = list(results)
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert path.startswith(str(tmp_path / "chosen" / f"savepoint-{client.get_job_id()[:6]}-"))
    assert [value for kind, value in first if kind == "element"] == list(range(10))
    assert [value for kind, value in first if kind != "element"] == ([10] if drain else [])

    again = new_board()
    rest = list(start_stoppable(again, tmp_path, path, bounded=True, blocks=3))
    assert [value for kind, value in rest if kind == "element"] == list(range(10, 15))
    assert [value for kind, value in rest if kind != "element"] == [15]
    assert again.events[0] == ("source starts", 10)


def test_a_savepoint_leaves_the_job_running_and_ends_in_the_default_directory(tmp_path):
    seen = new_board()
    results = start_stoppable(seen, tmp_path)
    client = results.get_job_client()
    seen.wait_set("emitted")
    path = client.trigger_savepoint().result(DEADLINE)
    assert path.startswith(str(tmp_path / "default" / "savepoint-"))
    assert client.get_job_status().result() is JobStatus.RUNNING
    seen.set("end")
    assert ("time is over", 10) in list(results)
    with pytest.raises(IllegalStateError, match="not running"):
        client.trigger_savepoint().result(DEADLINE)
    with pytest.raises(IllegalStateError, match="not running"):
        client.stop_with_savepoint(False).result(DEADLINE)


def test_a_savepoint_without_a_directory_is_refused_and_the_job_goes_on(tmp_path):
    seen = new_board()
    env = local_env()
    results = env.add_source(Numbers(seen.name, 0, 1, bounded=False)).execute_and_collect()
    client = results.get_job_client()
    with pytest.raises(ConfigError, match=r"state\.savepoints\.dir"):
        client.trigger_savepoint().result(DEADLINE)
    with pytest.raises(ConfigError, match=r"state\.savepoints\.dir"):
        client.stop_with_savepoint(True).result(DEADLINE)
    assert client.get_job_status().result() is JobStatus.RUNNING
    path = client.stop_with_savepoint(False, str(tmp_path)).result(DEADLINE)
    assert path.startswith(str(tmp_path))


class DeclinesSavepoints(MapFunction, CheckpointedFunction):
    def __init__(self, board_name):
        self.board_name = board_name

    def initialize_state(self, context):
        pass

    def snapshot_state(self, context):
        if board(self.board_name).values.get("decline"):
            raise ArithmeticError("not now")

    def map(self, value):
        return value


@pytest.mark.parametrize("stop", [None, False])
def test_a_declined_savepoint_fails_alone(tmp_path, stop):
    seen = new_board()
    env = local_env()
    numbers = env.add_source(Numbers(seen.name, 0, 1, bounded=False))
    results = numbers.map(DeclinesSavepoints(seen.name)).execute_and_collect()
    client = results.get_job_client()
    seen.set("decline")
    future = (
        client.trigger_savepoint(str(tmp_path))
        if stop is None
        else client.stop_with_savepoint(stop, str(tmp_path))
    )
    with pytest.raises(CheckpointError, match="ArithmeticError: not now") as caught:
        future.result(DEADLINE)
    assert caught.value.reason is FailureReason.DECLINED
    assert client.get_job_status().result() is JobStatus.RUNNING
    assert list(tmp_path.iterdir()) == []
    seen.set("decline", False)
    client.stop_with_savepoint(False, str(tmp_path)).result(DEADLINE)
    assert list(results) == []


class Endless(SourceFunction):
    def __init__(self, board_name):
        self.board_name = board_name
        self.stopped = threading.Event

    def open(self, runtime_context):
        self.stopped = threading.Event()

    def run(self, ctx):
        number = 0
        while not self.stopped.wait(0.001):
            ctx.collect(number)
            number += 1
            board(self.board_name).set("emitted")
        board(self.board_name).note("run returned")

    def cancel(self):
        board(self.board_name).note("cancel")
        self.stopped.set()

    def close(self):
        board(self.board_name).note("close")


def test_cancel_ends_the_source_and_the_job():
    seen = new_board()
    env = local_env()
    env.add_source(Endless(seen.name)).key_by(lambda n: n % 3).process(Count()).print()
    client = env.execute_async()
    seen.wait_set("emitted")
    client.cancel().result(DEADLINE)
    assert client.get_job_status().result() is JobStatus.CANCELED
    # A source that is just emitting unwinds out of `collect` instead of returning.
    assert [event for event in seen.events if event != "run returned"] == ["cancel", "close"]
    with pytest.raises(JobExecutionException, match="cancelled"):
        client.get_job_execution_result().result()


def test_closing_the_iterator_early_cancels_the_job():
    seen = new_board()
    results = local_env().add_source(Endless(seen.name)).execute_and_collect()
    assert next(results) == 0
    results.close()
    assert results.get_job_client().get_job_status().result() is JobStatus.CANCELED


def test_counts_are_exact_over_several_failures_at_any_moment():
    seen = new_board()
    env = local_env(parallelism=2)
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 1))
    numbers = env.add_source(Numbers(seen.name, 4, 25), type_info=Types.LONG())
    flaky = numbers.map(FailsAfterEveryCompletion(seen.name), Types.LONG())
    with flaky.key_by(lambda n: n % 7, Types.LONG()).process(Count()).execute_and_collect() as results:
        pairs = list(results)
    assert len(pairs) == 100
    assert finals(pairs) == {k: len(range(k, 100, 7)) for k in range(7)}
    assert seen.values["failures"] == 3


class FailsAfterEveryCompletion(MapFunction):
    """Fails three times, each time at the first element after a checkpoint it has not failed for."""

    def __init__(self, board_name):
        self.board_name = board_name

    def map(self, value):
        seen = board(self.board_name)
        failures = seen.values.setdefault("failures", 0)
        blocks = (25, 50, 75)
        if failures < 3 and value == blocks[failures] + 5:
            seen.set("failures", failures + 1)
            raise ConnectionError("flaky")
        return value


class FailsInOpen(MapFunction):
    def open(self, runtime_context):
        raise LookupError("no dictionary")

    def map(self, value):
        return value


def test_a_failure_in_open_ends_the_job_with_its_cause():
    env = local_env()
    env.from_collection([1]).map(FailsInOpen()).name("Translate").print()
    with pytest.raises(JobExecutionException, match="LookupError: no dictionary") as caught:
        env.execute()
    assert isinstance(caught.value.__cause__, LookupError)
