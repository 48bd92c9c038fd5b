"""A Dyno queue on the native API: all of its calls in one class.

The one rule: what the class answers is the original's answer where that is sane, and else what is
so at the broker; each difference stands with its call.
"""

from __future__ import annotations

from typing import Self

from delaylog.client.queues.dyno.looking import DynoLooking
from delaylog.client.queues.dyno.settling import DynoSettling


class DynoQueue(DynoSettling, DynoLooking):
    """A delay queue in shards: at least once, by due time and then priority within a shard.

    - `DynoQueue(client, "orders")` has one shard, the topic `orders`.
    - `DynoQueue(client, "orders", shards=["a", "b"], own_shard="a")` has the topics `orders.a` and
      `orders.b` of that client.
    - `DynoQueue({"a": client_a, "b": client_b}, "orders", own_shard="a")` has the topic `orders` on
      each client: a broker or cluster in each zone, as the original has an endpoint in each.

    The own shard (default: the first) is what `pop`, `peek` and the other calls take from that do
    not say otherwise. `unack_ms` is how long a taken message may stay unacknowledged before it
    comes back; `strategy` picks the shard of a push (default: round robin, beginning with the
    second). Topics are made with the settings that the recipe needs, or compared (`TopicMismatch`).

    `name` and `unack_ms` are the original's getName and getUnackTime. Failures are those of the
    client (`delaylog.client.ClientError`); it repeats what is safe to repeat. Safe to use from many
    threads where the client is. Priorities are 0..99, the lowest first among those due in one
    millisecond. A message that was delivered 65,535 times and never acknowledged is a dead letter
    of its topic; the original delivers it for ever.
    """

    def process_unacks(self) -> int:
        """Nothing is left to do here: what is not acknowledged in time comes back by itself,
        within 50 ms. Records the depth of the queue, and answers how many it had to move: 0.
        """
        with self.stats.timed("process_unack"):
            self.stats.record("queue_depth", self.size())
        return 0

    def atomic_process_unacks(self) -> int:
        """As `process_unacks`."""
        return self.process_unacks()

    def clear(self) -> None:
        """End everything, queued or taken, of all shards."""
        for shard in self._all():
            shard.client.purge(shard.topic, force=True)
        self._held.clear()

    def close(self) -> None:
        """Forget the leases in hand, which come back when their time is over. The client stays
        open: it is the caller's.
        """
        self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
