#!/bin/sh
# Find or fetch the reference: Debian's redis-server 7.0.15 with redis-cli and redis-benchmark.
#
# Said last, on standard output: the folder with the three programs. One on PATH is taken as it is.
# Otherwise the packages are unpacked into .redis-reference, never installed: an installed
# redis-server would start a service of the machine. Without a reference this fails; no test is
# skipped for its lack.
set -eu

version=7.0.15
root=$(cd "$(dirname "$0")/../.." && pwd)
folder="$root/.redis-reference"
programs="$folder/bin"

is_reference() { # is_reference COMMAND
    "$1" --version 2>/dev/null | grep -q "v=$version "
}

if [ "${1:-}" != --unpack ]; then
    if is_reference redis-server && command -v redis-cli redis-benchmark >/dev/null; then
        dirname "$(command -v redis-server)"
        exit 0
    fi
    if is_reference "$programs/redis-server"; then
        echo "$programs"
        exit 0
    fi
fi

give_up() {
    echo "get_reference.sh: $1" >&2
    echo "The tests compare with redis-server $version. Install it, for example by" >&2
    echo "    apt-get install redis-server redis-tools" >&2
    echo "on Debian 12, or put redis-server, redis-cli and redis-benchmark $version on PATH." >&2
    exit 1
}

for tool in apt-get apt-cache dpkg-deb; do
    command -v $tool >/dev/null || give_up "no redis-server $version on PATH, and no $tool to fetch it"
done

rm -rf "$folder"
mkdir -p "$folder/packages" "$programs"
cd "$folder/packages"

# redis-tools holds the server too; redis-server only names it. Its libraries go beside it.
packages="redis-tools $(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts \
    --no-breaks --no-replaces --no-enhances redis-tools 2>/dev/null |
    grep -E '^(libatomic1|libjemalloc2|liblzf1|libssl3|libhiredis[0-9.]*|liblua5\.1-0|lua-cjson|lua-bitop)$' |
    sort -u || true)"
# shellcheck disable=SC2086
apt-get download -qq $packages >&2 || {
    [ "$(id -u)" = 0 ] && apt-get update -qq >&2 && apt-get download -qq $packages >&2
} || give_up "apt-get download $packages failed"

for package in *.deb; do
    dpkg-deb -x "$package" "$folder/root"
done
libraries=$(find "$folder/root" -name '*.so*' -exec dirname {} \; | sort -u | paste -sd: -)
for program in redis-server redis-cli redis-benchmark; do
    binary="$folder/root/usr/bin/$program"
    [ $program = redis-server ] && ln -sf redis-check-rdb "$binary"
    cat >"$programs/$program" <<WRAPPER
#!/bin/sh
LD_LIBRARY_PATH="$libraries" exec "$binary" "\$@"
WRAPPER
    chmod +x "$programs/$program"
done
rm -rf "$folder/packages"

is_reference "$programs/redis-server" || give_up "what apt-get fetched is not redis-server $version"
echo "$programs"
