#!/usr/bin/env bash
# Rewrites requirements.lock from pyproject.toml with a throw-away environment. Review the diff.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/python" - > "$scratch/requirements.in" <<'PY'
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
print("\n".join(project["dependencies"] + project["optional-dependencies"]["dev"]))
PY
"$scratch/venv/bin/pip" install --quiet -r "$scratch/requirements.in"
{
    grep '^#' requirements.lock
    "$scratch/venv/bin/pip" freeze --all | grep -v '^pip=='
} > "$scratch/lock"
mv "$scratch/lock" requirements.lock
