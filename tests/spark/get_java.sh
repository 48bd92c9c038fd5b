#!/bin/sh
# Find or install a Java that Spark 4 can run on: 17 or newer.
#
# Said last, on standard output: its JAVA_HOME. The one of JAVA_HOME is taken, else the one on PATH,
# else Debian's openjdk-17-jre-headless is installed by apt (as root). Without one this fails; no
# test is skipped for its lack.
set -eu

least=17
package=openjdk-17-jre-headless

is_fit() { # is_fit JAVA
    version=$("$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge $least ] || return 1
    # Runtimes cut to size, such as those in Python packages, may lack what Spark asks for.
    "$1" --list-modules 2>/dev/null | grep -q '^jdk.incubator.vector'
}

say_home() { # say_home JAVA
    dirname "$(dirname "$(readlink -f "$1")")"
    exit 0
}

give_up() {
    echo "get_java.sh: $1" >&2
    echo "Spark needs Java $least or newer with all its modules. Install it, for example by" >&2
    echo "    apt-get install $package" >&2
    echo "on Debian 12, or set JAVA_HOME to one." >&2
    exit 1
}

if [ -n "${JAVA_HOME:-}" ]; then
    if [ -x "$JAVA_HOME/bin/java" ] && is_fit "$JAVA_HOME/bin/java"; then
        say_home "$JAVA_HOME/bin/java"
    fi
    echo "get_java.sh: JAVA_HOME is no Java $least or newer, looking further" >&2
fi
if command -v java >/dev/null && is_fit java; then
    say_home "$(command -v java)"
fi

command -v apt-get >/dev/null || give_up "no Java $least on this machine, and no apt-get to install it"
[ "$(id -u)" = 0 ] || give_up "no Java $least on this machine, and only root can install it"

install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $package >&2
}
install || { apt-get update -qq >&2 && install; } || give_up "apt-get install $package failed"

java=$(command -v java || echo /usr/lib/jvm/java-17-openjdk-*/bin/java)
is_fit "$java" || give_up "what apt-get installed is no Java $least"
say_home "$java"
