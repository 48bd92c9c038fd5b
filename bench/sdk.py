"""What programs get out of the client library: one table for each side of it.

Each side is a file of its own with a `measure(brokers, settings)`; section `sdk` shows them all.
"""

from __future__ import annotations

from collections.abc import Iterator

import sdk_embedded
import sdk_send
import sdk_worker
from broker_process import Brokers
from settings import Settings
from tables import Table


def measure(brokers: Brokers, settings: Settings) -> Iterator[Table]:
    """The tables, one after the other."""
    yield sdk_send.measure(brokers, settings)
    yield sdk_worker.measure(brokers, settings)
    yield sdk_embedded.measure(brokers, settings)
