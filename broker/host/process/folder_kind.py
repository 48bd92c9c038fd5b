"""What a folder is: refuses what looks like a data folder and must not be served as one."""

from __future__ import annotations

import os

from delaylog.broker.backup.manifest import MANIFEST
from delaylog.broker.backup.restoring import restore_unfinished
from delaylog.broker.cluster.copies.incoming import copy_unfinished
from delaylog.broker.cluster.members.folder_owner import META
from delaylog.broker.host.config import ConfigError


def check_folder(folder: str, *, member: bool) -> None:
    """Refuse to serve a folder alone, or at all, that is not one for it. Raises ConfigError."""
    if os.path.lexists(f"{folder}/{MANIFEST}"):
        raise ConfigError(
            f"{folder} is a backup: serving would change it; `delaylog restore` it first"
        )
    if restore_unfinished(folder):
        raise ConfigError(f"a restore into {folder} was not finished: run it again")
    if not member and copy_unfinished(folder):
        raise ConfigError(f"{folder} takes over a leader's copy: serve it with its --cluster FILE")
    if not member and os.path.lexists(f"{folder}/{META}"):
        # Alone it would begin an epoch of its own and apply what no majority has: back in its
        # cluster it could win an election by that, and have the others cut what they acknowledged.
        raise ConfigError(
            f"{folder} belongs to a node of a cluster: serve it with its --cluster FILE; to serve "
            "its messages alone, `delaylog backup` it and `delaylog restore` that elsewhere"
        )
