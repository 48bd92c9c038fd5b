"""Imports every family, which fills the table of commands, and gives each container its HELP."""
# ruff: noqa: F401

import delaylog.broker.keyspace.commands.channels
import delaylog.broker.keyspace.commands.connection
import delaylog.broker.keyspace.commands.generic
import delaylog.broker.keyspace.commands.hashes
import delaylog.broker.keyspace.commands.information
import delaylog.broker.keyspace.commands.lists
import delaylog.broker.keyspace.commands.scripting
import delaylog.broker.keyspace.commands.sets
import delaylog.broker.keyspace.commands.sorted_sets
import delaylog.broker.keyspace.commands.stream_entries
import delaylog.broker.keyspace.commands.stream_groups
import delaylog.broker.keyspace.commands.stream_reads
import delaylog.broker.keyspace.commands.strings
import delaylog.broker.keyspace.commands.transactions
from delaylog.broker.keyspace.commands.information import add_help

add_help()
