"""Encrypted links: whoever has no certificate of the authority gets nothing, with the token or without."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.unit.queryablestate.cluster import JOB, Cluster, queryable
from tests.unit.queryablestate.cluster import TOKEN as JOB_TOKEN
from tests.unit.rpc.strangers import (
    DEADLINE_S,
    GARBAGE,
    TOKEN,
    echo,
    echoing,
    gets_through,
    is_dropped,
    stranger,
    until,
)
from tests.unit.runtime.test_query_options import free_ports

from tidemark import wire
from tidemark.config import Configuration
from tidemark.config.tls import internal_tls
from tidemark.protocol.tasks import TaskLost
from tidemark.queryablestate import QueryableStateClient
from tidemark.rpc import Limits, PooledServer, ServerThreads
from tidemark.runtime.continuous.task_links import TaskLinks
from tidemark.runtime.launch import launch_slots
from tidemark.runtime.slot_manager import SlotAddress, SlotManager
from tidemark.runtime.spark_task import SlotLinks, TaskClosure
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.tls import TlsFiles
from tidemark.tls.making import make_certificates
from tidemark.types.typeinfo import Types


@pytest.fixture
def files(certificates: dict[str, str]) -> TlsFiles:
    found = internal_tls(Configuration.from_dict(certificates))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """Files of somebody else, of the same shape."""
    found = internal_tls(
        Configuration.from_dict(make_certificates(str(tmp_path_factory.mktemp("others") / "tls")))
    )
    assert found is not None
    return found


def nobody(files: TlsFiles) -> ssl.SSLContext:
    """A client that believes the authority and has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(files.authorities)
    return context


@contextlib.contextmanager
def pooled(files: TlsFiles) -> Iterator[str]:
    listener, address = wire.listen("tcp:127.0.0.1:0")
    server = PooledServer(
        [listener], TOKEN, echo, name="pooled", threads=ServerThreads(2, 2), tls=files.server()
    )
    yield address
    server.close()


@contextlib.contextmanager
def registry(files: TlsFiles) -> Iterator[str]:
    manager = SlotManager(JOB, TOKEN, "tcp:127.0.0.1:0", lambda _: [], "127.0.0.1", [0], tls=files)
    yield manager.address
    manager.stop()


@contextlib.contextmanager
def task_links(files: TlsFiles) -> Iterator[str]:
    links = TaskLinks(TOKEN, "tcp:127.0.0.1:0", 3600, 3600, files.server())
    yield links.address
    links.close()


@contextlib.contextmanager
def threaded(files: TlsFiles) -> Iterator[str]:
    with echoing(tls=files.server()) as address:
        yield address


@pytest.mark.parametrize("opened", [threaded, pooled, registry, task_links])
def test_only_certificates_of_the_authority_get_in(
    opened: Callable[[TlsFiles], contextlib.AbstractContextManager[str]], files: TlsFiles, others: TlsFiles
) -> None:
    with opened(files) as address:
        for context in (
            nobody(files),
            others.client(),
            replace(others, authorities=files.authorities).client(),
        ):
            with pytest.raises(wire.WireClosed, match="certificate"):
                wire.connect(address, TOKEN, DEADLINE_S, context)
        with pytest.raises(wire.WireClosed, match="if it speaks TLS"):
            wire.connect(address, TOKEN, 0.2)
        with pytest.raises(wire.WireClosed, match="the token is another one"):
            wire.connect(address, b"guess", DEADLINE_S, files.client())
        wire.connect(address, TOKEN, DEADLINE_S, files.client()).close()


def test_garbage_in_front_of_tls_gets_no_challenge_and_ends_nothing(files: TlsFiles) -> None:
    with echoing(tls=files.server()) as address:
        for garbage in GARBAGE.values():
            with stranger(address) as sock:
                sock.sendall(garbage)
                received = b""
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)
                    while data := sock.recv(1000):
                        received += data
            # At most an alert of TLS.
            assert len(received) <= 7
        assert gets_through(address, tls=files.client())


def test_a_server_without_tls_is_told_from_one_that_is_gone(files: TlsFiles) -> None:
    with echoing() as address, pytest.raises(wire.WireClosed, match="does not speak TLS, as this side does"):
        wire.connect(address, TOKEN, DEADLINE_S, files.client())


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_a_fingerprint_lets_only_that_certificate_in(files: TlsFiles, kind: str) -> None:
    with open(files.certificate, encoding="ascii") as stream:
        der = ssl.PEM_cert_to_DER_cert(stream.read())
    right = replace(files, fingerprints=("0" * 64, hashlib.new(kind, der).hexdigest()))
    wrong = replace(files, fingerprints=("0" * 40,))

    with echoing(tls=right.server()) as address:
        assert gets_through(address, tls=right.client())
        with pytest.raises(wire.WireClosed, match=r"cert\.fingerprint"):
            wire.connect(address, TOKEN, DEADLINE_S, wrong.client())
    with echoing(tls=wrong.server()) as address, pytest.raises(wire.WireClosed):
        wire.connect(address, TOKEN, DEADLINE_S, files.client())


def test_two_threads_use_one_connection_at_the_same_time(files: TlsFiles) -> None:
    """One sends while the other receives, and frames larger than all buffers cross in both directions."""
    with echoing(tls=files.server()) as address:
        connection = wire.connect(address, TOKEN, DEADLINE_S, files.client())
        connection.set_timeout(DEADLINE_S)
        bodies = [os.urandom(size) for size in (0, 1, 70_000, 3_000_000, 17, 300_000) * 3]
        failed: list[BaseException] = []

        def send() -> None:
            try:
                for number, body in enumerate(bodies):
                    connection.send([number], body)
            except BaseException as exc:
                failed.append(exc)

        sender = threading.Thread(target=send)
        sender.start()
        received = [connection.receive() for _ in bodies]
        sender.join(DEADLINE_S)
        connection.close()

    assert failed == []
    assert received == [([number], body) for number, body in enumerate(bodies)]


def test_closing_wakes_whoever_reads_and_nothing_leaves_in_the_clear(files: TlsFiles) -> None:
    with echoing(tls=files.server()) as address:
        connection = wire.connect(address, TOKEN, DEADLINE_S, files.client())
        told: list[str] = []

        def read() -> None:
            try:
                connection.receive()
            except wire.WireClosed as exc:
                told.append(str(exc))

        reader = threading.Thread(target=read)
        reader.start()
        connection.close()
        reader.join(DEADLINE_S)

        assert len(told) == 1
        with pytest.raises(wire.WireClosed):
            connection.send(["secret"])


def test_a_silent_peer_is_given_up_in_time(files: TlsFiles) -> None:
    listener, address = wire.listen("tcp:127.0.0.1:0")
    with pytest.raises(wire.WireClosed, match="timed out"):
        wire.connect(address, TOKEN, 0.2, files.client())
    listener.close()

    limits = Limits(handshake_s=0.2)
    with echoing(tls=files.server(), limits=limits) as address, stranger(address) as silent:
        until(lambda: is_dropped(silent))


def test_a_slot_process_registers_and_is_reached_over_tls_only(files: TlsFiles) -> None:
    taken, free, door = free_ports(3)
    with socket.create_server(("127.0.0.1", taken)):
        manager = SlotManager(
            JOB,
            TOKEN,
            f"tcp:127.0.0.1:{taken},{door}",
            lambda wanted: list(launch_slots(iter(wanted))),
            "127.0.0.1",
            [0],
            tls=files,
            data_ports=f"{taken},{free}",
        )
        manager.ensure(1)
    try:
        (address,) = manager.addresses()
        assert manager.address == f"tcp:127.0.0.1:{door}"
        assert address.tcp == f"tcp:127.0.0.1:{free}"
        with pytest.raises(wire.WireClosed, match="certificate"):
            wire.connect(address.tcp, TOKEN, DEADLINE_S, nobody(files))
        elsewhere = SlotAddress("unix:/nowhere", address.tcp, "another machine")
        links = SlotLinks([elsewhere], TaskClosure(None, b"", TOKEN, tls=files))  # type: ignore[arg-type]
        links.take(0)
        links.drop()
        assert manager.request_all("ping") == {0: True}
    finally:
        manager.stop()


def test_queries_go_through_proxy_and_slots_encrypted(files: TlsFiles, others: TlsFiles) -> None:
    descriptor = ValueStateDescriptor("v", Types.LONG())
    with Cluster(
        [queryable(ValueStateDescriptor("v", Types.LONG()))], tls=files.server(), slot_tls=files.client()
    ) as cluster:
        for server in cluster.servers:
            server.close()
        cluster.servers = [slot.server(tls=files.server()) for slot in cluster.slots]
        cluster.change(1, "v", lambda state: state.update(11))

        def ask(context: ssl.SSLContext) -> object:
            with QueryableStateClient(
                "127.0.0.1", cluster.proxy.port, token=JOB_TOKEN, tls=context, timeout=DEADLINE_S
            ) as client:
                return client.get_kv_state(JOB, "v", 1, Types.LONG(), descriptor).get(DEADLINE_S).value()

        assert ask(files.client()) == 11
        with pytest.raises(Exception, match="certificate"):
            ask(others.client())


def test_a_task_that_is_cut_off_is_noticed_over_tls(files: TlsFiles) -> None:
    links = TaskLinks(TOKEN, "tcp:127.0.0.1:0", 3600, 3600, files.server())
    links.begin(0)
    task = wire.connect(links.address, TOKEN, DEADLINE_S, files.client())
    task.send([3, 0])
    until(lambda: links.connected() == 1)
    task.close()
    events: list[object] = []
    until(lambda: bool(events.extend(links.events()) or events))

    assert isinstance(events[0], TaskLost)
    links.close()
