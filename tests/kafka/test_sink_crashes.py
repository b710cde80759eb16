"""The exactly-once sink under fire: processes are killed and frozen at points of the commit that the broker sees."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.campaign import SEED
from tests.kafka.broker import DEADLINE_S
from tests.kafka.drivers import Driver, newest_checkpoint
from tests.kafka.journeys import COMMIT, Door
from tests.kafka.proxy import Moment, Request
from tests.kafka.sink_program import EXACT, TOTAL

MODES = ("epochs", "continuous")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    made = Door(tmp_path_factory.mktemp("door"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def no_driver_left() -> Iterator[None]:
    """A test that fails must not let its driver write on beside those of the next."""
    yield
    for child in multiprocessing.active_children():
        child.kill()


@pytest.mark.parametrize(
    ("mode", "points"),
    # A slice of all that `make chaos-kafka` kills at; each mode begins elsewhere.
    # The third of the first dies before it has published what it took over from the second.
    [("epochs", [COMMIT[13], COMMIT[7], COMMIT[4]]), ("continuous", [COMMIT[12], COMMIT[3], COMMIT[14]])],
    ids=MODES,
)
def test_a_driver_that_dies_over_a_commit_loses_and_doubles_nothing(
    tmp_path: Path, door: Door, mode: str, points: list[tuple[Request, int, Moment]]
) -> None:
    assert door.journey(tmp_path, mode, points) == len(points)


def committed_but_not_told(tmp_path: Path, door: Door, mode: str) -> str:
    """A driver dies when the broker has committed and it does not know; its topic."""
    topic = door.broker.create_topic(3)
    driver = Driver(tmp_path, door.proxy.address, topic, mode)
    assert door.die_at(driver, (Request.END_TXN, 3, Moment.ANSWERED))
    return topic


def test_without_the_marker_a_commit_is_refused_and_if_forced_doubles(tmp_path: Path, door: Door) -> None:
    topic = committed_but_not_told(tmp_path, door, "continuous")
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    (group,) = [
        f"counts-topic-{job.name}" for job in (tmp_path / "checkpoints").iterdir() if (job / "chk-2").exists()
    ]
    assert door.broker.group_offsets(group), "the marker is there"
    (deleted,) = door.broker.admin.delete_consumer_groups([group]).values()
    deleted.result(DEADLINE_S)

    refused = Driver(tmp_path, door.proxy.address, topic, "continuous", checkpoint).end()

    assert "RestoreError" in refused
    assert group in refused
    assert "offsets.retention.minutes" in refused
    door.broker.await_transactions(topic)
    before = Counter(door.broker.committed_values(topic))
    assert not before - EXACT

    # The control: this is what the marker prevents, and the comparison sees it.
    settings = {"execution.checkpointing.allow-fallback": "duplicate"}
    forced = Driver(tmp_path, door.proxy.address, topic, "continuous", checkpoint, settings).end()

    assert "finished" in forced, forced
    door.broker.await_transactions(topic)
    after = Counter(door.broker.committed_values(topic))
    assert not EXACT - after
    assert sum(after.values()) > TOTAL


@pytest.mark.parametrize("mode", MODES)
def test_a_frozen_driver_that_wakes_up_amid_its_commit_is_fenced(
    tmp_path: Path, door: Door, mode: str
) -> None:
    topic = door.broker.create_topic(3)
    frozen = Driver(tmp_path, door.proxy.address, topic, mode)
    awake = threading.Event()

    def freeze() -> None:
        frozen.send(signal.SIGSTOP)
        awake.wait(DEADLINE_S)

    rule = door.proxy.set_rule(Request.END_TXN, 3, Moment.BEFORE, freeze)
    assert rule.done.wait(DEADLINE_S)

    door.end_of(tmp_path, topic, mode)
    frozen.send(signal.SIGCONT)
    awake.set()

    said = frozen.end()
    door.proxy.clear()
    assert "FencedError" in said
    assert frozen.process.exitcode == 1
    door.compare(topic)


def test_going_back_behind_published_records_is_refused(tmp_path: Path, door: Door) -> None:
    topic = door.broker.create_topic(3)
    kept = {"state.checkpoints.num-retained": "100"}
    driver = Driver(tmp_path, door.proxy.address, topic, "continuous", settings=kept)
    assert door.die_at(driver, (Request.END_TXN, 5, Moment.AFTER))
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    older = str(Path(newest).parent / "chk-1")
    withdraw = {"execution.checkpointing.allow-fallback": "withdraw"}

    plainly = Driver(tmp_path, door.proxy.address, topic, "continuous", older).end()
    withdrawn = Driver(tmp_path, door.proxy.address, topic, "continuous", older, withdraw).end()

    assert "FencedError" in plainly
    assert "has been published up to checkpoint" in plainly
    assert "cannot be taken back, though execution.checkpointing.allow-fallback is 'withdraw'" in withdrawn
    door.end_of(tmp_path, topic, "continuous")


@pytest.mark.parametrize("mode", MODES if SEED else MODES[1:])
def test_a_broker_that_dies_amid_a_commit_and_comes_back_is_waited_for(
    tmp_path: Path, door: Door, mode: str
) -> None:
    topic = door.broker.create_topic(3)
    driver = Driver(tmp_path, door.proxy.address, topic, mode)
    killed = threading.Event()

    def kill() -> None:
        door.broker.kill()
        killed.set()

    door.proxy.set_rule(Request.END_TXN, 3, Moment.BEFORE, kill)
    assert killed.wait(DEADLINE_S)
    # For so long nobody answers; what is tested is the outage, not its length.
    time.sleep(2)
    door.broker.start()

    assert "finished" in driver.end()

    door.compare(topic)


def test_a_commit_that_nobody_could_tell_of_is_not_repeated_by_the_next_attempt(
    tmp_path: Path, door: Door
) -> None:
    """The brokers commit, then nobody reaches them until the attempt has failed; the same driver restores."""
    topic = door.broker.create_topic(3)
    settings = {
        "kafka.connection-timeout": "2 s",
        "restart-strategy": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100",
        "restart-strategy.fixed-delay.delay": "100 ms",
    }
    driver = Driver(tmp_path, door.proxy.address, topic, "continuous", settings=settings)
    rule = door.proxy.set_rule(Request.END_TXN, 3, Moment.ANSWERED, door.proxy.shut)
    assert rule.done.wait(DEADLINE_S)
    driver.wait_for("is restarted in")
    door.proxy.open()

    assert "finished" in driver.end()

    door.compare(topic)


FORGOTTEN = {
    # An open transaction is aborted when the successor comes; one that was committed stays so.
    "records, before the offsets": ((Request.PRODUCE, 1, Moment.ANSWERED), lambda topic: True, "left open"),
    "all, before the commit": ((Request.END_TXN, 2, Moment.BEFORE), lambda topic: True, "it was aborted"),
    "all, at the commit": ((Request.END_TXN, 2, Moment.ANSWERED), lambda topic: True, "it was aborted"),
    "offsets, before the commit": (
        (Request.END_TXN, 2, Moment.BEFORE),
        lambda topic: topic.startswith("__"),
        "it was aborted",
    ),
    "offsets, at the commit": (
        (Request.END_TXN, 2, Moment.ANSWERED),
        lambda topic: topic.startswith("__"),
        "it was committed",
    ),
}


# Each waits until brokers have had their time; the others are of the campaign.
@pytest.mark.parametrize(
    ("point", "lost", "said"),
    [
        pytest.param(*case, id=name)
        for name, case in FORGOTTEN.items()
        if SEED or "before the commit" not in name
    ],
)
def test_what_brokers_have_forgotten_to_end_is_ended_and_written_once(
    tmp_path: Path, door: Door, point: tuple[Request, int, Moment], lost: Callable[[str], bool], said: str
) -> None:
    """A coordinator may skip partitions after a restart of all brokers; here it never gets through to them."""
    topic = door.broker.create_topic(3)
    door.proxy.markers_lost.clear()
    door.proxy.loses_markers = lost
    killed = Driver(tmp_path, door.proxy.address, topic, "epochs")
    assert door.die_at(killed, point)
    successor = Driver(tmp_path, door.proxy.address, topic, "epochs", newest_checkpoint(tmp_path))
    try:
        assert door.proxy.markers_lost.wait(DEADLINE_S), successor.says()
    finally:
        door.proxy.loses_markers = None

    says = successor.end()

    assert "finished" in says, says
    door.compare(topic)
    assert said in says
