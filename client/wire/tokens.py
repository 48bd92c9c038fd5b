"""The client's token as a header.

A token appears only in the header `Authorization`: the object that holds it hides its contents in
`repr`, and errors about a token do not contain it.
"""

from __future__ import annotations

from delaylog.client.wire.checks import check_text


class Headers(dict[str, str]):
    """Headers whose repr hides their values, so that logs and tracebacks may show it."""

    def __repr__(self) -> str:
        return f"Headers({', '.join(self)})"


def authorization(token: str | None) -> Headers:
    """The header for a token; empty without a token.

    ValueError if the token cannot be part of a header, TypeError if it is not a str.
    """
    check_text("token", token)
    if token is None:
        return Headers()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("a token is printable ASCII without spaces, and not empty")
    return Headers(Authorization=f"Bearer {token}")
