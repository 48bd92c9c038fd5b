"""`python -m pyspark_delaylog.jobs`."""

import sys

from pyspark_delaylog.jobs.main import main

if __name__ == "__main__":
    sys.exit(main())
