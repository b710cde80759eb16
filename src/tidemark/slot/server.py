"""A slot process: a host with sockets around it, alive only as long as its driver is.

Threads: one reads control frames (and so always notices that the driver is gone) and answers at once what
needs no operator; one carries requests out; one asks the operators for statistics between records; one per
data connection; one writes snapshots. The lease: no control frame for `heartbeat.timeout`, or the control
connection closed, and the process ends itself, whatever user code is doing.
"""

from __future__ import annotations

import importlib
import logging
import os
import queue
import shutil
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pyarrow

from tidemark.checkpoint.messages import SlotDeclined
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.clock import SystemClock
from tidemark.errors import CheckpointError
from tidemark.job_logs import JobLog, LogOwner, read_tail, slot_log
from tidemark.processes import process_figures, process_started
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.events import SlotEvent, SlotMemoryUse, SlotReady
from tidemark.protocol.frames import CutRequest
from tidemark.rpc import EVENT, Handlers, Incoming, Server, ServerThreads
from tidemark.slot.allocator import FreeMemory, keep_batches
from tidemark.slot.control import SLOT_CONTROL
from tidemark.slot.host import SlotHost
from tidemark.slot.memory_watch import MemoryWatch, resident_bytes
from tidemark.slot.stacks import operator_stacks
from tidemark.state.allowed_classes import allow_classes
from tidemark.subtask.snapshots import acknowledgement
from tidemark.tls import TlsFiles, client_side, server_side
from tidemark.wire import PATIENCE_S, Connection, SharedConnection, WireClosed, connect, listen

__all__ = ["SlotServer"]

# By its name: this module is `__main__` in the process it makes, whose log file takes what is below `tidemark`.
_log = logging.getLogger("tidemark.slot.server")

_MEMORY_S = 0.2
"""Between two looks at the memory of the process; a look takes some 20 microseconds."""

_Requests = queue.SimpleQueue[Incoming]


class SlotServer:
    """Hosts one slot of one job until the driver lets go of it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """Bind the data sockets: a unix socket, and a TCP port unless the driver itself is at a unix socket.

        Args:
            settings: `driver` (address), `token` (hex), `slot`, `job_id`, `scratch` (directory), `bind`
                (host), `data_ports`, `query_ports`, `query_threads` (receiving, answering), `query_statistics`,
                `lease_s` (seconds), `memory` (bytes, or None), `log_level`, `log_json`, `tls` (the
                fields of `TlsFiles`, or None), `allowed_classes` (a list, or None).
        """
        self._settings = settings
        allow_classes(settings.get("allowed_classes"))
        self._token = bytes.fromhex(settings["token"])
        tls = settings.get("tls")
        self._tls = None if tls is None else msgspec.convert(tls, TlsFiles)
        self._server_tls = server_side(self._tls)
        self._scratch = Path(settings["scratch"])
        self._host = SlotHost(SystemClock(), FileSystemStorage(), self._scratch / "state")
        owner = LogOwner(settings["job_id"], lambda: max(0, self._host.current_attempt()), settings["slot"])
        JobLog(owner, level=settings.get("log_level", logging.INFO), as_json=settings.get("log_json", False))
        self._host.on_ready = lambda: self._event(SlotReady(settings["slot"]))
        self._host.on_cut = self._write_soon
        self._host.on_declined = self._declined
        unix, self._unix_address = listen(f"unix:{self._scratch}/slot.sock")
        self._listeners = [unix]
        self._tcp_address: str | None = None
        if not settings["driver"].startswith("unix:"):
            tcp, self._tcp_address = listen(
                f"tcp:{settings['bind']}:{settings.get('data_ports', '0')}", option="taskmanager.data.port"
            )
            self._listeners.append(tcp)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._free_memory = FreeMemory(time.monotonic)
        self._work: _Requests = queue.SimpleQueue()
        self._questions: _Requests = queue.SimpleQueue()
        self._control: SharedConnection | None = None
        self._heard = time.monotonic()
        self._query_server: Any = None
        self._at_once = Handlers(
            SLOT_CONTROL,
            # Silence of a process that answers these whatever it does means that it hangs.
            ping=lambda _: True,
            sources=lambda _: self._host.source_status(),
            blocked=lambda _: self._host.blocked_ms(),
            stacks=lambda _: operator_stacks(),
            log=self._log_tail,
        )
        self._handlers = Handlers(
            SLOT_CONTROL,
            deploy=self._deploy,
            reset=lambda _: self._host.reset(),
            finish=lambda _: self._host.finish(),
            cut=self._cut,
            complete=self._host.notify_complete,
            aborted=self._host.notify_aborted,
            stop=self._stop,
            stats=self._host.stats,
            figures=self._figures,
            erase=self._host.erase,
        )

    def run(self) -> None:
        """Register with the driver and serve until it goes away. Never returns."""
        Server(self._listeners, self._token, self._process, name="slot-data", tls=self._server_tls)
        address, tls = self._settings["driver"], client_side(self._tls)
        control = SharedConnection(connect(address, self._token, PATIENCE_S, tls))
        self._control = control
        facts = {
            "slot": self._settings["slot"],
            "pid": os.getpid(),
            "started": process_started(),
            "unix": self._unix_address,
            "tcp": self._tcp_address,
            "machine": socket.gethostname(),
            "log": str(self._scratch / "slot.log"),
        }
        control.send(["register", facts])
        for name, requests in (("control-work", self._work), ("control-questions", self._questions)):
            threading.Thread(target=self._serve_control, args=(requests,), name=name, daemon=True).start()
        threading.Thread(target=self._watch_lease, name="lease", daemon=True).start()
        if self._settings.get("memory"):
            threading.Thread(target=self._watch_memory, name="memory", daemon=True).start()
        try:
            while True:
                request = Incoming(control, *control.receive(), SLOT_CONTROL)
                self._heard = time.monotonic()
                if request.name in self._at_once:
                    self._at_once.answer(request)
                else:
                    question = request.name in ("stats", "figures", "erase")
                    (self._questions if question else self._work).put(request)
        except WireClosed:
            self._exit("the driver is gone")

    def _serve_control(self, requests: _Requests) -> None:
        while True:
            request = requests.get()
            try:
                self._handlers.answer(request)
            except WireClosed:
                self._exit("the driver is gone")

    def _watch_lease(self) -> None:
        lease = float(self._settings["lease_s"])
        while True:
            time.sleep(lease / 10)
            if time.monotonic() - self._heard > lease:
                self._exit(f"no word from the driver for {lease:.0f} s")

    def _watch_memory(self) -> None:
        budget = int(self._settings["memory"])
        watch = MemoryWatch(budget)
        while True:
            used = resident_bytes()
            if watch.look(used):
                self._event(SlotMemoryUse(self._settings["slot"], used, budget))
            time.sleep(_MEMORY_S)

    def _exit(self, why: str) -> None:
        _log.info("Slot %s ends: %s", self._settings["slot"], why)
        logging.shutdown()
        shutil.rmtree(self._scratch, ignore_errors=True)
        os._exit(0)

    def _stop(self, _payload: Any) -> None:
        """Close operators, answer, then end."""
        self._host.close()
        threading.Timer(0.05, lambda: self._exit("stopped by the driver")).start()

    def _deploy(self, deployment: Deployment) -> dict[str, Any]:
        self._host.deploy(deployment)
        _log.info("Operators are deployed, restored from checkpoint %s", deployment.restored_id)
        if deployment.queryable and self._query_server is None:
            from tidemark.queryablestate.server import QueryableStateServer

            self._query_server = QueryableStateServer(
                self._host,
                list(self._settings["query_ports"]),
                self._token,
                bind=self._settings["bind"],
                attempt=self._host.current_attempt,
                threads=ServerThreads(*self._settings.get("query_threads", ())),
                tls=self._server_tls,
            )
            if self._settings.get("query_statistics", False):
                self._query_server.statistics.enable()
        return {
            "query_address": None if self._query_server is None else self._query_server.address,
            "queryable": self._host.published(),
        }

    def _figures(self, timeout: float) -> dict[str, Any]:
        server = self._query_server
        queries = {} if server is None else server.statistics.figures()
        return {**self._host.figures(timeout), **process_figures(), "queries": queries}

    def _cut(self, request: CutRequest) -> int:
        took = self._host.cut(request)
        self._write_soon(request)
        return took

    def _write_soon(self, request: CutRequest) -> None:
        if request.synchronous:
            self._write(request)
        else:
            self._writer.submit(self._write, request)

    def _declined(self, request: CutRequest, why: CheckpointError) -> None:
        self._event(SlotDeclined(request.checkpoint_id, self._settings["slot"], why.reason, str(why)))

    def _write(self, request: CutRequest) -> None:
        barriers = self._host.barrier_times(request.checkpoint_id)
        self._event(acknowledgement(self._settings["slot"], request, self._host.write, barriers))
        self._free_memory.give_back()

    def _event(self, event: SlotEvent) -> None:
        control = self._control
        if control is None:
            return
        try:
            control.send([EVENT], SLOT_CONTROL.encode(event))
        except WireClosed:
            self._exit("the driver is gone")

    def _log_tail(self, _: None) -> str | None:
        return read_tail(self._settings["job_id"], slot_log(self._settings["slot"]))

    def _process(self, connection: Connection, header: Any, body: bytearray) -> None:
        handle = self._host.handle_channel if self._host.is_continuous else self._host.handle
        answer, data = handle(header, body)
        connection.send(answer, data)


def _import_ahead() -> None:
    """What others import with the first deployment: a slot that takes the place of another is waited for."""
    for name in ("pyarrow.parquet", "tidemark.backends.heap.backend", "tidemark.backends.rocksdb.backend"):
        importlib.import_module(name)
    # Arrow looks for pandas when it first makes an array, and imports it if there is one.
    pyarrow.array([0])


def main() -> None:
    """Entry point of the process: settings come as one JSON line on standard input.

    A spare slot (`--spare`) may wait for them as long as its driver lives, and never be needed.
    """
    import gc
    import json

    if "--spare" in sys.argv:
        _import_ahead()
    told = sys.stdin.readline()
    if not told:
        return
    settings = json.loads(told)
    sys.path[:] = settings["sys_path"]
    logging.basicConfig(
        level=settings.get("log_level", logging.INFO),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # Each system call of a frame, a query or a heartbeat waits that long for the interpreter while a snapshot is
    # written; the default of 5 ms is far too coarse, 1 ms still doubled the latency of records.
    sys.setswitchinterval(0.0002)
    # State is long-lived: young collections that find nothing would only cost time.
    gc.set_threshold(100_000, 50, 100)
    gc.freeze()
    keep_batches()
    SlotServer(settings).run()


if __name__ == "__main__":
    main()
