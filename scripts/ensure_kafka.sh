#!/usr/bin/env bash
# Makes sure that the jars of a Kafka broker are in the cache for tests/kafka. Exits 0 in any case.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/maven.sh
. "$here/maven.sh"
ensure_jars "$here/kafka.sh" "A KAFKA BROKER" tests/kafka
