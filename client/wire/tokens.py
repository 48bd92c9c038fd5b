"""The token of a client as a header, and nothing that shows it.

The one rule: a token leaves a process in the header `Authorization` alone: what holds it has no
repr of its own contents, and what is wrong with it is said without it.
"""

from __future__ import annotations

from delaylog.client.wire.checks import check_text


class Headers(dict[str, str]):
    """Headers that a log or a traceback may show without telling what they hold."""

    def __repr__(self) -> str:
        return f"Headers({', '.join(self)})"


def authorization(token: str | None) -> Headers:
    """The header of a token; none without one. ValueError where it cannot stand in a header.

    TypeError for no text.
    """
    check_text("token", token)
    if token is None:
        return Headers()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("a token is printable ASCII without spaces, and not empty")
    return Headers(Authorization=f"Bearer {token}")
