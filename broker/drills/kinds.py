"""The drills by name, apart from what runs them: the command line is read without loading that."""

from __future__ import annotations

from typing import Final

DRILLS: Final = {
    "kill-leader": "SIGKILL of the leader",
    "stop-leader": "SIGSTOP of the leader for two seconds",
    "handover": "the leader hands over as planned",
    "restart-all": "SIGKILL of all three nodes at once",
}


class DrillError(Exception):
    """A drill cannot be run, or the cluster did not do what it must; the text says which."""
