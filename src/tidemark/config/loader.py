"""Where settings come from, and which one wins.

Highest first: programmatic setters, the `Configuration` handed to the environment, environment variables,
the configuration file, the default of the option table. A layer that sets an option under any spelling
hides all spellings of it in the layers below; inside one layer the newer spelling wins.

File: `tidemark-conf.yaml`, else `flink-conf.yaml`, in the directory named by `TIDEMARK_CONF_DIR`, else
in `./conf`, where it must belong to this user or root, since settings say what code runs. Lines are
`key: value` or `key = value`, flat or nested by indentation; `#` starts a
comment; block and `[a, b]` lists are joined with commas. Keys the table does not know are kept.

Environment: `TIDEMARK_` and the key in upper case with every dot and dash as underscore
(`TIDEMARK_STATE_BACKEND=rocksdb`), for every key of the option table. `TIDEMARK_PROPERTIES` holds further
lines in the format of the file, for any key; a variable of its own wins over it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark.config.configuration import Configuration
from tidemark.config.option import to_text
from tidemark.config.options import Options, all_options, find_option
from tidemark.errors import ConfigError

__all__ = [
    "CONF_DIR_VARIABLE",
    "default_parallelism",
    "effective_configuration",
    "environment_variable",
    "layers_of",
    "load_environment",
    "load_file_configuration",
    "overlay",
    "parse_conf",
]

CONF_DIR_VARIABLE = "TIDEMARK_CONF_DIR"
PROPERTIES_VARIABLE = "TIDEMARK_PROPERTIES"
_FILE_NAMES = ("tidemark-conf.yaml", "flink-conf.yaml")
_ENTRY = re.compile(r"(?P<key>\"[^\"]+\"|'[^']+'|[^\s:=\[\]{}][^:=]*?)\s*[:=]\s*(?P<value>.*)\Z")


def parse_conf(text: str, origin: str = "configuration") -> Configuration:
    """Parse the text of a configuration file.

    Args:
        text: `key: value` lines, nested or flat.
        origin: Name of the file, for messages.

    Raises:
        ConfigError: A line is neither an entry, a list item, a comment nor blank; the message has its number.
    """
    values: dict[str, str] = {}
    # Keys we are inside of, outermost first, with the indentation of their line.
    parents: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = _strip_comment(line).rstrip()
        body = content.lstrip()
        if not body or body in ("---", "..."):
            continue
        indent = len(content) - len(body)
        if body.startswith("- ") and parents:
            _append_item(values, parents[-1][1], _unquote(body[2:].strip()))
            continue
        match = _ENTRY.match(body)
        if match is None:
            raise ConfigError(f"{origin}, line {number}: {line.strip()!r} is not 'key: value'.")
        while parents and parents[-1][0] >= indent:
            parents.pop()
        key = ".".join([parent for _, parent in parents[-1:]] + [_unquote(match["key"])])
        raw = match["value"].strip()
        if raw.startswith("[") and raw.endswith("]"):
            values[key] = ",".join(_unquote(item.strip()) for item in raw[1:-1].split(",") if item.strip())
        elif raw and raw not in ("~", "null"):
            values[key] = _unquote(raw)
        parents.append((indent, key))
    return Configuration.from_dict(values)


def _append_item(values: dict[str, str], key: str, item: str) -> None:
    values[key] = f"{values[key]},{item}" if values.get(key) else item


def _strip_comment(line: str) -> str:
    """Cut at a `#` that starts the line or follows a blank, unless it stands inside quotes."""
    quote = ""
    for index, char in enumerate(line):
        before = line[index - 1] if index else " "
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'" and before in " :=,[-":
            quote = char
        elif char == "#" and before.isspace():
            return line[:index]
    return line


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" else text


def load_file_configuration(
    directory: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> Configuration:
    """Read the configuration file; empty if there is none.

    Args:
        directory: Where to look; default as the module says.
        environ: Stands in for the process environment.

    Raises:
        ConfigError: The named directory does not exist, the file does not parse, or nobody named it and it is
            somebody else's.
    """
    named = directory or (os.environ if environ is None else environ).get(CONF_DIR_VARIABLE)
    if named is not None and not Path(named).is_dir():
        raise ConfigError(
            f"Configuration directory {str(named)!r} does not exist. "
            f"Create it or correct {CONF_DIR_VARIABLE}."
        )
    for name in _FILE_NAMES:
        path = Path(named or "conf") / name
        if path.is_file():
            if named is None:
                _check_owner(path)
            try:
                # Some editors begin a file with a byte order mark.
                text = path.read_text(encoding="utf-8-sig")
            except UnicodeDecodeError as exc:
                raise ConfigError(f"{path} is not text in UTF-8 ({exc}). Save it as such.") from exc
            return parse_conf(text, str(path))
    return Configuration()


def _check_owner(path: Path) -> None:
    """Whoever may write in the current directory, `/tmp` say, must not configure what its visitors run."""
    for each in (path.parent, path):
        for status in (each.lstat(), each.stat()):
            if status.st_uid not in (os.geteuid(), 0):
                raise ConfigError(
                    f"{each} belongs to user {status.st_uid}, not to user {os.geteuid()}, who runs this, and its "
                    f"settings say what code runs. If you trust it, set {CONF_DIR_VARIABLE}={path.parent}."
                )


def environment_variable(key: str) -> str:
    """Return the name of the environment variable for a key."""
    return "TIDEMARK_" + re.sub(r"[^A-Za-z0-9]", "_", key).upper()


def load_environment(environ: Mapping[str, str] | None = None) -> Configuration:
    """Read the settings made through environment variables."""
    variables = os.environ if environ is None else environ
    named = {
        key: variables[environment_variable(key)]
        for option in all_options()
        for key in option.spellings
        if environment_variable(key) in variables
    }
    lines = parse_conf(variables.get(PROPERTIES_VARIABLE, ""), PROPERTIES_VARIABLE)
    return overlay(lines, Configuration.from_dict(named))


def overlay(base: Configuration, top: Configuration) -> Configuration:
    """Return `base` with `top` laid over it; an option set in `top` hides all spellings of it below."""
    merged = Configuration(base)
    for key in top.key_set():
        option = find_option(key)
        if option is not None:
            merged.remove(option)
    return merged.add_all(top)


def default_parallelism() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def effective_configuration(
    programmatic: Configuration | Mapping[str, Any] | None = None,
    configuration: Configuration | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    conf_dir: str | os.PathLike[str] | None = None,
    fill_defaults: bool = True,
) -> Configuration:
    """Merge all layers.

    Args:
        programmatic: What setters were called with.
        configuration: What the environment was created or configured with.
        environ: Stands in for the process environment.
        conf_dir: Stands in for the configuration directory.
        fill_defaults: Also give options nobody set their default, and repeat each value under all spellings
            of its option, so that any of them can be asked for.

    Raises:
        ConfigError: A file does not parse, or a value does not fit its option.
    """
    if isinstance(programmatic, Mapping):
        programmatic = Configuration.from_dict(programmatic)
    merged = overlay(load_file_configuration(conf_dir, environ), load_environment(environ))
    for layer in (configuration, programmatic):
        if layer is not None:
            merged = overlay(merged, layer)
    for option in all_options():
        value = merged.get(option)
        if not fill_defaults:
            continue
        if option is Options.PARALLELISM and value is None:
            merged.set_integer(option.key, default_parallelism())
            continue
        text = next((merged.get_string(k, "") for k in option.spellings if merged.contains_key(k)), None)
        text = option.default_text if text is None else text
        for key in option.spellings if text is not None else ():
            merged.set_string(key, to_text(text))
    return merged


def layers_of(
    programmatic: Configuration | None = None,
    configuration: Configuration | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    conf_dir: str | os.PathLike[str] | None = None,
) -> dict[str, str]:
    """Key -> which layer set it, the highest one that did: `code`, `configuration`, `environment` or `file`.

    Args:
        programmatic: What setters were called with.
        configuration: What the environment was created or configured with.
        environ: Stands in for the process environment.
        conf_dir: Stands in for the configuration directory.

    Raises:
        ConfigError: A file does not parse.
    """
    layers = {
        "file": load_file_configuration(conf_dir, environ),
        "environment": load_environment(environ),
        "configuration": configuration or Configuration(),
        "code": programmatic or Configuration(),
    }
    found: dict[str, str] = {}
    for name, layer in layers.items():
        for key in layer.key_set():
            option = find_option(key)
            for spelling in option.spellings if option is not None else (key,):
                found.pop(spelling, None)
            found[key] = name
    return found
