"""A folder as a table, held against the broker's own lists after any order of calls.

Method: seeded runs of everything that makes, moves, hides or ends rows - groups, purges, topics
made again, claims, transactions, restarts, clock steps. Behind each checkpoint every group's table
must be what the engine lists, and beyond it only what has ended for longer than lists keep it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.deliver import claims
from delaylog.broker.engine.topics import commands as topics
from delaylog.broker.engine.views.list_page import Effort, ListQuery
from delaylog.broker.engine.views.listing import Listing
from delaylog.storage.layout import ref_to_id
from tests.broker.engine.host import HOUR, Host, Message
from tests.broker.engine.staging import Transactions
from tests.client.spark.segments.folder_table import rows

DELAYS = (0, 0, 5, 900, 70_000, HOUR - 1, HOUR, 3 * HOUR)
STEPS = (1, 900, 31_000, 600_000, HOUR, 2 * HOUR)
ENDED = {"acked", "expired", "dead", "cancelled", "replaced"}


class Run:
    """One broker, and what is known of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.host = Host(folder)
        self.held: list[Message] = []
        self.ids = [f"id{number}" for number in range(12)]
        self.made = 0
        self.checkpoint_ms = 0
        self.known: dict[tuple[int, int], set[str]] = {}
        """By topic and group: whom the newest checkpoint knows."""
        self.configure()

    def configure(self) -> None:
        backoff = {"first_ms": self.random.choice((0, 1_000, HOUR))}
        self.host.configure(max_retry=2, lease_ms=30_000, backoff=backoff)
        if "g" not in {group.name for group in self.host.topic.groups.values()}:
            topics.put_group(self.host.engine.state, self.host.topic, "g", self.host.now_ms)
        self.host.turn()

    @property
    def group(self) -> Any:
        name = self.random.choice([group.name for group in self.host.topic.groups.values()])
        return self.host.topic.group(name)

    def some_ids(self) -> list[str]:
        ids = self.random.sample(self.ids, 3)
        ids += [message.any_id for message in self.held[-2:]]
        return list(dict.fromkeys(ids))

    # ------------------------------------------------------------------ what happens

    def send(self) -> None:
        n = self.random.randint(1, 6)
        delays = [self.random.choice(DELAYS) for _ in range(n)]
        how: dict[str, Any] = {"priority": self.random.randint(-2, 2)}
        if self.random.random() < 0.3:
            how["ttl_ms"] = self.random.choice((100, 60_000))
        if self.random.random() < 0.6:
            how["merge"] = self.random.choice(("keep", "replace"))
            how["ids"] = self.random.sample(self.ids, n)
        self.host.send(n, delay=delays, **how)

    def receive(self) -> None:
        lease = self.random.choice((100, 30_000, 2 * HOUR))
        count, group = self.random.randint(1, 5), self.group.name
        self.held += self.host.receive(count, lease=lease, group=group)

    def settle(self) -> None:
        mine = self.random.sample(self.held, len(self.held) // 2)
        call = self.random.choice(("ack", "nack", "extend"))
        if call == "ack":
            self.host.ack(mine)
        elif call == "nack":
            self.host.nack(mine, self.random.choice((None, 0, 1_000, HOUR)))
        else:
            self.host.extend(mine, self.random.choice((0, 60_000)))

    def claim(self) -> None:
        self.made += 1
        host, group = self.host, self.group
        state = host.engine.state
        one = claims.begin_claim(
            state,
            host.topic,
            group,
            f"c{self.made}",
            claims.ReceiveRequest(count_max=5, now_ms=host.now_ms),
            lease_ms=self.random.choice((500, 90_000)),
        )
        host.engine.run_inline(claims.make_work(state, one, lambda: host.now_ms))
        host.turn()
        how = self.random.choice(("acking", "releasing", None))
        if how is not None and one.state == "open":
            claims.decide(state, one, how, host.now_ms)
            host.engine.run_inline(claims.settle_work(state, one, lambda: host.now_ms))
        host.turn()

    def transaction(self) -> None:
        self.made += 1
        name, host = f"x{self.made}", self.host
        txn = Transactions(host.engine)
        txn.begin(name, host.now_ms)
        at = host.now_ms + self.random.choice(DELAYS)
        txn.stage(name, [b"t%d" % n for n in range(4)], host.now_ms, deliver_at_ms=at)
        ends = self.random.random()
        if ends < 0.7:
            txn.commit(name, host.now_ms, (0, 0, 4))
            txn.publish(host.now_ms)
        elif ends < 0.85:
            txn.abort(name, host.now_ms)
        host.turn()

    def cancel(self) -> None:
        self.host.cancel(self.some_ids(), force=self.random.random() < 0.4)

    def reschedule(self) -> None:
        when = self.host.now_ms + self.random.choice((0, 10, HOUR, 4 * HOUR))
        self.host.reschedule(self.some_ids(), when)

    def replay(self) -> None:
        self.host.replay(self.some_ids())

    def purge(self) -> None:
        force = self.random.random() < 0.5
        topics.purge(
            self.host.engine.state, self.host.topic, [self.group], self.host.now_ms, force=force
        )
        self.host.turn()

    def drop(self) -> None:
        host, what = self.host, self.random.random()
        named = host.topic.group("g")
        if what < 0.4:
            topics.drop_topic(host.engine.state, host.topic, host.now_ms)
            self.held = []
        elif named is not None:
            topics.drop_group(host.engine.state, host.topic, named, host.now_ms)
            self.held = []
        host.turn()
        self.configure()

    def advance(self) -> None:
        self.host.advance(self.random.choice(STEPS))

    def clock(self) -> None:
        if self.random.random() < 0.5:
            self.host.jump_ahead(self.random.choice((5_000, 2 * HOUR)))
        else:
            self.host.set_back(self.random.choice((5_000, 2 * HOUR)))

    def restart(self) -> None:
        self.host.restart(self.random.choice((0, 1_000)))

    # ------------------------------------------------------------------ what is compared

    def listed(self, group: Any) -> dict[str, tuple[Any, ...]]:
        """What the list of a group says."""
        out: dict[str, tuple[Any, ...]] = {}
        cursor, first = None, True
        while first or cursor is not None:
            first = False
            listing = Listing(
                self.host.engine.state,
                self.host.topic,
                ListQuery(limit=50, bodies=True, cursor=cursor),
                Effort(lambda: 0.0),
                group=group,
                now_ms=self.host.now_ms,
            )
            self.host.engine.run_inline(listing.work())
            cursor = listing.page.cursor
            for one in listing.page.messages:
                row, entry = one.row, one.entry
                origin = int(row["origin"])
                assert origin not in out, "a list shows a message once"
                out[ref_to_id(origin)] = (
                    one.state.name.lower(),
                    int(entry["attempts"]),
                    int(row["deliver_at"]),
                    int(row["priority"]),
                    one.head.id.decode() or ref_to_id(origin),
                    one.body,
                )
        return out

    def table(self, group: Any) -> list[tuple[str, Any]]:
        """Rows of the table of a group, with the id that the broker has for each."""
        found = rows(self.host.folder, group=group.name, includeText="true", includeBody="true")
        refs = np.array([row["ref"] for row in found], np.int64)
        origins = self.host.engine.state.hours.rows(refs)["origin"].tolist()
        for row in found:
            assert (row["namespace"], row["topic"], row["group"]) == ("default", "t", group.name)
        return list(zip(map(ref_to_id, origins), found, strict=True))

    def look_between(self) -> None:
        """Behind a checkpoint, what it knew and what still lives is somewhere, in one place."""
        self.host.flush()
        if self.host.now_ms < self.checkpoint_ms:
            # By its clock a move is older than the checkpoint then.
            return
        for group in self.host.topic.groups.values():
            found = self.table(group)
            living = {name for name, said in self.listed(group).items() if said[0] not in ENDED}
            known = self.known.get((self.host.topic.number, group.number), set())
            assert living & known <= {name for name, _ in found}
            counted = Counter(name for name, row in found if row["state"] not in ENDED)
            assert not counted or max(counted.values()) == 1

    def compare(self) -> int:
        """At a checkpoint they say the same; returns of how many messages."""
        host = self.host
        host.checkpoint()
        self.known, self.checkpoint_ms = {}, host.now_ms
        now = host.now_ms
        settings = host.topic.settings
        compared = 0
        for group in host.topic.groups.values():
            found = self.table(group)
            table: dict[str, tuple[Any, ...]] = {}
            for name, row in found:
                assert name not in table, "each once"
                table[name] = (
                    row["state"],
                    row["attempts"],
                    round(row["deliver_at"].timestamp() * 1000),
                    row["priority"],
                    row["id"],
                    row["value"],
                )
            self.known[host.topic.number, group.number] = set(table)
            listed = self.listed(group)
            for name, said in listed.items():
                assert table.get(name) == said, (name, group.name)
            for name, row in found:
                if name not in listed:
                    assert row["state"] in ENDED, row
                    keep = (
                        settings.dead_keep_ms if row["state"] == "dead" else settings.ended_keep_ms
                    )
                    ended = round(row["ended_at"].timestamp() * 1000)
                    assert ended + keep < now or row["cause"] == "forgotten", row
            compared += len(listed)
        return compared


WEIGHTS = {
    Run.send: 8,
    Run.receive: 6,
    Run.settle: 5,
    Run.claim: 3,
    Run.transaction: 2,
    Run.cancel: 2,
    Run.reschedule: 3,
    Run.replay: 2,
    Run.purge: 1,
    Run.drop: 1,
    Run.advance: 5,
    Run.clock: 1,
    Run.restart: 1,
}


@pytest.mark.parametrize("seed", range(4))
def test_a_table_is_what_the_broker_lists(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path / "d", seed)
    steps = run.random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=120)
    compared = 0
    try:
        for number, step in enumerate(steps):
            step(run)
            if number % 6 == 2:
                run.look_between()
            if number % 6 == 5:
                compared += run.compare()
    finally:
        run.host.close()
    assert compared > 100
