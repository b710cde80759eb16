"""From raw figures to `report.md`, `report.json` and `report.png`.

A figure is the median of its repetitions; spread is the smallest and the largest. Ratios are between medians of
the same run. A wrong result or a failure is shown as such and never becomes a figure.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import statistics
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from suite.peers import HERE, SYSTEMS, PeerMissingError, drawn, versions

TITLES = {
    "value": "Keyed running sum with `ValueState`, records per second",
    "state": "List and map state, records per second",
    "ttl": "Time-to-live, records per second",
    "window": "Event-time tumbling window, records per second",
    "broadcast": "Broadcast rules, records per second",
    "checkpoint": "Checkpoints on and off, records per second",
    "pairs": "What a feature costs: with it and without it, in turns in one session",
    "tuning": "Settings of PyFlink's process mode, running sum, 10 k keys (default: bundle and cache of 1,000)",
    "latency": "Latency from the creation of an event to the sink",
    "recovery": "Recovery after `kill -9` of a slot",
    "rescale": "Rescaling through a savepoint",
    "memory": "Memory and size of a million keys",
    "nexmark": "Nexmark, events per second",
    "growth-keys": "Growth: number of keys, records per second",
    "growth-slots": "Growth: slots, records per second",
    "growth-epochs": "Growth: rows per epoch",
}
UNITS = {
    "p50_ms": "ms, median",
    "p99_ms": "ms, 99th percentile",
    "recovery_s": "s until the first epoch after the kill",
    "notice_s": "s until the next attempt starts",
    "restore_s": "s to start the attempt and restore",
    "rescale_s": "s from the request to the first epoch",
    "savepoint_s": "s for the savepoint",
    "memory_per_million_keys": "bytes of resident memory per million keys",
    "slot_memory": "bytes of all slots",
    "savepoint_bytes": "bytes of a savepoint",
    "checkpoint_bytes": "bytes of a checkpoint",
    "epoch_ms": "ms per epoch",
}


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    memory = next((line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "0")
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory) / 2**20, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": java[0] if java else "none",
        "load_at_start": os.getloadavg(),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def summarise(folder: Path) -> dict[str, Any]:
    """Medians and spreads of everything in `raw.jsonl`."""
    runs: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    cases: dict[tuple[str, str, str], dict[str, Any]] = {}
    facts: dict[str, Any] = {}
    for text in (folder / "raw.jsonl").read_text().splitlines():
        line = json.loads(text)
        if "machine" in line:
            facts = line["machine"]
            continue
        at = (line["group"], line["label"], line["case"]["system"])
        runs[at].append(line["result"])
        cases[at] = line["case"]
    rows = [_row(at, cases[at], results) for at, results in runs.items()]
    ours = {(row["group"], row["label"]): row for row in rows if row["system"] == "tidemark"}
    for row in rows:
        mine = ours.get((row["group"], row["label"]))
        if mine is not None and row is not mine and "rate" in row["figures"] and "rate" in mine["figures"]:
            row["times"] = mine["figures"]["rate"]["median"] / row["figures"]["rate"]["median"]
    return {"machine": facts, "rows": rows}


def _row(at: tuple[str, str, str], case: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, Any]:
    good = [result for result in results if result.get("correct")]
    problems = [str(result.get("error", "wrong result")) for result in results if not result.get("correct")]
    names = [name for name in good[0] if isinstance(good[0][name], int | float)] if good else []
    figures = {}
    for name in names:
        if name == "correct":
            continue
        values = [result[name] for result in good if name in result]
        figures[name] = {"median": statistics.median(values), "low": min(values), "high": max(values)}
    group, label, system = at
    return {
        "group": group,
        "label": label,
        "system": system,
        "case": case,
        "repetitions": len(good),
        "figures": figures,
        "problems": sorted(set(problems)),
    }


def write_report(folder: Path) -> Path:
    """Write the three files; returns the Markdown one."""
    summary = summarise(folder)
    (folder / "report.json").write_text(json.dumps(summary, indent=1))
    plotted = drawn("plots.py", folder)
    parts = [f"# Benchmark of {folder.name}", "", *_machine_lines(summary["machine"]), ""]
    parts += [*_budget(summary["rows"]), ""]
    if plotted:
        parts += ["![plots](report.png)", ""]
    groups = [group for group in TITLES if any(row["group"] == group for row in summary["rows"])]
    for group in groups:
        parts += [*_group_lines(group, [row for row in summary["rows"] if row["group"] == group]), ""]
    parts += [*_settings({row["system"] for row in summary["rows"]}), ""]
    report = folder / "report.md"
    report.write_text("\n".join(parts))
    return report


def _machine_lines(facts: dict[str, Any]) -> list[str]:
    if not facts:
        return []
    load = ", ".join(f"{value:.1f}" for value in facts["load_at_start"])
    return [
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB; {facts['system']}; "
        f"Python {facts['python']}; {facts['java']}. Load when it started: {load}.",
        "",
        "Made by `python benchmarks/run.py` (see `--help`). A figure is the median of its repetitions with smallest "
        "and largest behind it; start-up and warm-up are not part of a rate. Every result was checked.",
    ]


def _budget(rows: list[dict[str, Any]]) -> list[str]:
    """Ratios that the design asks for, where this run has them."""

    def rate(system: str, label: str) -> float | None:
        for row in rows:
            at = (row["group"], row["label"], row["system"])
            if at == ("value", label, system) and "rate" in row["figures"]:
                return float(row["figures"]["rate"]["median"])
        return None

    def best(systems: tuple[str, ...], *labels: str) -> float | None:
        found = [
            value for system in systems for label in labels if (value := rate(system, label)) is not None
        ]
        return max(found, default=None)

    heap, rocks = "10 k keys, uniform, heap", "10 k keys, uniform, rocksdb"
    flink, spark = ("flink-thread", "flink-process"), ("spark-pandas",)
    million = "1 M keys, uniform, rocksdb"
    wanted = [
        (
            "keyed process against transformWithStateInPandas",
            rate("tidemark", heap),
            best(spark, heap, rocks),
            15.0,
        ),
        ("keyed process against PyFlink's better mode", rate("tidemark", heap), best(flink, heap), 80.0),
        (
            "RocksDB, 1 M keys, against PyFlink's RocksDB",
            rate("tidemark", million),
            best(flink, million),
            5.0,
        ),
    ]
    ratios = [(what, mine / theirs, target) for what, mine, theirs, target in wanted if mine and theirs]
    ratios += [
        (f"speed with {row['label']}, against without", row["figures"]["ratio"]["median"], 0.9)
        for row in rows
        if row["group"] == "pairs" and "ratio" in row["figures"]
    ]
    lines = ["| budget of design.md | here | wanted | |", "|---|---|---|---|"]
    for what, ratio, target in ratios:
        lines.append(
            f"| {what} | {ratio:.3g} x | >= {target:g} x | {'met' if ratio >= target else '**missed**'} |"
        )
    return lines if len(lines) > 2 else []


def _group_lines(group: str, rows: list[dict[str, Any]]) -> list[str]:
    lines = [f"## {TITLES[group]}", ""]
    if group == "pairs":
        lines += [
            "| case | speed with it | lowest and highest round | records/s without | with | rounds | n |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [_pair_line(row) for row in rows]
    elif any("rate" in row["figures"] for row in rows):
        lines += [
            "| case | system | rows | records/s | spread | tidemark is | start-up s | n |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            lines.append(_rate_line(row))
    else:
        lines += ["| case | system | figure | median | spread | n |", "|---|---|---|---|---|---|"]
        for row in rows:
            lines += _figure_lines(row)
    return lines


def _rate_line(row: dict[str, Any]) -> str:
    head = f"| {row['label']} | {row['system']} | {row['case']['records']:,} "
    if "rate" not in row["figures"]:
        return f"{head}| {'; '.join(row['problems'])} | | | | 0 |"
    rate = row["figures"]["rate"]
    startup = row["figures"].get("startup_s", {"median": 0.0})["median"]
    times = f"{row['times']:.1f} x" if "times" in row else ""
    notes = [
        text.format(row["figures"][name]["median"])
        for name, text in (("epoch_ms", "{:.0f} ms per epoch"), ("rate_per_core", "{:,.0f} per core"))
        if name in row["figures"]
    ]
    notes += row["problems"]
    note = f" ({'; '.join(notes)})" if notes else ""
    return (
        f"{head}| {rate['median']:,.0f}{note} | {rate['low']:,.0f}-{rate['high']:,.0f} | {times} "
        f"| {startup:.1f} | {row['repetitions']} |"
    )


def _pair_line(row: dict[str, Any]) -> str:
    figures = {name: figure["median"] for name, figure in row["figures"].items()}
    if "ratio" not in figures:
        return f"| {row['label']} | {'; '.join(row['problems'])} | | | | | 0 |"
    checkpoints = figures.get("fewest_checkpoints")
    note = "" if checkpoints is None else f" (at least {checkpoints:.0f} checkpoints each)"
    return (
        f"| {row['label']}{note} | {figures['ratio']:.2f} x "
        f"| {figures['ratio_low']:.2f}-{figures['ratio_high']:.2f} | {figures['rate_without']:,.0f} "
        f"| {figures['rate_with']:,.0f} | {row['case']['options']['rounds']} | {row['repetitions']} |"
    )


def _figure_lines(row: dict[str, Any]) -> list[str]:
    head = f"| {row['label']} | {row['system']} "
    lines = [
        f"{head}| {UNITS[name]} | {_number(figure['median'])} | {_number(figure['low'])}-{_number(figure['high'])} "
        f"| {row['repetitions']} |"
        for name, figure in row["figures"].items()
        if name in UNITS
    ]
    return lines or [f"{head}| {'; '.join(row['problems'])} | | | 0 |"]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _settings(systems: set[str]) -> list[str]:
    """Versions, and what each worker says about its settings."""
    lines = ["## Versions and settings", ""]
    seen = set()
    for system in sorted(systems):
        environment, script = SYSTEMS[system]
        if script in seen:
            continue
        seen.add(script)
        try:
            lines.append(f"**{versions(environment)}**")
        except PeerMissingError as exc:
            lines.append(f"**{environment}**: not installable here: {exc}")
        text = ast.get_docstring(ast.parse((HERE / script).read_text())) or ""
        lines += ["", *text.splitlines(), ""]
    return lines
