"""The command line `delaylog`.

Read `main` and `parser` first: `parser` declares the verbs, the other modules implement them.
"""

from delaylog.broker.cli.main import main

__all__ = ["main"]
