"""A Dyno queue, first version: all of its calls in one class.

The one rule: what the class answers is what the original answers, slips included, because both may
work on the same keys. Where it is silent the choice stands with the call.
"""

from __future__ import annotations

from tests.redis.recipes.dyno.looking import DynoLooking
from tests.redis.recipes.dyno.settling import DynoSettling
from tests.redis.recipes.dyno.taking import DynoTaking
from tests.redis.recipes.dyno.upkeep import DynoUpkeep


class DynoQueue(DynoTaking, DynoSettling, DynoLooking, DynoUpkeep):
    """A delay queue in shards: at least once, in the order of due times within a shard.

    `DynoQueue(connection, "orders", shards=["a", "b", "c"], own_shard="a")` works on three keys a
    queue: `PREFIX.QUEUE.NAME.SHARD` and `PREFIX.UNACK.NAME.SHARD` of each shard, and the bodies in
    `PREFIX.MESSAGE.NAME`. `unack_ms` is how long a taken message may stay unacknowledged.

    Some consumer must call `process_unacks` from time to time. Failures are those of a
    `Connection`; a broken connection is tried twice more first.
    """
