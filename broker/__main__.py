"""`python -m delaylog.broker`."""

import sys

from delaylog.broker.cli import main

if __name__ == "__main__":
    sys.exit(main())
