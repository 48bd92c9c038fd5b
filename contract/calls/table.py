"""All calls of the API."""

from __future__ import annotations

from typing import Final

from delaylog.contract.calls.access import OF_ACCESS
from delaylog.contract.calls.broker import OF_BROKER
from delaylog.contract.calls.topics import IN_NAMESPACES

ALL: Final = (*IN_NAMESPACES, *OF_BROKER, *OF_ACCESS)
BY_NAME: Final = {call.name: call for call in ALL}
