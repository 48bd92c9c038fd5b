"""Parses the arguments of the native verbs."""

from __future__ import annotations

import re
from functools import lru_cache
from struct import iter_unpack
from typing import Final

import numpy as np

from delaylog.broker.calls.answers import problem_of
from delaylog.broker.calls.routes import NAME_RULE, TOPIC_NAME
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.model import Numbers
from delaylog.broker.engine.send.due_times import too_far
from delaylog.broker.host.waiters import TopicKey
from delaylog.broker.keyspace.errors import READ_ONLY, SYNTAX, CommandError
from delaylog.broker.keyspace.values.number_texts import to_int
from delaylog.contract.members import MemberError, ms_in_words
from delaylog.contract.message_fields import BY_NAME
from delaylog.contract.times import time_fault
from delaylog.storage.columns import some
from delaylog.storage.layout import Int64Array

_RECEIPTS: Final = re.compile(rb"[0-9a-f]*").fullmatch
_RECEIPT_SIZE: Final = 32
_INT64_DIGITS: Final = 19
_ZERO: Final = ord("0")
_PLACES: Final = 10 ** np.arange(_INT64_DIGITS - 1, -1, -1)
"""The power of ten of each digit, from the first to the last."""
ID_LINE_SIZE: Final = 24
"""Bytes of a generated id as a bulk string in a reply."""
_ID_LINE: Final = np.frombuffer(b"$17\r\n~0123456789abcdef\r\n", np.uint8)
_ID_TEXT: Final = b"$17\r\n~%016x\r\n"
_ID_DIGITS: Final = slice(6, 22)
assert len(_ID_LINE) == ID_LINE_SIZE
_SHOWN_BYTES: Final = 64


@lru_cache(maxsize=4_096)
def topic_key(name: bytes) -> TopicKey:
    """Parse `topic` or `namespace/topic` to (namespace, topic). Raises CommandError."""
    namespace, slash, topic = name.decode("latin-1").rpartition("/")
    if not slash:
        namespace = "default"
    if not (TOPIC_NAME.match(namespace) and TOPIC_NAME.match(topic)):
        raise CommandError(f"ERR a topic is named {NAME_RULE}; or namespace/topic".encode())
    return namespace, topic


def take_text(text: bytes, what: bytes) -> str:
    """Decode a name. Raises CommandError if it is not UTF-8: no name may be an alias of another."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise CommandError(b"ERR %b is not UTF-8" % what) from None


def take_due(text: bytes, horizon_ms: int, now_ms: int) -> tuple[int, bool]:
    """Parse `250` or `@1767225600000` to (ms, whether it is a delay). Raises CommandError."""
    if text[:1] == b"@":
        at_ms = to_int(text[1:], b"ERR a time is written as @ and Unix milliseconds")
        fault = time_fault(at_ms)
        if fault is None and at_ms > now_ms + horizon_ms:
            fault = too_far(at_ms, now_ms, horizon_ms)
        if fault is not None:
            raise CommandError(b"ERR the due time " + fault.encode())
        return at_ms, False
    # Fast path: nearly all delays are digits only.
    if text.isdigit() and len(text) < _INT64_DIGITS and text[0] != _ZERO:
        delay_ms = int(text)
        if delay_ms <= horizon_ms:
            return delay_ms, True
    return take_delay(text, b"delay-ms", horizon_ms, b"a whole number, or @ and a time"), True


def take_delay(text: bytes, what: bytes, horizon_ms: int, form: bytes = b"a whole number") -> int:
    """Parse a delay; a negative one is 0. Raises CommandError."""
    delay_ms = to_int(text, b"ERR %b must be %b" % (what, form))
    if delay_ms > horizon_ms:
        raise CommandError(b"ERR %b is at most %b" % (what, ms_in_words(horizon_ms).encode()))
    return max(delay_ms, 0)


def plain_numbers(texts: list[bytes]) -> Int64Array | None:
    """Parse integers to a column; None unless each has digits only and surely fits in 64 bits."""
    joined = b"".join(texts)
    widths = set(map(len, texts))
    width = max(widths)
    if not joined.isdigit() or 0 in widths or width >= _INT64_DIGITS:
        return None
    rows = len(texts)
    numbers: Int64Array
    if len(widths) == 1:
        letters = np.frombuffer(joined, np.uint8).reshape(rows, width)
        if width > 1 and some(letters[:, 0] == _ZERO):
            return None
        numbers = (letters - _ZERO) @ _PLACES[-width:]
        return numbers
    # Shorter numbers are padded with zero bytes, which the sum counts as digits 0; the division
    # below removes them.
    letters = np.array(texts).view(np.uint8).reshape(rows, width)
    if some((letters[:, 0] == _ZERO) & (letters[:, 1] != 0)):
        return None
    numbers = np.where(letters, letters - _ZERO, 0) @ _PLACES[-width:]
    numbers //= _PLACES[np.count_nonzero(letters, axis=1) - width - 1]
    return numbers


def take_number(text: bytes, what: bytes, low: int, high: int) -> int:
    """Parse an integer in bounds. Raises CommandError."""
    refusal = b"ERR %b must be a whole number from %d to %d" % (what, low, high)
    value = to_int(text, refusal)
    if not low <= value <= high:
        raise CommandError(refusal)
    return value


def misplaced(usage: bytes) -> CommandError:
    """Return a syntax error of Redis with the correct usage, for an incomplete option."""
    return CommandError(SYNTAX + b": write " + usage)


def unknown_option(option: bytes) -> CommandError:
    """Return a syntax error of Redis that names a word which is not an option of this verb."""
    return CommandError(SYNTAX + b": there is no option '%b'" % option[:_SHOWN_BYTES])


def take_list(argv: list[bytes], at: int) -> tuple[list[bytes], int]:
    """Parse `n word …` from `at`; returns the words and the index after them.

    Raises CommandError.
    """
    if at >= len(argv):
        raise misplaced(b"TAGS n tag ...")
    count = take_number(argv[at], b"the count of tags", 0, len(argv) - at - 1)
    return argv[at + 1 : at + 1 + count], at + 1 + count


def take_receipts(texts: list[bytes]) -> list[tuple[int, int]]:
    """Parse receipts to pairs of lease and origin ref. Raises CommandError."""
    joined = b"".join(texts)
    if any(len(text) != _RECEIPT_SIZE for text in texts) or not _RECEIPTS(joined):
        raise CommandError(b"ERR a receipt is 32 hex digits, as DL.RECEIVE returned it")
    return list(iter_unpack(">Qq", bytes.fromhex(joined.decode())))


def written_ids(refs: Numbers) -> bytes:
    """Encode generated ids as bulk strings of a reply."""
    if isinstance(refs, list):
        return b"".join([_ID_TEXT % ref for ref in refs])
    lines = np.empty((len(refs), ID_LINE_SIZE), np.uint8)
    lines[:] = _ID_LINE
    digits = refs.astype(">i8").tobytes().hex().encode()
    lines[:, _ID_DIGITS] = np.frombuffer(digits, np.uint8).reshape(-1, 16)
    return lines.tobytes()


def refusal(error: Exception) -> CommandError | None:
    """Return the reply for an error of a lower layer; None if the error is not a refusal."""
    if isinstance(error, CommandError):
        return error
    if isinstance(error, NotLeadingError):
        return CommandError(READ_ONLY)
    found = problem_of(error)
    if found is None:
        return None
    text = found.detail
    if isinstance(error, MemberError) and error.field in BY_NAME:
        text = f"{BY_NAME[error.field].option.decode()} {error.what}"
    return CommandError(f"{found.kind.word} {text}".encode())
