"""Which line of an error of Spark's is shown. No JVM."""

from __future__ import annotations

import pytest

from tidemark.runtime.spark_engine import spark_reason

FROM_JAVA = """An error occurred while calling o3048.collectAsArrowToPython.
: java.net.SocketException: No such file or directory
\tat java.base/sun.nio.ch.UnixDomainSockets.bind0(Native Method)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (FROM_JAVA, "java.net.SocketException: No such file or directory"),
        ("Python worker exited unexpectedly (crashed)", "Python worker exited unexpectedly (crashed)"),
        ("nothing known", "nothing known"),
        ("", "RuntimeError"),
    ],
    ids=["behind the call", "the only line", "no word we know", "no text"],
)
def test_the_line_that_says_most_is_told(text, told):
    assert spark_reason(RuntimeError(text)) == told
