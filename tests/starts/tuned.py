"""The `delaylog` command with other constants, for tests of bounds that no operator sets.

    TUNED='{"delaylog.broker.engine.topics.idle.TOPIC_IDLE_MS": 150}' python -P tuned.py serve

The variable has JSON: values by the names of constants, or of attributes of objects that modules
hold. Other programs of tests that run the command, the starter of warm ones too, call `tune` first.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pkgutil import resolve_name
from types import ModuleType
from typing import Final

VARIABLE: Final = "TUNED"
BUSY: Final = {
    "delaylog.broker.engine.upkeep.checkpoints.CHECKPOINT_MS": 150,
    "delaylog.storage.hours.tails.TAIL_BYTES_MAX": 20_000,
    "delaylog.storage.hours.hour_flusher.STATE_BYTES_MAX": 4_096,
}
"""With these the splitter, state pages and checkpoints are always at work."""


def tuning(constants: Mapping[str, float]) -> dict[str, str]:
    """The variable for an environment."""
    return {VARIABLE: json.dumps(dict(constants))} if constants else {}


def tuned(constants: Mapping[str, float]) -> list[str]:
    """A program that stands for the command."""
    variables = [f"{name}={value}" for name, value in tuning(constants).items()]
    return ["/usr/bin/env", *variables, sys.executable, "-P", __file__]


def tune() -> None:
    """Change what the variable says, in this process."""
    for path, value in json.loads(os.environ.get(VARIABLE, "{}")).items():
        place, _, name = path.rpartition(".")
        holder = resolve_name(place)
        assert hasattr(holder, name), path
        if isinstance(holder, ModuleType):
            setattr(holder, name, value)
        else:
            # Declarations are frozen.
            object.__setattr__(holder, name, value)


if __name__ == "__main__":
    tune()
    from delaylog.broker.cli import main

    sys.argv[0] = "delaylog"
    sys.exit(main())
