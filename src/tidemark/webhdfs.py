"""HDFS over HTTP (WebHDFS, HttpFS) as a file system of fsspec, for machines without Hadoop's native client.

What a name node does in one step is used so: a file is uploaded under a hidden name and renamed, so it is there as a
whole or not at all, and of many who create the same file exactly one does. A request that was not answered is sent
again, with growing pauses, to the next address if there are several (a standby name node refuses); that is safe
because every request here can be repeated, and a rename that found its source gone is recognised by the
number of the file. Errors are `OSError`s that name the path, never the address, which may have a token in it.

fsspec has a class for WebHDFS of its own. It has no timeout, tries once, takes a refused rename for a success and
an error page of a data node for content, and cannot create exclusively.
"""

from __future__ import annotations

import errno
import http.client
import io
import json
import random
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any, NamedTuple, NoReturn, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

__all__ = ["WebHdfs"]

_T = TypeVar("_T")

_TIMEOUT_S = 60.0
"""For an answer; also of a data node that writes a large file to its disks."""
_LONGEST_PAUSE_S = 8.0
_IN_MEMORY = 16 << 20
"""Of a file that is being written; the rest waits on the local disk until the file is complete."""
_ANSWER_LIMIT = 1 << 16
"""Bytes of an error that are looked at."""

_ERRORS = {
    "FileNotFoundException": (FileNotFoundError, errno.ENOENT),
    "FileAlreadyExistsException": (FileExistsError, errno.EEXIST),
    "ParentNotDirectoryException": (NotADirectoryError, errno.ENOTDIR),
    "PathIsNotEmptyDirectoryException": (OSError, errno.ENOTEMPTY),
    "AccessControlException": (PermissionError, errno.EACCES),
    "SecurityException": (PermissionError, errno.EACCES),
    "AuthenticationException": (PermissionError, errno.EACCES),
    "NSQuotaExceededException": (OSError, errno.EDQUOT),
    "DSQuotaExceededException": (OSError, errno.EDQUOT),
}
_PASSING = frozenset({"StandbyException", "SafeModeException", "RetriableException", "IOException"})
"""What a name node says while it starts, waits for its data nodes, or is not the one in charge."""


class WebHdfs(AbstractFileSystem):  # type: ignore[misc]
    """Files of one HDFS.

    Args:
        authority: Host and port as in `hdfs://` URIs of this file system.
        addresses: Where WebHDFS is served, `http://host:port` or `https://...`, one for each name node.
        user: Who asks, where the server believes it; without it the server takes a user of its own.
        token: A delegation token, which says who asks.
        patience_s: How long an outage may last.
    """

    protocol = "webhdfs"
    root_marker = "/"

    def __init__(
        self,
        authority: str,
        addresses: Sequence[str],
        user: str | None = None,
        token: str | None = None,
        patience_s: float = 45.0,
        **options: Any,
    ) -> None:
        if self._cached:
            return
        super().__init__(**options)
        self._authority = authority
        self._addresses = tuple(address.rstrip("/") for address in addresses)
        self._current = 0
        self._patience_s = patience_s
        self._who = {"delegation": token} if token else {"user.name": user} if user else {}

    # -- names ---------------------------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        # Not taken apart as an address of the web: a name may have a question mark in it.
        plain = path.partition("://")[2].partition("/")[2] if "://" in path else path
        return "/" + plain.strip("/")

    def unstrip_protocol(self, name: str) -> str:
        """The URI of a path."""
        return f"hdfs://{self._authority}{self._strip_protocol(name)}"

    # -- looking -------------------------------------------------------------------------------------------------

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        """What is at a path."""
        path = self._strip_protocol(path)
        return _entry(path, self._ask("GET", path, "GETFILESTATUS").json()["FileStatus"])

    def exists(self, path: str, **_options: Any) -> bool:
        """Whether something is there; unlike fsspec's own, an outage is no "no"."""
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def isdir(self, path: str) -> bool:
        """Whether a directory is there."""
        return self.exists(path) and self.info(path)["type"] == "directory"

    def isfile(self, path: str) -> bool:
        """Whether a file is there."""
        return self.exists(path) and self.info(path)["type"] == "file"

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        """What is in a directory; a file lists itself."""
        path = self._strip_protocol(path)
        found = self._ask("GET", path, "LISTSTATUS").json()["FileStatuses"]["FileStatus"]
        entries = [_entry(f"{path.rstrip('/')}/{each['pathSuffix']}".rstrip("/"), each) for each in found]
        return entries if detail else [entry["name"] for entry in entries]

    def modified(self, path: str) -> float:
        """Seconds since the epoch."""
        return float(self.info(path)["mtime"])

    # -- reading -------------------------------------------------------------------------------------------------

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_options: Any) -> bytes:
        """The bytes of a file."""
        if start is None and end is None:
            return self._ask("GET", self._strip_protocol(path), "OPEN").content
        return bytes(super().cat_file(path, start, end))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Some bytes of a file that is at least so long."""
        content = self._ask("GET", path, "OPEN", offset=start, length=end - start).content
        if len(content) != end - start:
            raise OSError(errno.EIO, f"{len(content)} bytes came instead of {end - start}", path)
        return content

    # -- writing -------------------------------------------------------------------------------------------------

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> Any:
        path = self._strip_protocol(path)
        if mode == "rb":
            options.pop("autocommit", None)
            return _Download(self, path, mode, block_size or "default", **options)
        if mode not in ("wb", "xb"):
            raise ValueError(f"HDFS files are written as a whole, not in mode '{mode}'.")
        return _Upload(self, path, exclusive=mode == "xb", make_parents=options.get("make_parents", True))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Put a whole file in one step."""
        self.put(
            self._strip_protocol(path),
            io.BytesIO(value),
            exclusive=mode == "create",
            make_parents=options.get("make_parents", True),
        )

    def put(self, path: str, content: IO[bytes], *, exclusive: bool, make_parents: bool) -> None:
        """Put what a seekable file holds, in one step.

        Args:
            path: Where.
            content: What; it is read from its beginning, as often as it takes.
            exclusive: Never in the place of a file that is there.
            make_parents: Whether directories of the path that are missing are made.

        Raises:
            FileExistsError: It is there, and `exclusive`.
            FileNotFoundError: A directory is missing, and must not be made.
        """
        directory, _, name = path.rpartition("/")
        temporary = f"{directory}/.{name}.{secrets.token_hex(8)}.tmp"
        try:
            parents = "true" if make_parents else "false"
            self._ask("PUT", temporary, "CREATE", content, overwrite="true", createparent=parents)
            self._rename(temporary, path, replace=not exclusive)
        except BaseException:
            # It may be there although nobody said so. One try: what it costs is a hidden file.
            with suppress(OSError, _NotAnsweredError):
                self._once("DELETE", temporary, "DELETE", None, {"recursive": "false"})
            raise

    def mkdir(self, path: str, create_parents: bool = True, **_options: Any) -> None:
        """Make a directory and those above it; one that is there is no error."""
        self.makedirs(path, exist_ok=True)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and those above it."""
        path = self._strip_protocol(path)
        if not exist_ok and self.exists(path):
            raise FileExistsError(errno.EEXIST, "is there already", path)
        if self._ask("PUT", path, "MKDIRS").refused:
            raise OSError(errno.EIO, "could not be made", path)

    def chmod(self, path: str, mode: int) -> None:
        """Say who may read and write."""
        self._ask("PUT", self._strip_protocol(path), "SETPERMISSION", permission=f"{mode:o}")

    def mv(self, path1: str, path2: str, **_options: Any) -> None:
        """Rename a file or directory in one step; a file that has the new name already is replaced."""
        self._rename(self._strip_protocol(path1), self._strip_protocol(path2), replace=True)

    def rm_file(self, path: str) -> None:
        """Delete a file; a missing one is no error."""
        self.rm(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files or directories; missing ones are no error."""
        for each in path if isinstance(path, list) else [path]:
            self._ask(
                "DELETE", self._strip_protocol(each), "DELETE", recursive="true" if recursive else "false"
            )

    def rmdir(self, path: str) -> None:
        """Delete a directory unless something is in it."""
        self.rm(path)

    def _rename(self, source: str, target: str, *, replace: bool) -> None:
        moved = self.info(source)["file_id"]
        options = "OVERWRITE" if replace else "NONE"
        try:
            answer = self._ask("PUT", source, "RENAME", destination=target, renameoptions=options)
        except (FileNotFoundError, FileExistsError):
            # Said to a second request, if nobody heard the answer to the first one.
            if self._is_at(target, moved):
                return
            raise
        if answer.refused and not self._is_at(target, moved):
            # HttpFS knows no options.
            if not self.exists(target):
                raise FileNotFoundError(errno.ENOENT, "or the directory it should go to is missing", source)
            if not replace:
                raise FileExistsError(errno.EEXIST, "is there already", target)
            self.rm(target)
            if self._ask("PUT", source, "RENAME", destination=target).refused:
                raise OSError(errno.EIO, f"could not be renamed to {target}", source)

    def _is_at(self, path: str, file_id: Any) -> bool:
        try:
            return file_id is not None and self.info(path)["file_id"] == file_id
        except FileNotFoundError:
            return False

    # -- requests ------------------------------------------------------------------------------------------------

    def _ask(
        self, method: str, path: str, operation: str, body: IO[bytes] | None = None, **parameters: Any
    ) -> _Answer:
        """The answer to a request, which is repeated until there is one."""
        return self._persist(path, lambda: self._once(method, path, operation, body, parameters))

    def _persist(self, path: str, attempt: Callable[[], _T]) -> _T:
        deadline = time.monotonic() + self._patience_s
        pause = 0.1
        while True:
            try:
                return attempt()
            except _NotAnsweredError as exc:
                self._current = (self._current + 1) % len(self._addresses)
                if time.monotonic() + pause > deadline:
                    why = f"HDFS does not answer over WebHDFS ({exc})"
                    raise ConnectionError(errno.ECONNREFUSED, why, path) from None
            # Not all of a job's processes at once.
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _once(
        self, method: str, path: str, operation: str, body: IO[bytes] | None, parameters: dict[str, Any]
    ) -> _Answer:
        query = urlencode({"op": operation, **self._who, **parameters})
        address = f"{self._addresses[self._current]}/webhdfs/v1{quote(path)}?{query}"
        answer = _exchange(method, address, None)
        if answer.status == http.client.TEMPORARY_REDIRECT:
            # To a data node, which takes and gives the content.
            answer = _exchange(method, answer.location, body)
        if answer.status >= 300:
            _raise(answer, path)
        return answer


class _NotAnsweredError(Exception):
    """A request that may be sent again."""


class _Answer(NamedTuple):
    status: int
    location: str
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def refused(self) -> bool:
        """Whether it is the plain "no" that some operations are answered with."""
        return self.content.startswith(b"{") and self.json().get("boolean") is False


def _exchange(method: str, address: str, body: IO[bytes] | None) -> _Answer:
    """Send one request over a connection of its own and read the answer."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _NotAnsweredError("the name node names a data node without an address")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    headers = {"Content-Type": "application/octet-stream"}
    if body is not None:
        headers["Content-Length"] = str(body.seek(0, io.SEEK_END))
        body.seek(0)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", body, headers)
        response = connection.getresponse()
        content = response.read(_ANSWER_LIMIT if response.status >= 300 else None)
        return _Answer(response.status, response.headers.get("Location", ""), content)
    except (OSError, http.client.HTTPException) as exc:
        raise _NotAnsweredError(f"{type(exc).__name__}: {exc}") from None
    finally:
        connection.close()


def _raise(answer: _Answer, path: str) -> NoReturn:
    """The error that an answer is."""
    try:
        remote = answer.json()["RemoteException"]
        name, message = str(remote["exception"]), str(remote["message"]).partition("\n")[0]
    except (ValueError, KeyError, TypeError):
        name, message = "", f"HTTP status {answer.status}"
    if name in _ERRORS:
        kind, number = _ERRORS[name]
        raise kind(number, message, path)
    if name in _PASSING or answer.status in (408, 429) or answer.status >= 500:
        raise _NotAnsweredError(f"{name}: {message}" if name else message)
    raise OSError(errno.EIO, f"{name}: {message}" if name else message, path)


def _entry(path: str, status: dict[str, Any]) -> dict[str, Any]:
    """A file status in fsspec's words."""
    return {
        "name": path,
        "type": "directory" if status["type"] == "DIRECTORY" else "file",
        "size": int(status["length"]),
        "mtime": status["modificationTime"] / 1000,
        "file_id": status.get("fileId"),
    }


class _Download(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read in blocks."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.read_range(self.path, start, end)  # type: ignore[no-any-return]


class _Upload(io.RawIOBase):
    """A file that is there once it is closed; a block that raised, and being forgotten, leave nothing."""

    def __init__(self, fs: WebHdfs, path: str, *, exclusive: bool, make_parents: bool) -> None:
        self._fs, self._path = fs, path
        self._exclusive, self._make_parents = exclusive, make_parents
        self._content = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - `close` closes it

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._content.write(data)

    def tell(self) -> int:
        return self._content.tell()

    def discard(self) -> None:
        """Close it, and let there be no file."""
        self._content.close()
        super().close()

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        self.discard()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._fs.put(
                self._path, self._content, exclusive=self._exclusive, make_parents=self._make_parents
            )
        finally:
            self.discard()
