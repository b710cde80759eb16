#!/usr/bin/env bash
# Makes sure that there is a chromium for the tests of the page (tests/browser); $CHROMIUM names another one.
# Installs Debian's package when there is none. Exits 0 in any case: without a browser those tests are skipped, loudly.
set -euo pipefail

give_up() {
    printf '\n%s\n%s\n\n' "ensure_browser: $1" \
        "THE TESTS OF THE PAGE (tests/browser) WILL BE SKIPPED. Install chromium, or set CHROMIUM=/path/to/a/chromium." >&2
    exit 0
}

[ -n "${CHROMIUM:-}" ] && { [ -x "$CHROMIUM" ] && exit 0 || give_up "CHROMIUM=$CHROMIUM is no program."; }
command -v chromium >/dev/null || command -v google-chrome >/dev/null && exit 0

command -v apt-get >/dev/null || give_up "no chromium found and no apt-get to install it with."
root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null && sudo -n true 2>/dev/null || give_up "no chromium found and no rights to install it."
    root=(sudo)
fi
echo "ensure_browser: installing chromium with apt-get"
export DEBIAN_FRONTEND=noninteractive
"${root[@]}" apt-get update -qq || give_up "apt-get update failed."
"${root[@]}" apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1 \
    || give_up "apt-get could not install chromium."
