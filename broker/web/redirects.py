"""Sending clients to the leader."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from aiohttp import web

READ_LOCAL: Final = "local"


def reads_locally(query: str) -> bool:
    """Whether a read is content with what this node knows (`?read=local`)."""
    return bool(query) and parse_qs(query).get("read") == [READ_LOCAL]


def redirect(leader_url: str, raw_path: str) -> web.Response:
    """307: the same call, at the leader."""
    return web.Response(status=307, headers={"Location": leader_url + raw_path})
