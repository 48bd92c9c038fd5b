"""Imports every family, which fills the table of commands, and gives each container its HELP."""

from delaylog.broker.keyspace.commands import (  # noqa: F401
    accounts,
    channels,
    clients,
    configuration,
    connection,
    counters,
    dumping,
    expiry_commands,
    function_calls,
    generic,
    hashes,
    information,
    introspection,
    list_moves,
    lists,
    memory,
    objects,
    scripting,
    sentinels,
    server,
    sets,
    sorted_set_operations,
    sorted_set_popping,
    sorted_set_ranges,
    sorted_sets,
    stream_claims,
    stream_facts,
    stream_groups,
    stream_reads,
    streams,
    strings,
    transactions,
)
from delaylog.broker.keyspace.commands.help_texts import add_help

add_help()
