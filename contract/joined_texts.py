r"""Several texts as one query parameter: separated by commas; in a text a comma is `\,`.

A backslash of a text is doubled. A backslash before any other character is dropped, and one at the
end is part of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_MARKS: Final = re.compile(r"\\(.)|,", re.DOTALL)


def join_texts(texts: Iterable[str]) -> str:
    """The parameter."""
    return ",".join(re.sub(r"([\\,])", r"\\\1", text) for text in texts)


def split_texts(joined: str) -> list[str]:
    """The texts of a parameter, at least one."""
    found, *rest = _MARKS.split(joined)
    texts = [found]
    for escaped, text in zip(rest[::2], rest[1::2], strict=True):
        if escaped is None:
            texts.append(text)
        else:
            texts[-1] += escaped + text
    return texts
