#!/usr/bin/env bash
# A real HDFS for tests: one name node and one data node in one JVM, on 127.0.0.1, with data that go with it.
#
#   scripts/hdfs.sh get          fetch the jars into the cache with Maven (106 MB, once)
#   scripts/hdfs.sh present      exit code 0: the jars are there
#   scripts/hdfs.sh run DIR PORT run it until standard input ends; WebHDFS is served on PORT once DIR/details is there
#
# HDFS_CACHE: where the jars are (default: ~/.cache/tidemark/hdfs-<version>). HDFS_HEAP: its heap (256m).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/maven.sh
. "$here/maven.sh"
version=${HDFS_VERSION:-$(sed -n 's:.*<hadoop.version>\(.*\)</hadoop.version>.*:\1:p' "$here/hdfs-pom.xml")}
cache=${HDFS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidemark/hdfs-$version}

die() { printf 'hdfs.sh: %s\n' "$*" >&2; exit 1; }

get() { fetch_jars "$here/hdfs-pom.xml" "$cache" -Dhadoop.version="$version" || die "the jars cannot be had (scripts/ensure_hdfs.sh)"; }

run() { # DIR PORT
    get
    mkdir -p "$1"
    "${JAVA_HOME:+$JAVA_HOME/bin/}java" -Xmx"${HDFS_HEAP:-256m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -Dtest.build.data="$1/data" -Djava.net.preferIPv4Stack=true -cp "$cache/*" \
        org.apache.hadoop.test.MiniDFSClusterManager -format -datanodes 1 -httpport "$2" -writeDetails "$1/details" \
        -D dfs.namenode.delegation.token.always-use=true < /dev/null &
    local pid=$!
    # shellcheck disable=SC2064
    trap "kill -KILL $pid 2>/dev/null" EXIT
    # The end of input is 1, a second without any is above 128.
    while kill -0 "$pid" 2>/dev/null; do read -r -t 1 _ || [ $? -gt 128 ] || break; done
}

case ${1:-} in
    get) get ;;
    present) [ -e "$cache/.complete" ] ;;
    run) run "$(realpath -m "${2:?which directory}")" "${3:?which port}" ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
