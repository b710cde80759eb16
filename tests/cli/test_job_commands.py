"""Commands that talk to a running job, in this process and through its real control endpoint."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.cli.conftest import DEADLINE_S, Command, Forward, process_environment, until, until_processed
from tests.unit.rpc.strangers import GARBAGE, is_dropped, stranger

from tidemark.jobs import JobRecord, find_job, list_jobs, write_record
from tidemark.runtime.control import live_jobs
from tidemark.runtime.control_client import ControlClient, JobUnreachableError
from tidemark.runtime.history import read_history


def test_a_running_job_is_listed_with_id_name_and_status(tide: Command, running_job: str) -> None:
    result = tide("list", "-r")

    assert result.exit_code == 0
    assert result.stdout.rstrip().endswith(f" : {running_job} : counting (RUNNING)")
    assert result.stdout.count("\n") == 1


def test_a_scheduled_or_foreign_job_is_not_the_running_one(tide: Command, running_job: str) -> None:
    assert tide("list", "-s").stdout == "There are no such jobs.\n"
    assert tide("list", "-yid", "app-1").stdout == "There are no such jobs.\n"


def test_options_may_stand_before_and_after_the_command(tide: Command, running_job: str) -> None:
    before, after = tide("--json", "list"), tide("list", "--json")

    assert [job["job_id"] for job in json.loads(before.stdout)] == [running_job]
    assert before.stdout == after.stdout


def test_a_job_is_found_by_a_unique_prefix(tide: Command, running_job: str) -> None:
    until_processed(running_job)

    result = tide("info", running_job[:6], "--json")

    facts = json.loads(result.stdout)
    assert facts["job_id"] == running_job
    assert facts["status"] == "RUNNING"
    assert [node["uid"] for node in facts["nodes"]] == ["numbers", "count", "out"]
    assert [sink["guarantee"] for sink in facts["sinks"]] == ["at-least-once"]
    assert facts["progress"]["records"] > 0
    shown = tide("info", running_job).stdout
    assert f"Id                 {running_job}" in shown


def test_info_tells_what_every_operator_does(tide: Command, running_job: str) -> None:
    def counted() -> int:
        facts = json.loads(tide("info", running_job, "--json").stdout)
        counting = next(operator for operator in facts["operators"] if operator["uid"] == "count")
        assert counting["lag_ms"] is counting["watermark"] is None
        return int(counting["records_in"])

    # What is told is up to a second old.
    until(lambda: counted() > 0)
    shown = tide("info", running_job).stdout
    assert re.search(r"^OPERATOR +RECORDS IN +OUT +IN/S +OUT/S +WATERMARK +BEHIND$", shown, re.MULTILINE)
    assert re.search(r"^KEYED PROCESS +[1-9]", shown, re.MULTILINE)


def test_an_unknown_job_has_its_own_exit_code(tide: Command, running_job: str) -> None:
    for command in ("info", "checkpoints", "savepoint", "cancel", "stop"):
        result = tide(command, "ffffffffffffffffffffffffffffffff")

        assert result.exit_code == 3
        assert "No job 'ffffffffffffffffffffffffffffffff'" in result.stderr
        assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback(tide: Command) -> None:
    assert "Traceback" in tide("info", "nope", "--debug").stderr


def test_a_savepoint_prints_its_path_and_the_job_goes_on(
    tide: Command, running_job: str, tmp_path: Path
) -> None:
    result = tide("savepoint", running_job, tmp_path / "sp")

    path = Path(result.stdout.strip())
    assert result.exit_code == 0
    assert path.parent == tmp_path / "sp"
    assert path.name.startswith(f"savepoint-{running_job[:6]}-")
    assert (path / "_metadata").is_file()
    assert running_job in tide("list").stdout


def test_a_savepoint_that_fails_leaves_the_job_unharmed(
    tide: Command, running_job: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")

    no_directory = tide("savepoint", running_job)
    not_writable = tide("savepoint", running_job, tmp_path / "file" / "below")

    assert no_directory.exit_code == 2
    assert "No savepoint directory is known" in no_directory.stderr
    assert not_writable.exit_code == 4
    assert "(RUNNING)" in tide("list").stdout


def test_checkpoints_list_the_savepoint_too(tide: Command, running_job: str, tmp_path: Path) -> None:
    path = tide("savepoint", running_job, tmp_path / "sp").stdout.strip()

    records = json.loads(tide("checkpoints", running_job, "--json").stdout)

    (savepoint,) = [record for record in records if record["type"] == "savepoint"]
    assert savepoint["directory"] == path
    assert savepoint["status"] == "completed"
    assert tide("checkpoints", running_job).stdout.startswith("ID  TYPE")


def test_a_stopped_job_finishes_and_moves_to_the_history(
    tide: Command, running_job: str, tmp_path: Path
) -> None:
    until_processed(running_job)

    result = tide("stop", "-p", tmp_path / "sp", running_job)

    assert result.exit_code == 0
    assert (Path(result.stdout.strip()) / "_metadata").is_file()
    assert tide("list").stdout == "There are no such jobs.\n"
    assert tide("list", "-a").stdout.rstrip().endswith(f" : {running_job} : counting (FINISHED)")
    assert "Status             FINISHED" in tide("info", running_job[:8]).stdout


def test_a_drained_job_finishes(tide: Command, running_job: str, tmp_path: Path) -> None:
    assert tide("stop", "-d", "-p", tmp_path, running_job).exit_code == 0
    assert [job.status for job in read_history()] == ["FINISHED"]


def test_a_job_is_cancelled(tide: Command, running_job: str) -> None:
    result = tide("cancel", running_job)

    assert result.exit_code == 0
    assert result.stdout == f"Job {running_job} was cancelled.\n"
    assert [job.status for job in read_history()] == ["CANCELED"]


def test_cancel_with_a_savepoint_takes_the_last_argument_as_the_job(
    tide: Command, running_job: str, tmp_path: Path
) -> None:
    refused = tide("cancel", "-s", running_job)
    result = tide("cancel", "-s", tmp_path / "sp", running_job)

    assert refused.exit_code == 2
    assert result.exit_code == 0
    assert (Path(result.stdout.strip()) / "_metadata").is_file()
    assert [job.status for job in read_history()] == ["CANCELED"]


def test_a_directory_without_s_is_refused(tide: Command, running_job: str) -> None:
    assert tide("cancel", "/tmp/x", running_job).exit_code == 2
    assert "(RUNNING)" in tide("list").stdout


def test_savepoint_needs_a_job_or_a_path_to_dispose(tide: Command) -> None:
    assert tide("savepoint").exit_code == 2
    assert tide("savepoint", "-d", "/nowhere", "job").exit_code == 2


def test_a_remote_job_is_reached_by_address_and_token(
    tide: Command, running_job: str, forward: Forward, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = find_job(running_job)
    # What `ssh -L` does for a job on a local master, whose endpoint is a unix socket.
    address = forward(record.control_address.removeprefix("unix:"))
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "another machine"))

    without_token = tide("info", "--address", address, running_job)
    monkeypatch.setenv("TIDEMARK_TOKEN", record.token)
    listed = tide("list", "--address", address)
    found = tide("--address", address, "info", running_job[:5], "--json")
    wrong_job = tide("--address", address, "info", "0000000000")
    monkeypatch.setenv("TIDEMARK_TOKEN", "00" * 32)
    wrong_token = tide("--address", address, "info", running_job)

    assert without_token.exit_code == 2
    assert running_job in listed.stdout
    assert json.loads(found.stdout)["job_id"] == running_job
    assert wrong_job.exit_code == 3
    assert wrong_token.exit_code == 8
    assert wrong_token.stdout == ""


@pytest.mark.parametrize("address", ["nonsense", "host:", "host:99999", ":1"])
def test_a_malformed_address_is_a_usage_error(tide: Command, address: str) -> None:
    assert tide("list", "--address", address).exit_code == 2


def test_the_control_endpoint_of_a_local_job_is_a_socket_for_its_owner_only(running_job: str) -> None:
    path = Path(find_job(running_job).control_address.removeprefix("unix:"))

    assert path.is_socket()
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("port", ["control", "proxy", "server"])
def test_garbage_ends_no_server_of_a_running_job(tide: Command, running_job: str, port: str) -> None:
    until_processed(running_job, 100)
    record = find_job(running_job)
    assert tide("query", running_job, "counts", "3").exit_code == 0
    if port == "server":
        addresses = own_ports() - {record.query_port}
    else:
        addresses = {record.control_address if port == "control" else record.query_port}

    assert addresses
    for address in addresses:
        wanted = address if isinstance(address, str) else f"tcp:127.0.0.1:{address}"
        for garbage in GARBAGE.values():
            with stranger(wanted) as sock:
                sock.sendall(garbage)
                until(lambda sock=sock: is_dropped(sock))  # type: ignore[misc]

    assert tide("info", running_job).exit_code == 0
    assert tide("query", running_job, "counts", "3").exit_code == 0


def own_ports() -> set[int]:
    """TCP ports this process listens on."""
    connections = psutil.Process().net_connections("tcp")
    return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}


def test_a_flood_that_uses_up_the_drivers_descriptors_ends_none_of_its_servers(
    tide: Command, program: Callable[..., Path]
) -> None:
    limit = f'ulimit -n 60; exec {sys.executable} -m tidemark.cli "$@"'
    options = ["-D", "execution.target=local", "-D", "queryable-state.enable=true"]
    path = program(execute="env.execute", sink="add_sink(Nowhere())")
    command = ["bash", "-c", limit, "tidemark", "run", *options, str(path)]
    driver = subprocess.Popen(command, env=process_environment(), stderr=subprocess.PIPE, text=True)
    log: list[str] = []
    threading.Thread(target=lambda: log.extend(driver.stderr or ()), daemon=True).start()
    try:
        until(lambda: bool(list_jobs()))
        (record,) = list_jobs()
        until_processed(record.job_id, 100)

        with contextlib.ExitStack() as flood:
            for address in [record.control_address, f"tcp:127.0.0.1:{record.query_port}"]:
                for _ in range(60):
                    flood.enter_context(stranger(address))
            until(lambda: "Too many open files" in "".join(log))

        assert tide("info", record.job_id).exit_code == 0
        assert tide("query", record.job_id, "counts", "3").exit_code == 0
        assert tide("cancel", record.job_id).exit_code == 0
        driver.wait(DEADLINE_S)
    finally:
        driver.kill()
        driver.wait()


def test_the_record_of_a_job_is_for_its_owner_only(running_job: str, home: Path) -> None:
    assert (home / f"{running_job}.json").stat().st_mode & 0o077 == 0


def test_a_job_that_does_not_answer_is_listed_as_unreachable(tide: Command, running_job: str) -> None:
    record = find_job(running_job)
    dead = JobRecord("f" * 32, "dead", record.pid, "tcp:127.0.0.1:1", "00", None, record.start_time)
    write_record(dead)

    assert f"{'f' * 32} : dead (UNREACHABLE)" in tide("list").stdout
    assert tide("info", "ffff").exit_code == 8
    with pytest.raises(JobUnreachableError, match="no control address"):
        ControlClient.of_record(JobRecord("e" * 32, "x", 1, "", "00", None, 0))


def test_a_request_the_job_does_not_know_is_an_error(running_job: str) -> None:
    with ControlClient.find(running_job) as client, pytest.raises(ValueError, match="does not know"):
        client.request("dance")


def test_everything_is_withdrawn_when_the_job_ends(tide: Command, running_job: str) -> None:
    record = find_job(running_job)

    tide("cancel", running_job)
    until(lambda: not live_jobs())

    assert list_jobs() == []
    with pytest.raises(JobUnreachableError):
        ControlClient.of_record(record)


def test_a_key_is_queried_by_the_type_of_the_jobs_keys(tide: Command, running_job: str) -> None:
    until_processed(running_job, 100)

    result = tide("query", running_job[:6], "counts", "3", "--json")

    answer = json.loads(result.stdout)
    assert answer["key"] == 3
    assert answer["value"] > 0
    assert int(tide("query", running_job, "counts", "3").stdout) >= answer["value"]


def test_queries_that_cannot_be_answered_say_why(tide: Command, running_job: str) -> None:
    until_processed(running_job, 100)

    unknown_name = tide("query", running_job, "nope", "3")
    unknown_key = tide("query", running_job, "counts", "77")
    not_a_key = tide("query", running_job, "counts", "seven")

    assert (unknown_name.exit_code, unknown_key.exit_code, not_a_key.exit_code) == (6, 6, 2)
    assert "published: counts" in unknown_name.stderr
    assert "no value for key 77" in unknown_key.stderr
