"""Creates or checks the topic of a queue.

An existing topic is never changed. If its settings are not those that the queue requires, the error
names the differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from delaylog.client._sync.surface import QueueClient
from delaylog.client.errors import Conflict, NotFound
from delaylog.client.models import TopicSettings

NO_BACKOFF: Final[Mapping[str, float]] = {"first_ms": 0}


class TopicMismatch(ValueError):
    """The topic exists with settings that the queue cannot use. Nothing was changed.

    `differences` maps the name of a setting to its actual and its required value.
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
    client: QueueClient,
    topic: str,
    needed: Mapping[str, Any],
    first: Mapping[str, Any] | None = None,
) -> TopicSettings:
    """Return the settings of a topic; create it with the `needed` settings if it is missing.

    `first` has further settings for a new topic; an existing topic may differ in them.
    """
    try:
        found = client.get_topic(topic).settings
    except NotFound:
        # If another client creates it now with other slots, the comparison below fails.
        with suppress(Conflict):
            client.put_topic(topic, {**(first or {}), **needed})
        found = client.get_topic(topic).settings
    has = found.members()
    differences = {
        name: (has.get(name), value)
        for name, value in needed.items()
        if not _serves(has.get(name), value)
    }
    if differences:
        raise TopicMismatch(topic, differences)
    return found


def _serves(has: object, needs: object) -> bool:
    """Whether a setting has the required value; a mapping must contain the required items."""
    if isinstance(needs, Mapping):
        return isinstance(has, Mapping) and all(has.get(name) == needs[name] for name in needs)
    return has == needs
