# Jars for tests, by their Maven names: sourced by kafka.sh and hdfs.sh (and ensure_*.sh).

# fetch_jars POM DIRECTORY [mvn arguments...]: what a project depends on, in a directory that has a file .complete then.
fetch_jars() {
    local pom=$1 cache=$2 fresh
    [ -e "$cache/.complete" ] && return
    command -v mvn >/dev/null || { echo "no Maven (mvn) to fetch the jars with" >&2; return 1; }
    mkdir -p "$(dirname "$cache")"
    # Into a directory of one's own, renamed when it is complete: two may fetch at once, and one may be interrupted.
    fresh=$(mktemp -d "$cache.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf '$fresh'" EXIT
    mvn --quiet --batch-mode --strict-checksums -f "$pom" "${@:3}" \
        dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$fresh" >&2 || return 1
    touch "$fresh/.complete"
    [ -e "$cache/.complete" ] || { rm -rf "$cache"; mv -T "$fresh" "$cache" 2>/dev/null || [ -e "$cache/.complete" ]; }
}

# ensure_jars SCRIPT WHAT TESTS: let SCRIPT get its jars, with Maven from apt-get if it is missing.
# Always returns 0: without the jars those tests are skipped, loudly.
ensure_jars() {
    local script=$1 what=$2 tests=$3 name root=()
    name=$(basename "$script" .sh)
    give_up() {
        printf '\n%s\n%s\n\n' "ensure_$name: $1" \
            "THE TESTS AGAINST $what ($tests) WILL BE SKIPPED. Install Maven, then: scripts/$name.sh get" >&2
        exit 0
    }
    "$script" present && return
    if ! command -v mvn >/dev/null; then
        command -v apt-get >/dev/null || give_up "no Maven found and no apt-get to install it with."
        if [ "$(id -u)" != 0 ]; then
            command -v sudo >/dev/null && sudo -n true 2>/dev/null || give_up "no Maven found and no rights to install it."
            root=(sudo)
        fi
        echo "ensure_$name: installing Maven with apt-get"
        export DEBIAN_FRONTEND=noninteractive
        "${root[@]}" apt-get update -qq || give_up "apt-get update failed."
        "${root[@]}" apt-get install -y -qq --no-install-recommends maven >/dev/null 2>&1 || give_up "apt-get could not install Maven."
    fi
    echo "ensure_$name: fetching the jars of $what with Maven"
    "$script" get || give_up "the jars cannot be had."
}
