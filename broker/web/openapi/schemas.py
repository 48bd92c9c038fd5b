"""What JSON schemas of answers are made of."""

from __future__ import annotations

from typing import Final

from delaylog.contract.members import Schema

INT: Final[Schema] = {"type": "integer"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
INT_OR_NULL: Final[Schema] = {"type": ["integer", "null"]}
TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
FLAG_OR_NULL: Final[Schema] = {"type": ["boolean", "null"]}


def ref(name: str) -> Schema:
    """A schema of the document, by name."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(items: Schema) -> Schema:
    """A list of these."""
    return {"type": "array", "items": items}


def object_of(optional: dict[str, Schema] | None = None, /, **members: Schema) -> Schema:
    """An object that may get more members in a later release: a generated client has to let them
    pass.
    """
    return {
        "type": "object",
        "properties": {**members, **(optional or {})},
        "required": list(members),
    }


def each(kind: Schema, *names: str) -> dict[str, Schema]:
    """Members of the same kind."""
    return dict.fromkeys(names, kind)


def words(*texts: str | None) -> Schema:
    """One of these texts."""
    return {"enum": list(texts)}


def or_null(shape: Schema) -> Schema:
    """This, or null."""
    return {"anyOf": [shape, {"type": "null"}]}
