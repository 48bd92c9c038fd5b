#!/bin/sh
# Find or install Sidekiq for Ruby: Debian's ruby-sidekiq.
#
# Said last, on standard output: its version. The one on PATH is taken, else Debian's is installed
# by apt (as root). Without one this fails; no test is skipped for its lack.
set -eu

package=ruby-sidekiq

give_up() {
    echo "get_sidekiq.sh: $1" >&2
    echo "The tests of Sidekiq need its programs. Install them, for example by" >&2
    echo "    apt-get install $package" >&2
    echo "on Debian 12." >&2
    exit 1
}

install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $package >&2
}

if ! command -v sidekiq >/dev/null; then
    command -v apt-get >/dev/null || give_up "no sidekiq on PATH, and no apt-get to install it"
    [ "$(id -u)" = 0 ] || give_up "no sidekiq on PATH, and only root can install it"
    install || { apt-get update -qq >&2 && install; } || give_up "apt-get install $package failed"
fi
sidekiq --version || give_up "sidekiq --version failed"
