"""Running a user's program in this interpreter, with settings it sees and with its jobs under control.

Settings travel as environment variables: every `StreamExecutionEnvironment` the program creates reads them,
they beat the configuration file, and what the program sets itself beats them. The program is `__main__`
while it runs, as if it had been started with `python program.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.cli.exit_codes import ExitCode
from tidemark.config import Options
from tidemark.config.loader import PROPERTIES_VARIABLE, environment_variable
from tidemark.config.options import find_option
from tidemark.config.spelling import suspicious_keys
from tidemark.errors import ConfigError, IllegalStateError, TidemarkError

if TYPE_CHECKING:
    from tidemark.state_processor.dry_run import CheckReport

__all__ = ["ProgramOutcome", "ProgramSettings", "check_program", "execute_program", "run_attached"]

_CANCEL_S = 30.0


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Configuration keys and values for every environment of the program; the last one of a key counts."""

    values: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(
        defines: Sequence[str],
        savepoint: str | None = None,
        allow_non_restored_state: bool = False,
        parallelism: int | None = None,
    ) -> ProgramSettings:
        """From the options of the command line.

        Raises:
            ConfigError: A definition is not `key=value`, or its value does not fit the key.
        """
        values = [_parsed(define) for define in defines]
        if savepoint is not None:
            values.append((Options.SAVEPOINT_PATH.key, savepoint))
        if allow_non_restored_state:
            values.append((Options.SAVEPOINT_IGNORE_UNCLAIMED_STATE.key, "true"))
        if parallelism is not None:
            values.append((Options.PARALLELISM.key, str(parallelism)))
        return ProgramSettings(tuple(values))

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Have the settings in the environment of this process inside the block."""
        before = dict(os.environ)
        try:
            for key, value in self.values:
                self._apply(key, value)
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    @staticmethod
    def _apply(key: str, value: str) -> None:
        option = find_option(key)
        if option is None:
            lines = os.environ.get(PROPERTIES_VARIABLE, "")
            quote = "'" if '"' in value else '"'
            os.environ[PROPERTIES_VARIABLE] = f"{lines}\n{key}: {quote}{value}{quote}".lstrip()
            return
        # Another spelling of the same option would win over this one inside the layer.
        for spelling in option.spellings:
            os.environ.pop(environment_variable(spelling), None)
        os.environ[environment_variable(key)] = value


def _parsed(define: str) -> tuple[str, str]:
    key, separator, value = define.partition("=")
    key, value = key.strip(), value.strip()
    if not separator or not key:
        raise ConfigError(f"-D {define}: not of the form key=value.")
    option = find_option(key)
    if option is not None:
        option.parse(value)
    elif key in (unknown := suspicious_keys([key])):
        hint = f" Did you mean '{unknown[key]}'?" if unknown[key] else ""
        raise ConfigError(
            f"-D {define}: no option is called '{key}'.{hint} Keys for your own functions need a first part of "
            "their own, such as 'my.'; docs/reference/configuration.md lists what there is.",
            key=key,
        )
    return key, value


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """How a program ended, apart from our own errors."""

    exit_code: int = 0
    message: str = ""


class _Terminated(KeyboardInterrupt):
    """SIGTERM."""


def run_attached(
    program: str,
    arguments: Sequence[str],
    settings: ProgramSettings,
    announce: Callable[[str], None] = lambda _address: None,
) -> ProgramOutcome:
    """Run the program to its end and its jobs to theirs; an interrupt cancels the jobs.

    SIGTERM does, too, except for highly available ones: those are suspended, for the next driver to go on with.

    Args:
        program: Path of the program.
        arguments: Its arguments.
        settings: What it sees as configured.
        announce: Told where each web page of its jobs is.

    Raises:
        TidemarkError: The program did not catch it.
    """
    from tidemark.api.builder import GraphBuilder
    from tidemark.runtime.control import ended_jobs, live_jobs
    from tidemark.runtime.rest import announcing

    told: set[str] = set()

    def tell(address: str) -> None:
        if address not in told:
            told.add(address)
            announce(address)

    seen = {job.job_id for job in ended_jobs()}
    graphs, plans = GraphBuilder.begun, GraphBuilder.planned
    outcome: ProgramOutcome | None = None
    with settings.applied(), _terminable(), announcing(tell):
        try:
            with execute_program(program, arguments):
                for runner in live_jobs():
                    # Submitted with execute_async: it ends with this process, so the process waits.
                    runner.result.exception()
        except SystemExit as exc:
            outcome = _exited(exc)
        except KeyboardInterrupt as exc:
            _cancel_jobs()
            code = 128 + signal.SIGTERM if isinstance(exc, _Terminated) else ExitCode.INTERRUPTED
            return ProgramOutcome(code)
        except TidemarkError:
            raise
        except Exception as exc:
            return ProgramOutcome(ExitCode.FAILED, _user_traceback(exc, program))
        finally:
            ended = ended_jobs()
    failed = [job for job in ended if job.job_id not in seen and job.status == "FAILED"]
    if failed and not (outcome and outcome.exit_code):
        return ProgramOutcome(ExitCode.FAILED, f"Job {failed[0].job_id} failed: {failed[0].failure}")
    # A program that exits by itself, after printing its help for instance, knows what it does.
    idle = len(ended) == len(seen) and GraphBuilder.begun > graphs and GraphBuilder.planned == plans
    if outcome is None and idle:
        return ProgramOutcome(
            ExitCode.FAILED, f"{program} ended without running a job. Call execute() on its environment."
        )
    return outcome or ProgramOutcome()


def check_program(
    program: str,
    arguments: Sequence[str],
    settings: ProgramSettings,
    path: str,
    allow_non_restored_state: bool,
) -> CheckReport:
    """Run a program up to each `execute` and compare its states with the snapshot at `path`.

    What the program raises after its first job was checked does not matter: it may have missed results.

    Raises:
        SavepointNotFoundError: There is no snapshot.
        IllegalStateError: The program executed no job.
        Exception: What the program raised before it executed one.
    """
    from tidemark.api.executor import executing_with
    from tidemark.checkpoint.layout import resolve_snapshot_path
    from tidemark.checkpoint.metadata.registry import read_metadata
    from tidemark.checkpoint.storage.filesystem import FileSystemStorage
    from tidemark.state_processor.dry_run import CheckReport, DryRunExecutor

    storage = FileSystemStorage()
    directory = resolve_snapshot_path(storage, path)
    executor = DryRunExecutor(read_metadata(storage, directory), allow_non_restored_state)
    try:
        with settings.applied(), executing_with(executor), execute_program(program, arguments):
            pass
    except (Exception, SystemExit):
        if not executor.submitted:
            raise
    if not executor.submitted:
        raise IllegalStateError(f"{program} executed no job, so there is nothing to check.")
    return CheckReport(directory, executor.verdicts())


@contextlib.contextmanager
def execute_program(program: str, arguments: Sequence[str]) -> Iterator[None]:
    """Run a program as `__main__`; it stays so inside the block, where its jobs may still run."""
    path = os.path.abspath(program)
    directory = os.path.dirname(path)
    code = compile(Path(path).read_bytes(), path, "exec")
    module = types.ModuleType("__main__")
    module.__dict__.update({"__file__": path, "__builtins__": __builtins__, "__spec__": None})
    before: tuple[Any, ...] = (
        sys.modules["__main__"],
        sys.argv,
        list(sys.path),
        os.environ.get("PYTHONPATH"),
    )
    sys.modules["__main__"] = module
    sys.argv = [program, *arguments]
    # In the place of the directory of the command, if that is there.
    sys.path[: 0 if sys.flags.safe_path else 1] = [directory]
    # Python workers and slots import the program's neighbours too; they inherit this.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [directory, before[3]]))
    try:
        exec(code, module.__dict__)
        yield
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = before[:3]
        os.environ.pop("PYTHONPATH", None)
        if before[3] is not None:
            os.environ["PYTHONPATH"] = before[3]


def _exited(exc: SystemExit) -> ProgramOutcome:
    if exc.code is None or isinstance(exc.code, int):
        return ProgramOutcome(exc.code or 0)
    return ProgramOutcome(ExitCode.FAILED, str(exc.code))


def _cancel_jobs() -> None:
    from tidemark.runtime.control import live_jobs

    runners = live_jobs()
    for runner in runners:
        runner.cancel()
    for runner in runners:
        runner.join(_CANCEL_S)


def _user_traceback(exc: BaseException, program: str) -> str:
    """The traceback from the program's own first line on."""
    path = os.path.abspath(program)
    frames = exc.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != path:
        frames = frames.tb_next
    if frames is None and not isinstance(exc, SyntaxError):
        frames = exc.__traceback__
    return "".join(traceback.format_exception(type(exc), exc, frames)).rstrip()


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the program like Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    from tidemark.runtime.control import live_jobs

    def terminate(_number: int, _frame: Any) -> None:
        # Ctrl-C is a user who wants the jobs to end; this is one, or a machine, that wants the process to end. Said in
        # front of whatever `execute` does about the interrupt.
        for runner in live_jobs():
            runner.suspend()
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
