"""Checks of arguments before anything is sent.

An error names the argument, what is expected, and what was given. Only values that cannot be sent
are refused here. The limits of a broker are checked by the broker, whose errors name the limit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")
# A broker refuses waits of more than a minute. Sockets do not accept arbitrarily long timeouts.
ANSWER_WAIT_S_MAX: Final = 86_400.0


def check_whole(name: str, value: object, least: int = INT64_MIN, most: int = INT64_MAX) -> None:
    """TypeError unless `value` is an int, ValueError unless it is within the bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} lies from {least} to {most}, not {value}")


def check_sendable(**numbers: object) -> None:
    """ValueError for an int that does not fit a request; the broker checks everything else."""
    for name, value in numbers.items():
        if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            check_whole(name, value)


def check_word(name: str, value: object, words: Collection[str]) -> None:
    """ValueError unless `value` is one of these words."""
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name} is one of {', '.join(words)}, not {value!r}")


def check_keywords(call: str, given: Collection[str], declared: type, *further: str) -> None:
    """TypeError for a keyword that is neither declared by the TypedDict nor one of the further."""
    names = declared.__annotations__
    for name in given:
        if name not in names and name not in further:
            known = (*further, *names)
            if name.endswith(("_ms", "_s")) and name.rpartition("_")[0] in known:
                raise a_number(call, name)
            raise TypeError(f"{call} has no argument {name!r}; it has {', '.join(known)}")


def a_number(call: str, name: str) -> TypeError:
    """The error for a duration as a number, such as `wait_ms`."""
    stem, _, unit = name.rpartition("_")
    one = "milliseconds" if unit == "ms" else "seconds"
    return TypeError(f"{call} has no argument {name!r}: write {stem}=timedelta({one}=…)")


def check_text(name: str, value: object) -> None:
    """TypeError unless `value` is a str or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is a text or None, not {type(value).__name__}")


def check_texts(name: str, value: object) -> tuple[str, ...]:
    """The values of a list of str as a tuple; TypeError for anything else, also one str."""
    if isinstance(value, str):
        raise TypeError(f"{name} are a list of texts, not one text")
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} are a list of texts, not {type(value).__name__}")
    texts = tuple(value)
    for each in texts:
        if not isinstance(each, str):
            raise TypeError(f"{name} are a list of texts, which {each!r} is not")
    return texts


def check_namespace(namespace: object) -> None:
    """TypeError or ValueError for an invalid name of a namespace."""
    if not isinstance(namespace, str):
        raise TypeError(f"a namespace is named by a str, not {type(namespace).__name__}")
    if not _NAME.match(namespace):
        raise ValueError(f"a namespace is named [A-Za-z0-9._-]{{1,200}}, not {namespace!r}")


def check_topic(topic: object) -> None:
    """TypeError or ValueError for an invalid name of a topic."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic is named by a str, not {type(topic).__name__}")
    if not _NAME.match(topic):
        raise ValueError(f"a topic is named [A-Za-z0-9._-]{{1,200}}, not {topic!r}")


def check_list(what: str, values: object) -> None:
    """TypeError for a single str or bytes, whose elements would be taken for values."""
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{what} are a list, not one {type(values).__name__}")


def answer_wait_s(wait_ms: int) -> float:
    """How much longer an answer may take because the broker waits."""
    return min(wait_ms / 1000, ANSWER_WAIT_S_MAX)
