#!/usr/bin/env bash
# Makes sure that the jars of a Kafka broker are in the cache for tests/kafka; installs Maven with apt-get if it is missing.
# Exits 0 in any case: without the jars those tests are skipped, loudly.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

give_up() {
    printf '\n%s\n%s\n\n' "ensure_kafka: $1" \
        "THE TESTS AGAINST A KAFKA BROKER (tests/kafka) WILL BE SKIPPED. Install Maven, then: scripts/kafka.sh get" >&2
    exit 0
}

"$here/kafka.sh" present && exit 0
if ! command -v mvn >/dev/null; then
    command -v apt-get >/dev/null || give_up "no Maven found and no apt-get to install it with."
    root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null && sudo -n true 2>/dev/null || give_up "no Maven found and no rights to install it."
        root=(sudo)
    fi
    echo "ensure_kafka: installing Maven with apt-get"
    export DEBIAN_FRONTEND=noninteractive
    "${root[@]}" apt-get update -qq || give_up "apt-get update failed."
    "${root[@]}" apt-get install -y -qq --no-install-recommends maven >/dev/null 2>&1 || give_up "apt-get could not install Maven."
fi
echo "ensure_kafka: fetching the jars of a broker with Maven"
"$here/kafka.sh" get || give_up "the jars cannot be had."
