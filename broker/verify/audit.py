"""Verify the audit log: numbers and chain of its lines, and the heads that the node has reported.

The chain has no key: somebody who may write the files can replace it by another consistent chain.
The reported heads expose this, up to the newest head. Lines behind that head can be cut off at the
end of a line without a trace.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from delaylog.broker.backup.manifest import MANIFEST
from delaylog.broker.host.audit.files import (
    BATCH_BYTES,
    FOLDER,
    TORN_BYTES_MAX,
    file_name,
    first_line,
    first_lines,
    log_id,
    torn_at,
)
from delaylog.broker.host.audit.lines import (
    AUDIT,
    FIRST_CHAIN,
    LINE_BYTES_MAX,
    REMOVED,
    AuditHead,
    decode_line,
    next_chain,
    split_line,
)
from delaylog.broker.verify.report import Report
from delaylog.storage.files.file_system import File, FileSystem, parent_of

_FINDINGS_MAX: Final = 20
"""Damaged lines of one file that are listed."""


_ABSENT: Final = (
    "the node had another audit log, which is not here: the folder was restored, copied or made "
    "anew, or the audit log was deleted"
)


@dataclass(slots=True)
class _Chain:
    """How far the chain has been verified."""

    heads: dict[int, set[str]]
    """Chains that the node has reported, by the number of the line."""
    n: int = 0
    """Number of the last line that was read."""
    chain: str | None = FIRST_CHAIN
    """Chain of that line; None if it could not be read."""
    removed: dict[int, object] = field(default_factory=dict)
    """Chain of the last line of each file that the log has removed, by the number of the line."""


def heads_in(members: Mapping[str, Any]) -> list[AuditHead]:
    """The ends of audit logs in an ACCESS frame, or in the `access` member of a checkpoint."""
    audit = members.get("audit", {})
    named = [audit] if isinstance(audit, list) else [[log, *end] for log, end in audit.items()]
    return [AuditHead(node, log, lines, chain) for log, node, lines, chain in named]


def verify_audit(
    fs: FileSystem, folder: str, report: Report, heads: Sequence[AuditHead] = (), node: int = 0
) -> Generator[None, None, None]:
    """Check the audit log of a data folder; `heads` = the ends of audit logs that the log of
    messages names, `node` = the index of the folder's node.
    """
    place = f"{folder}/{FOLDER}"
    firsts = first_lines(fs, place)
    for name in fs.listdir(place) if fs.exists(place) else []:
        if name not in {file_name(first) for first in firsts}:
            report.note(f"{FOLDER}/{name}", 0, "not a file of the audit log, or set aside by it")
    heads = _of_this_log(fs, place, firsts, report, heads, node)
    at = _Chain({})
    for head in heads:
        at.heads.setdefault(head.n, set()).add(head.chain)
    # The number of lines before the first file, and the chain that this file states for them.
    missing, stated = 0, None
    for first in firsts:
        name = f"{FOLDER}/{file_name(first)}"
        with closing(fs.open(f"{folder}/{name}")) as file:
            report.files += 1
            if first != at.n + 1:
                previous = _previous_chain(file)
                if first == firsts[0]:
                    missing, stated = first - 1, previous
                else:
                    what = f"lines {at.n + 1} to {first - 1} are missing"
                    report.damaged(name, 0, f"{what}: a file before this one was removed")
                at.n, at.chain = first - 1, previous
            yield from _file(file, name, at, report, last=first == firsts[-1])
    if missing:
        _check_missing(missing, stated, at, report)
    newest = max(at.heads, default=0)
    if newest > at.n:
        what = f"it ends with line {at.n}, but the node has written line {newest}: lines were cut"
        report.damaged(FOLDER, 0, what)


def _of_this_log(
    fs: FileSystem,
    place: str,
    firsts: Sequence[int],
    report: Report,
    heads: Sequence[AuditHead],
    node: int,
) -> list[AuditHead]:
    """The heads of the audit log in this folder, by its id. Reports that the node had another one.

    A member of a cluster records heads only while it leads, and its folder may be made anew. A
    single broker has recorded its audit log since the start.
    """
    own: str | None = None
    for first in reversed(firsts):
        with closing(fs.open(f"{place}/{file_name(first)}")) as file:
            own = own or log_id(file)
    if firsts and own is None:
        return [head for head in heads if head.node == node]
    others = [head for head in heads if head.node == node and head.log != own]
    mine = [head for head in heads if head.log == own]
    if others and firsts and not mine and not node:
        report.damaged(FOLDER, 0, "this is not the audit log that the node has written")
    elif others and not fs.exists(f"{parent_of(place)}/{MANIFEST}"):
        # A backup has no audit log.
        report.note(FOLDER, 0, _ABSENT)
    return mine


def _check_missing(missing: int, stated: str | None, at: _Chain, report: Report) -> None:
    """Check that the node has removed the lines before the first file. `stated` = the chain that
    the file states for the last of them.
    """
    removed = missing in at.removed and at.removed[missing] == stated
    reported = at.heads.get(missing)
    if not removed or (reported is not None and stated not in reported):
        what = f"lines up to {missing} are missing, and no line says that the node removed them"
        report.damaged(FOLDER, 0, what)


def _previous_chain(file: File) -> str | None:
    """The chain of the line before a file, as its first line states it; None if it does not."""
    try:
        previous = first_line(file).facts.get("previous")
    except ValueError:
        return None
    return previous if isinstance(previous, str) else None


def _file(
    file: File, name: str, at: _Chain, report: Report, *, last: bool
) -> Generator[None, None, None]:
    end = size = file.size()
    report.bytes_read += size
    if last:
        start = max(size - TORN_BYTES_MAX, 0)
        whole = torn_at(file.pread(size - start, start))
        if (whole or not start) and start + whole < size:
            end = start + whole
            report.note(name, end, f"a torn tail of {size - end} bytes; a start cuts it")
    damaged = offset = 0
    rest = b""
    for begin in range(0, end, BATCH_BYTES):
        data = rest + file.pread(min(BATCH_BYTES, end - begin), begin)
        *lines, rest = data.split(b"\n")
        if begin + BATCH_BYTES >= end and rest:
            lines.append(rest)
        elif len(rest) > LINE_BYTES_MAX:
            report.damaged(name, offset, "bytes that are not lines")
            at.chain = None
            return
        for raw in lines:
            what = _line(raw, at)
            if raw is rest and what is None:
                what = f"line {at.n} has no end"
            if what is not None:
                damaged += 1
                if damaged <= _FINDINGS_MAX:
                    report.damaged(name, offset, what)
                elif damaged == _FINDINGS_MAX + 1:
                    report.damaged(name, offset, "and further lines")
            offset += len(raw) + 1
        yield


def _line(raw: bytes, at: _Chain) -> str | None:
    """What is wrong with the next line."""
    number, previous = at.n + 1, at.chain
    try:
        body, chain = split_line(raw)
        line = decode_line(body)
    except ValueError as error:
        at.n, at.chain = number, None
        return f"line {number} cannot be read: {error}"
    at.n, at.chain = line.n, chain
    if line.call == AUDIT and line.outcome == REMOVED:
        last = line.facts.get("last")
        if isinstance(last, int):
            at.removed[last] = line.facts.get("chain")
    if line.n != number:
        return f"line {line.n} where line {number} belongs: lines were removed, added or moved"
    if previous is not None and next_chain(previous, body) != chain:
        return f"line {number} does not continue the chain: it was changed, or is another line"
    if number in at.heads and chain not in at.heads[number]:
        return f"line {number} is not the line that the node has written"
    return None
