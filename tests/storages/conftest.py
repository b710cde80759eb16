"""Real servers that checkpoints may lie in: one of each kind for each test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.storages.hdfs import HdfsServer, jars_present
from tests.storages.s3 import S3Server

from tidemark import Configuration
from tidemark.config.file_systems import file_system_options
from tidemark.paths import use_file_systems

Store = S3Server | HdfsServer

MISSING = "HDFS TESTS DO NOT RUN: the jars of an HDFS are not there (scripts/ensure_hdfs.sh)"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    made = S3Server()
    yield made
    made.close()


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    if not jars_present():
        pytest.skip(MISSING)
    made = HdfsServer(tmp_path_factory.mktemp("hdfs"))
    yield made
    made.close()


def _used(server: Store) -> Iterator[Store]:
    """The server, and this process as one that may use it."""
    server.refused.clear()
    use_file_systems(file_system_options(Configuration.from_dict(server.settings())))
    yield server
    server.open()
    use_file_systems(file_system_options(Configuration()))


@pytest.fixture(params=["s3", pytest.param("hdfs", marks=pytest.mark.hdfs)])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each kind of server, for what must hold for all of them."""
    yield from _used(request.getfixturevalue(f"{request.param}_server"))


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[Store]:
    """For what only S3 has."""
    yield from _used(s3_server)


@pytest.fixture
def hdfs(hdfs_server: HdfsServer) -> Iterator[Store]:
    """For what only HDFS has; its tests are marked `hdfs`."""
    yield from _used(hdfs_server)
