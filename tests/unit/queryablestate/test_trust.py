from __future__ import annotations

import logging
import os
import pickle
import socket

import pytest
from tests.unit.queryablestate.cluster import JOB, TOKEN, Cluster, queryable

from tidemark import wire
from tidemark.errors import QueryError, UnknownKvStateError
from tidemark.jobs import JobRecord, remove_record, write_record
from tidemark.queryablestate import QueryableStateClient
from tidemark.queryablestate import client as client_module
from tidemark.queryablestate.protocol import (
    MAX_QUERY,
    QUERIES,
    Refused,
    Signature,
    Status,
    decode_request,
)
from tidemark.queryablestate.proxy import QueryableStateClientProxy
from tidemark.rpc import Incoming, Server
from tidemark.rpc.messages import REQUEST, read_answer
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.state.serializers.registry import serializer_for
from tidemark.types.typeinfo import Types

PICKLED = repr(serializer_for(Types.PICKLED_BYTE_ARRAY()))
blown: list[str] = []
"""What loading a hostile pickle leaves behind."""


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TIDEMARK_TOKEN", raising=False)
    monkeypatch.setattr(client_module, "_GRACE_S", 0.05)
    with Cluster([queryable(ValueStateDescriptor("v", Types.LONG()))]) as cluster:
        cluster.change(1, "v", lambda s: s.update(11))
        yield cluster


def value_of(client):
    with client:
        return (
            client.get_kv_state(JOB, "v", 1, Types.LONG(), ValueStateDescriptor("v", Types.LONG()))
            .get(20)
            .value()
        )


@pytest.mark.parametrize("part", ["proxy", "slot"])
def test_without_the_token_a_connection_gets_nothing(cluster, part):
    address = cluster.proxy.address if part == "proxy" else cluster.servers[0].address
    with pytest.raises(wire.WireClosed):
        wire.connect(address, b"guess")
    host, _, port = address.removeprefix("tcp:").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as stranger:
        stranger.sendall(b"x" * 200)
        received = b""
        try:
            while data := stranger.recv(1000):
                received += data
        except ConnectionError:
            pass
    assert len(received) == 32, "a random challenge and not a byte more"


def test_a_wrong_token_is_an_error_that_says_so(cluster):
    with pytest.raises(UnknownKvStateError, match="the token is not the job's"):
        value_of(QueryableStateClient("127.0.0.1", cluster.proxy.port, token="guess"))


def test_the_token_comes_from_the_environment(cluster, monkeypatch):
    monkeypatch.setenv("TIDEMARK_TOKEN", TOKEN.hex())
    assert value_of(QueryableStateClient("127.0.0.1", cluster.proxy.port)) == 11


@pytest.mark.parametrize("by", ["job", "port"])
def test_the_token_comes_from_the_registry(cluster, by):
    job_id = JOB if by == "job" else "f" * 32
    port = 1 if by == "job" else cluster.proxy.port
    write_record(JobRecord(job_id, "job", os.getpid(), "", TOKEN.hex(), port, 2**50))
    assert value_of(QueryableStateClient("127.0.0.1", cluster.proxy.port)) == 11
    remove_record(job_id)
    with pytest.raises(UnknownKvStateError, match="no token is known"):
        value_of(QueryableStateClient("127.0.0.1", cluster.proxy.port))


def test_no_proxy_listening_is_an_unknown_location(cluster):
    port = cluster.proxy.port
    cluster.proxy.close()
    with pytest.raises(UnknownKvStateError, match=r"after \d+ s of trying: .*no proxy there"):
        value_of(QueryableStateClient("127.0.0.1", port, token=TOKEN))


def test_a_request_that_is_none_is_answered_with_an_error(cluster):
    connection = wire.connect(cluster.servers[0].address, TOKEN)
    for header, body in [({"a": 1}, b""), ([REQUEST, 0, "lookup"], b"\xc1"), ([REQUEST, 0, "drop"], b"")]:
        connection.send(header, body)
        _number, _result, error = read_answer(*connection.receive(), QUERIES)
        assert isinstance(error, Refused)
        assert error.status is Status.FAILED
    connection.close()


def test_the_proxy_says_where_it_listens(cluster, caplog):
    with caplog.at_level(logging.INFO), Cluster([]) as other:
        line = f"Started the Queryable State Proxy Server @ 127.0.0.1:{other.proxy.port}"
    assert line in [record.getMessage() for record in caplog.records]


def test_statistics_of_client_proxy_and_slots_count_queries_when_asked_to(cluster):
    cluster.proxy.statistics.enable()
    for server in cluster.servers:
        server.statistics.enable()
    with QueryableStateClient("127.0.0.1", cluster.proxy.port, token=TOKEN) as client:
        # A connection's second request is read after its first was counted.
        for _ in range(2):
            client.get_kv_state(JOB, "v", 1, Types.LONG(), ValueStateDescriptor("v", Types.LONG())).get(20)
            client.statistics.enable()
        with pytest.raises(QueryError):
            client.get_kv_state(JOB, "x", 1, Types.LONG(), ValueStateDescriptor("v", Types.LONG())).get(20)
        counted = client.statistics.summary()
    assert (counted.queries, counted.keys, counted.failures) == (2, 1, 1)
    assert counted.p50_ms > 0
    assert cluster.proxy.statistics.summary().keys >= 1
    assert sum(server.statistics.summary().keys for server in cluster.servers) >= 1


def test_a_proxy_that_claims_pickles_where_the_client_declared_types_is_not_believed():
    class Bomb:
        def __reduce__(self):
            return (blown.append, ("unpickled",))

    def lie(connection, header, body):
        asked = decode_request(body).signature
        query = Incoming(connection, header, body, QUERIES)
        if PICKLED in (asked.key, asked.value):
            query.reply([[pickle.dumps(Bomb())]])
        else:
            query.fail(Refused(Status.MISMATCH, signature=Signature("value", PICKLED, PICKLED)))

    listener, address = wire.listen("tcp:127.0.0.1:0")
    liar = Server([listener], TOKEN, lie, name="liar")
    client = QueryableStateClient("127.0.0.1", int(address.rpartition(":")[2]), token=TOKEN)
    with pytest.raises(QueryError, match="values are PICKLED"):
        value_of(client)
    liar.close()
    assert blown == []


def test_a_request_beyond_the_limit_is_an_error_that_says_so_and_costs_no_connection(cluster):
    with QueryableStateClient("127.0.0.1", cluster.proxy.port, token=TOKEN) as client:
        descriptor = ValueStateDescriptor("v", Types.LONG())
        with pytest.raises(QueryError, match="fewer keys"):
            client.get_kv_states(JOB, "v", ["k" * (MAX_QUERY + 1)], Types.STRING(), descriptor).get(60)
        assert client.get_kv_state(JOB, "v", 1, Types.LONG(), descriptor).get(60).value() == 11


@pytest.mark.parametrize("part", ["proxy", "slot"])
def test_a_frame_beyond_the_limit_ends_its_connection_only(cluster, part):
    address = cluster.proxy.address if part == "proxy" else cluster.servers[0].address
    connection = wire.connect(address, TOKEN)
    with pytest.raises(wire.WireClosed):
        connection.send([REQUEST, 0, "lookup"], bytes(MAX_QUERY + 1))
        connection.receive()
    connection.close()
    assert value_of(QueryableStateClient("127.0.0.1", cluster.proxy.port, token=TOKEN)) == 11


def test_a_default_port_that_is_taken_is_named_in_one_warning_with_the_one_used_instead(cluster, caplog):
    taken = cluster.proxy.port
    with QueryableStateClientProxy([taken, 0], TOKEN, cluster.route) as other:
        warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert f"Port {taken} for queries of state is taken" in warned[0]
    assert f"answers on port {other.port} instead" in warned[0]
