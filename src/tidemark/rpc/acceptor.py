"""The one place where connections come in: accepts, lets peers prove themselves, hands the proven ones on.

One thread per acceptor serves every stranger, without waiting for any of them: accepting and handshakes are
steps between two looks at a selector. So strangers cost neither threads nor, beyond `Limits.handshakes`, file
descriptors; further ones wait in the kernel's backlog. While all places are taken the oldest stranger gives his to
the next one, after a second in which an honest one would have proved itself long ago: so the backlog moves on whatever
idlers do. A connection that has proved to know the token gets a thread
of its own: those are few, and ours.

Nothing a stranger does ends an acceptor, and neither does the lack of file descriptors, memory or threads: it
waits a moment and goes on. Only `close` ends it.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidemark.errors import TidemarkError
from tidemark.rpc.handshake import Handshake
from tidemark.rpc.refusals import Refusals
from tidemark.wire import HANDSHAKE_TIMEOUT_S, MAX_BODY, Connection, Stream

__all__ = ["DEFAULT_LIMITS", "Acceptor", "Limits"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server lets others cost it."""

    handshakes: int = 128
    """Connections that may be proving themselves at the same time."""
    handshake_s: float = HANDSHAKE_TIMEOUT_S
    """Seconds a handshake may take from accepting to the last byte, TLS included."""
    crowded_s: float = 1.0
    """The same while all places are taken: idlers must not keep others out."""
    body: int = MAX_BODY
    """Bytes of the largest body of a frame, in either direction; a header has no more either."""


DEFAULT_LIMITS = Limits()


class Acceptor:
    """Accepts from construction to `close`."""

    def __init__(
        self,
        listeners: Iterable[socket.socket],
        token: bytes,
        serve: Callable[[Connection], None],
        *,
        name: str,
        tls: ssl.SSLContext | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Take over the listening sockets.

        Args:
            listeners: As made by `tidemark.wire.listen`; closed by `close`.
            token: What clients have to know.
            serve: Called with every connection that has proved itself, in a thread of its own; closes it.
            name: What the log and the threads are called.
            tls: Server side of TLS for TCP connections, if they are to be encrypted.
            limits: What strangers may cost.
        """
        self._listeners = list(listeners)
        self._token = token
        self._serve = serve
        self._name = name
        self._tls = tls
        self._limits = limits
        self._closing = False
        self._pause_s = _FIRST_PAUSE_S
        self._paused_until = 0.0
        self._strangers: dict[Handshake, float] = {}
        """Since when each is at it; the oldest first."""
        self._refusals = Refusals(name, time.monotonic)
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        for listener in self._listeners:
            listener.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and drop everybody who has not proved himself. Idempotent."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._waker.send(b"!")
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing:
                try:
                    self._turn()
                except Exception as exc:
                    # The selector itself may lack memory; there is nothing to wait on but the clock.
                    _log.debug("%s goes on after an error", self._name, exc_info=True)
                    self._refusals.add(f"{type(exc).__name__}: {exc}")
                    time.sleep(_LONGEST_PAUSE_S)
        finally:
            self._selector.close()
            for stranger in self._strangers:
                stranger.close()
            for sock in (*self._listeners, self._woken, self._waker):
                sock.close()

    def _turn(self) -> None:
        self._watch_listeners()
        for key, _events in self._selector.select(self._timeout()):
            if isinstance(key.data, Handshake):
                self._advance(key.data)
            elif key.data is not None:
                self._accept(key.data)
        self._expire()
        self._refusals.flush()

    # Accepting

    def _watch_listeners(self) -> None:
        """Look at the listeners, or leave newcomers in the backlog."""
        wanted = not self._crowded and time.monotonic() >= self._paused_until
        watched = self._selector.get_map()
        for listener in self._listeners:
            if wanted and listener not in watched:
                self._selector.register(listener, selectors.EVENT_READ, listener)
            elif not wanted and listener in watched:
                self._selector.unregister(listener)

    def _accept(self, listener: socket.socket) -> None:
        # Those who fail at once never make it crowded: however many come, the others have their turn in between.
        for _ in range(self._limits.handshakes):
            if self._closing or self._crowded:
                return
            try:
                sock, _peer = listener.accept()
            except BlockingIOError:
                return
            except OSError as exc:
                self._pause(exc)
                return
            self._pause_s = _FIRST_PAUSE_S
            try:
                stranger = Handshake(sock, self._token, self._tls)
            except OSError as exc:
                self._refusals.add(str(exc))
                continue
            self._strangers[stranger] = time.monotonic()
            self._advance(stranger)

    def _pause(self, exc: OSError) -> None:
        """Descriptors or memory ran out, or the newcomer is gone again: what is lacking may come back."""
        self._refusals.add(f"cannot accept: {exc}")
        self._paused_until = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    # Handshakes

    def _advance(self, stranger: Handshake) -> None:
        try:
            event = stranger.advance()
            if event:
                self._watch(stranger, event)
                return
        except (OSError, TidemarkError) as exc:
            self._drop(stranger, str(exc))
            return
        except Exception as exc:
            _log.debug("%s failed in a handshake", self._name, exc_info=True)
            self._drop(stranger, f"{type(exc).__name__}: {exc}")
            return
        self._forget(stranger)
        self._hand_on(stranger.socket)

    def _watch(self, stranger: Handshake, event: int) -> None:
        key = self._selector.get_map().get(stranger.socket)
        if key is None:
            self._selector.register(stranger.socket, event, stranger)
        elif key.events != event:
            self._selector.modify(stranger.socket, event, stranger)

    def _hand_on(self, sock: Stream) -> None:
        try:
            sock.setblocking(True)
            connection = Connection(sock, "client", self._limits.body)
            threading.Thread(target=self._serve, args=(connection,), name=self._name, daemon=True).start()
        except (OSError, RuntimeError) as exc:
            # RuntimeError: there is no thread to be had.
            sock.close()
            self._refusals.add(str(exc))

    def _expire(self) -> None:
        now = time.monotonic()
        for stranger, since in list(self._strangers.items()):
            if now - since < self._patience:
                return
            self._drop(stranger, f"it did not prove itself within {self._patience:.1f} s")

    @property
    def _crowded(self) -> bool:
        return len(self._strangers) >= self._limits.handshakes

    @property
    def _patience(self) -> float:
        limits = self._limits
        return min(limits.handshake_s, limits.crowded_s) if self._crowded else limits.handshake_s

    def _drop(self, stranger: Handshake, why: str) -> None:
        self._forget(stranger)
        stranger.close()
        self._refusals.add(why)

    def _forget(self, stranger: Handshake) -> None:
        del self._strangers[stranger]
        if stranger.socket in self._selector.get_map():
            self._selector.unregister(stranger.socket)

    def _timeout(self) -> float | None:
        """Seconds until something is due without anybody's doing."""
        now = time.monotonic()
        due = [] if self._refusals.due_in is None else [self._refusals.due_in]
        if self._strangers:
            due.append(next(iter(self._strangers.values())) + self._patience - now)
        if now < self._paused_until:
            due.append(self._paused_until - now)
        return max(0.0, min(due)) if due else None
