#!/usr/bin/env bash
# Prints where nft is, by which the drills cut-tcp and black-hole break connections. On Debian and
# Ubuntu, root installs it if it is missing; elsewhere, say how to get it and fail.
set -euo pipefail

if ! command -v nft; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends nftables) >&2
        command -v nft
    else
        echo "make drills-core needs nft: apt-get install nftables" >&2
        exit 1
    fi
fi
