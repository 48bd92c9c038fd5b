"""WATCH: marks a session when one of its keys changes or expires.

A database lists the sessions that watch each key and sets their `dirty_watch` at a change. No
command changes a key that expires, so EXEC checks expiry itself.
"""

from __future__ import annotations

from delaylog.broker.keyspace.running.session import Session


def watch_keys(session: Session, keys: list[bytes], now_ms: int) -> None:
    """Watch these keys in the session's database."""
    database = session.database
    for key in keys:
        if not any(db is database and k == key for db, k, _ in session.watched):
            at_ms = database.expires.get(key)
            over = at_ms is not None and at_ms <= now_ms
            session.watched.append((database, key, over))
            database.watchers.setdefault(key, {})[session] = None


def watched_is_over(session: Session, now_ms: int) -> bool:
    """Whether a watched key has expired since WATCH."""
    for database, key, over in session.watched:
        at_ms = database.expires.get(key)
        if at_ms is not None and not over and at_ms <= now_ms:
            return True
    return False


def forget_watches(session: Session) -> None:
    """Stop watching all keys."""
    for database, key, _ in session.watched:
        watchers = database.watchers.get(key)
        if watchers is not None:
            watchers.pop(session, None)
            if not watchers:
                del database.watchers[key]
    session.watched = []
    session.dirty_watch = False
