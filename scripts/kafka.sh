#!/usr/bin/env bash
# A real Kafka broker for tests: one node that is broker and controller (KRaft), on 127.0.0.1.
#
#   scripts/kafka.sh get                fetch the jars into the cache with Maven (45 MB, once)
#   scripts/kafka.sh present            exit code 0: the jars are there
#   scripts/kafka.sh start DIR [PORT]   start the broker of DIR, new or with the data it has; prints host:port when it serves
#   scripts/kafka.sh stop DIR           end it in order; DIR stays
#   scripts/kafka.sh kill DIR           end it with SIGKILL; DIR stays
#   scripts/kafka.sh status DIR         says whether it runs (exit code 1: it does not)
#
# KAFKA_CACHE: where the jars are (default: ~/.cache/tidemark/kafka-<version>). KAFKA_HEAP: heap of the broker (256m).
# KAFKA_EXTRA: more lines for server.properties of a new DIR. KAFKA_OWNER: a process id; the broker ends when that process has.
# KAFKA_JVM: how the broker's code is compiled (-XX:TieredStopAtLevel=1: starts soon, stays slow).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/maven.sh
. "$here/maven.sh"
version=${KAFKA_VERSION:-$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$here/kafka-pom.xml")}
cache=${KAFKA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidemark/kafka-$version}

die() { printf 'kafka.sh: %s\n' "$*" >&2; exit 1; }

java_() { # memory log4j-directory arguments...
    "${JAVA_HOME:+$JAVA_HOME/bin/}java" -Xmx"$1" -Xms64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -Dlog4j2.configurationFile="$2/log4j2.properties" -cp "$cache/*" "${@:3}"
}

get() { fetch_jars "$here/kafka-pom.xml" "$cache" -Dkafka.version="$version" || die "the jars cannot be had (scripts/ensure_kafka.sh)"; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

configure() { # DIR PORT
    local controller id
    controller=$(free_port)
    mkdir -p "$1"
    # Internal topics have one replica because there is one node, and one partition because fifty take longer to create.
    # Retention, deletion and transactions that nobody ends are looked after quickly: tests wait for them.
    cat > "$1/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:$2,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$2,CONTROLLER://127.0.0.1:$controller
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:$controller
log.dirs=$1/data
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.initial.task.delay.ms=500
log.retention.check.interval.ms=1000
file.delete.delay.ms=500
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
${KAFKA_EXTRA:-}
PROPERTIES
    cat > "$1/log4j2.properties" <<PROPERTIES
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = $1/broker.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
PROPERTIES
    # A cluster id is 16 bytes in URL-safe base64; a leading dash would be taken for an option.
    id=$(python3 -c 'import base64, os; print("A" + base64.urlsafe_b64encode(os.urandom(16)).decode()[1:22])')
    java_ 64m "$1" kafka.tools.StorageTool format --standalone --cluster-id "$id" --config "$1/server.properties" \
        > "$1/format.out" 2>&1 || { cat "$1/format.out" >&2; die "could not format $1"; }
    echo "127.0.0.1:$2" > "$1/bootstrap"
}

# The number may have gone to another process meanwhile; ours names its directory.
running() { [ -e "$1/pid" ] && tr '\0' '\n' < "/proc/$(cat "$1/pid")/cmdline" 2>/dev/null | grep -qxF "$1/server.properties"; }

start() { # DIR PORT
    get
    [ -e "$1/bootstrap" ] || configure "$1" "${2:-$(free_port)}"
    if ! running "$1"; then
        local seen; seen=$(stat -c %s "$1/broker.log" 2>/dev/null || echo 0)
        setsid "${JAVA_HOME:+$JAVA_HOME/bin/}java" -Xmx"${KAFKA_HEAP:-256m}" -Xms64m -XX:+UseSerialGC \
            "${KAFKA_JVM:--XX:TieredStopAtLevel=1}" \
            -Dlog4j2.configurationFile="$1/log4j2.properties" -cp "$cache/*" kafka.Kafka "$1/server.properties" \
            > "$1/stdout" 2>&1 < /dev/null &
        echo $! > "$1/pid"
        local deadline=$((SECONDS + ${KAFKA_PATIENCE:-180}))
        until tail -c +$((seen + 1)) "$1/broker.log" 2>/dev/null | grep -q "Kafka Server started"; do
            kill -0 "$(cat "$1/pid")" 2>/dev/null && [ $SECONDS -lt $deadline ] || {
                tail -n 20 "$1/stdout" "$1/broker.log" >&2 || true
                end "$1" KILL
                die "the broker of $1 did not start"
            }
            sleep 0.1
        done
        if [ -n "${KAFKA_OWNER:-}" ]; then setsid "$here/kafka.sh" guard "$1" "$KAFKA_OWNER" > /dev/null 2>&1 < /dev/null & fi
    fi
    cat "$1/bootstrap"
}

guard() { # DIR OWNER
    local pid; pid=$(cat "$1/pid")
    while kill -0 "$2" 2>/dev/null; do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 1
    done
    running "$1" && kill -KILL "$pid"
}

end() { # DIR SIGNAL
    local pid; pid=$(cat "$1/pid" 2>/dev/null || true)
    if running "$1"; then
        kill "-$2" "$pid"
        local deadline=$((SECONDS + 60))
        while kill -0 "$pid" 2>/dev/null; do
            [ $SECONDS -lt $deadline ] || { kill -KILL "$pid"; deadline=$((SECONDS + 60)); }
            sleep 0.05
        done
    fi
    [ "$(cat "$1/pid" 2>/dev/null)" != "$pid" ] || rm -f "$1/pid" # another may have been started meanwhile
}

directory() { [ -n "${1:-}" ] || die "which directory?"; realpath -m "$1"; }

case ${1:-} in
    get) get ;;
    present) [ -e "$cache/.complete" ] ;;
    start) start "$(directory "${2:-}")" "${3:-}" ;;
    stop) end "$(directory "${2:-}")" TERM ;;
    kill) end "$(directory "${2:-}")" KILL ;;
    guard) guard "$2" "$3" ;; # in a session of its own: a signal to the owner's group must not end it, too
    status)
        dir=$(directory "${2:-}")
        if running "$dir"; then echo "running, pid $(cat "$dir/pid"), $(cat "$dir/bootstrap")"; else echo "not running"; exit 1; fi
        ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
