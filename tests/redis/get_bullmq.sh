#!/bin/sh
# Find or fetch BullMQ for Node, at the versions of other_languages/package-lock.json.
#
# Said last, on standard output: its folder node_modules, for NODE_PATH. Node and npm of PATH are
# taken, else Debian's are installed by apt (as root). Without them this fails; no test is skipped
# for their lack.
set -eu

least=18
root=$(cd "$(dirname "$0")/../.." && pwd)
folder="$root/.node"
wanted="$root/tests/redis/other_languages"

is_fit() {
    version=$(node --version 2>/dev/null | sed -n 's/^v\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge $least ] && command -v npm >/dev/null
}

give_up() {
    echo "get_bullmq.sh: $1" >&2
    echo "The tests of BullMQ need Node $least or newer and npm. Install them, for example by" >&2
    echo "    apt-get install nodejs npm" >&2
    echo "on Debian 12." >&2
    exit 1
}

install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends nodejs npm >&2
}

if ! is_fit; then
    command -v apt-get >/dev/null || give_up "no Node on PATH, and no apt-get to install it"
    [ "$(id -u)" = 0 ] || give_up "no Node on PATH, and only root can install it"
    install || { apt-get update -qq >&2 && install; } || give_up "apt-get install nodejs npm failed"
    is_fit || give_up "what apt-get installed is no Node $least with npm"
fi

if ! cmp -s "$wanted/package-lock.json" "$folder/fetched"; then
    mkdir -p "$folder"
    cp "$wanted/package.json" "$wanted/package-lock.json" "$folder"
    (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --silent >&2) || give_up "npm ci failed"
    cp "$folder/package-lock.json" "$folder/fetched"
fi
echo "$folder/node_modules"
