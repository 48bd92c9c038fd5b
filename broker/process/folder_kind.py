"""Refuses folders that look like a data folder but must not be served, for example a backup."""

from __future__ import annotations

import os

from delaylog.broker.backup.copies import MANIFEST
from delaylog.broker.backup.restore import restore_unfinished
from delaylog.broker.cluster.copies.incoming_folder import copy_unfinished
from delaylog.broker.host.settings import ConfigError
from delaylog.replication.meta import META


def check_folder(folder: str, *, member: bool) -> None:
    """Raise ConfigError if the folder must not be served, or not without its cluster.

    `member` = the broker would serve it as a member of a cluster.
    """
    if os.path.lexists(f"{folder}/{MANIFEST}"):
        raise ConfigError(
            f"{folder} is a backup: serving would change it; `delaylog restore` it first"
        )
    if restore_unfinished(folder):
        raise ConfigError(f"a restore into {folder} was not finished: run it again")
    if not member and copy_unfinished(folder):
        raise ConfigError(
            f"{folder} has an unfinished copy from a leader: serve it with its --cluster FILE"
        )
    if not member and os.path.lexists(f"{folder}/{META}"):
        # Without its cluster the node would begin a new epoch and apply frames that no majority
        # has. Back in its cluster, it could win an election with these frames and make the other
        # nodes truncate acknowledged ones.
        raise ConfigError(
            f"{folder} belongs to a node of a cluster: serve it with its --cluster FILE; to serve "
            "its messages alone, `delaylog backup` it and `delaylog restore` that elsewhere"
        )
