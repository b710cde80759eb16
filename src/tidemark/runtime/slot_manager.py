"""The driver's side of slots: a control server they register with, launching, heartbeat, requests to all."""

from __future__ import annotations

import logging
import os
import queue
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from tidemark.config import Options
from tidemark.errors import SlotLostError
from tidemark.processes import is_process_alive, kill_process
from tidemark.protocol.events import SlotEvent, SlotLost, SlotMemoryUse
from tidemark.rpc import Acceptor, Client
from tidemark.runtime.cancellation import wait_for_all
from tidemark.runtime.driver_log import SlotLogging
from tidemark.runtime.launch import SpareSlots
from tidemark.runtime.slot_limits import SlotLimits
from tidemark.slot.control import SLOT_CONTROL
from tidemark.tls import TlsFiles, server_side
from tidemark.wire import Connection, WireClosed, listen

__all__ = ["SlotAddress", "SlotManager"]

_log = logging.getLogger(__name__)

_REGISTER_S = 120.0
"""How long slots on other machines may take to register."""
_REGISTER_HERE_S = 600.0
"""The same on this machine, where their processes are seen to live: it may only be busy."""
_LOOK_S = 0.5
_SURPLUS_S = 10.0
"""How long a slot that is not needed any more, and has closed its operators, may take to end."""
_INTRODUCTION_S = 60.0
"""How long a slot that has connected may take to say which one it is."""


@dataclass(frozen=True, slots=True)
class SlotAddress:
    """Where tasks find a slot."""

    unix: str
    tcp: str | None
    """None where every task runs on the slot's machine."""
    machine: str


@dataclass(slots=True)
class _Slot:
    client: Client
    address: SlotAddress
    pid: int
    started: float
    """When its process began (`process_started`); with the pid it names the process for ever."""
    log: str

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine."""
        return self.address.machine == socket.gethostname()


@dataclass(slots=True)
class _Ping:
    """A question to a slot whether it is alive, and when it last said so (monotonic seconds)."""

    client: Client
    answer: Future[Any]
    sent: float
    heard: float
    answered: float | None = None

    @classmethod
    def send(cls, client: Client, now: float, heard: float) -> _Ping:
        """Ask."""
        ping = cls(client, client.request("ping"), now, heard)
        ping.answer.add_done_callback(lambda _answer: setattr(ping, "answered", time.monotonic()))
        return ping

    def silence(self, now: float, interval: float) -> float:
        """For how long nothing was heard, given that it was asked every `interval` seconds.

        A driver that was asleep itself has asked only now, and waits as if it had asked in time.
        """
        return now - max(self.heard, self.sent - interval)


class SlotManager:
    """Keeps the slots of one job. The job's thread waits patiently here: see `while_waiting`."""

    def __init__(
        self,
        job_id: str,
        token: bytes,
        listen_at: str,
        launch: Callable[[list[dict[str, Any]]], list[tuple[int, int, str]]],
        bind: str | None,
        query_ports: list[int],
        limits: SlotLimits | None = None,
        log: SlotLogging | None = None,
        tls: TlsFiles | None = None,
        data_ports: str = "0",
        spares: SpareSlots | None = None,
    ) -> None:
        """Start the control server.

        Args:
            job_id: The job.
            token: What every peer has to know.
            listen_at: Where slots register, in the form of `tidemark.wire`. If it is a unix socket, all slots and
                tasks run on this machine, and slots open no TCP port for records.
            launch: Starts slot processes from settings (as a Spark job); returns (slot, pid, log).
            bind: Address slots bind to; None lets each find its own.
            query_ports: Ports for the queryable state server of a slot.
            limits: Heartbeat, and patience with user code.
            log: What goes into the log files of slots.
            tls: What TCP connections to here and to slots are encrypted with.
            data_ports: TCP ports for the records of a slot.
            spares: Processes that `launch` uses for slots whose place is to be taken.

        Raises:
            ConfigError: The files of TLS cannot be used, or no port is free.
        """
        self._logging = log or SlotLogging()
        self._limits = limits or SlotLimits()
        self.while_waiting: Callable[[], None] = lambda: None
        """Called in the job's thread while it waits for slots; what it raises ends the wait."""
        self._job_id = job_id
        self._token = token
        self._launch = launch
        self._spares = spares or SpareSlots(job_id, 0)
        self._bind = bind
        self._query_ports = query_ports
        self._tls = tls
        self._data_ports = data_ports
        server_tls = server_side(tls)
        listener, self.address = listen(listen_at, option=Options.DRIVER_PORTS.key)
        self._slots: dict[int, _Slot] = {}
        self._ahead: list[tuple[int, int, str]] = []
        """Slots that were launched and that nobody has waited for yet."""
        self._ahead_at = 0
        """When, in milliseconds since the epoch."""
        self._memory: dict[int, SlotMemoryUse] = {}
        """What slots said last of their memory."""
        self._wanted = 0
        """How many there are to be; the end of others is nobody's loss."""
        self._registered = threading.Condition()
        self._events: queue.SimpleQueue[SlotEvent] = queue.SimpleQueue()
        self._closed = threading.Event()
        self.on_event: Callable[[], None] = lambda: None
        self.on_silent: Callable[[], None] = lambda: None
        """Called when a slot hangs: tasks that wait for it have to be interrupted."""
        self._acceptor = Acceptor([listener], token, self._register, name="slot-registry", tls=server_tls)
        threading.Thread(target=self._ping, name="slot-ping", daemon=True).start()

    def ensure(self, count: int) -> None:
        """Have exactly `count` live slots: launch those that are missing, end those that are too many.

        Raises:
            SlotLostError: A slot did not come up; quotes the end of its log where it can be read.
        """
        for index in [i for i, slot in self._slots.items() if not slot.client.alive]:
            _remove_scratch(self._slots.pop(index))
        self._end_surplus(count)
        missing = [index for index in range(count) if index not in self._slots]
        self.events()
        launched, self._ahead = self._ahead, []
        under_way = {row[0] for row in launched}
        launched += self._launch_all([index for index in missing if index not in under_way])
        self._await_registration(missing, launched)

    def keep_spares(self) -> None:
        """Have spare slots from now on, for whichever is lost next."""
        self._spares.keep()

    def launch_ahead(self, count: int) -> None:
        """Launch slots on this machine without waiting for them, before the job's thread runs: `ensure` will."""
        self._wanted = count
        self._ahead = self._launch_all(range(count))
        self._ahead_at = round(time.time() * 1000)

    def _launch_all(self, indexes: Iterable[int]) -> list[tuple[int, int, str]]:
        settings = [
            {
                "driver": self.address,
                "token": self._token.hex(),
                "slot": index,
                "job_id": self._job_id,
                "bind": self._bind,
                "query_ports": self._query_ports,
                "data_ports": self._data_ports,
                "lease_s": self._limits.heartbeat_timeout_s,
                "memory": self._limits.memory,
                "log_level": self._logging.level,
                "log_json": self._logging.as_json,
                "tls": None if self._tls is None else asdict(self._tls),
            }
            for index in indexes
        ]
        return self._launch(settings) if settings else []

    def _await_registration(self, missing: list[int], launched: list[tuple[int, int, str]]) -> None:
        here = self.address.startswith("unix:")
        patience = _REGISTER_HERE_S if here else _REGISTER_S
        deadline = time.monotonic() + patience
        spares_by = time.monotonic() + self._limits.heartbeat_timeout_s
        with self._registered:
            while any(index not in self._slots for index in missing):
                if self._registered.wait(_LOOK_S):
                    continue
                if time.monotonic() > spares_by:
                    launched = self._without_silent_spares(launched)
                    spares_by = time.monotonic() + self._limits.heartbeat_timeout_s
                absent = [row for row in launched if row[0] not in self._slots]
                now = round(time.time() * 1000)
                gone = [row for row in absent if here and not is_process_alive(row[1], now)]
                if gone:
                    raise SlotLostError(
                        f"Slots {[row[0] for row in gone]} ended before they registered. {_log_tail(gone[0][2])}"
                    )
                if time.monotonic() > deadline:
                    raise SlotLostError(
                        f"Slots {[row[0] for row in absent]} did not register within {patience:.0f} s. "
                        f"{_log_tail(absent[0][2]) if absent else ''}"
                    )

    def _without_silent_spares(self, launched: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
        """Replace spares that have not registered: they were up, so they are frozen."""
        silent = [row for row in launched if row[0] not in self._slots and self._spares.give_up(row[1])]
        for index, pid, _log_file in silent:
            _log.warning(
                "Spare slot %s (process %s) has not been heard of for %.0f s (heartbeat.timeout) and is ended.",
                index,
                pid,
                self._limits.heartbeat_timeout_s,
            )
        kept = [row for row in launched if row not in silent]
        return kept + self._launch_all([row[0] for row in silent])

    def _end_surplus(self, count: int) -> None:
        self._wanted = count
        surplus = {index: slot for index, slot in self._slots.items() if index >= count}
        ending = {index: self.request(index, "stop") for index in surplus}
        for index in surplus:
            del self._slots[index]
        wait(ending.values(), _SURPLUS_S)
        for index, slot in surplus.items():
            if not ending[index].done() and slot.is_here:
                kill_process(slot.pid, slot.started)
            slot.client.close("the job needs fewer slots")
            _remove_scratch(slot)

    def addresses(self) -> list[SlotAddress]:
        """Addresses by slot index."""
        return [self._slots[index].address for index in sorted(self._slots)]

    def pids(self) -> dict[int, int]:
        """Process id of every slot."""
        return {index: slot.pid for index, slot in self._slots.items()}

    def spare_pids(self) -> list[int]:
        """Process ids of the slots that wait to be needed."""
        return self._spares.pids()

    def request(self, slot: int, name: str, payload: Any = None) -> Future[Any]:
        """Ask one slot."""
        known = self._slots.get(slot)
        if known is None:
            future: Future[Any] = Future()
            future.set_exception(SlotLostError(f"Slot {slot} is gone.", slot=slot))
            return future
        return known.client.request(name, payload)

    def request_all(self, name: str, payloads: list[Any] | Any = None) -> dict[int, Any]:
        """Ask every slot at once and wait, however long; answer or exception by slot.

        A list gives each slot its own payload. Call it from the job's thread only.

        Raises:
            BaseException: What `while_waiting` raised; the slots carry the request out all the same.
        """
        futures = self.send_all(name, payloads)
        wait_for_all(futures.values(), self.while_waiting)
        return _outcomes(futures)

    def ask_all(self, name: str, payload: Any, timeout: float) -> dict[int, Any]:
        """Ask every slot at once, from any thread; those that do not answer in time give a `TimeoutError`."""
        futures = self.send_all(name, payload)
        wait(futures.values(), timeout)
        return _outcomes(futures)

    def send_all(self, name: str, payloads: list[Any] | Any = None) -> dict[int, Future[Any]]:
        """Ask every slot at once and do not wait; requests to a slot are carried out in their order."""
        return {
            index: self.request(index, name, payloads[index] if isinstance(payloads, list) else payloads)
            for index in sorted(self._slots)
        }

    def events(self) -> list[SlotEvent]:
        """What slots said since the last call."""
        events = []
        while not self._events.empty():
            events.append(self._events.get())
        return events

    def settle(self) -> None:
        """Have the operators of every slot closed; a slot that does not return in time is killed."""
        self._await_end(self.send_all("reset"))

    def stop(self) -> None:
        """End every slot and the control server."""
        if self._closed.is_set():
            return
        # The heartbeat goes on until they have closed their operators, which may take longer than their lease.
        self._await_end(self.send_all("stop"))
        self._closed.set()
        self._spares.close()
        self._acceptor.close()
        deadline = time.monotonic() + 5.0
        while any(slot.client.alive for slot in self._slots.values()) and time.monotonic() < deadline:
            time.sleep(0.01)
        for slot in self._slots.values():
            slot.client.close()
            _remove_scratch(slot)
        for index, pid, log in self._ahead:
            if index not in self._slots:
                # Still starting: it would find nobody to register with.
                if is_process_alive(pid, self._ahead_at):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                shutil.rmtree(os.path.dirname(log), ignore_errors=True)
        self._slots.clear()

    def _register(self, connection: Connection) -> None:
        try:
            connection.set_timeout(_INTRODUCTION_S)
            (_kind, facts), _body = connection.receive()
            connection.set_timeout(None)
            index = int(facts["slot"])
            address = SlotAddress(facts["unix"], facts["tcp"], facts["machine"])
            pid, started, log = int(facts["pid"]), float(facts["started"]), str(facts["log"])
        except (OSError, TypeError, ValueError, LookupError, ArithmeticError) as exc:
            _log.warning("A connection that did not register as a slot was dropped: %s", exc)
            connection.close()
            return
        # What its predecessor said goes before this one can say something.
        self._memory.pop(index, None)
        client = Client(
            connection,
            SLOT_CONTROL,
            name="slot-control",
            on_event=self._event,
            on_lost=lambda why: self._lost(index, why),
        )
        with self._registered:
            self._slots[index] = _Slot(client, address, pid, started, log)
            self._registered.notify_all()

    def _lost(self, index: int, why: str) -> None:
        if not self._closed.is_set() and index < self._wanted:
            used = self._memory.get(index)
            self._event(
                SlotLost(index, why if used is None else f"{why}. When it was last heard of it, {used}.")
            )

    def _event(self, event: SlotEvent) -> None:
        if isinstance(event, SlotMemoryUse):
            self._memory[event.slot] = event
            _log.warning("Slot %s: %s. Beyond it the system may kill the slot.", event.slot, event)
            return
        self._events.put(event)
        self.on_event()

    def _ping(self) -> None:
        pings: dict[int, _Ping] = {}
        interval, patience = self._limits.heartbeat_interval_s, self._limits.heartbeat_timeout_s
        # Looked at more often than asked: a frozen slot is to be given up within its timeout, not an interval later.
        while not self._closed.wait(max(0.01, min(interval, patience / 50))):
            now = time.monotonic()
            for index, slot in list(self._slots.items()):
                ping = pings.get(index)
                if ping is None or ping.client is not slot.client:
                    pings[index] = _Ping.send(slot.client, now, heard=now)
                elif ping.answer.done():
                    if now - ping.sent >= interval:
                        pings[index] = _Ping.send(slot.client, now, heard=ping.answered or now)
                elif ping.silence(now, interval) > patience and slot.client.alive:
                    # Pings are answered whatever user code does: the process hangs, is stopped or unreachable.
                    del pings[index]
                    self._give_up(index, slot, f"has not answered for {patience:.0f} s (heartbeat.timeout)")
                    self.on_silent()

    def _await_end(self, requests: dict[int, Future[Any]]) -> None:
        """Wait for answers as long as user code may take to return, then kill the slots that gave none."""

        def complain(seconds: float) -> None:
            for index, future in requests.items():
                if not future.done():
                    self.request(index, "stacks").add_done_callback(partial(_log_stacks, index, seconds))

        cancellation = self._limits.cancellation
        if cancellation.settled(requests.values(), self.while_waiting, complain):
            return
        for index, future in requests.items():
            slot = self._slots.get(index)
            if slot is not None and not future.done():
                why = f"has not returned from user code within {cancellation.timeout_s:.0f} s"
                self._give_up(index, slot, f"{why} (task.cancellation.timeout)")

    def _give_up(self, index: int, slot: _Slot, why: str) -> None:
        """End a slot: by its pid on this machine, elsewhere by letting go of it, upon which it ends itself."""
        _log.warning("Slot %s (process %s) %s and is ended.", index, slot.pid, why)
        if slot.is_here:
            kill_process(slot.pid, slot.started)
        slot.client.close("the driver let go of it")


def _remove_scratch(slot: _Slot) -> None:
    """Remove the directory of a slot that is gone; one that was killed on this machine could not do it itself."""
    if slot.is_here:
        shutil.rmtree(os.path.dirname(slot.log), ignore_errors=True)


def _outcomes(futures: dict[int, Future[Any]]) -> dict[int, Any]:
    """Answer or exception by slot."""
    answers: dict[int, Any] = {}
    for index, future in futures.items():
        try:
            answers[index] = future.result(0)
        except WireClosed as exc:
            answers[index] = SlotLostError(f"Slot {index} is gone: {exc}", slot=index)
        except Exception as exc:
            answers[index] = exc
    return answers


def _log_stacks(slot: int, seconds: float, told: Future[Any]) -> None:
    if told.exception() is None:
        _log.warning("Slot %s has not returned from user code for %.0f s. %s", slot, seconds, told.result())


def _log_tail(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            tail = stream.read()[-2000:].decode(errors="replace").strip()
    except OSError:
        return f"Its log is {path} on the executor's machine."
    return f"The end of its log:\n{tail}"
