"""Imports every family, which fills the table of commands."""

from delaylog.broker.keyspace.commands import (
    channels,
    connection,
    strings,
    transactions,
)

__all__ = [
    "channels",
    "connection",
    "strings",
    "transactions",
]
