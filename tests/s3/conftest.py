from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.s3.server import S3Server

from tidemark import Configuration
from tidemark.config.file_systems import file_system_options
from tidemark.paths import use_file_systems


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    made = S3Server()
    yield made
    made.close()


@pytest.fixture
def s3(server: S3Server) -> Iterator[S3Server]:
    """The server, and this process as one that may use it."""
    server.refused.clear()
    use_file_systems(file_system_options(Configuration.from_dict(server.settings())))
    yield server
    server.open()
    use_file_systems(file_system_options(Configuration()))
