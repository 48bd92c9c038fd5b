"""delaylog: a disk-backed delay log broker with a hierarchical timing wheel.

`open` and `open_async` serve a folder inside this program; what they need is imported when one of
them is called, so that importing delaylog costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delaylog.broker.embedded import ManualClock, WallClock
    from delaylog.broker.embedded import open_async_broker as open_async
    from delaylog.broker.embedded import open_broker as open  # noqa: A004

__version__ = "0.2.0.dev0"
__all__ = ["ManualClock", "WallClock", "__version__", "open", "open_async"]

_EMBEDDED = {
    "ManualClock": "ManualClock",
    "WallClock": "WallClock",
    "open": "open_broker",
    "open_async": "open_async_broker",
}


def __getattr__(name: str) -> Any:
    if name not in _EMBEDDED:
        raise AttributeError(f"module 'delaylog' has no attribute {name!r}")
    from delaylog.broker import embedded

    return getattr(embedded, _EMBEDDED[name])
