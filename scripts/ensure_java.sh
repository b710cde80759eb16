#!/usr/bin/env bash
# Makes sure that the Java which Spark would start (JAVA_HOME first, then PATH) is version 17 or newer.
# Installs Debian's headless runtime only when there is none. Exits 1, saying what to do, when it cannot.
set -euo pipefail

major() { # version of the java at $1: 17, 21 ...; 8 is reported as "1.8"
    "$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n1
}

advise() {
    printf '\n%s\n%s\n' "ensure_java: $1" \
        "Spark needs Java 17 or newer. Install one (Debian/Ubuntu: sudo apt-get install openjdk-17-jre-headless;
others: https://adoptium.net), then put it on PATH or point JAVA_HOME at it." >&2
    exit 1
}

if [ -n "${JAVA_HOME:-}" ]; then
    [ -x "$JAVA_HOME/bin/java" ] || advise "JAVA_HOME=$JAVA_HOME holds no bin/java; unset or correct it."
    found=$(major "$JAVA_HOME/bin/java")
    [ "${found:-0}" -ge 17 ] || advise "JAVA_HOME=$JAVA_HOME is Java ${found:-of unknown version}; unset or correct it."
    exit 0
fi
if command -v java >/dev/null; then
    found=$(major java)
    [ "${found:-0}" -ge 17 ] && exit 0
    echo "ensure_java: the java on PATH is version ${found:-unknown}"
fi

command -v apt-get >/dev/null || advise "no Java 17+ found and no apt-get to install it with."
root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null && sudo -n true 2>/dev/null || advise "no Java 17+ found and no rights to install it."
    root=(sudo)
fi
echo "ensure_java: installing a headless Java runtime with apt-get"
export DEBIAN_FRONTEND=noninteractive
# Slim images lack this directory and the package's post-install script fails without it.
"${root[@]}" mkdir -p /usr/share/man/man1
"${root[@]}" apt-get update -qq || advise "apt-get update failed."
for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
    "${root[@]}" apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 && break
done
hash -r
command -v java >/dev/null || advise "apt-get could not install a Java runtime."
found=$(major java)
[ "${found:-0}" -ge 17 ] || advise "java on PATH is version ${found:-unknown} even after the installation."
