"""Bodies of messages in JSON: text as it is, and bytes that are no UTF-8 in base64."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any


def body_of(shape: Mapping[str, Any]) -> bytes:
    """The body of a JSON object that has `body` (text) or `body_base64`."""
    if "body_base64" in shape:
        return base64.b64decode(shape["body_base64"])
    return str(shape.get("body", "")).encode()


def with_body(shape: dict[str, Any], body: bytes | str) -> dict[str, Any]:
    """The JSON object with the body added: as text if it is str, otherwise as base64."""
    if isinstance(body, str):
        return shape | {"body": body}
    try:
        return shape | {"body": body.decode()}
    except UnicodeDecodeError:
        return shape | {"body_base64": base64.b64encode(body).decode()}
