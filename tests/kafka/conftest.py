"""A broker for each test process that needs one, and brokers that a test may kill."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.kafka.broker import Broker, jars_present

MISSING = "KAFKA TESTS DO NOT RUN: the jars of a broker are not there (scripts/ensure_kafka.sh)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory needs a broker; without its jars each test is skipped and says so."""
    here = os.path.dirname(__file__) + os.sep
    mine = [item for item in items if str(item.path).startswith(here)]
    skip = bool(mine) and not jars_present()
    for item in mine:
        item.add_marker(pytest.mark.kafka)
        if skip:
            item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker of this test process. Tests share it: they use topics and groups of their own, and do not stop it."""
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.kill()


@pytest.fixture
def new_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Broker]]:
    """Makes brokers that the test may kill and start again: `new_broker(extra="line of server.properties")`."""
    with ExitStack() as brokers:

        def new(extra: str = "") -> Broker:
            made = Broker(tmp_path_factory.mktemp("own-kafka"), extra)
            brokers.callback(made.kill)
            return made

        yield new


@pytest.fixture
def own_broker(new_broker: Callable[..., Broker]) -> Broker:
    """One broker for this test alone."""
    return new_broker()


@pytest.fixture(scope="module")
def restarted_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for the tests of one module that kill it, and start it again before they end."""
    broker = Broker(tmp_path_factory.mktemp("restarted-kafka"))
    yield broker
    broker.kill()


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
