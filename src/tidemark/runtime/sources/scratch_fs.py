"""A local file system for Spark's streaming log that does not fork `chmod` for every file.

Hadoop's local file system starts a process per created file, which is 85 of the 105 ms of a micro-batch.
The directory is scratch, so permissions do not matter. The class is compiled into the running JVM by Janino,
which Spark brings along; where that fails the ordinary file system is used, which is only slower.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scratch_location"]

_log = logging.getLogger(__name__)

_SOURCE = """package tidemark.scratch;
public class ScratchFileSystem extends org.apache.hadoop.fs.RawLocalFileSystem {
  public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission mode) { }
  public java.net.URI getUri() { return java.net.URI.create("tidescratch:///"); }
}"""
_IMPLEMENTATION = "fs.tidescratch.impl"


def scratch_location(session: SparkSession, directory: str) -> str:
    """The checkpoint location for a local directory: on the scratch file system, if it can be installed."""
    return f"tidescratch://{directory}" if _install(session) else directory


def _install(session: SparkSession) -> bool:
    jvm = session._jvm
    try:
        hadoop = session.sparkContext._jsc.hadoopConfiguration()
        if hadoop.get(_IMPLEMENTATION) is not None:
            return True
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE)
        hadoop.setClassLoader(compiler.getClassLoader())
        hadoop.set(_IMPLEMENTATION, "tidemark.scratch.ScratchFileSystem")
    except Exception as exc:
        _log.info("Spark's streaming log stays on the ordinary file system (slower epochs): %s", exc)
        return False
    return True
