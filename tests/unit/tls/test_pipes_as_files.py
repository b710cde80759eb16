"""What is named as a file of TLS and is none: refused, not waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemark.errors import ConfigError
from tidemark.tls import TlsFiles


def test_a_pipe_in_the_place_of_a_certificate_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.pem"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="is no PEM file"):
        TlsFiles("security.ssl.internal.", str(pipe)).server()
