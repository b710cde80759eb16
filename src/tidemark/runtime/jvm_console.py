"""What a JVM of Spark that we start says on the console, less what nobody can do anything about.

Two things come in every run, or in some, and no setting of Spark's turns them off: a warning of Java about a module
that Spark's launcher adds, and tracebacks of PySpark's daemon, whose workers find their JVM gone or done with them.
What Python workers say comes this way too, because the JVM passes it on.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
from collections.abc import Iterator

__all__ = ["ConsoleFilter", "filtered_console"]

_JAVA = re.compile(rb"WARNING: Using incubator modules: [\w., ]+\Z")
_HEAD = re.compile(
    rb"(Traceback \(most recent call last\)|PySpark daemon failed to flush the output[^:]*):\Z"
)
_FRAME = re.compile(rb'  File "[^"]*[/\\]pyspark[/\\][^"]*", line \d+, in |    ')
_END = re.compile(rb"(BrokenPipeError|ConnectionResetError): ")
_PATIENCE_S = 0.5
"""How long a line is held back that may turn out to be noise."""
_STDERR = 2
_PIECE = 65536
_LAST_WORDS_S = 5.0
"""How long a start that failed waits until everything that was said is shown."""


class ConsoleFilter:
    """Takes lines and gives those that are to be shown; a traceback is held back until it is known whose it is.

    Tracebacks of several workers may be mixed: they are dropped together, or shown together.
    """

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._open = 0
        """Tracebacks that have begun and not ended."""

    def take(self, line: bytes) -> list[bytes]:
        """What is to be shown now that this line has come."""
        if _JAVA.match(line):
            return []
        if _HEAD.match(line):
            self._open += line.startswith(b"Traceback")
            self._held.append(line)
            return []
        if not self._held:
            return [line]
        if _END.match(line):
            self._held.append(line)
            self._open -= 1
            if self._open <= 0:
                self._held, self._open = [], 0
            return []
        if _FRAME.match(line):
            self._held.append(line)
            return []
        return [*self.release(), line]

    @property
    def holds(self) -> bool:
        """Whether something is held back."""
        return bool(self._held)

    def release(self) -> list[bytes]:
        """Give up what is held back."""
        held, self._held, self._open = self._held, [], 0
        return held


@contextlib.contextmanager
def filtered_console() -> Iterator[int]:
    """Give a descriptor to be the stderr of a process; what comes there goes to ours, until that process ends.

    The process is to be started inside the block. If the block fails, what was said until then is shown first.
    """
    source, sink = os.pipe()
    pump = threading.Thread(target=_pump, args=(source,), name="tidemark-jvm-console", daemon=True)
    pump.start()
    failed = True
    try:
        yield sink
        failed = False
    finally:
        os.close(sink)
        if failed:
            pump.join(_LAST_WORDS_S)


def _pump(source: int) -> None:
    lines = ConsoleFilter()
    begun = b""
    while True:
        doubtful = bool(begun) or lines.holds
        if doubtful and not select.select([source], [], [], _PATIENCE_S)[0]:
            _show(lines.release(), begun)
            begun = b""
            continue
        piece = os.read(source, _PIECE)
        if not piece:
            break
        *whole, begun = (begun + piece).split(b"\n")
        _show([shown for line in whole for shown in lines.take(line)])
    _show(lines.release(), begun)
    os.close(source)


def _show(lines: list[bytes], begun: bytes = b"") -> None:
    said = b"".join(line + b"\n" for line in lines) + begun
    # Nobody may be there to see it; the process that talks must not be made to wait for that.
    with contextlib.suppress(OSError):
        while said:
            said = said[os.write(_STDERR, said) :]
