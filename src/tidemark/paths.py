"""The arithmetic of paths, and what is behind them: this machine's disks, or a file system that fsspec knows.

A path is a URI (`file:///a/b`, `hdfs://host/a`, `s3://bucket/a`) or a bare local path; both use `/`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from tidemark.errors import ConfigError

__all__ = [
    "abandon",
    "absolute",
    "is_local",
    "join",
    "local_path",
    "name_of",
    "parent",
    "remote",
    "same_host",
    "use_file_systems",
]

_WEB_HDFS_PORT = 9870
"""Of a name node, unless it is told otherwise."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")

Options = Mapping[str, Mapping[str, Any]]
"""Scheme -> what its file system is made with."""

_options: dict[str, Mapping[str, Any]] = {}
_load: Callable[[], Options] = dict


def join(base: str, *parts: str) -> str:
    """Append path parts to a path or URI."""
    stripped = base.rstrip("/") or "/"
    tail = "/".join(part.strip("/") for part in parts if part)
    if not tail:
        return stripped
    return stripped + tail if stripped == "/" else f"{stripped}/{tail}"


def parent(path: str) -> str:
    """The directory that holds `path`."""
    head, _, _ = path.rstrip("/").rpartition("/")
    if head.endswith(":/") or head.endswith(":"):
        return head + "/"
    return head or ("/" if path.startswith("/") else ".")


def name_of(path: str) -> str:
    """The last part of `path`."""
    return path.rstrip("/").rpartition("/")[2]


def is_local(path: str) -> bool:
    """Whether `path` is on this machine's file system (`file:` URI or bare)."""
    return path.startswith("file:") or _SCHEME.match(path) is None


def local_path(path: str) -> str:
    """The operating system's form of a local path or `file:` URI."""
    if not path.startswith("file:"):
        return path
    rest = path[len("file:") :]
    if rest.startswith("//"):
        # file://host/a names a host before the path; only the local one (empty) makes sense here.
        rest = "/" + rest[2:].partition("/")[2]
    return rest


def same_host(path: str, other: str) -> bool:
    """Whether two URIs have the same scheme and authority (host, port, user; bucket)."""

    def head(uri: str) -> tuple[str, str]:
        parts = urlsplit(uri)
        return parts.scheme, parts.netloc

    return head(path) == head(other)


def absolute(path: str) -> str:
    """Make a bare relative path absolute, because other processes have other working directories.

    Raises:
        ConfigError: It is relative to a working directory that was deleted.
    """
    text = os.fspath(path)
    if _SCHEME.match(text) is not None:
        stripped = text.rstrip("/")
        return text if stripped.endswith(":") else stripped
    try:
        return os.path.abspath(os.path.expanduser(text))
    except FileNotFoundError as exc:
        raise ConfigError(
            f"The path '{text}' is relative, and the working directory it counts from was deleted. "
            "Give an absolute path, or change to a directory that is there."
        ) from exc


def use_file_systems(options: Options | Callable[[], Options]) -> None:
    """Make file systems of these schemes with these options from now on: credentials, endpoints and the like.

    For the whole process, as in Flink: of two jobs in one process the one that started last decides.

    Args:
        options: By scheme, or what tells them when the first remote path is met, unless they are known by then.
    """
    global _load
    if callable(options):
        _load = options
    else:
        _options.update(options)


def remote(path: str) -> tuple[Any, str]:
    """The fsspec file system of a path that is not local, and the path as that file system wants it.

    Args:
        path: A URI.

    Raises:
        ImportError: The driver of that scheme is not installed.
        ValueError: No file system has that scheme.
    """
    # Imported on use: local jobs, the common case, never pay for it.
    import fsspec

    global _load
    scheme = urlsplit(path).scheme
    if scheme not in _options:
        _options.update(_load())
        _load = dict
    options = _options.get(scheme, {})
    if scheme == "hdfs":
        web = _web_hdfs(path, options)
        if web is not None:
            return web, str(web._strip_protocol(path))
        # The native client is configured by Hadoop's own files.
        options = {}
    filesystem, name = fsspec.core.url_to_fs(path, **options)
    return filesystem, str(name)


def abandon(file: Any) -> None:
    """Close a remote file that is not complete; nothing is published where its file system can help it."""
    with suppress(Exception):
        if not hasattr(file, "discard"):
            file.close()
            return
        file.discard()
        # Else fsspec would upload what it holds when it is finalized, which waits for ever at the end of a process.
        file.closed = True


def _web_hdfs(path: str, options: Mapping[str, Any]) -> Any | None:
    """HDFS over HTTP, if the options name an address or Hadoop's native client is not there; else None."""
    parts = urlsplit(path)
    addresses = options.get("addresses", ())
    if not addresses:
        if _native_hdfs():
            return None
        if not parts.hostname:
            raise ValueError(
                "its URI names no host, and Hadoop's native client (libhdfs) is not installed. Set "
                "hdfs.webhdfs.address, or name the host as in hdfs://namenode:8020/path"
            )
        addresses = (f"http://{parts.hostname}:{_WEB_HDFS_PORT}",)
    from tidemark.webhdfs import WebHdfs

    return WebHdfs(parts.netloc, **{**options, "addresses": tuple(addresses)})


@cache
def _native_hdfs() -> bool:
    """Whether pyarrow finds Hadoop's native client."""
    from pyarrow.fs import HadoopFileSystem

    try:
        # It looks for the library before it looks for the host, which does not exist.
        HadoopFileSystem("tidemark.invalid", 1)
    except OSError as exc:
        return "Unable to load" not in str(exc)
    return True
