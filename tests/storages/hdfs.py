"""A real HDFS in a process of its own, behind a gate that can be shut."""

from __future__ import annotations

import getpass
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

from tests.gate import Gate

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "hdfs.sh"
USER = "the-user-of-the-tests"
PATIENCE_S = 300.0


def jars_present() -> bool:
    """Whether an HDFS can be started."""
    return subprocess.run([SCRIPT, "present"], check=False, capture_output=True).returncode == 0


class HdfsServer(Gate):
    """A name node and a data node; files live as long as it does. The gate is in front of the name node.

    URIs are those of Flink's documents: their host exists nowhere, requests go to `hdfs.webhdfs.address`.
    """

    authority = "namenode:40010"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        with (directory / "log").open("wb") as log:
            # It ends when its standard input does, so with this process at the latest.
            self._process = subprocess.Popen(
                [SCRIPT, "run", directory / "hdfs", str(port)], stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE_S
        while not (directory / "hdfs" / "details").exists():
            told = (directory / "log").read_text
            assert self._process.poll() is None, told()
            assert time.monotonic() < deadline, told()
            time.sleep(0.05)
        self.target = "127.0.0.1", port
        # Everybody may write in the root, as in a cluster in the directory of Flink's user.
        self.client().chmod("/", "777")
        self.token = str(self.client(USER).get_delegation_token(USER))
        self.secrets = (self.token,)
        self.cut = b""
        """The answer to the next request that has this in it gets lost."""
        self._lost: set[int] = set()

    def settings(self) -> dict[str, str]:
        """What a job needs to reach it."""
        return {"hdfs.webhdfs.address": f"http://{self.address}", "hdfs.webhdfs.token": self.token}

    def pass_on(self, number: int, source: socket.socket, sink: socket.socket, *, asks: bool) -> None:
        while data := source.recv(1 << 16):
            if asks and self.cut and self.cut in data:
                self.cut = b""
                self._lost.add(number)
            if number in self._lost and not asks:
                return
            sink.sendall(data)

    def new_root(self) -> str:
        """A directory nobody else has; its URI."""
        return f"hdfs://{self.authority}/flink/{uuid.uuid4().hex}"

    def objects(self, uri: str) -> dict[str, bytes]:
        """Path below a directory -> content of every file there."""
        client, root = self.client(), uri.partition(self.authority)[2]
        try:
            return {path.removeprefix(f"{root}/"): client.cat_file(path) for path in client.find(root)}
        except FileNotFoundError:
            return {}

    def client(self, user: str | None = None) -> Any:
        """A client that is not ours, past the gate; of the superuser, whom the server runs as, if of nobody else."""
        from fsspec.implementations.webhdfs import WebHDFS

        return WebHDFS(*self.target, user=user or getpass.getuser(), skip_instance_cache=True)

    def close(self) -> None:
        """End it."""
        super().close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
