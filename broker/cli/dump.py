"""`delaylog dump`: any file of a data folder as lines of JSON, for people and for jq.

It reads one file and does not trust its content: bytes that cannot be decoded become an `error` in
their line, and the dump goes on. It may run while a broker is writing the file.

A record does not describe itself, so `delay.log` is read with the rows of the index in the same
folder. A run of the far tier contains rows and their records, so a line of it shows what those of
delay.index and delay.log show. It imports the layouts of `storage` and the broker's readers of
files, and nothing of the client.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np
import orjson

from delaylog.broker.calls.forms.deliveries import own_members
from delaylog.broker.cli.failures import UsageError
from delaylog.broker.cli.parser import add_examples, add_json, complete_files
from delaylog.broker.cli.progress import Progress
from delaylog.broker.cli.values import utc_text
from delaylog.broker.engine.hold import FILE as HELD
from delaylog.broker.engine.hold import read_order
from delaylog.broker.engine.keyspace.keyspace_files import Reader, position_of_name
from delaylog.broker.engine.keyspace.keyspace_part import keyspace_part, piece_of
from delaylog.broker.engine.schedules.columns import BLOCK_ROWS, WIDTH, Column
from delaylog.broker.engine.schedules.definitions import HEADER, decode
from delaylog.broker.engine.schedules.schedule import PROGRESS, Schedule
from delaylog.broker.engine.schedules.table import rows_moved
from delaylog.contract.members import BatchError
from delaylog.storage.checkpoint import Checkpoint, read_checkpoint, saved_hours
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import ReadOnlyFileSystem
from delaylog.storage.hours.far.sorted_run import RunFacts, SortedRun
from delaylog.storage.hours.second_index import SecondIndex
from delaylog.storage.layout import (
    EXTENT,
    HOUR_SECONDS,
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_MASK,
    RUN_BLOCK_ROWS,
    RUN_HEADER,
    RUN_HEADER_SIZE,
    RUN_MAGIC,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    Cause,
    FrameKind,
    MessageState,
    RowArray,
    hour_name,
    ref_to_id,
)
from delaylog.storage.log.frames import Frame
from delaylog.storage.log.log_reader import scan_segment
from delaylog.storage.log.payloads import (
    ENDED_SIZE,
    PART,
    RESULTS,
    EndedTransaction,
    LeaseDecision,
    MoveDecision,
    PublishDecision,
    SettleDecision,
    frames_of,
    unpack,
)
from delaylog.storage.log.tick_slots import read_slots
from delaylog.storage.messages.batch import Block, decode_send
from delaylog.storage.messages.records import split_record
from delaylog.storage.runs.run_store import KeyRun, read_stored

# -------------------------------------------------------- users' data: records, ids, plain text

Lines = Iterator[dict[str, Any]]
_PART_ROWS: Final = 1_024


def dump_bodies(file: File, path: Path) -> Lines:
    """A line for each row, with the content of its record."""
    beside = path.with_name("delay.index")
    if not beside.is_file():
        raise UsageError(f"{path.name} cannot be read without {beside}, which does not exist")
    with closing(ReadOnlyFileSystem().open(str(beside))) as index:
        count = index.size() // INDEX_ENTRY_SIZE
        for start in range(0, count, _PART_ROWS):
            size = min(_PART_ROWS, count - start) * INDEX_ENTRY_SIZE
            rows = np.frombuffer(index.pread(size, start * INDEX_ENTRY_SIZE), INDEX_ENTRY)
            for number, row in enumerate(rows, start + 1):
                yield {"row": number} | _record(file, row)


def _record(file: File, row: RowArray) -> dict[str, Any]:
    offset, size = int(row["offset"]), int(row["size"])
    line: dict[str, Any] = {"offset": offset, "size": size}
    if offset + size > file.size():
        return line | {"error": "the record ends beyond the end of the file"}
    return line | record_members(file.pread(size, offset), row)


def record_members(record: bytes, row: RowArray) -> dict[str, Any]:
    """The content of a row's record."""
    try:
        found = split_record(record, row)
    except (ValueError, msgpack.UnpackException) as error:
        return {"error": f"the record cannot be decoded: {error}"}
    name = found.id or ref_to_id(int(row["origin"]))
    line = {"id": name, "key": found.key or None, "tags": found.tags}
    return line | own_members(found, packed=False)


def dump_ids(file: File, path: Path) -> Lines:  # noqa: ARG001 (one signature for all)
    """A line for each id of a run: its key (topic and id hash mixed) and ref; null = forgotten."""
    fs = ReadOnlyFileSystem()
    try:
        with closing(KeyRun(fs, str(path))) as run:
            yield from (
                {"key": f"{key:016x}", "ref": ref_to_id(ref) if ref else None}
                for keys, refs in run.slices()
                for key, ref in zip(keys.tolist(), refs.tolist(), strict=True)
            )
            for _ in run.check(fs):
                pass
    except CorruptionError as error:
        yield {"offset": error.position, "error": error.what}


def dump_ids_index(file: File, path: Path) -> Lines:  # noqa: ARG001
    """The log position up to which the runs have all ids, and their sizes, oldest run first."""
    try:
        stored = read_stored(ReadOnlyFileSystem(), str(path.parent))
    except CorruptionError as error:
        yield {"error": error.what}
        return
    runs = [{"run": f"{number}.ids", "ids": count} for number, count in stored.runs]
    yield {"position": stored.position, "runs": runs}


def dump_text(file: File, path: Path) -> Lines:  # noqa: ARG001
    """A line for each line of the file `crash`: the traceback of a process that has died."""
    text = file.pread(file.size(), 0).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        yield {"line": number, "text": line}


def dump_object(file: File, path: Path) -> Lines:  # noqa: ARG001
    """The JSON object that the file consists of, unchanged."""
    try:
        found = orjson.loads(file.pread(file.size(), 0))
    except orjson.JSONDecodeError as error:
        yield {"error": f"not JSON: {error}"}
        return
    yield found if isinstance(found, dict) else {"error": "not an object"}


# ------------------------------------------------------------ rows and states of hours and runs

_PART_RECORDS: Final = 4_096


def time_text(ms: int) -> str | None:
    """A readable time; None for 0, and for a time that no calendar date can express."""
    shown = utc_text(ms)
    return None if ms == 0 or not shown.endswith("Z") else shown


def records_of(file: File, dtype: np.dtype[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number from 1, fields) of every record."""
    size, part = file.size() // dtype.itemsize, _PART_RECORDS
    for start in range(0, size, part):
        raw = file.pread(min(part, size - start) * dtype.itemsize, start * dtype.itemsize)
        yield from enumerate(_fields(np.frombuffer(raw, dtype)), start + 1)


def _fields(records: np.ndarray) -> Iterator[dict[str, Any]]:
    names = [name for name in records.dtype.names or () if name != "unused"]
    columns = [records[name].tolist() for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def dump_index(file: File, path: Path) -> Lines:  # noqa: ARG001 (one signature for all)
    """A line for each row."""
    for _, row in records_of(file, INDEX_ENTRY):
        yield _row_members(row)


def _row_members(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("deliver_at", "sent_at"):
        row[name] = time_text(row[name])
    row["origin"] = ref_to_id(row["origin"])
    for name in ("tag_mask", "key_hash", "id_hash"):
        row[name] = f"{row[name]:016x}"
    return row


def dump_state(file: File, path: Path) -> Lines:  # noqa: ARG001
    """A line for each row that was ever delivered or changed."""
    for number, entry in records_of(file, STATE_ENTRY):
        if any(entry.values()):
            yield {"row": number} | _state_members(entry)


def _state_members(entry: dict[str, Any]) -> dict[str, Any]:
    kind, cause = entry["state"], entry["cause"]
    entry["state"] = MessageState(kind).name if kind in set(MessageState) else kind
    entry["cause"] = Cause(cause).name if cause in set(Cause) else cause
    entry["lease"] = f"{entry['lease']:016x}"
    entry["time"] = time_text(entry["time"])
    entry["forward"] = ref_to_id(entry["forward"]) if entry["forward"] else None
    return entry


# --------------------------------------------------------------------------- the far tier

_KINDS: Final = {INDEX_ENTRY_SIZE: ("rows", INDEX_ENTRY), STATE_ENTRY_SIZE: ("states", STATE_ENTRY)}


def dump_run(file: File, path: Path) -> Lines:
    """The header's content, then a line for each row or state, with its hour and row number."""
    raw = file.pread(RUN_HEADER_SIZE, 0)
    fields = RUN_HEADER.unpack(raw) if len(raw) == RUN_HEADER_SIZE else (0,) * 10
    magic, _, width, count, log_size, first, last, *_ = fields
    if magic != RUN_MAGIC or width not in _KINDS:
        yield {"error": "a damaged run"}
        return
    what, dtype = _KINDS[width]
    facts = RunFacts(0, count, log_size, 0, 0, first, last)
    try:
        run = SortedRun(ReadOnlyFileSystem(), str(path), dtype, facts)
    except CorruptionError as error:
        yield {"error": str(error)}
        return
    try:
        yield {what: count, "record_bytes": log_size, "positions": [first, last]}
        for start in range(0, count, RUN_BLOCK_ROWS):
            yield from _block(run, start, min(start + RUN_BLOCK_ROWS, count), dtype)
    finally:
        run.close()


def _block(run: SortedRun, start: int, stop: int, dtype: np.dtype[Any]) -> Lines:
    at = np.arange(start, stop)
    try:
        rows = run.rows(at)
    except CorruptionError as error:
        yield {"error": str(error)}
        return
    keys = run.keys_between(start, stop).tolist()
    heads = [{"hour": hour_name(key >> INDEX_BITS), "row": key & INDEX_MASK} for key in keys]
    if dtype == STATE_ENTRY:
        for head, entry in zip(heads, _fields(rows), strict=True):
            yield head | _state_members(entry)
        return
    offsets, sizes = rows["offset"].astype(np.int64), rows["size"].astype(np.int64)
    try:
        records, damage = run.records(at, offsets, sizes), {}
    except CorruptionError as error:
        records, damage = b"", {"error": str(error)}
    place = 0
    for head, row, fields in zip(heads, rows, _fields(rows), strict=True):
        record = records[place : place + fields["size"]]
        place += fields["size"]
        yield head | _row_members(fields) | (damage or record_members(record, row))


def saved_far_hours(checkpoint: Checkpoint) -> dict[str, Any]:
    """The far hours of a checkpoint: the first far hour, and the counts of each that has any."""
    table = checkpoint.table
    counts = saved_hours({hour: table[hour] for hour in table.far_hours().tolist()})
    return {"from": table.far_from, "counts": {str(hour): each for hour, each in counts.items()}}


# ---------------------------------------------------------------- all other files, and the verb

_REFS_SHOWN = 5
_EFFECTS_SHOWN = 20
_WORDS_SHOWN = 12
_WORD_SHOWN = 64


def _refs(refs: np.ndarray) -> dict[str, Any]:
    shown = [ref_to_id(ref) for ref in refs[:_REFS_SHOWN].tolist()]
    return {"n": len(refs), "refs": [*shown, "…"] if len(refs) > _REFS_SHOWN else shown}


# --------------------------------------------------------------------------- the physical log


def _schedules(members: dict[str, Any]) -> dict[str, Any]:
    """What a SCHEDULE frame does, without the bodies of messages."""
    if "put" in members:
        one = Schedule.unpack(members["put"])
        due = time_text(one.progress.due_ms) if one.progress.next_ms else None
        return {"put": one.name, "topic": one.topic, "number": one.number, "due": due}
    if "moved" in members:
        moved = [
            {"number": number, "due": time_text(values[PROGRESS.index("due_ms")])}
            for number, values in rows_moved(members)
        ]
        return {"n": len(moved), "moved": moved[:_REFS_SHOWN], "by": members["by"]}
    return members


def dump_segment(file: File, path: Path) -> Lines:
    """A line for each frame."""
    base = end = int(path.stem)
    for frame in scan_segment(file, base, base):
        header, end = frame.header, frame.end
        line = {
            "position": header.position,
            "kind": FrameKind(header.kind).name,
            "bytes": header.payload_size,
            "epoch": header.epoch >> 16,
            "time": time_text(header.leader_time_ms),
            "synced": header.synced_position,
            "tick": [header.tick_second, header.tick_local_index, header.tick_position],
        }
        try:
            # A payload may repeat the frame's time as a number.
            yield line | _payload(frame) | {"time": line["time"]}
        except (ValueError, KeyError, BatchError) as error:
            yield line | {"error": f"the payload cannot be decoded: {error}"}
    if left := base + file.size() - end:
        yield {"position": end, "error": f"no whole frame in the last {left} bytes"}


def _payload(frame: Frame) -> dict[str, Any]:
    kind = frame.header.kind
    if kind == FrameKind.SEND:
        head, wire = unpack(frame.payload)
        batch = decode_send(wire, rows_max=1 << 31)
        topic = head["topic"]
        return {
            "n": batch.n,
            "topic": topic if isinstance(topic, int) else "several",
            "producer": head.get("producer"),
            "sequence": head.get("sequence"),
        }
    if kind == FrameKind.LEASE:
        lease = LeaseDecision.decode(frame.payload)
        until = time_text(lease.deadline_ms)
        claim = {"claim": lease.claim} if lease.claim else {}
        several = {"leases": len(lease.counts)} if lease.counts else {}
        return {
            "topic": lease.topic,
            "lease": f"{lease.lease:016x}",
            "until": until,
            **several,
            **claim,
            **_refs(lease.refs),
        }
    if kind == FrameKind.SETTLE:
        settle = SettleDecision.decode(frame.payload)
        states = sorted({MessageState(s).name for s in settle.entries["state"].tolist()})
        causes = sorted({Cause(c).name for c in settle.entries["cause"].tolist()})
        return {"topic": settle.topic, "states": states, "causes": causes} | _refs(settle.refs)
    if kind == FrameKind.MOVE:
        move = MoveDecision.decode(frame.payload)
        due = [time_text(ms) for ms in move.deliver_at_ms[:_REFS_SHOWN].tolist()]
        return {"topic": move.topic, "cause": Cause(move.cause).name, "due": due} | _refs(move.refs)
    if kind == FrameKind.SCHEDULE:
        return _schedules(msgpack.unpackb(frame.payload))
    if kind == FrameKind.MULTI:
        inner = [
            {"kind": FrameKind(one.header.kind).name, **_payload(one)} for one in frames_of(frame)
        ]
        return {"n": len(inner), "frames": inner}
    if kind == FrameKind.TXN:
        return transaction_members(frame.payload)
    if kind == FrameKind.PUBLISH:
        return publish_members(frame.payload)
    if kind == FrameKind.KEYSPACE:
        if (piece := piece_of(frame.payload)) is not None:
            index, count = piece
            return {"piece": index + 1, "of": count}
        effects = msgpack.unpackb(frame.payload)
        return {"n": len(effects), "effects": [_effect(argv) for argv in effects[:_EFFECTS_SHOWN]]}
    if kind in (
        FrameKind.CLOCK,
        FrameKind.GROUP,
        FrameKind.FLOOR,
        FrameKind.JOB,
        FrameKind.CLAIM,
        FrameKind.ARCHIVE,
        FrameKind.LEVEL,
        FrameKind.HELD,
    ):
        members: dict[str, Any] = msgpack.unpackb(frame.payload)
        # The key of the id hashes is secret.
        return {name: value for name, value in members.items() if name != "id_key"}
    return {}


def _effect(argv: list[bytes]) -> str:
    """The first words of a command, readable and shortened."""
    shown = " ".join(_word(word) for word in argv[:_WORDS_SHOWN])
    return shown + " …" if len(argv) > _WORDS_SHOWN else shown


def _word(word: bytes) -> str:
    cut = word[:_WORD_SHOWN]
    text = cut.decode("ascii", "backslashreplace")
    text = text if text.isprintable() and text and " " not in text else repr(cut)[1:]
    return text + "…" if len(word) > _WORD_SHOWN else text


# --------------------------------------------------------------------------- an hour's files


def dump_extents(file: File, path: Path) -> Lines:  # noqa: ARG001
    """A line for each flush."""
    for _, extent in records_of(file, EXTENT):
        extent["due_min"], extent["due_max"] = (
            time_text(extent["due_min"]),
            time_text(extent["due_max"]),
        )
        for name in ("index_crc", "log_crc", "crc", "magic"):
            extent[name] = f"{extent[name]:08x}"
        yield extent


def dump_seconds(file: File, path: Path) -> Lines:  # noqa: ARG001
    """The number of rows that the index covers, then a line for each second that has rows."""
    index = SecondIndex.decode(file.pread(file.size(), 0))
    if index is None:
        yield {"error": "a damaged second index"}
        return
    yield {"covers": index.covers}
    for second in range(HOUR_SECONDS):
        if index.count[second]:
            yield {
                "second": second,
                "newest": int(index.newest[second]),
                "count": int(index.count[second]),
            }


# --------------------------------------------------------------------------- single files


def dump_order(file: File, path: Path) -> Lines:  # noqa: ARG001
    """The order to hold the broker, or to release it."""
    try:
        order = read_order(ReadOnlyFileSystem(), str(path.parent))
    except CorruptionError as error:
        yield {"error": error.what}
        return
    hold = None if order is None or order.hold is None else order.hold._asdict()
    yield {"position": None if order is None else order.position, "hold": hold}


def dump_tick(file: File, path: Path) -> Lines:  # noqa: ARG001
    """A line for each slot."""
    for slot, (raw, found) in enumerate(read_slots(file)):
        if found is None:
            # The slots are written in turn: a backup and a new folder have only one.
            yield {"slot": slot, "error": "damaged"} if any(raw) else {"slot": slot, "empty": True}
            continue
        record, sequence = found
        yield {
            "slot": slot,
            "sequence": sequence,
            "epoch": record.epoch >> 16,
            "second": time_text(record.tick.second * 1000),
            "local_index": record.tick.local_index,
            "position": record.tick.position,
            "durable_end": record.durable_end,
            "written": time_text(record.wall_time_ms),
        }


def dump_checkpoint(file: File, path: Path) -> Lines:  # noqa: ARG001
    """One line with everything except the columns of leases and the answers to producers."""
    found = read_checkpoint(ReadOnlyFileSystem(), str(path))
    if found is None:
        yield {"error": "a damaged checkpoint"}
        return
    members = found.members
    # The key of the id hashes is secret, and not text.
    members.pop("id_key", None)
    for name in ("leases", "producers"):
        members[name] = len(members[name])
    members["transactions"] = saved_transactions(members["transactions"])
    members["topics"] = list(members["topics"])
    for topic in members["topics"]:
        for group in topic["groups"]:
            for name in ("hours", "guests"):
                pairs = np.frombuffer(group[name], "<i8").reshape(-1, 2).tolist()
                group[name] = {str(hour): living for hour, living in pairs}
            # The number of keys under lease.
            group["gate"] = len(group["gate"]["keys"]) // 8
    members["far"]["hours"] = saved_far_hours(found)
    members["hours"] = {str(hour): counts for hour, counts in members["hours"].items()}
    shown = {name: _no_columns(value) for name, value in members.items()}
    yield {"position": found.position} | shown


def _no_columns(value: Any) -> Any:
    """The value with each packed column, which is bytes, shown as its size."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, dict):
        return {name: _no_columns(one) for name, one in value.items()}
    return [_no_columns(one) for one in value] if isinstance(value, list) else value


def dump_snapshot(file: File, path: Path) -> Lines:  # noqa: ARG001
    """The position of the snapshot, then a line for each chunk."""
    part = keyspace_part()
    try:
        check = part.ChunkCheck(Reader(file))
        yield {"position": check.summary.position}
        while (line := check.next()) is not None:
            yield line
    except part.SnapshotError as error:
        yield {"offset": error.offset, "error": error.what}


def _dumper(path: Path) -> Callable[[File, Path], Lines]:
    by_name = {
        "delay.index": dump_index,
        "delay.log": dump_bodies,
        "extents": dump_extents,
        "second.index": dump_seconds,
        "tick": dump_tick,
        HELD: dump_order,
        "index": dump_ids_index,
        "crash": dump_text,
        "backup.json": dump_object,
    }
    if path.name in by_name:
        return by_name[path.name]
    if path.name == "state" or path.name.startswith("state."):
        return dump_state
    if path.name.startswith("checkpoint-") and not path.name.endswith(".tmp"):
        return dump_checkpoint
    if path.suffix == ".ids":
        return dump_ids
    if path.suffix == ".run":
        return dump_run
    if path.suffix == ".definitions":
        return dump_definitions
    if path.suffix == ".rows":
        return dump_schedule_rows
    if position_of_name(path.name) is not None:
        return dump_snapshot
    if path.suffix == ".log" and path.stem.isdigit():
        return dump_segment
    raise UsageError(
        f"{path.name} is not a file that dump reads: give a log segment, delay.index, "
        "delay.log, second.index, state, extents, a run of hours/far, tick, held, a checkpoint, a "
        "snapshot of the keyspace, definitions or rows of schedules, a run of ids or their index, "
        "crash or backup.json (the bytes of lock, hold, reserve and the files in ready have no "
        "meaning)"
    )


def dump_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog dump`."""
    complete_files(parser.add_argument("file", metavar="FILE", type=Path, help="the file"))
    add_json(parser)
    parser.description = (
        "Print one file of a data folder as JSON lines, with or without --json. Times are ISO "
        "times in UTC. A broker may be writing the file."
    )
    add_examples(parser, "dump /var/lib/delaylog/log/00000000000000000000.log")


def dump_command(args: argparse.Namespace) -> int:
    """`delaylog dump`: 0, or 1 when something could not be decoded."""
    path = args.file
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    dumper = _dumper(path)
    file = ReadOnlyFileSystem().open(str(path))
    status = 0
    # A terminal that shows the lines needs no progress bar.
    quiet = args.json or sys.stdout.isatty()
    with closing(file), Progress("dump", unit="lines", quiet=quiet) as progress:
        for number, line in enumerate(dumper(file, path), 1):
            status = 1 if "error" in line else status
            sys.stdout.write(orjson.dumps(line, option=orjson.OPT_NON_STR_KEYS).decode() + "\n")
            progress("", number)
    sys.stdout.flush()
    return status


_ROW_BYTES: Final = WIDTH * 8


def dump_definitions(file: File, path: Path) -> Lines:  # noqa: ARG001
    """A line for each record; one at the end if that is not whole, as a checkpoint may say."""
    at, end = 0, file.size()
    while at < end:
        head = file.pread(HEADER.size, at)
        size, number = HEADER.unpack(head)[1:] if len(head) == HEADER.size else (0, 0)
        packed = decode(file.pread(HEADER.size + min(size, end), at), number, size)
        if packed is None:
            yield {"offset": at, "error": "no whole record from here on"}
            return
        one = Schedule.unpack(packed)
        said: dict[str, Any] = {"topic": one.topic, "schedule": one.name, "note": one.note}
        timing, rules = one.spec.timing.as_dict(), one.spec.rules.as_dict()
        yield {"offset": at, "number": number, **said, **timing, **rules}
        at += HEADER.size + size


def dump_schedule_rows(file: File, path: Path) -> Lines:  # noqa: ARG001
    """A line for each slot that is in use."""
    for start in range(0, file.size(), BLOCK_ROWS * _ROW_BYTES):
        raw = file.pread(BLOCK_ROWS * _ROW_BYTES, start)
        if len(raw) % _ROW_BYTES:
            yield {"offset": start, "error": "the file ends within a row"}
            return
        block = np.frombuffer(raw, "<i8").reshape(WIDTH, -1)
        for at in np.flatnonzero(block[Column.NUMBER]).tolist():
            row = block[:, at].tolist()
            known = {name.name.lower(): row[name] for name in Column if name != Column.PROGRESS}
            progress = dict(zip(PROGRESS, row[Column.PROGRESS :], strict=True))
            yield {"slot": start // _ROW_BYTES + at, **known, **progress}


_ENDED_SHOWN: Final = 20


def transaction_members(payload: Block) -> dict[str, Any]:
    """The members of a TXN frame."""
    head, tail = unpack(payload)
    if head["op"] == "commit":
        head["parts"] = len(tail) // 4
    elif len(tail):
        head["bytes"] = len(tail)
    return head


def publish_members(payload: Block) -> dict[str, Any]:
    """The members of a PUBLISH frame."""
    decision = PublishDecision.decode(payload)
    return {
        "txn": decision.transaction,
        "topic": None if decision.send is None else decision.send.topic,
        "part": decision.part,
        "first": decision.first,
        "stop": decision.stop,
        "results": dict(zip(RESULTS, decision.counts, strict=True)),
    }


def saved_transactions(saved: dict[str, Any]) -> dict[str, Any]:
    """The transactions of a checkpoint, with counts of parts, and the newest that ended."""
    opened = [
        {"txn": number, "id": name, "expires": expires_ms, **_parts(parts["parts"])}
        for number, name, _, _, expires_ms, parts in saved["open"]
    ]
    unpublished = [
        {"txn": number, "id": name, "published": published, **_parts(parts)}
        for number, name, _, _, parts, _, published, *_ in saved["unpublished"]
    ]
    names, raw = saved["ended_ids"][-_ENDED_SHOWN:], saved["ended"][-_ENDED_SHOWN * ENDED_SIZE :]
    ended = [
        {"id": name} | asdict(EndedTransaction.decode(raw[at * ENDED_SIZE : (at + 1) * ENDED_SIZE]))
        for at, name in enumerate(names)
    ]
    shown = {
        "open": opened,
        "unpublished": unpublished,
        "ended": ended,
        "ended_ids": len(saved["ended_ids"]),
    }
    return saved | shown


def _parts(raw: bytes) -> dict[str, int]:
    parts = np.frombuffer(raw, PART)
    return {"parts": len(parts), "rows": int(parts["rows"].sum())}
