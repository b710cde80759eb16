from __future__ import annotations

import pytest
from tests.unit.queryablestate.cluster import TOKEN, Slot

from tidemark.errors import ConfigError
from tidemark.queryablestate import QueryableStateClient, parse_port_range
from tidemark.queryablestate.server import QueryableStateServer
from tidemark.queryablestate.stats import QueryStatistics


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("9123", [9123]),
        ("50100-50103", [50100, 50101, 50102, 50103]),
        ("50100-50101,50300-50301,51234", [50100, 50101, 50300, 50301, 51234]),
        (" 3 - 4 , 1 , 3", [3, 4, 1]),
        ("0", [0]),
    ],
)
def test_port_options_list_ports_in_order(text, ports):
    assert parse_port_range(text) == ports


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "5-3", "70000", "1-70000", "1.5", "1-2-3"])
def test_bad_port_options_are_value_errors(text):
    with pytest.raises(ValueError, match="port"):
        parse_port_range(text)


@pytest.mark.parametrize("port", [-1, 65536, "9069", True, 1.0])
def test_a_client_refuses_what_is_no_port(port):
    with pytest.raises(ValueError, match=r"proxy port must be an int in 0\.\.65535"):
        QueryableStateClient("localhost", port)


def test_a_client_refuses_an_empty_host_and_a_timeout_that_is_over_at_once():
    with pytest.raises(ConfigError, match="host name"):
        QueryableStateClient("", 9069)
    with pytest.raises(ConfigError, match="timeout must be positive"):
        QueryableStateClient("localhost", 9069, timeout=0)


def test_the_first_free_port_in_order_is_used_and_none_free_is_an_error():
    slot = Slot()
    with slot.server() as first, slot.server() as spare:
        taken, free = first.port, spare.port
        spare.close()
        with QueryableStateServer(slot, [taken, free], TOKEN) as second:
            assert second.port == free
            with pytest.raises(ConfigError, match=r"No free port.*queryable-state\.server\.ports"):
                QueryableStateServer(slot, [taken, free], TOKEN)
        with pytest.raises(ConfigError, match="neither a port nor a range"):
            QueryableStateServer(slot, [], TOKEN)


def test_statistics_are_off_until_enabled():
    statistics = QueryStatistics()
    statistics.record(0.5, 1)
    assert statistics.summary().queries == 0
    assert statistics.summary().p50_ms is None
    statistics.enable()
    for milliseconds in range(1, 101):
        statistics.record(milliseconds / 1000, 2, failed=milliseconds == 100)
    summary = statistics.summary()
    assert (summary.queries, summary.keys, summary.failures) == (100, 200, 1)
    assert summary.p50_ms == pytest.approx(51)
    assert summary.p99_ms == pytest.approx(100)


def test_statistics_forget_old_latencies_but_not_counts():
    statistics = QueryStatistics(enabled=True)
    for _ in range(3000):
        statistics.record(1.0, 1)
    for _ in range(3000):
        statistics.record(0.001, 1)
    assert statistics.summary().queries == 6000
    assert statistics.summary().p99_ms == pytest.approx(1)
