"""In which order files of tests are handed out: those that take longest before all others.

Whoever runs them takes a file at a time (`--dist loadfile`, since a file's tests share a broker). A
long one among the last leaves every other process idle until it is done.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = (
    "tests/docs/test_examples.py",
    "tests/broker/shapes/test_shapes.py",
    "tests/broker/web/test_openapi.py",
    "tests/broker/cluster/random_operator/test_random_operator.py",
    "tests/drills/test_kill_loop.py",
    "tests/drills/test_sdk_kills.py",
    "tests/drills/test_failover.py",
    "tests/drills/test_sdk_worker_kills.py",
    "tests/broker/engine/test_engine_crash.py",
    "tests/broker/testing/test_plugin.py",
    "tests/client/workers/test_killed.py",
    "tests/drills/test_redis_kills.py",
    "tests/broker/engine/test_machine.py",
    "tests/broker/web/test_fuzz.py",
    "tests/broker/test_disk_errors.py",
    "tests/client/workers/test_handling.py",
    "tests/replication/test_mutations.py",
    "tests/broker/cli/test_backup.py",
    "tests/client/queues/test_crash.py",
    "tests/broker/engine/test_keys.py",
    "tests/broker/test_serve.py",
    "tests/broker/cluster/copies/test_three_nodes.py",
    "tests/broker/resp/test_endpoint.py",
    "tests/drills/test_full_disk.py",
    "tests/broker/cluster/test_fitness_live.py",
    "tests/broker/cluster/real/test_real_members.py",
    "tests/replication/test_schedules.py",
    "tests/wheel/test_timing_wheel_machine.py",
    "tests/broker/cli/test_commands.py",
    "tests/broker/cluster/test_one_left.py",
    "tests/broker/cluster/test_transactions.py",
    "tests/broker/resp/test_parsing.py",
    "tests/broker/test_clock_live.py",
    "tests/broker/cluster/test_three_nodes.py",
    "tests/client/sending/test_real_broker.py",
    "tests/broker/test_damaged_disk.py",
    "tests/broker/cli/test_whole_topics.py",
    "tests/test_distribution.py",
)
"""Half of all the time is theirs; in the order in which it was, as `--durations=0` adds up."""

_RANKS: Final = {path: rank for rank, path in enumerate(LONGEST)}


def rank_of(test_id: str) -> int:
    """The place of a test by its file: as the list has it, and one for all that are not in it."""
    return _RANKS.get(test_id.partition("::")[0], len(_RANKS))
