#!/usr/bin/env bash
# Print where nft is, by which the drills cut-tcp and black-hole break connections. Debian's package
# is installed where there is none, which needs root.
set -euo pipefail

if ! command -v nft; then
    apt-get update -qq >&2
    apt-get install -qq -y --no-install-recommends nftables >&2
    command -v nft
fi
