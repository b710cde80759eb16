"""What Flink's REST does not have: states and their values, settings by layer, curves."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemark.web.calls import ApiError, Call, Route

__all__ = ["ROUTES"]


def _states(call: Call) -> dict[str, Any]:
    return {
        "operators": [
            {
                "uid": operator.uid,
                "name": operator.name,
                "states": [
                    {
                        "name": state.name,
                        "kind": state.kind,
                        "type": state.type,
                        "ttl-ms": state.ttl_ms,
                        "queryable-name": state.queryable,
                        "entries": state.entries,
                        "bytes": state.bytes,
                    }
                    for state in operator.states
                ],
            }
            for operator in call.job().states()
        ]
    }


def _query(call: Call) -> dict[str, Any]:
    view = call.job()
    if "name" not in call.query or "key" not in call.query:
        raise ApiError(400, "Give the state's queryable 'name' and a 'key', which is JSON.")
    try:
        key = msgspec.json.decode(call.query["key"].encode())
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise ApiError(400, f"'key' is not JSON: {exc}. A text needs its quotes: \"a\".") from exc
    return {"key": key, "value": view.query(call.query["name"], key)}


def _settings(call: Call) -> dict[str, Any]:
    return {
        "settings": [
            {
                "key": setting.key,
                "value": setting.value,
                "layer": setting.layer,
                "effect": setting.effect,
                "reason": setting.reason,
            }
            for setting in call.job().facts().settings
        ]
    }


def _series(call: Call) -> dict[str, Any]:
    series = call.job().series()
    return {
        "step-ms": series.step_ms,
        "timestamps": series.timestamps,
        "records-in-per-second": series.records_in_per_second,
        "records-out-per-second": series.records_out_per_second,
        "latency-ms": series.latency_ms,
        "checkpoint-duration-ms": series.checkpoint_duration_ms,
        "checkpoint-bytes": series.checkpoint_bytes,
    }


_JOB = "/jobs/{jobid}"

ROUTES = (
    Route("GET", f"{_JOB}/states", _states, "The states of the operators"),
    Route("GET", f"{_JOB}/states/query", _query, "The value of a queryable state for a key", ("name", "key")),
    Route("GET", f"{_JOB}/settings", _settings, "What is set, by which layer, and what has no effect"),
    Route("GET", f"{_JOB}/series", _series, "Curves of the last ten minutes"),
)
