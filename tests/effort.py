"""How hard random searches try: one number scales the examples and seeds of all of them.

`DELAYLOG_EFFORT=0.2` is for a look beside work, 1 what `make test` does, 10 for a night.
"""

from __future__ import annotations

import os
from typing import Final

EFFORT: Final = float(os.environ.get("DELAYLOG_EFFORT", "1"))


def tries(count: int) -> int:
    """So many examples or seeds, scaled; one at least."""
    return max(1, round(count * EFFORT))
