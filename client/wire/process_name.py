"""The name by which a broker shows the consumers of this process, unless they say another."""

from __future__ import annotations

import os
import socket
from functools import lru_cache


def process_name() -> str:
    """Host name and process id, such as `web-3:4711`."""
    return f"{_host_name()}:{os.getpid()}"


@lru_cache(maxsize=1)
def _host_name() -> str:
    return socket.gethostname()[:200] or "unknown"
