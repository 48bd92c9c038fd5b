"""Where the jobs of this folder are: at one address, or at the leader that sentinels name."""

from __future__ import annotations

import os

URL = os.environ["SERVER_URL"]
SENTINELS = [
    (host, int(port))
    for host, _, port in (at.rpartition(":") for at in os.environ.get("SENTINELS", "").split())
]
"""The addresses of a cluster's nodes; empty = the server at `URL`."""
MASTER = "delaylog"
