"""Topics with the settings that a recipe stands on.

The one rule: a topic that is there already is never changed behind somebody's back. It serves if
what the recipe needs of it is so, else the failure names what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from delaylog.client.errors import Conflict, NotFound
from delaylog.client.models import TopicSettings
from delaylog.client.queues.port import QueuePort

NO_BACKOFF: Final[Mapping[str, float]] = {"first_ms": 0}


class TopicMismatch(ValueError):
    """A topic is there with settings that the recipe cannot work on; nothing was changed.

    `differences` says of each setting what the topic has and what is needed.
    """

    def __init__(self, topic: str, differences: Mapping[str, tuple[object, object]]) -> None:
        self.topic = topic
        self.differences = dict(differences)
        told = ", ".join(
            f"{name} is {has!r} and has to be {needs!r}"
            for name, (has, needs) in self.differences.items()
        )
        super().__init__(
            f"topic {topic!r} serves something else: {told}; take another topic, or change this "
            "one if nothing else uses it (slots are fixed for good)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.topic, self.differences)


def open_topic(
    client: QueuePort, topic: str, needed: Mapping[str, Any], first: Mapping[str, Any] | None = None
) -> TopicSettings:
    """The settings of a topic that has what is `needed`; made where it is not there.

    `first` are settings of a topic that is made here, which may be others where it is known.
    """
    try:
        found = client.get_topic(topic).settings
    except NotFound:
        # If somebody makes it in this moment with other slots, the comparison says so.
        with suppress(Conflict):
            client.put_topic(topic, {**(first or {}), **needed})
        found = client.get_topic(topic).settings
    differences = {
        name: (_shown(found, name), value)
        for name, value in needed.items()
        if not _serves(_shown(found, name), value)
    }
    if differences:
        raise TopicMismatch(topic, differences)
    return found


def change_topic(client: QueuePort, topic: str, **changes: Any) -> TopicSettings:
    """Replace some settings of a topic and keep the others."""
    kept = client.get_topic(topic).settings.members()
    return client.put_topic(topic, kept | changes).settings


def _shown(settings: TopicSettings, name: str) -> object:
    return getattr(settings, name)


def _serves(has: object, needs: object) -> bool:
    """Whether a setting is as it has to be; of a map what is needed has to be in it."""
    if isinstance(needs, Mapping):
        return isinstance(has, Mapping) and all(has.get(name) == needs[name] for name in needs)
    return has == needs
