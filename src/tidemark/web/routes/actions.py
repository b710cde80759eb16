"""What changes something: savepoints, checkpoints, stop, cancel, disposal of a savepoint, rescaling.

What takes a while answers at once with an id to poll.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from tidemark.config.options import MAX_PARALLELISM_LIMIT
from tidemark.errors import TidemarkError
from tidemark.futures import CompletableFuture
from tidemark.paths import absolute
from tidemark.web.calls import Answer, ApiError, Call, Route
from tidemark.web.facts import CheckpointFacts
from tidemark.web.triggers import Operation
from tidemark.web.view import JobView

__all__ = ["ROUTES"]


class _SavepointBody(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    target_directory: str | None = None
    cancel_job: bool = False
    format_type: str | None = msgspec.field(default=None, name="formatType")
    trigger_id: str | None = msgspec.field(default=None, name="triggerId")


class _CheckpointBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    checkpoint_type: str | None = None
    trigger_id: str | None = None


class _StopBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    target_directory: str | None = None
    drain: bool = False
    format_type: str | None = None
    trigger_id: str | None = None


class _DisposalBody(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    savepoint_path: str


def _running(call: Call) -> JobView:
    view = call.job()
    facts = view.facts()
    if not facts.is_controllable:
        raise ApiError(409, f"Job {view.job_id} is {facts.status}; only a running job can do that.")
    return view


def _directory(given: str | None) -> str | None:
    return None if given is None else absolute(given)


def _started(
    call: Call, kind: str, wanted: str | None, start: Callable[[], CompletableFuture[str]], status: int = 202
) -> Answer:
    """The id to poll."""
    if wanted is not None and not (0 < len(wanted) <= 64 and wanted.replace("-", "").isalnum()):
        raise ApiError(400, "'triggerId' must be up to 64 letters and digits.")

    def start_or_refuse() -> CompletableFuture[str]:
        future = start()
        if future.done() and isinstance(error := future.exception(0), TidemarkError):
            # What is refused at once is an error at once.
            raise error
        return future

    begun = call.triggers.begin(call.path["jobid"], kind, start_or_refuse, wanted)
    return Answer({"request-id": begun}, status)


def _check_format(wanted: str | None) -> None:
    if wanted == "NATIVE":
        raise ApiError(501, "Savepoints are always CANONICAL, so that every backend can start from them.")
    if wanted not in (None, "CANONICAL"):
        raise ApiError(400, f"Unknown formatType '{wanted[:40]}'. Use CANONICAL.")


def _savepoint(call: Call) -> Answer:
    body = call.parsed(_SavepointBody)
    _check_format(body.format_type)
    directory = _directory(body.target_directory)

    def start() -> CompletableFuture[str]:
        view = _running(call)
        future = view.savepoint(directory)
        if body.cancel_job:
            future.then_accept(lambda _path: view.cancel())
        return future

    return _started(call, "savepoints", body.trigger_id, start)


def _checkpoint(call: Call) -> Answer:
    body = call.parsed(_CheckpointBody)
    wanted = body.checkpoint_type
    if wanted not in (None, "CONFIGURED", "FULL", "INCREMENTAL"):
        raise ApiError(400, f"Unknown checkpointType '{wanted[:40]}'. Use CONFIGURED.")

    def start() -> CompletableFuture[str]:
        view = _running(call)
        kind = "INCREMENTAL" if view.facts().incremental else "FULL"
        if wanted not in (None, "CONFIGURED", kind):
            raise ApiError(
                501, f"Checkpoints of this job are {kind}. A savepoint is always complete in itself."
            )
        return view.checkpoint_now()

    return _started(call, "checkpoints", body.trigger_id, start)


def _stop(call: Call) -> Answer:
    body = call.parsed(_StopBody)
    _check_format(body.format_type)
    directory = _directory(body.target_directory)
    return _started(call, "stop", body.trigger_id, lambda: _running(call).stop(body.drain, directory))


def _cancel(call: Call) -> Answer:
    mode = call.query.get("mode", "cancel")
    if mode != "cancel":
        raise ApiError(
            400, f"Unknown mode '{mode}'. 'cancel' ends a job; POST /jobs/:id/stop takes a savepoint."
        )
    view = call.job()
    facts = view.facts()
    if facts.end_time is not None:
        raise ApiError(409, f"Job {view.job_id} has ended: it is {facts.status}.")
    view.cancel()
    return Answer({}, 202)


def _rescale(call: Call) -> Answer:
    call.job()
    given = call.query.get("parallelism", "")
    if len(given) > 5 or not (
        given.isascii() and given.isdigit() and 1 <= int(given) <= MAX_PARALLELISM_LIMIT
    ):
        raise ApiError(400, f"'parallelism' must be a number from 1 to {MAX_PARALLELISM_LIMIT}.")
    return _started(call, "rescaling", None, lambda: _running(call).rescale(int(given)), 200)


def _rescale_status(call: Call) -> dict[str, Any]:
    return _outcome(_found(call, call.path["jobid"], "rescaling"), {})


def _outcome(operation: Operation, result: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"status": {"id": operation.status}}
    if operation.future.done():
        operation.told.set()
    if operation.error is not None:
        error = operation.error
        shown["operation"] = {
            "failure-cause": {
                "class": type(error).__name__,
                "stack-trace": f"{type(error).__name__}: {error}",
            }
        }
    elif operation.future.done():
        shown["operation"] = result
    return shown


def _found(call: Call, job_id: str, *kinds: str) -> Operation:
    operation = call.triggers.find(call.path["triggerid"], job_id, *kinds)
    if operation is None:
        raise ApiError(404, f"No operation {call.path['triggerid']} is known here.")
    return operation


def _savepoint_status(call: Call) -> dict[str, Any]:
    operation = _found(call, call.path["jobid"], "savepoints", "stop")
    return _outcome(operation, {"location": _result(operation)})


def _checkpoint_status(call: Call) -> dict[str, Any]:
    operation = _found(call, call.path["jobid"], "checkpoints")
    done = _result(operation)
    return _outcome(operation, {"checkpointId": None if done is None else int(done)})


def _result(operation: Operation) -> str | None:
    return operation.future.result(0) if operation.future.done() and operation.error is None else None


def _savepoints(call: Call) -> dict[str, Any]:
    view = call.job()
    taken = [_listed(record) for record in view.checkpoints().records if record.is_savepoint]
    known = {entry["location"] for entry in taken}
    asked = [
        {
            "id": operation.id,
            "status": _status(operation),
            "trigger-timestamp": operation.started_at,
            "location": _result(operation),
            "failure-cause": None if operation.error is None else str(operation.error),
        }
        for operation in call.triggers.of_job(view.job_id, "savepoints", "stop")
    ]
    # One that was asked for here and has been taken is in both lists; the request has the id that is polled.
    pending = [entry for entry in asked if entry["location"] not in known]
    return {"savepoints": [*pending, *taken]}


def _status(operation: Operation) -> str:
    return "FAILED" if operation.error is not None else operation.status


def _listed(record: CheckpointFacts) -> dict[str, Any]:
    return {
        "id": str(record.checkpoint_id),
        "status": record.status.upper().replace("-", "_"),
        "trigger-timestamp": record.triggered_at,
        "location": record.directory,
        "failure-cause": record.message if record.status == "failed" else None,
    }


def _dispose(call: Call) -> Answer:
    path = absolute(call.parsed(_DisposalBody).savepoint_path)
    future: CompletableFuture[str] = CompletableFuture()

    def run() -> None:
        from tidemark.checkpoint.retention import dispose_savepoint
        from tidemark.checkpoint.storage.filesystem import FileSystemStorage

        try:
            future.set_result(str(dispose_savepoint(FileSystemStorage(), path)))
        except Exception as exc:
            future.set_exception(exc)

    def start() -> CompletableFuture[str]:
        threading.Thread(target=run, name="savepoint-disposal", daemon=True).start()
        return future

    return Answer({"request-id": call.triggers.begin("", "disposal", start)}, 202)


def _disposal_status(call: Call) -> dict[str, Any]:
    return _outcome(_found(call, "", "disposal"), {})


_JOB = "/jobs/{jobid}"

ROUTES = (
    Route("GET", f"{_JOB}/savepoints", _savepoints, "Savepoints of a job, taken and under way"),
    Route(
        "POST",
        f"{_JOB}/savepoints",
        _savepoint,
        "Take a savepoint",
        body=("target-directory", "cancel-job", "formatType", "triggerId"),
        status=202,
    ),
    Route("GET", f"{_JOB}/savepoints/{{triggerid}}", _savepoint_status, "How a savepoint or a stop went"),
    Route(
        "POST",
        f"{_JOB}/checkpoints",
        _checkpoint,
        "Take a checkpoint now",
        body=("checkpointType", "triggerId"),
        status=202,
    ),
    Route("GET", f"{_JOB}/checkpoints/{{triggerid}}", _checkpoint_status, "How a checkpoint on demand went"),
    Route(
        "POST",
        f"{_JOB}/stop",
        _stop,
        "Take a savepoint and end the job",
        body=("targetDirectory", "drain", "formatType", "triggerId"),
        status=202,
    ),
    Route("PATCH", _JOB, _cancel, "Cancel a job", ("mode",), status=202),
    Route("POST", f"{_JOB}/rescaling", _rescale, "Go on with another parallelism", ("parallelism",)),
    Route("PATCH", f"{_JOB}/rescaling", _rescale, "Go on with another parallelism", ("parallelism",)),
    Route("GET", f"{_JOB}/rescaling/{{triggerid}}", _rescale_status, "How a rescaling went"),
    Route(
        "POST", "/savepoint-disposal", _dispose, "Delete a savepoint", body=("savepoint-path",), status=202
    ),
    Route("GET", "/savepoint-disposal/{triggerid}", _disposal_status, "How a disposal went"),
)
