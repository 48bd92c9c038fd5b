"""A folder as a table says what its broker says.

Method: real engines make folders, under a clock of their own, with everything that ends, moves or
hides a message; the table is held against what the engine answers for each id. Damage is done
to one file at a time.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import msgpack
import pytest

from delaylog.broker.backup.copies import Route
from delaylog.broker.backup.folder_copy import take_backup
from delaylog.broker.engine.topics import commands as topics
from delaylog.contract.own_backoff import encode_own_backoff
from delaylog.storage.files.os_file_system import OsFileSystem, ReadOnlyFileSystem
from delaylog.storage.layout import EXTENT_SIZE, STATE_ENTRY_SIZE, MessageState, hour_name
from pyspark_delaylog.errors import OptionError
from pyspark_delaylog.segments.errors import DamagedError, SegmentError
from pyspark_delaylog.segments.folder import read_folder
from pyspark_delaylog.segments.options import parse_options
from pyspark_delaylog.segments.plan import plan
from pyspark_delaylog.segments.slice_reader import Reading
from tests.broker.engine.host import HOUR, START_MS, Host
from tests.broker.verify.damaged_folder import flip
from tests.client.spark.segments.folder_table import FIRST, START_HOUR, column, moment, rows, tasks

# --------------------------------------------------------------------------- states


def test_every_state_is_called_as_the_broker_calls_it(host: Host) -> None:
    host.configure(max_retry=1, lease_ms=60_000, backoff={"first_ms": HOUR})
    ids = ["acked", "dead", "leased", "again", "moved", "cancelled", "ready", "expired"]
    host.send(8, delay=1_000, ids=ids)
    host.send(1, delay=2 * HOUR, ids=["waiting"])
    host.advance(1_500)
    got = {message.id: message for message in host.receive(8, lease=20_000)}
    host.ack([got["acked"]])
    host.nack([got[name] for name in ("dead", "again", "moved", "ready", "expired")], delay=0)
    host.advance(10)
    again = {message.id: message for message in host.receive(1, chosen=None)}
    assert list(again) == ["dead"]
    host.nack(list(again.values()))
    host.reschedule(["moved"], host.now_ms + 3 * HOUR)
    host.cancel(["cancelled"], force=True)
    host.checkpoint()
    found = rows(host.folder, includeText="true")
    state = column(found, "state")
    for name in [*ids, "waiting"]:
        assert state[name] == host.state_of(name).name.lower(), name
    assert set(state.values()) == {"acked", "dead", "leased", "ready", "waiting", "cancelled"}
    assert column(found, "cause")["dead"] == "retries"
    assert column(found, "attempts")["dead"] == 2
    assert column(found, "lateness_ms")["acked"] == 500
    assert column(found, "lateness_ms")["dead"] is None
    assert column(found, "ended_at")["acked"] == moment(START_MS + 1_500)
    assert column(found, "lease_until")["leased"] == moment(START_MS + 21_500)
    assert column(found, "deliver_at")["moved"] == moment(host.now_ms + 3 * HOUR)
    assert column(found, "sent_at")["moved"] == moment(START_MS)
    assert {row["topic"] for row in found} == {"t"}
    assert {row["namespace"] for row in found} == {"default"}
    moved = rows(host.folder, includeText="true", includeMoved="true", state="moved")
    assert "moved" in {row["id"] for row in moved}
    assert len(rows(host.folder, includeMoved="true")) == len(found) + len(moved)


def test_what_a_purge_ended_is_shown_as_ended(host: Host) -> None:
    host.send(4, delay=1_000, ids=list("abcd"))
    host.advance(1_000)
    host.ack(host.receive(1))
    host.receive(1)
    topics.purge(host.engine.state, host.topic, [host.topic.default], host.now_ms, force=False)
    purged_ms = host.now_ms
    host.send(1, delay=HOUR, ids=["later"])
    host.checkpoint()
    found = rows(host.folder, includeText="true")
    assert column(found, "state") == {
        "a": "acked",
        "b": "leased",
        "c": "cancelled",
        "d": "cancelled",
        "later": "waiting",
    }
    assert column(found, "ended_at")["d"] == moment(purged_ms)
    assert column(found, "cause")["d"] == "purge"
    topics.purge(host.engine.state, host.topic, [host.topic.default], host.now_ms, force=True)
    host.checkpoint()
    assert column(rows(host.folder, includeText="true"), "state")["b"] == "cancelled"


def test_each_group_has_its_own_rows(host: Host) -> None:
    host.send(1, delay=1_000, ids=["before"])
    host.flush()
    topics.put_group(host.engine.state, host.topic, "g", host.now_ms)
    topics.put_group(host.engine.state, host.topic, "gone", host.now_ms)
    host.send(2, delay=1_000, ids=["one", "two"])
    host.advance(1_000)
    host.ack(host.receive(2))
    host.nack(host.receive(1, group="g"), delay=2 * HOUR)
    topics.drop_group(host.engine.state, host.topic, host.topic.group("gone"), host.now_ms)
    host.checkpoint()
    found = rows(host.folder, includeText="true")
    state = {(row["group"], row["id"]): row["state"] for row in found}
    assert len(state) == len(found)
    assert state == {
        ("default", "before"): "acked",
        ("default", "one"): "acked",
        ("default", "two"): "ready",
        ("g", "one"): "waiting",
        ("g", "two"): "ready",
    }
    only = rows(host.folder, group="g")
    assert [row["group"] for row in only] == ["g", "g"]


def test_rows_of_a_dropped_topic_belong_to_nobody(host: Host) -> None:
    host.send(2, delay=HOUR)
    host.send(1, delay=HOUR, topic="u")
    host.checkpoint()
    assert Counter(row["topic"] for row in rows(host.folder)) == {"t": 2, "u": 1}
    topics.drop_topic(host.engine.state, host.topic, host.now_ms)
    host.checkpoint()
    assert Counter(row["topic"] for row in rows(host.folder)) == {"u": 1}


# --------------------------------------------------------------------------- live folders


def test_a_live_folder_is_read_as_of_its_newest_checkpoint(host: Host) -> None:
    host.send(3, delay=1_000, ids=["a", "b", "c"])
    assert rows(host.folder) == []
    host.checkpoint()
    host.send(3, delay=1_000, ids=["d", "e", "f"])
    host.flush()
    assert sorted(column(rows(host.folder, includeText="true"), "id")) == ["a", "b", "c"]
    # States are written in place, and may be newer.
    host.advance(1_000)
    host.ack(host.receive(1))
    host.flush()
    assert Counter(row["state"] for row in rows(host.folder)) == {"acked": 1, "waiting": 2}


def test_what_moved_behind_the_checkpoint_is_not_nowhere(host: Host) -> None:
    host.send(2, delay=1_000, ids=["a", "b"])
    host.checkpoint()
    host.reschedule(["a"], host.now_ms + 5 * HOUR)
    host.flush()
    assert column(rows(host.folder, includeText="true"), "state") == {"a": "moved", "b": "waiting"}
    host.checkpoint()
    found = column(rows(host.folder, includeText="true"), "state")
    assert found == {"a": "waiting", "b": "waiting"}


def test_what_moved_before_and_behind_the_checkpoint_is_shown_once(host: Host) -> None:
    host.send(1, delay=1_000, ids=["a"])
    host.reschedule(["a"], host.now_ms + 2 * HOUR)
    host.checkpoint()
    for hours in (5, 7):
        host.reschedule(["a"], host.now_ms + hours * HOUR)
        host.flush()
        found = rows(host.folder, includeText="true")
        assert [(row["id"], row["state"], row["hour"]) for row in found] == [
            ("a", "moved", moment(START_HOUR * HOUR))
        ]


def test_a_dead_letter_that_is_replayed_behind_the_checkpoint_is_somewhere(host: Host) -> None:
    """The hour of its first row stays as long as the dead letter: it is shown there."""
    host.configure(ended_keep_ms=0, max_retry=0)
    host.send(1, delay=1_000, ids=["a"])
    host.reschedule(["a"], host.now_ms + 2 * HOUR)
    host.advance(2 * HOUR)
    host.nack(host.receive(1))
    for _ in range(3):
        host.advance(HOUR)
        host.checkpoint()
    host.replay(["a"], host.now_ms + 5 * HOUR)
    host.flush()
    found = rows(host.folder, includeText="true")
    assert [(row["id"], row["state"]) for row in found] == [("a", "moved")]


def test_what_moved_into_an_hour_that_is_gone_is_not_shown(host: Host) -> None:
    """Moved ahead, it ended there long ago; the row it left stays as long as others in its hour."""
    host.configure(ended_keep_ms=0)
    host.send(2, delay=9 * HOUR, ids=["ahead", "waits"])
    host.reschedule(["ahead"], host.now_ms)
    host.ack(host.receive(1))
    for _ in range(3):
        host.advance(HOUR)
        host.checkpoint()
    assert not (host.folder / "hours" / FIRST).exists()
    assert column(rows(host.folder, includeText="true"), "state") == {"waits": "waiting"}
    moved = rows(host.folder, includeText="true", includeMoved="true", state="moved")
    assert [row["id"] for row in moved] == ["ahead"]


def test_a_state_that_is_being_written_is_looked_at_again(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.send(2, delay=1_000, ids=["a", "b"])
    host.advance(1_000)
    host.ack(host.receive(2))
    host.checkpoint()
    path = host.folder / "hours" / FIRST / "state"
    flip(path, 3)
    monkeypatch.setattr("time.sleep", lambda _: flip(path, 3) if os.pread else None)
    assert [row["state"] for row in rows(host.folder)] == ["acked", "acked"]


def test_an_hour_that_was_removed_since_has_no_rows(host: Host) -> None:
    host.configure(ended_keep_ms=0)
    host.send(3, delay=1_000)
    host.send(2, delay=4 * HOUR)
    host.checkpoint()
    asked = parse_options({"path": str(host.folder)})
    folder = read_folder(asked.path)
    planned = plan(folder, asked)
    host.advance(1_000)
    host.ack(host.receive(3))
    for _ in range(3):
        host.advance(HOUR)
        host.checkpoint()
    assert not (host.folder / "hours" / FIRST).exists()
    batches = [b for task in planned for b in Reading(folder, asked).batches(task)]
    assert sum(batch.num_rows for batch in batches) == 2
    assert sum(len(task) for task in plan(folder, asked)) == 1
    shutil.rmtree(host.folder / "hours" / hour_name(START_HOUR + 4))
    with pytest.raises(DamagedError, match="missing"):
        rows(host.folder)


def test_a_backup_is_read_as_its_folder_is(host: Host, tmp_path: Path) -> None:
    host.send([b"x" * k for k in range(9)], delay=[HOUR * (k % 3) for k in range(9)])
    host.advance(1)
    host.ack(host.receive(2))
    host.checkpoint()
    backup = tmp_path / "backup"
    take_backup(
        Route(ReadOnlyFileSystem(), str(host.folder), OsFileSystem(), str(backup)),
        version="test",
        now_ms=lambda: host.now_ms,
    )
    assert rows(backup, includeBody="true") == rows(host.folder, includeBody="true")


def test_what_is_no_data_folder_is_said(tmp_path: Path, host: Host) -> None:
    with pytest.raises(SegmentError, match="does not exist"):
        rows(tmp_path / "none")
    with pytest.raises(SegmentError, match="not a broker's data folder"):
        rows(tmp_path)
    assert rows(host.folder) == []


# --------------------------------------------------------------------------- texts


def test_bodies_and_texts_come_as_they_were_sent(host: Host) -> None:
    chance = random.Random(3)
    n = 500
    bodies = [chance.randbytes(chance.choice((0, 1, 50, 300))) for _ in range(n)]
    ids = [chance.choice(["", f"id-{k}-ü"]) for k in range(n)]
    keys = [chance.choice([b"", b"key%d" % (k % 7)]) for k in range(n)]
    tags = [chance.choice([b"", b"a", b"a\nbb\nccc"]) for _ in range(n)]
    backoff = encode_own_backoff({"first_ms": 5})
    packed = msgpack.packb({"h": "v", "i": "w" * chance.randrange(9)})
    headers = [chance.choice([b"", packed, backoff, backoff + packed]) for _ in range(n)]
    delays = [chance.randrange(3 * HOUR) for _ in range(n)]
    result = host.send(bodies, delay=delays, ids=ids, keys=keys, tags=tags, headers=headers)
    host.checkpoint()
    all_ids = [mine or made for mine, made in zip(ids, host.ids_of(result), strict=True)]
    found = {row["id"]: row for row in rows(host.folder, includeBody="true")}
    assert len(found) == n
    for k, name in enumerate(all_ids):
        row = found[name]
        assert row["value"] == bodies[k]
        assert row["body_size"] == len(bodies[k])
        assert row["key"] == (keys[k].decode() or None)
        assert row["tags"] == [tag.decode() for tag in tags[k].split(b"\n") if tag]
        wanted = msgpack.unpackb(packed) if headers[k].endswith(packed) else {}
        assert {h["key"]: h["value"].decode() for h in row["headers"]} == wanted
        assert row["deliver_at"] == moment(START_MS + delays[k])
    bare = rows(host.folder)
    assert "key" not in bare[0]
    assert Counter(row["id"] for row in bare if row["id"]) == Counter(
        made for mine, made in zip(ids, all_ids, strict=True) if not mine
    )
    assert "value" not in rows(host.folder, includeText="true")[0]


def test_a_retry_in_its_hour_shares_the_body_of_the_first_row(host: Host) -> None:
    host.configure(max_retry=9, backoff={"first_ms": 1_000})
    host.send([b"first", b"other" * 40_000, b"third"], delay=1_000)
    host.advance(1_000)
    host.nack(host.receive(1))
    host.send([b"behind"], delay=1_000)
    host.checkpoint()
    host.advance(1_000)
    host.nack(host.receive(9)[-1:], delay=60_000)
    host.checkpoint()
    found = rows(host.folder, includeBody="true", includeMoved="true")
    assert {row["value"] for row in found if row["state"] != "moved"} == {
        b"first",
        b"other" * 40_000,
        b"third",
        b"behind",
    }
    for row in found:
        assert row["body_size"] == len(row["value"])


def test_stored_states_all_have_names(host: Host) -> None:
    """A state that the broker learns to store must be shown as something."""
    from pyspark_delaylog.segments.options import STATES

    assert {state.name.lower() for state in MessageState} - {"none"} <= set(STATES)
    assert host.engine is not None


@pytest.fixture
def damaged(host: Host) -> Path:
    """An hour of two flushes of three rows, of which one is acked, and an hour of two rows."""
    host.send(3, delay=1_000)
    host.flush()
    host.send(3, delay=2_000)
    host.send(2, delay=HOUR)
    host.advance(1_000)
    host.ack(host.receive(1))
    host.checkpoint()
    assert [row["state"] for row in rows(host.folder, includeBody="true")].count("acked") == 1
    return host.folder


@pytest.mark.parametrize(
    ("name", "bit", "lost", "text"),
    [
        ("delay.index", 8 * 10, 3, "false"),
        ("delay.index", 8 * (112 * 4 + 50), 3, "false"),
        ("delay.log", 3, 3, "true"),
        ("delay.log", 3, 0, "false"),
        ("state", 8 * 9, 1, "false"),
        ("extents", 8 * 20, 6, "false"),
        ("extents", 8 * (EXTENT_SIZE + 20), 3, "false"),
    ],
)
def test_rot_is_named_or_skipped_and_counted(
    damaged: Path, name: str, bit: int, lost: int, text: str
) -> None:
    path = damaged / "hours" / FIRST / name
    flip(path, bit)
    if lost:
        with pytest.raises(DamagedError, match=str(path)):
            rows(damaged, includeText=text)
    found = rows(damaged, includeText=text, onCorrupt="skip")
    assert Counter(row["state"] == "damaged" for row in found) == Counter(
        {k: v for k, v in {True: lost, False: 8 - lost}.items() if v}
    )
    assert {row["hour"] for row in found if row["state"] == "damaged"} <= {
        moment(START_HOUR * HOUR)
    }
    assert len(rows(damaged, topic="t", includeText=text, onCorrupt="skip")) == 8 - lost


@pytest.mark.parametrize("name", ["delay.index", "delay.log", "extents"])
def test_torn_files_are_named_or_skipped_and_counted(damaged: Path, name: str) -> None:
    path = damaged / "hours" / FIRST / name
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(DamagedError, match=str(path)):
        rows(damaged, includeBody="true")
    found = rows(damaged, includeBody="true", onCorrupt="skip")
    assert [row["state"] for row in found].count("damaged") == 3
    assert len(found) == 8


def test_a_short_state_column_is_one_of_a_backup(damaged: Path) -> None:
    os.truncate(damaged / "hours" / FIRST / "state", STATE_ENTRY_SIZE)
    assert [row["state"] for row in rows(damaged)].count("acked") == 1


def test_the_newest_whole_checkpoint_counts(host: Host) -> None:
    host.send(1, delay=HOUR)
    host.checkpoint()
    host.send(1, delay=HOUR)
    host.checkpoint()
    names = sorted(host.folder.glob("checkpoint-*"))
    flip(names[-1], 400)
    assert len(rows(host.folder)) == 1
    flip(names[0], 400)
    with pytest.raises(DamagedError, match="no checkpoint"):
        rows(host.folder)


def test_rows_are_packed_into_tasks_by_size_and_each_comes_once(host: Host) -> None:
    """Thirty small hours and a hot one of ten flushes."""
    for _ in range(10):
        host.send(2_000, delay=[30_000 + j for j in range(2_000)])
        host.flush()
        host.send(300, delay=[(j % 30 + 1) * HOUR for j in range(300)])
    host.checkpoint()
    for count in (1, 2, 5, 64):
        parts = tasks(host.folder, numPartitions=str(count))
        assert 1 <= len(parts) <= count
        refs = [row["ref"] for part in parts for row in part]
        assert len(refs) == len(set(refs)) == 23_000
        if count == 5:
            assert max(map(len, parts)) <= 2 * min(map(len, parts))
            assert len({row["hour"] for row in parts[0]}) == 1, "the hot hour is split"
            assert len({row["hour"] for row in parts[-1]}) > 5, "small hours share a task"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startHour": hour_name(START_HOUR + 1)}, {"b", "c", "u1"}),
        ({"endHour": hour_name(START_HOUR + 1)}, {"a"}),
        ({"startHour": "2021-05-03T01:00:00Z", "endHour": "2021-05-03T02"}, {"b", "u1"}),
        ({"topic": "u"}, {"u1"}),
        ({"topic": "t,u", "state": "waiting"}, {"b", "c", "u1"}),
        ({"state": "ready"}, {"a"}),
        ({"namespace": "elsewhere"}, set()),
        ({"group": "nobody"}, set()),
    ],
)
def test_options_choose_rows(host: Host, options: dict[str, str], expected: set[str]) -> None:
    host.send(3, delay=[1, HOUR, 2 * HOUR], ids=list("abc"))
    host.send(1, delay=HOUR, ids=["u1"], topic="u")
    host.advance(1)
    host.checkpoint()
    assert {row["id"] for row in rows(host.folder, includeText="true", **options)} == expected


def test_only_columns_that_are_asked_for_are_made(host: Host) -> None:
    host.send(3, delay=HOUR)
    host.checkpoint()
    wanted = ["state", "hour", "topic"]
    found = rows(host.folder, columns=", ".join(wanted))
    assert [list(row) for row in found] == [wanted] * 3
    with pytest.raises(OptionError, match="there is no 'value', only hour"):
        rows(host.folder, columns="value")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"pth": "x"}, "unknown option 'pth'; there are path"),
        ({}, "path is missing"),
        ({"path": "x", "pushFilters": "true"}, "pushFilters: there is none.*startHour and endHour"),
        ({"path": "x", "startHour": "noon"}, "startHour must be"),
        ({"path": "x", "numPartitions": "0"}, "numPartitions"),
        ({"path": "x", "includeBody": "yes"}, "includeBody: 'yes' is not one of true, false"),
        ({"path": "x", "onCorrupt": "maybe"}, "onCorrupt"),
        ({"path": "x", "state": "asleep,waiting"}, "state must be of .*, not asleep$"),
        ({"path": "x", "topic": "a,,b"}, "topic has an empty name: 'a,,b'"),
        ({"path": "x", "columns": "hour,hour"}, "columns names one twice"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        parse_options(options)
