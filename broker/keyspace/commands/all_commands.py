"""Imports every family, which fills the table of commands, and gives each container its HELP."""
# ruff: noqa: F401

from delaylog.broker.keyspace.commands import (
    channels,
    generic,
    hashes,
    lists,
    scripting,
    sets,
    strings,
    transactions,
)
from delaylog.broker.keyspace.commands.server import (
    clients,
    configuration,
    connection,
    information,
    introspection,
    sentinels,
)
from delaylog.broker.keyspace.commands.server.help_texts import add_help
from delaylog.broker.keyspace.commands.sorted_sets import members as sorted_sets
from delaylog.broker.keyspace.commands.sorted_sets import sorted_set_ranges
from delaylog.broker.keyspace.commands.streams import entries as streams
from delaylog.broker.keyspace.commands.streams import (
    stream_claims,
    stream_groups,
    stream_reads,
)

add_help()
