"""A driver whose tasks dawdle at their first attempt, on a cluster that speculates.

python -m tests.spark.speculating MASTER ENDPOINT FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.faulty import DAWDLE_S, FaultySource
from tests.spark.frames import messages
from tests.spark.session import prepare_environment, start_session

LOAD = "speculative"
ROWS = 8_000
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.cores": "2",
    "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}


def main() -> None:
    master, endpoint, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    prepare_environment()
    own = folder / "driver"
    own.mkdir()
    spark = start_session(own, master, SETTINGS)
    try:
        spark.dataSource.register(FaultySource)
        frame = messages(spark, 0, ROWS, 4).write.format(FaultySource.name()).mode("append")
        options = {"endpoint": endpoint, "topic": "t", "txnAppId": LOAD, "batchSize": 250}
        frame.options(**options).option(DAWDLE_S, "20").save()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
