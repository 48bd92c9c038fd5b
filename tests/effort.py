"""How hard random searches try: one number scales the examples and seeds of all of them.

0.2 is what `make check` does, 0.5 `make test`, 5 `make nightly`; 1 where nothing is said.
"""

from __future__ import annotations

import os
from typing import Final

EFFORT: Final = float(os.environ.get("DELAYLOG_EFFORT", "1"))


def tries(count: int) -> int:
    """So many examples or seeds, scaled; one at least."""
    return max(1, round(count * EFFORT))
