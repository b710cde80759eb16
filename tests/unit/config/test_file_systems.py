"""What the configuration says of HDFS; of S3 it is in tests/storages."""

from __future__ import annotations

import pytest

from tidemark import Configuration
from tidemark.config.file_systems import file_system_options
from tidemark.errors import ConfigError
from tidemark.redaction import is_secret
from tidemark.webhdfs import WebHdfs


def options(address: str) -> dict[str, object]:
    return file_system_options(Configuration.from_dict({"hdfs.webhdfs.address": address}))["hdfs"]


def test_addresses_are_listed_with_commas() -> None:
    assert options("http://one:9870, https://two:9871")["addresses"] == (
        "http://one:9870",
        "https://two:9871",
    )


@pytest.mark.parametrize(
    "address", ["namenode:9870", "hdfs://namenode:8020", "http://", "http://host/webhdfs"]
)
def test_what_is_no_address_of_a_web_server_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"hdfs\.webhdfs\.address .* is no address of a server"):
        options(address)


def test_an_outage_without_end_is_an_error_that_names_the_path_and_no_token() -> None:
    filesystem = WebHdfs("namenode", ["http://127.0.0.1:1"], token="the-token", patience_s=0.01)

    with pytest.raises(ConnectionError, match="'/a/b'") as caught:
        filesystem.info("hdfs://namenode/a/b")

    assert "the-token" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    assert is_secret("hdfs.webhdfs.token")
