"""The command line `delaylog`.

Read `verbs` first: the table of verbs, and the module of each, which declares its arguments and
implements it. `parser` builds the command line from the table, `arguments` has the options that
verbs share, `output` prints. It may import everything of the broker and the client.
"""

from delaylog.broker.cli.main import main

__all__ = ["main"]
