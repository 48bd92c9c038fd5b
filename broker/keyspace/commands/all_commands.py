"""Imports every family, which fills the table of commands."""

from delaylog.broker.keyspace.commands import (
    bitfields,
    bits,
    channels,
    connection,
    counters,
    dumping,
    expiry_commands,
    generic,
    hashes,
    lcs,
    objects,
    sorting,
    strings,
    transactions,
)

__all__ = [
    "bitfields",
    "bits",
    "channels",
    "connection",
    "counters",
    "dumping",
    "expiry_commands",
    "generic",
    "hashes",
    "lcs",
    "objects",
    "sorting",
    "strings",
    "transactions",
]
