"""Names of topics, sorted in each namespace, for the pages of a list of topics."""

from __future__ import annotations

from itertools import islice, takewhile

from sortedcontainers import SortedList


class TopicNames:
    """Sorted names, so that the cost of a page depends on its length only."""

    def __init__(self) -> None:
        self._spaces: dict[str, SortedList[str]] = {}

    def add(self, namespace: str, name: str) -> None:
        """A topic was created."""
        found = self._spaces.get(namespace)
        if found is None:
            found = self._spaces[namespace] = SortedList()
        found.add(name)

    def remove(self, namespace: str, name: str) -> None:
        """A topic was dropped."""
        names = self._spaces[namespace]
        names.remove(name)
        if not names:
            del self._spaces[namespace]

    def namespaces(self) -> list[str]:
        """Namespaces that have topics, by name."""
        return sorted(self._spaces)

    def page(
        self, namespace: str, limit: int, *, after: str = "", prefix: str = ""
    ) -> tuple[list[str], str | None]:
        """Up to `limit` names behind `after`, and the cursor of the next page; None on the last."""
        first = max(after, prefix)
        names = self._spaces.get(namespace)
        if names is None:
            return [], None
        behind = names.irange(first, inclusive=(first != after, True))
        matching = takewhile(lambda name: name.startswith(prefix), behind)
        found = list(islice(matching, limit + 1))
        page = found[:limit]
        return page, page[-1] if len(found) > limit else None
