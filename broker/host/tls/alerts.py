"""Sends the TLS alert of a failed handshake, which tells the peer why it is refused.

The event loops close the socket of a failed handshake without what OpenSSL has written last. The
contexts of this module keep it, and `alerting` sends it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast


class AlertingContext(ssl.SSLContext):
    """A context whose connections keep the alert of a failed handshake."""

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **how: Any
    ) -> Any:
        """A connection over memory, as the event loops use it."""
        made = super().wrap_bio(incoming, outgoing, *args, **how)
        cast("_Connection", made).outgoing = outgoing
        return made


class _Connection(ssl.SSLObject):
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            cast(Any, error).alert = self.outgoing.read()
            raise


AlertingContext.sslobject_class = _Connection


@contextmanager
def alerting(sock: socket.socket) -> Iterator[None]:
    """Send the peer the alert of a handshake that fails in this block, which closes the socket."""
    spare = sock.dup()
    try:
        yield
    except ssl.SSLError as error:
        with suppress(OSError):
            spare.send(getattr(error, "alert", b""))
        raise
    finally:
        spare.close()
