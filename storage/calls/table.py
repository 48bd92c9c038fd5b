"""All calls of the API."""

from __future__ import annotations

from typing import Final

from delaylog.storage.calls.of_access import OF_ACCESS
from delaylog.storage.calls.of_broker import OF_BROKER
from delaylog.storage.calls.of_topics import IN_NAMESPACES

ALL: Final = (*IN_NAMESPACES, *OF_BROKER, *OF_ACCESS)
BY_NAME: Final = {call.name: call for call in ALL}
