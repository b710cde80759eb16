"""A real S3 server in a process of its own, behind a gate that can be shut."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from typing import Any
from urllib.parse import urlsplit

from tests.gate import Gate

ACCESS, SECRET = "AKIA-OF-THE-TESTS", "the-secret-of-the-tests"


class S3Server(Gate):
    """Moto's server; objects live as long as it does."""

    def __init__(self) -> None:
        super().__init__()
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
        address = urlsplit(told[-1].split()[-1])
        assert address.hostname is not None
        assert address.port is not None
        self.target = address.hostname, address.port
        self.endpoint = f"http://{self.address}"
        self.secrets = (ACCESS, SECRET)

    def settings(self) -> dict[str, str]:
        """What a job needs to reach it."""
        return {"s3.endpoint": self.endpoint, "s3.access-key": ACCESS, "s3.secret-key": SECRET}

    def new_root(self) -> str:
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

        endpoint = "http://{}:{}".format(*self.target)
        keys = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET}
        return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)

    def close(self) -> None:
        """End the server."""
        super().close()
        self._process.kill()
        self._process.wait()
