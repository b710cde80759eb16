#!/usr/bin/env bash
# Makes sure that the jars of an HDFS are in the cache for tests/storages. Exits 0 in any case.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/maven.sh
. "$here/maven.sh"
ensure_jars "$here/hdfs.sh" "AN HDFS" tests/storages
