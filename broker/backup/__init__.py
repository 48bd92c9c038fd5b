"""Backups of a data folder, also of one that is being served, and their way back.

A backup is a data folder as a crash would have left it, made of one checkpoint, what that counts,
and the log behind it; a restored broker recovers from it as from a kill.
"""

from delaylog.broker.backup.manifest import MANIFEST, BackupError, Manifest, read_manifest
from delaylog.broker.backup.restoring import RESTORING, restore_backup, restore_unfinished
from delaylog.broker.backup.taking import take_backup

__all__ = [
    "MANIFEST",
    "RESTORING",
    "BackupError",
    "Manifest",
    "read_manifest",
    "restore_backup",
    "restore_unfinished",
    "take_backup",
]
