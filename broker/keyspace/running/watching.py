"""WATCH: a session learns that one of its keys was changed, or that its time has come.

Who watches a key stands in its database, for whoever changes it to tell them (`dirty_watch`). A key
that ends by time is changed by nobody, so that is looked up when EXEC asks.
"""

from __future__ import annotations

from delaylog.broker.keyspace.running.session import Session


def watch_keys(session: Session, keys: list[bytes], now_ms: int) -> None:
    """Have changes of these keys of the session's database noted."""
    database = session.database
    for key in keys:
        if not any(db is database and k == key for db, k, _ in session.watched):
            at_ms = database.expires.get(key)
            over = at_ms is not None and at_ms <= now_ms
            session.watched.append((database, key, over))
            database.watchers.setdefault(key, {})[session] = None


def watched_is_over(session: Session, now_ms: int) -> bool:
    """Whether the time of a watched key has come since."""
    for database, key, over in session.watched:
        at_ms = database.expires.get(key)
        if at_ms is not None and not over and at_ms <= now_ms:
            return True
    return False


def forget_watches(session: Session) -> None:
    """Watch nothing any more."""
    for database, key, _ in session.watched:
        watchers = database.watchers.get(key)
        if watchers is not None:
            watchers.pop(session, None)
            if not watchers:
                del database.watchers[key]
    session.watched = []
    session.dirty_watch = False
