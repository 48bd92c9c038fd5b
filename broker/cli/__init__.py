"""The command line `delaylog`.

Read `main` and `parser` first: `parser` declares the verbs, the other modules carry them out.
"""

from delaylog.broker.cli.main import main

__all__ = ["main"]
