"""DynoQueue: all calls of a Dyno queue, on the native API.

Results are those of the original where these are sane, otherwise the true state at the broker. Each
difference is documented at its method.
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

    `pop`, `peek` and most other calls use the own shard (default: the first one). `unack_ms` is how
    long a taken message may stay unacknowledged before it is delivered again; `strategy` chooses
    the shard of a push (default: round robin, starting with the second shard). Missing topics are
    created with the required settings; existing ones are compared (`TopicMismatch`).

    `name` and `unack_ms` are the original's getName and getUnackTime. Errors are those of the
    client (`delaylog.client.ClientError`), which retries idempotent calls. A queue is thread-safe
    if its client is. Priorities are 0..99; among messages due in the same millisecond the lowest
    comes first. A message that was delivered 65,535 times without an acknowledgement becomes a dead
    letter of its topic; the original delivers it forever.
    """

    def process_unacks(self) -> int:
        """Record the depth of the queue, and return 0, the number of moved messages.

        There is nothing to move: unacknowledged messages return by themselves within 50 ms.
        """
        with self.stats.timed("process_unack"):
            self.stats.record("queue_depth", self.size())
        return 0

    def atomic_process_unacks(self) -> int:
        """As `process_unacks`."""
        return self.process_unacks()

    def clear(self) -> None:
        """Remove all messages of all shards, queued or taken."""
        for shard in self._all():
            shard.client.purge(shard.topic, force=True)
        self._held.clear()

    def close(self) -> None:
        """Forget the leases of this object; their messages return when the leases end.

        The client stays open, since it belongs to the caller.
        """
        self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
