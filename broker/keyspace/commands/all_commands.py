"""Imports every family, which fills the table of commands."""

from delaylog.broker.keyspace.commands import (
    bitfields,
    bits,
    connection,
    counters,
    dumping,
    expiry_commands,
    generic,
    lcs,
    objects,
    sorting,
    strings,
    transactions,
)

__all__ = [
    "bitfields",
    "bits",
    "connection",
    "counters",
    "dumping",
    "expiry_commands",
    "generic",
    "lcs",
    "objects",
    "sorting",
    "strings",
    "transactions",
]
