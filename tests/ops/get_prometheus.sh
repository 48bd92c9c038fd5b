#!/bin/sh
# Find or fetch Prometheus: Debian's prometheus and promtool, 2.42 or newer.
#
# Said last, on standard output: the folder with the two programs. Those on PATH are taken as they
# are. Otherwise the package is unpacked into .prometheus, never installed: an installed prometheus
# would start a service of the machine. Without Prometheus this fails; no test is skipped for its
# lack.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
folder="$root/.prometheus"
programs="$folder/bin"

runs() { # runs FOLDER
    "$1/prometheus" --version >/dev/null 2>&1 && "$1/promtool" --version >/dev/null 2>&1
}

if found=$(command -v prometheus) && runs "$(dirname "$found")"; then
    dirname "$found"
    exit 0
fi
if runs "$programs"; then
    echo "$programs"
    exit 0
fi

give_up() {
    echo "get_prometheus.sh: $1" >&2
    echo "The tests evaluate ops/prometheus/rules.yaml by Prometheus. Put prometheus and promtool" >&2
    echo "on PATH, or install them, for example by" >&2
    echo "    apt-get install prometheus" >&2
    exit 1
}

for tool in apt-get dpkg-deb; do
    command -v $tool >/dev/null || give_up "no prometheus on PATH, and no $tool to fetch it"
done

# Tests of several processes may ask at the same time: each unpacks apart, and the last one wins.
mkdir -p "$folder"
made=$(mktemp -d "$folder/unpacking.XXXXXX")
trap 'rm -rf "$made"' EXIT
cd "$made"
# Its dependencies are pages and fonts; the programs need the C library only.
apt-get download -qq prometheus >&2 || {
    [ "$(id -u)" = 0 ] && apt-get update -qq >&2 && apt-get download -qq prometheus >&2
} || give_up "apt-get download prometheus failed"
dpkg-deb -x prometheus_*.deb "$made/root"
runs "$made/root/usr/bin" || give_up "what apt-get fetched does not run"
mkdir -p "$programs"
for program in prometheus promtool; do
    mv "$made/root/usr/bin/$program" "$programs/$program"
done
echo "$programs"
