"""Requests off the wire: bytes go in as they arrive, whole commands come out.

`command_parser` gives the parser for a connection: with hiredis (the extra `redis`) where that is
installed, in plain Python otherwise. Both take and refuse the same, in the same words.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.resp.parsing.limits import RequestLimits
from delaylog.broker.resp.parsing.strict import CommandParser

_Parser: type[CommandParser]
try:
    from delaylog.broker.resp.parsing.accelerated import HiredisParser as _Parser
except ImportError:
    _Parser = CommandParser

ACCELERATED: Final = _Parser is not CommandParser
"""Whether hiredis is installed."""


def command_parser(
    limits: RequestLimits | None = None, *, authenticated: bool = True
) -> CommandParser:
    """The faster parser there is."""
    return _Parser(limits, authenticated=authenticated)


__all__ = ["ACCELERATED", "CommandParser", "RequestLimits", "command_parser"]
