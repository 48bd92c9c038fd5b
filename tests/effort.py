"""How hard random searches try: one number scales the examples and seeds of all of them.

`make check` sets 0.2, `make test` 0.3 and `make nightly` 5; the default is 1.
"""

from __future__ import annotations

import os
from typing import Final

EFFORT: Final = float(os.environ.get("DELAYLOG_EFFORT", "1"))


def tries(count: int) -> int:
    """So many examples or seeds, scaled; one at least."""
    return max(1, round(count * EFFORT))
