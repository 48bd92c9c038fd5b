"""Imports every family, which fills the table of commands."""

from delaylog.broker.keyspace.commands import (
    connection,
    strings,
    transactions,
)

__all__ = [
    "connection",
    "strings",
    "transactions",
]
