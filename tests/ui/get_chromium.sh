#!/usr/bin/env bash
# Prints where a Chromium is, for `make test-ui`. On Debian and Ubuntu, root installs it if it is
# missing; elsewhere, say how to get it and fail.
set -euo pipefail

find_it() {
    command -v chromium || command -v chromium-browser || command -v google-chrome
}

if ! find_it; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends chromium fonts-dejavu-core) >&2
        find_it
    else
        echo "make test-ui needs Chromium: apt-get install chromium fonts-dejavu-core" >&2
        exit 1
    fi
fi
