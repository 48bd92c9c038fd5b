"""Write the replies of redis-server into transcripts: all traps, or the named files.

.venv/bin/python tests/redis/differential/record.py [strings ... ../../recipes/dyno ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))

from tests.redis.differential.endpoints import SocketEndpoint
from tests.redis.differential.transcript import FOLDER, record
from tests.redis_reference import reference

if __name__ == "__main__":
    chosen = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.txt"))
    with reference() as redis:
        for name in chosen:
            record(SocketEndpoint("127.0.0.1", redis.port), FOLDER / f"{name}.txt")
