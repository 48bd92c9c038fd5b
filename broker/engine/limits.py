"""One table of limits: every size and count the broker bounds, each with a sentence of why."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from delaylog.storage.log.sizes import PAYLOAD_BYTES_MAX, SEGMENT_BYTES_MAX

TIME_MS_MAX: Final = 50 * 366 * 86_400_000
"""Upper bound of every time limit: the hours of a ref end in the year 2089 (storage/layout.py)."""
NUMBER_MAX: Final = 1 << 53
"""Upper bound of every limit: JSON numbers are exact up to here."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one node; configuration may change them."""

    body_bytes_max: int = 4 << 20
    """One message's body: larger payloads belong in an object store."""
    request_bytes_max: int = 64 << 20
    """One request: what may sit in memory per connection."""
    bodies_bytes_max: int = 256 << 20
    """Bodies of all requests that are being read or answered; beyond it a request gets 503.
    Briefly twice as much, while the pieces of a body are joined."""
    bulk_rows_max: int = 100_000
    """Rows of one bulk body: one frame, one slice of apply."""
    json_rows_max: int = 10_000
    """Rows of one JSON array: each costs a Python object."""
    horizon_ms: int = 10 * 366 * 86_400_000
    """How far ahead a message may be due."""
    wait_ms_max: int = 60_000
    """A long poll's wait: proxies cut idle connections soon after."""
    lease_ms_max: int = 43_200_000
    """A lease's length: a lost consumer gives its messages back within half a day."""
    receive_max: int = 10_000
    """Messages of one receive: one reply, one frame."""
    receive_bytes_max: int = 32 << 20
    """Bodies of one receive, after the first message."""
    list_max: int = 1_000
    """Messages on one page of a list: each costs a Python object."""
    leased_max: int = 1_000_000
    """Messages under lease per group: 27 bytes of memory each."""
    claim_rows_max: int = 1_000_000
    """Messages of one claim: ten bytes of memory each, beside their leases."""
    claims_max: int = 4_096
    """Claims that have not ended."""
    tail_bytes_max: int = 28 << 20
    """Rows and bodies in memory before the splitter takes them to their hours."""
    tail_bytes_hard_max: int = 80 << 20
    """Tail bytes at which sends wait for the splitter."""
    state_bytes_max: int = 24 << 20
    """Changed state pages in memory before they are written."""
    state_bytes_hard_max: int = 96 << 20
    """Bytes of state pages at which changes of many messages wait for them to be written."""
    checkpoint_bytes: int = 96 << 20
    """Log bytes after which a checkpoint is taken: bounds the replay of a restart."""
    checkpoint_ms: int = 30_000
    """Time after which a checkpoint is taken if anything happened."""
    checkpoint_idle_ms: int = 3_000
    """Time without a frame after which a checkpoint is taken if `checkpoint_idle_bytes` of log came
    before: a quiet broker keeps nothing in memory and restarts at once."""
    checkpoint_idle_bytes: int = 4 << 20
    """See `checkpoint_idle_ms`."""
    keyspace_bytes: int = 64 << 20
    """Effects of Redis commands after which a snapshot of the keyspace is made, or the size of the
    last one if that is larger: bounds what a start applies again, and what snapshots write."""
    keyspace_log_bytes: int = 1 << 30
    """Log that may be kept only for the effects in it, or eight times the snapshot if that is more.
    Beyond it a new snapshot is made, so that the log can be removed."""
    keyspace_retry_ms: int = 30_000
    """Time between tries to make a snapshot when one has failed."""
    segment_bytes_max: int = SEGMENT_BYTES_MAX
    """One file of the log: the unit in which the log is removed."""
    disk_reserve_bytes: int = 256 << 20
    """Space kept for splitting, leases and settles: sends are refused below it."""
    reserve_file_bytes: int = 160 << 20
    """The preallocated file that is given up when another program takes the last byte; an eighth
    of the file system where that is less; 0 for none."""
    hot_bytes_max: int = 1 << 30
    """Disk for copies of hot seconds in dispatch order; 0 turns them off."""
    open_hours_max: int = 96
    """Hours whose files stay open: five descriptors each; `serve` raises it where it can."""
    topic_idle_ms: int = 1_800_000
    """An empty topic that a send created is dropped after this time without use."""
    ephemeral_idle_ms: int = 300_000
    """An ephemeral group is dropped after this time without a receive."""
    transaction_ttl_ms: int = 3_600_000
    """An open transaction expires this long after the last call about it, unless it has its own
    time: parts of a writer that died must not stay for ever."""
    transaction_age_ms: int = 86_400_000
    """No transaction stays open longer than this, since the log is kept for it."""
    transactions_open_max: int = 10_000
    """Open transactions: each is checked periodically."""
    staged_bytes_max: int = 16 << 30
    """Parts of open transactions, in the log only."""
    staged_parts_max: int = 200_000
    """Parts of open transactions: about 300 bytes of memory each."""
    staged_log_bytes_max: int = 64 << 30
    """Log that open transactions keep from being removed; beyond it the transaction with the oldest
    part expires."""
    topics_max: int = 200_000
    """Topics: one to two kilobytes of memory each; a call that would create another is refused."""
    schedules_max: int = 1_000_000
    """Recurring schedules: some 150 bytes of memory each; a call that would create another is
    refused."""
    groups_max: int = 1_000
    """Groups of one topic: each message is checked for each of them."""
    metrics_topics_max: int = 200
    """Topics with their own metrics; the others are summed, so that a scrape stays below 1 MB."""
    connections_max: int = 20_000
    """Open connections of clients, with those of Redis clients; at most half of the descriptors."""
    live_streams_max: int = 100
    """Open streams of live reads, such as those of dashboards: each reads again every 2 s."""
    clock_offset_warn_ms: int = 250
    """Offset between the clocks of two nodes: NTP keeps them within some milliseconds, so a larger
    one means that it does not work on one of them."""
    clock_offset_stand_ms: int = 2_000
    """Offset of a node's clock from the median of all nodes beyond which it does not lead."""

    @property
    def json_values_max(self) -> int:
        """Values in one JSON or msgpack body: bounds the memory of parsing."""
        return 64 * self.json_rows_max

    def __post_init__(self) -> None:
        """Raises ValueError."""
        for limit in fields(self):
            least = 1 if limit.name == "connections_max" else 0
            most = TIME_MS_MAX if "_ms" in limit.name else NUMBER_MAX
            if limit.name == "request_bytes_max":
                # A request is one frame of the log.
                most = PAYLOAD_BYTES_MAX - 1
            value = getattr(self, limit.name)
            if not least <= value <= most:
                raise ValueError(
                    f"limits.{limit.name} is {value:,}; set it between {least} and {most:,}"
                )
        for lower, higher in (
            ("state_bytes_max", "state_bytes_hard_max"),
            ("tail_bytes_max", "tail_bytes_hard_max"),
            ("clock_offset_warn_ms", "clock_offset_stand_ms"),
        ):
            low, high = getattr(self, lower), getattr(self, higher)
            if low >= high:
                raise ValueError(
                    f"limits.{lower} ({low:,}) must be below limits.{higher} ({high:,})"
                )
