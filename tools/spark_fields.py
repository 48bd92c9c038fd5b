"""Generate the Spark connector's table of a message's fields: `make twins`.

`pyspark_delaylog` runs without `delaylog`, so it cannot read
`contract/message_fields.py` itself. The generated module has the name and the type in Spark
SQL of each field, and the limits of texts. A field of a new kind fails here until `_type_of`
names its type.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from delaylog.contract.members import Choice, Int, Nested, Number, Text, TextList, TextMap
from delaylog.contract.message_fields import FIELDS
from delaylog.contract.times import UNIX_MS_MIN

MADE: Final = Path(__file__).resolve().parents[1] / "client" / "spark" / "field_table.py"
HEAD: Final = '''"""The fields of a message, except body and due time, as columns of a DataFrame.

Made from contract/message_fields.py by `make twins`: change that one.
"""

from __future__ import annotations

from typing import Final

'''


def made() -> str:
    """The text of the generated module."""
    types = [f'    "{field.name}": "{_type_of(field.member)}",\n' for field in FIELDS]
    limits = [
        f'    "{field.name}": {field.member.bytes_max},\n'
        for field in FIELDS
        if isinstance(field.member, Text) and field.member.bytes_max is not None
    ]
    words = [
        f'    "{field.name}": ({", ".join(map(json.dumps, field.member.words))}),\n'
        for field in FIELDS
        if isinstance(field.member, Choice)
    ]
    return (
        f"{HEAD}UNIX_MS_MIN: Final = {UNIX_MS_MIN:_}\n"
        '"""2001-09-09: an earlier due time was made from another unit."""\n'
        f"FIELD_TYPES: Final = {{\n{''.join(types)}}}\n"
        '"""The type of each field in Spark SQL."""\n'
        f"TEXT_BYTES_MAX: Final = {{\n{''.join(limits)}}}\n"
        '"""The greatest length of a text in bytes of UTF-8."""\n'
        f"WORDS: Final = {{\n{''.join(words)}}}\n"
        '"""The words of a field that is a choice."""\n'
    )


def _type_of(member: Any) -> str:
    """The type of a member in Spark SQL."""
    match member:
        case Text() | Choice():
            return "string"
        case Int():
            fits = int(member.low) >= -(2**31) and int(member.high) < 2**31
            return "int" if fits else "bigint"
        case Number():
            return "double"
        case TextList():
            return "array<string>"
        case TextMap():
            return "array<struct<key string, value binary>>"
        case Nested():
            parts = [f"{_part(part)}" for part in member.shape.members]
            return f"struct<{', '.join(parts)}>"
    raise TypeError(f"{member.name} is a {type(member).__name__}: name its type in Spark SQL here")


def _part(member: Any) -> str:
    # Integers of a struct are not narrowed: Spark makes them bigint.
    return f"{member.name} {'bigint' if isinstance(member, Int) else _type_of(member)}"


if __name__ == "__main__":
    MADE.write_text(made())
