"""The verbs that ask a running broker, each with what it calls.

They stand apart from the others since they need the client, which takes longer to load than all
else that the command does.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Final

from delaylog.broker.cli.chosen import cancel_command, replay_command, reschedule_command
from delaylog.broker.cli.clusters import cluster_command
from delaylog.broker.cli.looking import list_command, show_command
from delaylog.broker.cli.remote import (
    clock_command,
    receive_command,
    send_command,
    stats_command,
    topics_command,
)
from delaylog.broker.cli.whole_topics import groups_command, pause_command, purge_command

_COMMANDS: Final = {
    "send": send_command,
    "receive": receive_command,
    "list": list_command,
    "show": show_command,
    "stats": stats_command,
    "topics": topics_command,
    "clock": clock_command,
    "cluster": cluster_command,
    "cancel": cancel_command,
    "reschedule": reschedule_command,
    "replay": replay_command,
    "groups": groups_command,
    "purge": purge_command,
    "pause": pause_command,
    "resume": pause_command,
}


def run_remote(verb: str, args: argparse.Namespace) -> int:
    """Run one of them to its end; returns its exit status."""
    return asyncio.run(_COMMANDS[verb](args))
