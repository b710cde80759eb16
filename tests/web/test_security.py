"""Who may ask: tokens, pages of other sites, names, headers."""

from __future__ import annotations

import logging
import select
import socket
import ssl
from pathlib import Path

import httpx
import pytest
from tests.web import jobs
from tests.web.conftest import DEADLINE_S, Site, Start, until

from tidemark.errors import ConfigError
from tidemark.runtime.control import live_jobs
from tidemark.web.application import ROUTES
from tidemark.web.tls_gate import MOST_HANDSHAKES

TOKEN = "a-token-nobody-guesses"


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_that_others_can_reach_is_refused_without_a_token(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match=r"rest\.token"):
        jobs.start(tmp_path, {"rest.bind-address": address})

    assert live_jobs() == []


def test_with_a_token_nothing_is_told_to_those_who_do_not_know_it(start: Start) -> None:
    site = start({"rest.bind-address": "0.0.0.0", "rest.token": TOKEN}, Authorization=f"Bearer {TOKEN}")
    port = site.address.rpartition(":")[2]
    stranger = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S)

    with stranger:
        paths = ["/v1/jobs", "/metrics", "/v1/events", f"/v1/jobs/{site.job_id}", "/jobmanager/config"]
        for path in paths:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
                answer = stranger.get(path, headers=headers)
                assert answer.status_code == 401, path
                assert "token" in answer.json()["errors"][0]
        assert stranger.patch(f"/v1/jobs/{site.job_id}").status_code == 401
        assert stranger.get("/").headers["location"] == "/login"
        known = stranger.get("/v1/jobs", headers={"Authorization": f"Bearer {TOKEN}"})
        assert known.json()["jobs"] == [{"id": site.job_id, "status": "RUNNING"}]


def test_a_token_of_odd_characters_gets_through_the_cookie(start: Start) -> None:
    token = 'a; "b"=%41\\, \u00e9'
    site = start({"rest.token": token})

    with httpx.Client(base_url=site.address, timeout=DEADLINE_S) as browser:
        assert browser.post("/login", data={"token": token}).status_code == 303
        assert browser.get("/v1/jobs").status_code == 200


def test_the_login_form_sets_a_cookie_that_scripts_and_other_sites_do_not_get(start: Start) -> None:
    site = start({"rest.token": TOKEN}, Authorization=f"Bearer {TOKEN}")

    with httpx.Client(base_url=site.address, timeout=DEADLINE_S) as browser:
        assert browser.post("/login", data={"token": "wrong"}).status_code == 401
        assert browser.post("/login", data={"token": "x" * 10_000}).status_code == 413
        assert browser.get("/v1/jobs").status_code == 401
        answer = browser.post("/login", data={"token": TOKEN})
        cookie = answer.headers["set-cookie"].lower()
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get("/v1/jobs").status_code == 200


def test_a_page_needs_the_header_for_an_action_and_a_command_line_does_not(site: Site) -> None:
    path = f"/v1/jobs/{site.job_id}/checkpoints"

    assert site.client.post(path, headers={"Origin": "https://evil.example"}).status_code == 403
    assert site.client.post(path, headers={"Origin": site.address}).status_code == 403
    assert site.client.post(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    both = {"Origin": site.address, "X-Tidemark-CSRF": "1"}
    for accepted in (site.client.post(path, headers=both), site.client.post(path)):
        assert accepted.status_code == 202
        site.outcome("/checkpoints", accepted.json()["request-id"])


def test_a_bearer_token_makes_the_header_unnecessary_and_a_cookie_does_not(start: Start) -> None:
    site = start({"rest.token": TOKEN})
    until(
        lambda: site.client.get("/v1/jobs", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    )
    path = f"/v1/jobs/{site.job_id}/checkpoints"
    origin = {"Origin": "https://evil.example"}

    accepted = site.client.post(path, headers={**origin, "Authorization": f"Bearer {TOKEN}"})
    assert accepted.status_code == 202
    assert site.client.post(path, headers={**origin, "Cookie": f"tidemark_token={TOKEN}"}).status_code == 403
    site.client.headers["Authorization"] = f"Bearer {TOKEN}"
    site.outcome("/checkpoints", accepted.json()["request-id"])


def test_another_name_for_this_machine_is_not_served(site: Site) -> None:
    for host in ("evil.example", "evil.example:8081", "127.0.0.1.evil.example", ""):
        answer = site.client.get("/v1/jobs", headers={"Host": host})
        assert answer.status_code in (400, 403), host
    for host in ("localhost:1", "127.0.0.1", "[::1]:8081"):
        assert site.client.get("/v1/jobs", headers={"Host": host}).status_code == 200


def test_every_answer_forbids_foreign_scripts_and_frames(site: Site) -> None:
    for path in ("/", "/login", "/v1/jobs", "/metrics", "/nothing", "/static/nothing.js"):
        headers = site.client.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe-inline" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "uvicorn" not in headers.get("server", "")


@pytest.mark.parametrize(
    "path", ["../security.py", "..%2Fsecurity.py", "%2e%2e/security.py", "/etc/passwd", "", "."]
)
def test_only_files_of_the_page_are_served(site: Site, path: str) -> None:
    assert site.client.get(f"/static/{path}").status_code == 404


def believing(certificates: dict[str, str], *own: str) -> ssl.SSLContext:
    """A client's side of TLS, with a certificate and key of its own or without."""
    context = ssl.create_default_context(cafile=certificates["security.ssl.rest.truststore"])
    if own:
        folder = Path(certificates["security.ssl.rest.truststore"]).parent
        context.load_cert_chain(*[folder / name for name in own])
    return context


def test_with_a_certificate_the_server_speaks_https_only(start: Start, certificates: dict[str, str]) -> None:
    files = {"certificate": "keystore", "key": "key"}
    site = start({f"rest.ssl.{old}": certificates[f"security.ssl.rest.{new}"] for old, new in files.items()})

    assert site.address.startswith("https://")
    with httpx.Client(base_url=site.address, verify=believing(certificates), timeout=DEADLINE_S) as client:
        assert client.get("/v1/jobs").json()["jobs"][0]["id"] == site.job_id
    with pytest.raises(httpx.HTTPError):
        httpx.get(site.address.replace("https", "http") + "/v1/jobs", timeout=DEADLINE_S)


def test_with_authentication_only_certificates_of_the_authority_get_in_whatever_idlers_do(
    start: Start, certificates: dict[str, str]
) -> None:
    site = start({key: value for key, value in certificates.items() if ".rest." in key})
    port = int(site.address.rpartition(":")[2])
    idlers = [socket.create_connection(("127.0.0.1", port), DEADLINE_S) for _ in range(MOST_HANDSHAKES + 50)]
    for idler in idlers[::2]:
        idler.sendall(b"\x16\x03\x01")

    def ask(context: ssl.SSLContext) -> int:
        with httpx.Client(base_url=site.address, verify=context, timeout=DEADLINE_S) as client:
            return client.get("/v1/jobs").status_code

    assert ask(believing(certificates, "client.pem", "client.key")) == 200
    for refused in (believing(certificates), believing(certificates, "internal.pem", "internal.key")):
        with pytest.raises(httpx.HTTPError):
            ask(refused)
    until(lambda: sum(not select.select([idler], [], [], 0)[0] for idler in idlers) <= MOST_HANDSHAKES)
    for idler in idlers:
        idler.close()


def test_a_certificate_that_cannot_be_read_is_refused_at_submission(tmp_path: Path) -> None:
    from tidemark.runtime.rest import announcing

    with pytest.raises(ConfigError, match="certificate"), announcing(lambda _address: None):
        jobs.start(tmp_path, {"rest.ssl.certificate": str(tmp_path / "nothing.pem")})

    until(lambda: not live_jobs())


SECRET = "hunter2"


def test_no_secret_is_told_in_any_answer_log_or_history(start: Start, tmp_path: Path, home: Path) -> None:
    site = start(
        {
            "rest.token": SECRET,
            "my.password": SECRET,
            "spark.hadoop.fs.s3a.secret.key": SECRET,
            "my.database": f"jdbc:postgresql://app:{SECRET}@db/x?password={SECRET}",
            "pipeline.global-job-parameters": f"db.password:{SECRET},url:https://app:{SECRET}@db",
            "history.dir": str(tmp_path / "shared"),
            "restart-strategy": "none",
            "log.level": "DEBUG",
        },
        Authorization=f"Bearer {SECRET}",
    )
    logging.getLogger("tidemark.test").warning("Connecting with password=%s", SECRET)
    until(lambda: site.of_job("/checkpoints")["counts"]["completed"])
    answers = [site.client.get(path).text for path in ("/", "/metrics")]
    names = {
        "jobid": site.job_id,
        "vertexid": site.vertex("count")["id"],
        "taskmanagerid": f"{site.job_id}-0",
        "name": f"{site.job_id}-driver.log",
        "checkpointid": site.of_job("/checkpoints")["latest"]["completed"]["id"],
        "subtask": 0,
        "attempt": 0,
        "triggerid": "x",
    }
    answers += [site.client.get(route.path.format(**names)).text for route in ROUTES if route.method == "GET"]
    assert "db.password" in site.client.get(f"/jobs/{site.job_id}/config").text
    assert sum("******" in answer for answer in answers) >= 4
    jobs.BROKEN.set()
    site.job.get_job_execution_result().exception()
    until(lambda: not live_jobs())

    files = [path for root in (home, tmp_path / "shared") for path in root.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"driver.log", f"{site.job_id}.json"}
    told = [answer for answer in answers if SECRET in answer]
    told += [str(path) for path in files if SECRET in path.read_text(errors="replace")]
    assert told == []
