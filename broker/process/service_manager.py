"""Tells a service manager such as systemd when the broker is ready, reloads and stops.

The protocol is that of sd_notify(3): a datagram of lines `NAME=value` to the socket that the
variable NOTIFY_SOCKET names. Without the variable nothing is sent.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final

VARIABLE: Final = "NOTIFY_SOCKET"

log = logging.getLogger("delaylog.serve")


class ServiceManager:
    """The service manager that has started this process, if any."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Takes the variable out of `environ`, so that children do not notify."""
        self._address = environ.pop(VARIABLE, "")
        if self._address.startswith("@"):
            # A name in the kernel's abstract namespace.
            self._address = f"\0{self._address[1:]}"

    @property
    def listens(self) -> bool:
        """Whether there is one to notify."""
        return bool(self._address)

    def notify(self, **facts: object) -> None:
        """Send facts such as `READY=1`. A failure is logged, and no reason to end."""
        if not self._address:
            return
        lines = "\n".join(f"{name}={value}" for name, value in facts.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(lines.encode(), self._address)
        except OSError as error:
            name = self._address.replace("\0", "@", 1)
            log.warning("the service manager at %s cannot be notified: %s", name, error)
