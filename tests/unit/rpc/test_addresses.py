"""Directories for unix sockets: private, short, and gone when they are no longer needed."""

from __future__ import annotations

import stat
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

from tidemark.rpc import socket_base, socket_directory
from tidemark.wire import listen


@pytest.mark.parametrize("length", [10, 50, 51, 300])
def test_a_socket_fits_whatever_the_directory_for_temporary_files_is(monkeypatch, tmp_path, length):
    base = Path("/tmp") / ("x" * (length - len("/tmp/")))
    monkeypatch.setattr(tempfile, "tempdir", str(base))

    directory = f"{socket_base()}/tidemark-01234567-driver-abcdefgh"

    assert len(f"{directory}/control.sock") < 100
    assert socket_base() == (str(base) if length <= 50 else "/tmp")


@pytest.mark.parametrize("length", [36, 37, 50])
def test_sockets_that_spark_names_fit_too(monkeypatch, length):
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * (length - len("/tmp/")))

    base = socket_base(36)

    assert len(f"{base}/tidemark-workers-abcdefgh/.{uuid.uuid4()}.sock") <= 107
    assert (base == "/tmp") == (length > 36)


def test_the_directory_is_for_its_owner_only_and_goes_at_cleanup():
    directory = socket_directory("0123456789abcdef")
    listener, _address = listen(f"unix:{directory.name}/control.sock")

    assert Path(directory.name).name.startswith("tidemark-01234567-driver-")
    assert stat.S_IMODE(Path(directory.name).stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(directory.name, "control.sock").stat().st_mode) == 0o600
    listener.close()
    directory.cleanup()
    assert not Path(directory.name).exists()


def test_the_directory_of_a_killed_driver_goes_when_the_next_one_starts():
    script = (
        "import os\n"
        "from tidemark.rpc import socket_directory\n"
        "directory = socket_directory('dead' * 8)\n"
        "print(directory.name, flush=True)\n"
        "os._exit(9)\n"
    )
    name = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip()
    assert Path(name).is_dir()

    socket_directory("0123456789abcdef").cleanup()

    assert not Path(name).exists()
