"""A real S3 server in a process of its own, behind a gate that can be shut."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import uuid
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

ACCESS, SECRET = "AKIA-OF-THE-TESTS", "the-secret-of-the-tests"


class S3Server:
    """Moto's server; objects live as long as it does."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        told: list[str] = []
        for line in self._process.stdout:
            told.append(line)
            if "Running on" in line:
                break
        else:
            raise AssertionError("".join(told))
        # Whoever does not read on would stop the server when the pipe is full.
        threading.Thread(target=self._process.stdout.read, daemon=True).start()
        self._target = urlsplit(told[-1].split()[-1])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_shut = False
        self.refused = threading.Event()
        """Somebody came while it was shut."""
        threading.Thread(target=self._accept, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def settings(self) -> dict[str, str]:
        """What a job needs to reach it."""
        return {"s3.endpoint": self.endpoint, "s3.access-key": ACCESS, "s3.secret-key": SECRET}

    def new_bucket(self) -> str:
        """A bucket nobody else has; its URI."""
        name = f"b-{uuid.uuid4().hex}"
        self.client().create_bucket(Bucket=name)
        return f"s3://{name}"

    def objects(self, uri: str) -> dict[str, bytes]:
        """Key -> content of everything in a bucket."""
        client, bucket = self.client(), urlsplit(uri).netloc
        found = client.list_objects_v2(Bucket=bucket).get("Contents", [])
        return {
            each["Key"]: client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read() for each in found
        }

    def client(self) -> Any:
        """Amazon's own client, past the gate."""
        import boto3

        keys = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET}
        return boto3.client("s3", endpoint_url=self._target.geturl(), region_name="us-east-1", **keys)

    def shut(self) -> None:
        """Cut every connection and refuse new ones; `open` ends that."""
        self._is_shut = True
        with self._lock:
            sockets = list(self._sockets)
        for one in sockets:
            _close(one)

    def open(self) -> None:
        """Let connections through again."""
        self._is_shut = False

    def close(self) -> None:
        """End the server."""
        self._listener.close()
        self.shut()
        self._process.kill()
        self._process.wait()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_shut:
                self.refused.set()
                client.close()
                continue
            server = socket.create_connection((self._target.hostname, self._target.port))
            with self._lock:
                self._sockets |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for one in (source, sink):
            _close(one)
            with self._lock:
                self._sockets.discard(one)


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
