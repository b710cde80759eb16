from __future__ import annotations

import subprocess
import sys

import pytest

from tidemark.runtime.jvm_console import ConsoleFilter

JAVA = "WARNING: Using incubator modules: jdk.incubator.vector"
HEAD = "Traceback (most recent call last):"
MANAGER = '  File "/venv/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 264, in manager'
WORKER = '  File "/venv/lib/python3.11/site-packages/pyspark/daemon.py", line 95, in worker'
SOURCE = "    outfile.flush()"
BROKEN = "BrokenPipeError: [Errno 32] Broken pipe"


def shown(*lines: str) -> list[str]:
    console = ConsoleFilter()
    told = [line for given in lines for line in console.take(given.encode())]
    return [line.decode() for line in [*told, *console.release()]]


def test_what_java_and_pyspark_say_of_themselves_is_not_shown() -> None:
    assert shown(JAVA) == []
    assert shown("a", HEAD, MANAGER, WORKER, SOURCE, BROKEN, "b") == ["a", "b"]
    assert (
        shown("PySpark daemon failed to flush the output to the worker process:", HEAD, WORKER, BROKEN) == []
    )


def test_tracebacks_of_two_workers_that_are_mixed_are_not_shown() -> None:
    assert shown(HEAD, HEAD, MANAGER, WORKER, BROKEN, MANAGER, WORKER, BROKEN, "a") == ["a"]


@pytest.mark.parametrize(
    "lines",
    [
        [HEAD, '  File "/home/me/job.py", line 3, in map', "    x()", BROKEN],
        [HEAD, MANAGER, WORKER, '  File "/home/me/job.py", line 3, in map', BROKEN],
        [HEAD, MANAGER, WORKER, "ValueError: mine"],
        [BROKEN],
        ["    indented", "", "26/11/18 04:26:20 ERROR Executor: mine"],
    ],
)
def test_everything_else_is_shown_as_it_came(lines: list[str]) -> None:
    assert shown(*lines) == lines


TALKS = f"""
import subprocess, sys
from tidemark.runtime.jvm_console import filtered_console
code = "import sys; sys.stderr.write(sys.argv[1]); sys.stderr.flush(); sys.exit(sys.stdin.read())"
with filtered_console() as console:
    child = subprocess.Popen(
        [sys.executable, "-c", code, {JAVA!r} + "\\nan error\\n" + {HEAD!r} + "\\nno end"],
        stderr=console, stdin=subprocess.PIPE, text=True,
    )
    if sys.argv[1] == "fails":
        child.communicate("last words")
        raise SystemExit(1)
child.communicate("last words")
import threading
[thread.join(60) for thread in threading.enumerate() if thread.name == "tidemark-jvm-console"]
"""


@pytest.mark.parametrize("how", ["fails", "works"])
def test_what_a_process_says_arrives_to_its_last_word(how: str) -> None:
    done = subprocess.run([sys.executable, "-c", TALKS, how], capture_output=True, text=True, timeout=120)

    assert done.stderr.split("\n") == ["an error", HEAD, "no endlast words", ""], done.stderr
