"""Whatever a peer sends to a port of ours, or does not send: others are served, nothing stays open, nothing is run.

Every door of a job is tried, with and without TLS: its control endpoint, queries in driver and slots, the registration
of slots, records of a slot process, control links of tasks, the web server.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import pytest
from tests.campaign import seeds
from tests.property.hostile import mutated, noise, nothing_is_unpickled
from tests.unit.rpc.strangers import DEADLINE_S, GARBAGE, TOKEN, descriptors, stranger, until
from tests.unit.runtime.test_query_options import Forever, Last, Nowhere

from tidemark import Configuration, StreamExecutionEnvironment, Types
from tidemark.config.tls import internal_tls, rest_tls
from tidemark.jobs import find_job, token_bytes
from tidemark.proof import Response
from tidemark.runtime.continuous.task_links import TaskLinks
from tidemark.runtime.control_client import ControlClient
from tidemark.runtime.launch import launch_slots
from tidemark.runtime.rest import announcing
from tidemark.runtime.slot_manager import SlotManager
from tidemark.tls import TlsContext
from tidemark.wire import PREFIX, Connection, connect

SEEDS = seeds(120)
JOB = "0123456789abcdef0123456789abcdef"


@dataclass
class Door:
    """Somewhere to knock."""

    address: str
    token: bytes
    is_open: Callable[[], Any]
    """Fails if an honest client is not served."""
    tls: TlsContext | None = None
    is_http: bool = False

    def honest(self) -> Connection:
        connection = connect(self.address, self.token, DEADLINE_S, self.tls)
        connection.set_timeout(DEADLINE_S)
        return connection


@pytest.fixture(scope="module", params=["plain", "tls"])
def doors(
    request: pytest.FixtureRequest, certificates: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Door]]:
    """Those of a job, and of what Spark would have besides."""
    encrypted = certificates if request.param == "tls" else {}
    files = internal_tls(Configuration.from_dict(encrypted))
    client = None if files is None else files.client()
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_HOME", str(tmp_path_factory.mktemp("home")))
        found = job_doors(encrypted, client, stack)
        slots = SlotManager(
            JOB,
            TOKEN,
            "tcp:127.0.0.1:0",
            lambda wanted: list(launch_slots(iter(wanted))),
            "127.0.0.1",
            [0],
            tls=files,
        )
        stack.callback(slots.stop)
        slots.ensure(1)
        links = TaskLinks(TOKEN, "tcp:127.0.0.1:0", 3600, 3600, None if files is None else files.server())
        stack.callback(links.close)
        (slot,) = slots.addresses()
        assert slot.tcp is not None

        def alive() -> None:
            assert slots.request(0, "ping").result(DEADLINE_S) is True

        for name, address in {"registration": slots.address, "records": slot.tcp, "unix": slot.unix}.items():
            found[name] = Door(address, TOKEN, alive, None if name == "unix" else client)
        found["tasks"] = Door(links.address, TOKEN, lambda: None, client)
        yield found


def job_doors(
    encrypted: dict[str, str], client: TlsContext | None, stack: contextlib.ExitStack
) -> dict[str, Door]:
    """The doors of a job of the local executor."""
    settings = {
        "execution.target": "local",
        "parallelism.default": "1",
        "queryable-state.enable": "true",
        "queryable-state.proxy.ports": "0",
        "queryable-state.server.ports": "0",
        "rest.port": "0",
        **{key: value for key, value in encrypted.items() if "authentication" not in key},
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    keyed = env.add_source(Forever(), type_info=Types.LONG()).key_by(lambda n: n, Types.LONG())
    keyed.process(Last()).add_sink(Nowhere())
    pages: list[str] = []
    with announcing(pages.append):
        job = env.execute_async()
    stack.callback(lambda: job.cancel().result(DEADLINE_S))
    record = find_job(job.get_job_id())
    rest = rest_tls(Configuration.from_dict(encrypted))
    believed = False if rest is None else rest.client()

    def controlled() -> None:
        with ControlClient.of_record(record, DEADLINE_S) as control:
            assert control.request("summary")["job_id"] == record.job_id

    def looked_at() -> None:
        # Anew each time: a connection that says nothing for a while is closed, whatever others do.
        assert httpx.get(f"{pages[0]}/v1/jobs", verify=believed, timeout=DEADLINE_S).status_code == 200

    token = token_bytes(record.token)
    proxy = Door(f"tcp:127.0.0.1:{record.query_port}", token, lambda: proxy.honest().close(), client)
    page = Door("tcp:" + pages[0].partition("://")[2], token, looked_at, is_http=True)
    return {"control": Door(record.control_address, token, controlled), "proxy": proxy, "page": page}


# What strangers and peers do


def say_noise(rng: random.Random, door: Door, kept: list[socket.socket]) -> None:
    with stranger(door.address) as sock:
        sock.sendall(rng.choice([noise(rng), rng.choice(list(GARBAGE.values())), rng.randbytes(1 << 18)]))


def reset(rng: random.Random, door: Door, kept: list[socket.socket]) -> None:
    with stranger(door.address) as sock:
        sock.sendall(noise(rng))
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def stay(rng: random.Random, door: Door, kept: list[socket.socket]) -> None:
    """Say something, or nothing, and hold on: slow ones, and many."""
    for _ in range(rng.choice([1, 1, 10])):
        kept.append(stranger(door.address))
        kept[-1].sendall(noise(rng, 60))


def half_prove(rng: random.Random, door: Door, kept: list[socket.socket]) -> None:
    if door.tls is not None or door.is_http:
        return
    with stranger(door.address) as sock:
        proof = Response(rng.choice([door.token, b"guess"]), sock.recv(32), sock).proof
        sock.sendall(rng.choice([proof[: rng.randrange(64)], mutated(rng, proof), proof[::-1] + noise(rng)]))


def speak_http(rng: random.Random, door: Door, kept: list[socket.socket]) -> None:
    request = b"POST /v1/jobs/x/savepoints HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 20\r\n\r\n{}"
    chunked = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n"
    long = b"GET /" + b"a" * rng.randrange(1, 1 << 17) + b" HTTP/1.1\r\n"
    with stranger(door.address) as sock:
        sock.sendall(mutated(rng, rng.choice([request, chunked, long])))


def send_frames(rng: random.Random, door: Door, kept: list[socket.socket]) -> None:
    """Behind the proof: a peer of ours that has gone mad. It is not believed either where nothing is unpickled."""
    if door.is_http:
        return
    connection = door.honest()
    header = msgspec.msgpack.encode(rng.choice([["request", 0, "info"], [1, 2], {"a": 1}, None, "x", 2**63]))
    body = noise(rng)
    lengths = rng.choice(
        [(len(header), len(body)), (2**32 - 1, 0), (10, 2**63), (0, 0), (len(header), 10**12), (1 << 27, 1)]
    )
    with contextlib.suppress(OSError):
        connection.socket.sendall(PREFIX.pack(*lengths) + mutated(rng, header) + body)
    connection.close()


MOVES = [say_noise, reset, stay, half_prove, speak_http, send_frames]


def test_every_door_survives_whatever_comes_in(doors: dict[str, Door]) -> None:
    began = descriptors()
    kept: list[socket.socket] = []
    names = sorted(doors)
    with nothing_is_unpickled():
        for seed in SEEDS:
            rng = random.Random(seed)
            door = doors[names[seed % len(names)]]
            move = rng.choice(MOVES)
            try:
                # A stranger may be dropped at any byte.
                with contextlib.suppress(OSError):
                    move(rng, door, kept)
                if seed % 10 == 9:
                    door.is_open()
            except Exception as exc:
                exc.add_note(f"seed {seed}: {move.__name__} at {door.address}")
                raise
            while len(kept) > 100:
                kept.pop(0).close()
        for name in names:
            doors[name].is_open()
            if not doors[name].is_http:
                doors[name].honest().close()
    for sock in kept:
        sock.close()
    until(lambda: descriptors() <= began + 8, "closing what was refused")


def test_a_crowd_at_every_door_at_once_keeps_nobody_out(doors: dict[str, Door]) -> None:
    crowd = []
    for door in doors.values():
        for number in range(150):
            crowd.append(stranger(door.address))
            if number % 3 == 0:
                with contextlib.suppress(OSError):
                    crowd[-1].sendall(b"x")
    began = time.monotonic()

    for door in doors.values():
        door.is_open()
        if not door.is_http:
            door.honest().close()

    assert time.monotonic() - began < DEADLINE_S
    for sock in crowd:
        sock.close()
