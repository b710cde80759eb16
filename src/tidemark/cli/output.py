"""The two renderers of the command line: text for people, JSON for programs.

Results go to standard output, errors and progress to standard error. Progress is drawn on terminals only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tidemark.cli import snapshot_text
from tidemark.cli.job_text import job_table
from tidemark.cli.text import columns, date_time, duration, own_command, size, visible
from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from tidemark.runtime.doctor import Finding
    from tidemark.state_processor.diff import StateDiff
    from tidemark.state_processor.dry_run import CheckReport
    from tidemark.state_processor.erasure import ErasureProof
    from tidemark.state_processor.rewrite import ErasedKey

__all__ = ["JsonRenderer", "Renderer", "TextRenderer"]

Advance = Callable[[int, int], None]
"""Called with what is done and what there is to do in all."""


class Renderer(ABC):
    """One method per thing a command has to say."""

    @abstractmethod
    def jobs(self, jobs: list[dict[str, Any]]) -> None:
        """Jobs, one by one."""

    @abstractmethod
    def job(self, facts: dict[str, Any]) -> None:
        """Everything about one job."""

    @abstractmethod
    def checkpoints(self, records: list[dict[str, Any]]) -> None:
        """Checkpoints and savepoints of a job."""

    @abstractmethod
    def savepoint(self, path: str) -> None:
        """A savepoint was taken."""

    @abstractmethod
    def disposed(self, path: str) -> None:
        """A savepoint was deleted."""

    @abstractmethod
    def cancelled(self, job: str, savepoint: str | None) -> None:
        """A job was cancelled."""

    @abstractmethod
    def stopped(self, job: str, savepoint: str) -> None:
        """A job was stopped."""

    @abstractmethod
    def submitted(self, job_id: str | None, pid: int, log: str) -> None:
        """A detached program runs, or has already ended well."""

    @abstractmethod
    def web_page(self, address: str) -> None:
        """A server has opened."""

    @abstractmethod
    def failed_start(self, log: str, tail: str) -> None:
        """A detached program failed before it had a job."""

    @abstractmethod
    def program_failed(self, message: str) -> None:
        """The user's program failed by itself."""

    @abstractmethod
    def rescaled(self, job: str, parallelism: int) -> None:
        """A job runs with another parallelism."""

    @abstractmethod
    def cleaned(self, removed: list[str], kept: list[str]) -> None:
        """What dead jobs had left was removed."""

    @abstractmethod
    def driver_restarted(self, code: int, pause: float) -> None:
        """A supervised program died and is started again."""

    @abstractmethod
    def snapshot(self, description: dict[str, Any]) -> None:
        """What is in a checkpoint or savepoint."""

    @abstractmethod
    def verified(self, path: str, problems: list[str]) -> None:
        """What is wrong with a snapshot."""

    @abstractmethod
    def query_result(self, name: str, key: Any, value: Any) -> None:
        """What a state holds for a key."""

    @abstractmethod
    def check_report(self, report: CheckReport) -> None:
        """What a program would do with a snapshot."""

    @abstractmethod
    def difference(self, states: list[StateDiff]) -> None:
        """How the states of two snapshots differ."""

    @abstractmethod
    def erased(self, result: ErasedKey) -> None:
        """A key is gone from a new savepoint."""

    @abstractmethod
    def erased_from_job(self, proof: ErasureProof, path: str) -> None:
        """A key is gone from a running job."""

    @abstractmethod
    def findings(self, found: list[Finding]) -> None:
        """What the doctor saw."""

    @abstractmethod
    def log_files(self, sizes: dict[str, int]) -> None:
        """The log files of a job."""

    @abstractmethod
    def log_text(self, text: str) -> None:
        """A piece of a log file."""

    @abstractmethod
    def project(self, path: str, files: list[str]) -> None:
        """A project was written."""

    @abstractmethod
    def certificates(self, settings: dict[str, str]) -> None:
        """Certificates were made; with these settings jobs use them."""

    @abstractmethod
    @contextlib.contextmanager
    def screen(self) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
        """Something that shows running jobs anew each time it is called."""

    @abstractmethod
    def error(self, error: BaseException) -> None:
        """A command failed."""

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show that something is going on."""
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console

        with Console(stderr=True).status(f"{what} ..."):
            yield

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Advance]:
        """A bar that the block moves."""
        if not sys.stderr.isatty():
            yield lambda _done, _total: None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


class TextRenderer(Renderer):
    """For people."""

    def jobs(self, jobs: list[dict[str, Any]]) -> None:
        """One line each: start time, id, name, status."""
        for job in jobs:
            start = date_time(job["start_time"])
            status = click.style(visible(job["status"]), fg=_COLOURS.get(job["status"]))
            click.echo(visible(f"{start} : {job['job_id']} : {job['name']} ") + f"({status})")
        if not jobs:
            click.echo("There are no such jobs.")

    def job(self, facts: dict[str, Any]) -> None:
        """Facts under each other, then the plan."""
        progress = facts.get("progress") or {}
        checkpointing = facts.get("checkpointing") or {}
        rows = [
            ("Job", facts["name"]),
            ("Id", facts["job_id"]),
            ("Status", facts["status"]),
            ("Started", date_time(facts["start_time"])),
        ]
        if "end_time" in facts:
            rows.append(("Ended", date_time(facts["end_time"])))
        rows += [("Process", facts["pid"]), ("Spark application", facts["application_id"])]
        if checkpointing:
            interval = checkpointing["interval"]
            rows += [
                (
                    "Target",
                    f"{facts['target']}, parallelism {facts['parallelism']}, "
                    f"{facts['slots']} {'slot' if facts['slots'] == 1 else 'slots'}",
                ),
                ("Mode", f"{facts['mode']}: {facts['mode_reason']}" if facts.get("mode") else None),
                ("State backend", facts["state_backend"]),
                ("State entries", progress.get("state_entries")),
                ("Attempt", progress.get("attempt")),
                ("Epoch", progress.get("epoch")),
                ("Records", progress.get("records")),
                ("Started from", facts["started_from"]),
                (
                    "Checkpointing",
                    "off" if interval is None else f"every {interval} ms, {checkpointing['mode']}",
                ),
                (
                    "Checkpoints",
                    f"{checkpointing['completed']} completed, {checkpointing['failed']} failed, "
                    f"{checkpointing['restored']} restored",
                ),
                ("Savepoints go to", facts["savepoint_directory"]),
                ("Control address", str(facts["control_address"]).partition(":")[2]),
                ("Query port", facts["query_port"]),
                ("Web page", facts.get("web_address")),
            ]
        rows.append(("Last failure", progress.get("failure") or facts.get("failure")))
        _echo(columns(rows))
        if facts.get("nodes"):
            click.echo("Plan")
            guarantees = {sink["id"]: sink["guarantee"] for sink in facts["sinks"]}
            _echo(columns([_plan_row(node, guarantees) for node in facts["nodes"]], "  "))
        if facts.get("operators"):
            header = ("OPERATOR", "RECORDS IN", "OUT", "IN/S", "OUT/S", "WATERMARK", "BEHIND")
            _echo(columns([header, *[_operator_row(operator) for operator in facts["operators"]]]))

    def checkpoints(self, records: list[dict[str, Any]]) -> None:
        """A table, newest first; the reason of a failure below its line."""
        header = (
            "ID",
            "TYPE",
            "STATUS",
            "TRIGGERED",
            "DURATION",
            "STATE",
            "WRITTEN",
            "SYNC",
            "ASYNC",
            "WHERE",
        )
        _echo(columns([header, *[_checkpoint_row(record) for record in records]]))

    def savepoint(self, path: str) -> None:
        """The path, alone on its line, for scripts."""
        click.echo(path)

    def disposed(self, path: str) -> None:
        """One line."""
        click.echo(f"Savepoint {path} was deleted.")

    def cancelled(self, job: str, savepoint: str | None) -> None:
        """The savepoint's path alone on its line, if one was taken."""
        if savepoint is not None:
            click.echo(savepoint)
        click.echo(f"Job {job} was cancelled.", err=savepoint is not None)

    def stopped(self, job: str, savepoint: str) -> None:
        """The savepoint's path alone on its line."""
        click.echo(savepoint)
        click.echo(f"Job {job} has finished.", err=True)

    def submitted(self, job_id: str | None, pid: int, log: str) -> None:
        """The job's id."""
        if job_id is None:
            click.echo("The program ended without a job.")
        else:
            click.echo(f"Job has been submitted with JobID {job_id}")
        click.echo(f"Process {pid}, log {log}", err=True)

    def web_page(self, address: str) -> None:
        """Where it is, beside the program's own output."""
        click.echo(f"Web page: {address}", err=True)

    def failed_start(self, log: str, tail: str) -> None:
        """The end of its log."""
        _echo(tail.split("\n"), err=True)
        click.echo(f"error: the program failed before its job was registered; log {log}", err=True)

    def program_failed(self, message: str) -> None:
        """What it said."""
        _echo(message.split("\n"), err=True)

    def rescaled(self, job: str, parallelism: int) -> None:
        """One line."""
        click.echo(f"Job {job} runs with parallelism {parallelism}.")

    def cleaned(self, removed: list[str], kept: list[str]) -> None:
        """One line for each thing removed; what stays, and why, beside it."""
        _echo(removed)
        _echo(kept, err=True)

    def driver_restarted(self, code: int, pause: float) -> None:
        """One line, beside the program's own output."""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        click.echo(f"The driver {how}; it is started again in {pause:g} s.", err=True)

    def snapshot(self, description: dict[str, Any]) -> None:
        """Header, sources and sinks, then each operator with its states."""
        _echo(snapshot_text.snapshot_lines(description))

    def verified(self, path: str, problems: list[str]) -> None:
        """One line per problem."""
        _echo(problems)
        word = "problem" if len(problems) == 1 else "problems"
        click.echo(f"{path}: {len(problems)} {word}." if problems else f"{path} is intact.")

    def query_result(self, name: str, key: Any, value: Any) -> None:
        """The value alone; as it is, unless a terminal would obey it."""
        shown = value if isinstance(value, str) else repr(value)
        click.echo("\n".join(map(visible, shown.split("\n"))) if sys.stdout.isatty() else shown)

    def check_report(self, report: CheckReport) -> None:
        """A line per state, then the verdict."""
        rows = [("OPERATOR", "STATE", "KIND", "VERDICT", "REASON")]
        rows += [
            (state.operator, state.state, state.kind, state.verdict.value, state.reason)
            for state in report.states
        ]
        _echo(columns(rows))
        click.echo(
            "The program can start from this snapshot."
            if report.compatible
            else "The program cannot start from this snapshot."
        )

    def difference(self, states: list[StateDiff]) -> None:
        """A line per state that differs, sample keys below it."""
        differing = [state for state in states if not state.is_equal]
        rows: list[tuple[Any, ...]] = [("OPERATOR", "STATE", "KIND", "ADDED", "REMOVED", "CHANGED")]
        rows += [(s.uid, s.state, s.kind, s.added, s.removed, s.changed) for s in differing]
        lines = columns(rows)
        for state, line in zip([None, *differing], lines, strict=True):
            _echo([line])
            for what, keys in state.samples.items() if state is not None else ():
                if keys:
                    more = ", ..." if len(keys) < getattr(state, what) else ""
                    _echo([f"  {what}: {', '.join(map(repr, keys))}{more}"])
        equal = len(states) - len(differing)
        click.echo(f"{len(differing)} of {len(states)} states differ, {equal} are equal.")

    def erased(self, result: ErasedKey) -> None:
        """The path alone on its line; what was left out on standard error."""
        click.echo(result.path)
        for (uid, state), count in sorted(result.rows.items()):
            _echo([f"{uid}: {count} row(s) of '{state}' left out."], err=True)
        if not result.rows:
            click.echo("The key was in no state.", err=True)

    def erased_from_job(self, proof: ErasureProof, path: str) -> None:
        """The path of the proof alone on its line; what was done on standard error."""
        click.echo(path)
        for uid, states in sorted(proof.facts["erased"].items()):
            for state, count in sorted(states.items()):
                _echo([f"{uid}: {count} row(s) of '{state}' dropped."], err=True)
        for each in proof.facts["checkpoints"]:
            found = "could not be read" if each["rows_found"] is None else f"{each['rows_found']} row(s)"
            _echo([f"checkpoint {each['id']}: {found}"], err=True)
        for each in proof.facts["remaining"]:
            _echo([f"checkpoint {each['id']} may hold the key: {each['why']}"], err=True)

    def findings(self, found: list[Finding]) -> None:
        """A line each; the remedy below it."""
        width = max((len(finding.subject) for finding in found), default=0)
        for finding in found:
            mark = click.style(f"{finding.verdict.value:7}", fg=_VERDICTS[finding.verdict.value])
            click.echo(f"{mark}  " + visible(f"{finding.subject.ljust(width)}  {finding.said}"))
            if finding.remedy:
                _echo([" " * (width + 11) + finding.remedy])

    def log_files(self, sizes: dict[str, int]) -> None:
        """Name and size."""
        _echo(columns([(name, size(count)) for name, count in sizes.items()]))

    def log_text(self, text: str) -> None:
        """The lines; what a record put into them does not steer the terminal."""
        _echo(text.splitlines())

    def project(self, path: str, files: list[str]) -> None:
        """The files, and what to do next."""
        _echo(files)
        click.echo(f"Next: cd {path} && {own_command()} run job.py", err=True)

    def certificates(self, settings: dict[str, str]) -> None:
        """Lines for a configuration file."""
        _echo([f"{key}: {value}" for key, value in settings.items()])

    @contextlib.contextmanager
    def screen(self) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
        """A table that is drawn over on a terminal, and printed anew elsewhere."""
        if not sys.stdout.isatty():
            yield lambda jobs: _echo(job_table(jobs))
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(), screen=True, auto_refresh=False) as live:
            yield lambda jobs: live.update(Text("\n".join(job_table(jobs))), refresh=True)

    def error(self, error: BaseException) -> None:
        """`error:` and the message."""
        first, *more = f"{error}".split("\n")
        click.echo(click.style("error:", fg="red") + " " + visible(first), err=True)
        _echo(more, err=True)


class JsonRenderer(Renderer):
    """For programs: one JSON document per command."""

    def jobs(self, jobs: list[dict[str, Any]]) -> None:
        """A list."""
        _dump(jobs)

    def job(self, facts: dict[str, Any]) -> None:
        """An object."""
        _dump(facts)

    def checkpoints(self, records: list[dict[str, Any]]) -> None:
        """A list."""
        _dump(records)

    def savepoint(self, path: str) -> None:
        """`savepoint`."""
        _dump({"savepoint": path})

    def disposed(self, path: str) -> None:
        """`disposed`."""
        _dump({"disposed": path})

    def cancelled(self, job: str, savepoint: str | None) -> None:
        """`job` and `savepoint`."""
        _dump({"job": job, "savepoint": savepoint})

    def stopped(self, job: str, savepoint: str) -> None:
        """`job` and `savepoint`."""
        _dump({"job": job, "savepoint": savepoint})

    def submitted(self, job_id: str | None, pid: int, log: str) -> None:
        """`job_id`, `pid` and `log`."""
        _dump({"job_id": job_id, "pid": pid, "log": log})

    def web_page(self, address: str) -> None:
        """Nothing: standard error holds one document, if something went wrong. `info` tells the address."""

    def failed_start(self, log: str, tail: str) -> None:
        """An error with the end of the log."""
        _dump({"error": {"code": "PROGRAM", "message": tail, "log": log}}, err=True)

    def program_failed(self, message: str) -> None:
        """An error."""
        _dump({"error": {"code": "PROGRAM", "message": message}}, err=True)

    def rescaled(self, job: str, parallelism: int) -> None:
        """`job` and `parallelism`."""
        _dump({"job": job, "parallelism": parallelism})

    def cleaned(self, removed: list[str], kept: list[str]) -> None:
        """`removed` and `kept`."""
        _dump({"removed": removed, "kept": kept})

    def driver_restarted(self, code: int, pause: float) -> None:
        """Nothing: standard error holds one document, if something went wrong."""

    def snapshot(self, description: dict[str, Any]) -> None:
        """An object."""
        _dump(description)

    def verified(self, path: str, problems: list[str]) -> None:
        """`path`, `intact` and `problems`."""
        _dump({"path": path, "intact": not problems, "problems": problems})

    def query_result(self, name: str, key: Any, value: Any) -> None:
        """`name`, `key` and `value`."""
        _dump({"name": name, "key": key, "value": value})

    def check_report(self, report: CheckReport) -> None:
        """`compatible` and `states`."""
        _dump({"path": report.path, "compatible": report.compatible, "states": report.plain()})

    def difference(self, states: list[StateDiff]) -> None:
        """A list with every state, equal ones included."""
        _dump([{**asdict(state), "equal": state.is_equal} for state in states])

    def erased(self, result: ErasedKey) -> None:
        """`savepoint` and `rows`."""
        rows = [{"uid": uid, "state": state, "rows": count} for (uid, state), count in result.rows.items()]
        _dump({"savepoint": result.path, "rows": rows})

    def erased_from_job(self, proof: ErasureProof, path: str) -> None:
        """The facts of the proof and its path."""
        _dump({"proof": path, **proof.facts})

    def findings(self, found: list[Finding]) -> None:
        """A list."""
        _dump([{**asdict(finding), "verdict": finding.verdict.value} for finding in found])

    def log_files(self, sizes: dict[str, int]) -> None:
        """A list of `name` and `size`."""
        _dump([{"name": name, "size": count} for name, count in sizes.items()])

    def log_text(self, text: str) -> None:
        """`lines`; followed logs are one document per piece."""
        _dump({"lines": text.splitlines()})

    def project(self, path: str, files: list[str]) -> None:
        """`path` and `files`."""
        _dump({"path": path, "files": files})

    def certificates(self, settings: dict[str, str]) -> None:
        """The settings."""
        _dump(settings)

    @contextlib.contextmanager
    def screen(self) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
        """A document per look."""
        yield lambda jobs: _dump(jobs)

    def error(self, error: BaseException) -> None:
        """`error` with code, message and facts."""
        facts = error.facts() if isinstance(error, TidemarkError) else {}
        code = error.code if isinstance(error, TidemarkError) else type(error).__name__
        _dump({"error": {"code": code, "message": str(error), **facts}}, err=True)


_VERDICTS = {"ok": "green", "warning": "yellow", "problem": "red"}
_COLOURS = {"RUNNING": "green", "FINISHED": "green", "FAILED": "red", "UNREACHABLE": "red"}


def _echo(lines: list[str], err: bool = False) -> None:
    """Lines for people: names and messages may be those of strangers."""
    for line in lines:
        click.echo(visible(line), err=err)


def _dump(data: Any, err: bool = False) -> None:
    click.echo(json.dumps(data, indent=2, default=_fallback), err=err)


def _fallback(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return value.hex() if isinstance(value, (bytes, bytearray)) else str(value)


def _plan_row(node: dict[str, Any], guarantees: dict[int, str]) -> tuple[Any, ...]:
    inputs = ", ".join([f"{edge['id']} {edge['ship_strategy']}" for edge in node["inputs"]])
    return (
        node["id"],
        node["name"],
        node["kind"],
        f"x{node['parallelism']}",
        f"<- {inputs}" if inputs else "",
        guarantees.get(node["id"], ""),
    )


def _operator_row(operator: dict[str, Any]) -> tuple[Any, ...]:
    lag, watermark = operator["lag_ms"], operator["watermark"]
    return (
        operator["name"],
        f"{operator['records_in']:,}",
        f"{operator['records_out']:,}",
        f"{operator['records_in_per_second']:,.0f}",
        f"{operator['records_out_per_second']:,.0f}",
        "the end" if lag is None and watermark is not None else date_time(watermark),
        duration(lag),
    )


def _checkpoint_row(record: dict[str, Any]) -> tuple[Any, ...]:
    where = record["message"] or record["directory"] or f"{record['acknowledged']}/{record['slots']} slots"
    return (
        record["checkpoint_id"],
        record["type"],
        record["status"] + "".join(f", {fact}" for fact in ("discarded", "quarantined") if record[fact]),
        date_time(record["triggered_at"]),
        duration(record["duration_ms"]),
        size(record["state_size"]),
        size(record["written_size"]),
        duration(record["sync_ms"]),
        duration(record["async_ms"]),
        where,
    )
