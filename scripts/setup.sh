#!/usr/bin/env bash
# Creates .venv, installs the lock and this package into it, and looks for Java.
# Does nothing but a checksum when the lock, pyproject.toml and the interpreter have not changed.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
venv=.venv
stamp=$venv/.setup-stamp

die() { printf '\nsetup: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null || die "'$python' not found. Install Python 3.11 or newer, or set PYTHON=/path/to/python3."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || die "$("$python" --version) is too old; Python 3.11 or newer is needed. Set PYTHON=/path/to/python3.11."

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo "$@"; else return 1; fi
}

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "setup: $python has no venv module; trying apt-get install python3-venv"
    command -v apt-get >/dev/null && as_root apt-get update -qq && as_root apt-get install -y -qq --no-install-recommends python3-venv \
        || die "could not install it. On Debian or Ubuntu run: sudo apt-get install python3-venv   and then make setup again."
fi

want=$({ cat requirements.lock pyproject.toml scripts/setup.sh; "$python" -c 'import sys; print(sys.version)'; pwd; } | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$want" ]; then
    echo "setup: installing into $venv (a minute or two the first time)"
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.lock \
        || die "pip could not install requirements.lock. Is a package index reachable (pip config list)?"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
    echo "$want" > "$stamp"
fi

# Without Java everything but the tests and programs that start Spark works, so this is no failure yet.
scripts/ensure_java.sh || echo "setup: continuing without Java; 'make test-fast' and 'make lint' need none"
echo "setup: ready ($("$venv/bin/python" --version), $venv)"
