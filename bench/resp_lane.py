"""RespLane: a connection of a `Driver` that speaks RESP, its replies parsed by hiredis.

The one rule: an error reply ends the measurement, so a script only sees replies that are none.
"""

from __future__ import annotations

from typing import Final

import hiredis
from load import Lane, LoadError

RECEIVE_BYTES: Final = 65_536


class RespLane(Lane):
    """One connection to the broker's RESP face or to Redis."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._reader = hiredis.Reader()
        # An error reply raises LoadError.
        self.status = 200

    def pull(self) -> bool:
        while True:
            try:
                data = self.socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                return False
            if not data:
                raise LoadError("the server closed the connection")
            self._reader.feed(data)
            self.body = self._reader.gets()
            if self.body is not False:
                if isinstance(self.body, hiredis.ReplyError):
                    raise LoadError(f"refused: {self.body}")
                return True
