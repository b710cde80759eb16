"""The broker of the tests is a real one, and keeps its data when it is killed."""

from __future__ import annotations

from tests.kafka.broker import Broker


def test_records_survive_a_killed_broker(own_broker: Broker) -> None:
    topic = own_broker.create_topic(partitions=2)
    own_broker.produce(topic, [str(number) for number in range(100)], partition=1)
    address = own_broker.bootstrap

    own_broker.kill()
    own_broker.start()

    assert own_broker.bootstrap == address
    assert own_broker.committed_values(topic) == [str(number) for number in range(100)]
    assert own_broker.ends(topic) == {0: 0, 1: 100}
