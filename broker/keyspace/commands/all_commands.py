"""Imports every family, which fills the table of commands."""

from delaylog.broker.keyspace.commands import (
    channels,
    connection,
    geo,
    geo_search,
    sorted_set_operations,
    sorted_set_popping,
    sorted_set_ranges,
    sorted_sets,
    strings,
    transactions,
)

__all__ = [
    "channels",
    "connection",
    "geo",
    "geo_search",
    "sorted_set_operations",
    "sorted_set_popping",
    "sorted_set_ranges",
    "sorted_sets",
    "strings",
    "transactions",
]
