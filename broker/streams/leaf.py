"""What streams add: the call that opens one, and live reads at `/v1/live`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from delaylog.broker.process.leaves import Leaf
from delaylog.extras import STREAMS

if TYPE_CHECKING:
    from delaylog.broker.calls.operations import Handler
    from delaylog.broker.web.mounts import ReadsPage


def _calls() -> Mapping[str, Handler]:
    from delaylog.broker.streams.websocket import open_stream

    return {"stream": open_stream}


def _page() -> ReadsPage:
    from delaylog.broker.streams.live import PAGE

    return PAGE


LEAF: Final = Leaf(STREAMS, calls=_calls, page=_page)
