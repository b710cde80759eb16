"""A whole job whose queries are encrypted: who finds the certificates, and who is told the password."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.rpc.strangers import DEADLINE_S, until
from tests.unit.runtime.test_query_options import Forever, Last, Nowhere

from tidemark import Configuration, StreamExecutionEnvironment, Types, ValueStateDescriptor
from tidemark.cli.main import cli
from tidemark.config.loader import environment_variable
from tidemark.errors import ConfigError, UnknownKvStateError
from tidemark.jobs import JobRecord, find_job, registry_directory
from tidemark.queryablestate import QueryableStateClient
from tidemark.queryablestate import client as client_module

PASSWORD = "open-sesame"
PASSWORD_KEY = "security.ssl.internal.key-password"


@pytest.fixture
def settings(certificates: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Internal TLS with a key that is encrypted."""
    key = tmp_path / "node.key"
    shutil.copy(certificates["security.ssl.internal.key"], key)
    subprocess.run(
        ["openssl", "ec", "-aes128", "-in", key, "-out", key, "-passout", f"pass:{PASSWORD}"],
        check=True,
        capture_output=True,
    )
    internal = {name: value for name, value in certificates.items() if ".internal." in name}
    return {**internal, "security.ssl.internal.key": str(key), PASSWORD_KEY: PASSWORD}


def environment(settings: dict[str, str]) -> StreamExecutionEnvironment:
    configuration = {
        "execution.target": "local",
        "parallelism.default": "2",
        "queryable-state.enable": "true",
        "queryable-state.server.ports": "0",
        "queryable-state.proxy.ports": "0",
    }
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({**configuration, **settings})
    )
    keyed = env.add_source(Forever(), type_info=Types.LONG()).key_by(lambda n: n, Types.LONG())
    keyed.process(Last()).add_sink(Nowhere())
    return env


@pytest.fixture
def record(settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobRecord]:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    job = environment(settings).execute_async()
    yield find_job(job.get_job_id())
    job.cancel().result(DEADLINE_S)


def test_clients_of_this_machine_find_the_certificates_and_others_get_nothing(
    record: JobRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert record.query_port is not None
    monkeypatch.setattr(client_module, "_GRACE_S", 0.05)
    descriptor = ValueStateDescriptor("last", Types.LONG())

    def ask(tls: ssl.SSLContext | None) -> int | None:
        assert record.query_port is not None
        with QueryableStateClient("127.0.0.1", record.query_port, timeout=DEADLINE_S, tls=tls) as client:
            found = client.get_kv_states(record.job_id, "last", [1], Types.LONG(), descriptor).result()[0]
            return None if found is None else found.value()

    with pytest.raises(ConfigError, match=r"is encrypted. Set security\.ssl\.internal\.key-password"):
        ask(None)
    told = CliRunner().invoke(cli, ["query", record.job_id, "last", "1"])
    assert told.exit_code != 0
    assert PASSWORD_KEY in told.output

    # The files are those of the job's record; only the password has to be said.
    monkeypatch.setenv(environment_variable(PASSWORD_KEY), PASSWORD)
    until(lambda: ask(None) == 1)
    assert CliRunner().invoke(cli, ["query", record.job_id, "last", "1"]).exit_code == 0

    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.check_hostname = False
    nobody.verify_mode = ssl.CERT_NONE
    with pytest.raises(UnknownKvStateError, match="certificate"):
        ask(nobody)


def test_the_password_of_the_key_is_told_nowhere(record: JobRecord) -> None:
    info = CliRunner().invoke(cli, ["info", record.job_id, "--json"])
    files = [path for path in registry_directory().rglob("*") if path.is_file()]

    assert json.loads(info.stdout)["status"] == "RUNNING"
    assert PASSWORD not in info.output
    assert PASSWORD not in repr(record)
    assert len(files) >= 2, "a record and a log"
    assert not any(PASSWORD in path.read_text(errors="replace") for path in files)


def test_a_job_with_unusable_files_does_not_start(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="truststore"):
        environment({**settings, "security.ssl.internal.truststore": "/nowhere"}).execute_async()
