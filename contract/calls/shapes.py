"""The members of requests and the shapes of their bodies: names, bounds and documentation.

`broker/calls/shapes.py` turns the members of a send, a receive and a receipt into plain values. The
engine has the types and defaults of a topic's settings, and needs NumPy, which a client is
installed without.
"""

from __future__ import annotations

from typing import Any, Final

from delaylog.contract.members import (
    INT64_MAX,
    Choice,
    Flag,
    Int,
    Name,
    Nested,
    Number,
    ObjectList,
    OneOf,
    QueryFlag,
    QueryInt,
    QueryWords,
    Shape,
    Text,
    TextList,
)
from delaylog.contract.message_fields import (
    BACKOFF,
    BODY,
    BODY_BASE64,
    DELAY_MS,
    DELIVER_AT_MS,
    FIELDS,
    KEY_BYTES_MAX,
    MAX_RETRY,
    MERGE,
    PRIORITY,
    TAG_BYTES_MAX,
    TAGS_MAX,
    TTL_MS,
)
from delaylog.contract.times import TIME_MS_MAX, DelayMs, QueryTimeMs, TimeMs

TAG_MODES: Final = ("any", "all")
REASON_BYTES_MAX: Final = 1_024
MINUTES_MAX: Final = 120
HOURS_MAX: Final = 744
"""31 days. The bound limits the size of a forecast's answer, which is one list."""
WAIT_MS_MAX: Final = 60_000
"""A long poll's wait: proxies cut idle connections soon after."""
LEASE_MS_MAX: Final = 43_200_000
"""A lease's length: a lost consumer gives its messages back within half a day."""
JSON_ROWS_MAX: Final = 10_000
"""Messages, ids or receipts of one JSON array: each costs a Python object."""
JSON_VALUES_MAX: Final = 64 * JSON_ROWS_MAX
"""Values in one JSON or msgpack body: bounds the memory of parsing."""
LIST_MAX: Final = 1_000
"""Messages, topics or schedules on one page of a list: each costs a Python object."""
CLAIM_ROWS_MAX: Final = 1_000_000
"""Messages of one claim: ten bytes of memory each, beside their leases."""
TRANSACTION_AGE_MS: Final = 86_400_000
"""No transaction stays open longer than this, since the log is kept for it."""
STAGED_PARTS_MAX: Final = 200_000
"""Parts of open transactions: about 300 bytes of memory each."""

MESSAGE: Final = Shape(
    "Message to send",
    BODY,
    BODY_BASE64,
    DELIVER_AT_MS,
    DELAY_MS,
    *(field.member for field in FIELDS),
    doc="a message",
    rules={"oneOf": [{"required": ["body"]}, {"required": ["body_base64"]}]},
)

GROUP: Final = Text(
    "group", "The consumer group; absent: the default one.", 200, "^[A-Za-z0-9._-]{1,200}$"
)
MAX: Final = Int("max", "At most this many messages.", 1, "receive_max")
WAIT_MS: Final = Int("wait_ms", "How many ms to wait for a message.", 0, WAIT_MS_MAX)
LEASE_MS: Final = Int("lease_ms", "The length of the lease in ms.", 1, LEASE_MS_MAX)
WANTED_TAGS: Final = TextList("tags", "Only messages with these tags.", 0, TAGS_MAX)
TAGS_MODE: Final = Choice("tags_mode", "Any of the tags, or all of them.", TAG_MODES)
CONSUMER: Final = Text(
    "consumer", "The name of the consumer, which is stored with the attempt.", 255
)
RECEIVE: Final = Shape(
    "Receive or peek",
    MAX,
    WAIT_MS,
    LEASE_MS,
    TextList(
        "columns",
        "Additional columns of a bulk answer.",
        0,
        16,
        ("headers", "key", "priority", "tags"),
    ),
    GROUP,
    WANTED_TAGS,
    TAGS_MODE,
    TextList("ids", "Only these messages.", 1, "receive_max"),
    Int(
        "begin",
        "Attempts begin at once only at this many messages, the first ones, and only if it is "
        "their first attempt; absent: at all. At the others they begin with a call of begin, or "
        "when they are settled.",
        0,
        "receive_max",
    ),
    CONSUMER,
)

REASON: Final = Text(
    "reason", "nack, reject: why the attempt failed, which is stored with it.", REASON_BYTES_MAX
)
BACK_MS: Final = DelayMs(
    "delay_ms",
    "nack: ms until the retry, 0 or less: now; absent: the message's backoff, else the topic's.",
)
EXTEND_MS: Final = Int(
    "lease_ms",
    "extend, begin: the lease from now, in ms; extend: 0 returns the message at once.",
    0,
    LEASE_MS_MAX,
)
RECEIPTS: Final = TextList(
    "receipts", "Receipts from a receive.", 0, JSON_ROWS_MAX, pattern="^[0-9a-f]{32}$"
)
ACK_AND_RECEIVE: Final = Shape(
    "Ack and receive", RECEIPTS, *RECEIVE.members, rules={"required": ["receipts"]}
)
SETTLE: Final = Shape(
    "Settle",
    RECEIPTS,
    TextList("ids", "Ids instead of receipts; needs force.", 0, JSON_ROWS_MAX),
    Flag("force", "Settle by id, whichever consumer has the lease: true with ids."),
    BACK_MS,
    EXTEND_MS,
    REASON,
    GROUP,
    rules={
        "oneOf": [
            {"required": ["receipts"]},
            # Members of a branch would hide those of the body from generators of clients.
            {"required": ["ids", "force"]},
        ]
    },
)

CONTROL_IDS: Final = TextList("ids", "Ids of messages.", 1, JSON_ROWS_MAX)
CANCEL_FORCE: Final = Flag("force", "Cancel leased messages and dead letters too.")
FILTER_STATE: Final = Choice(
    "state",
    "Its state; absent: dead with a condition on its failure, otherwise any that can be changed.",
    ("waiting", "ready", "leased", "dead"),
)
FAILED_GROUP: Final = Text(
    "group", "Only as this group sees the messages; absent: as any group does.", 200, GROUP.pattern
)
FAILED_CAUSE: Final = Choice(
    "cause", "How the last failed attempt at it failed.", ("nack", "lease_expired", "rejected")
)
FAILED_REASON: Final = Text(
    "reason",
    "The reason of the last failed attempt at it; empty: failed without a reason. Needs the right "
    "bodies.",
    REASON_BYTES_MAX,
)
FAILED_PREFIX: Final = Text(
    "reason_prefix",
    "What the reason of the last failed attempt at it begins with, such as a class and a colon. "
    "Needs the right bodies.",
    REASON_BYTES_MAX,
    bytes_min=1,
)
FAILED: Final = (FAILED_CAUSE, FAILED_REASON, FAILED_PREFIX)
FILTER: Final = Nested(
    "filter",
    "Which messages, instead of ids: all that match every member. Creates a job.",
    Shape(
        "Filter",
        FILTER_STATE,
        TimeMs("due_from", "Due at this Unix time in ms or later."),
        TimeMs("due_to", "Due before this Unix time in ms."),
        Text("tag", "Has this tag.", TAG_BYTES_MAX),
        Text("key", "Has this ordering key.", KEY_BYTES_MAX),
        FAILED_GROUP,
        *FAILED,
        doc="a filter",
    ),
)
RATE: Final = Int("rate", "At most this many messages a second.", 1, 10_000_000)
_WHICH: Final[dict[str, Any]] = {
    "oneOf": [{"required": ["ids"]}, {"required": ["filter"]}],
    "dependentRequired": {"rate": ["filter"]},
}
CANCEL_MANY: Final = Shape("Cancel many", CONTROL_IDS, FILTER, RATE, CANCEL_FORCE, rules=_WHICH)
_ONE_TIME: Final = [{"required": ["deliver_at_ms"]}, {"required": ["delay_ms"]}]
RESCHEDULE_MANY: Final = Shape(
    "Reschedule many",
    CONTROL_IDS,
    FILTER,
    RATE,
    DELIVER_AT_MS,
    DELAY_MS,
    rules={**_WHICH, "anyOf": _ONE_TIME},
)
REPLAY_MANY: Final = Shape(
    "Replay many",
    CONTROL_IDS,
    FILTER,
    RATE,
    DELIVER_AT_MS,
    DELAY_MS,
    rules=_WHICH,
)
UNTRIED: Final = Flag("untried", "Only if no attempt at the message has begun.")
RESCHEDULE: Final = Shape(
    "Reschedule one",
    DELIVER_AT_MS,
    DELAY_MS,
    PRIORITY,
    UNTRIED,
    rules={"anyOf": [*_ONE_TIME, {"required": ["priority"]}]},
)


ACCEPT: Final = Flag("accept", "Confirms that wall time is right: the broker returns to it.")
ACCEPT_CLOCK: Final = Shape(
    "Accept the clock",
    ACCEPT,
    rules={"required": ["accept"], "properties": {"accept": {"const": True}}},
)
NOTE_MAX: Final = 1_000
"""Bytes of a note."""
HOLD_NOTE: Final = Text("note", "Why the broker is held.", NOTE_MAX)
HOLD: Final = Shape("Hold", HOLD_NOTE)
RELEASE_ARCHIVE: Final = Shape(
    "Release hours",
    TimeMs("through_ms", "Hours that end at or before this Unix time in ms."),
    Int("position", "Log position of the copy: no hour may have changed after it.", 0, 2**53),
    Int("rows", "Rows of the copy in the hours to release.", 0, 2**53),
    rules={"required": ["through_ms"]},
)
NAME_PATTERN: Final = "^[A-Za-z0-9._-]{1,200}$"
TRANSACTION_ID_PATTERN: Final = "^[A-Za-z0-9._:-]{1,200}$"
TRANSACTION: Final = Shape(
    "Begin",
    Name("transaction", "Your own id; absent: the broker makes one.", 200, TRANSACTION_ID_PATTERN),
    Int(
        "ttl_ms",
        "Its lifetime in ms, counted from the last begin or part.",
        1,
        TRANSACTION_AGE_MS,
    ),
)
PART_TOPIC: Final = Name(
    "topic",
    "The topic that receives the messages; absent: an Arrow body's column topic names it, and "
    "each run of adjacent rows of a topic is a part, with the next number.",
    200,
    NAME_PATTERN,
)
PRODUCER: Final = Text(
    "producer", "Name of the producer that stages; each numbers its own parts.", 255
)
PART: Final = QueryInt("part", "Number of a part, for example of a partition.", 0, 2**32 - 1)
WINNERS: Final = ObjectList(
    "winners",
    "The attempt of each part that is sent; all other attempts are discarded.",
    Shape(
        "Winner",
        PRODUCER,
        Int("part", "A part.", 0, 2**32 - 1),
        Int("attempt", "The attempt that counts.", 0, 2**64 - 1),
        Int("rows", "Number of rows that this attempt has staged.", 0, INT64_MAX),
        doc="a winner",
        rules={"required": ["part", "attempt", "rows"]},
    ),
    STAGED_PARTS_MAX,
)
COMMIT: Final = Shape("Commit", WINNERS, rules={"required": ["winners"]})
ABORT: Final = Shape("Abort")
ACKS: Final = Choice(
    "acks",
    "Which nodes have stored the message when the send is answered.",
    ("leader", "quorum", "all"),
)
NAMESPACE: Final = Name("ns", "Its namespace; absent: default.", 200, NAME_PATTERN)
PART_NUMBER_MAX: Final = 2**32 - 1
PARTS: Final = (
    PART_TOPIC,
    NAMESPACE,
    PRODUCER,
    PART,
    QueryInt("attempt", "Number of the attempt at this part.", 0, 2**64 - 1),
    QueryInt("number", "Number of this body within the attempt.", 0, PART_NUMBER_MAX),
    ACKS,
)
LISTED_MAX: Final = QueryInt("limit", "At most this many.", 1, LIST_MAX, 100)
READ: Final = Choice(
    "read",
    "leader: the leader's state; local: what this node has applied, which may be stale.",
    ("local", "leader"),
)
CANCEL_FORCE_QUERY: Final = QueryFlag("force", "Also a leased message or a dead letter.")
UNTRIED_QUERY: Final = QueryFlag("untried", UNTRIED.doc)
DROP_FORCE: Final = QueryFlag("force", "Also if it has living messages.")
EPHEMERAL: Final = Flag(
    "ephemeral", "The group is dropped when no receive has used it for some time."
)
GROUP_SETTINGS: Final = Shape("Group to make", EPHEMERAL)
PURGE_FORCE: Final = Flag("force", "Also leased messages.")
PURGE_ERASE: Final = Flag(
    "erase",
    "Also remove every byte of the topic's messages, ended ones too, from the data folder of each "
    "node; the topic says when that is done. Needs force, and takes no group.",
)
PURGE: Final = Shape("Purge", GROUP, PURGE_FORCE, PURGE_ERASE)
PAUSE: Final = Shape("Pause or resume")
DELAY_BUCKETS: Final = QueryFlag(
    "delay_buckets", "Count waiting messages by the time until they are due.", True
)

STATE: Final = QueryWords(
    "state",
    "Only messages in these states.",
    ("waiting", "ready", "leased", "acked", "expired", "dead", "cancelled", "replaced"),
)
LIST_DUE_FROM: Final = QueryTimeMs("due_from", "Due at this Unix time in ms or later.")
LIST_DUE_TO: Final = QueryTimeMs("due_to", "Due before this Unix time in ms.", default=TIME_MS_MAX)
WITH_TAG: Final = Text("tag", "Only messages with this tag.", TAG_BYTES_MAX)
WITH_KEY: Final = Text("key", "Only messages with this ordering key.", KEY_BYTES_MAX)
BODIES: Final = QueryFlag("bodies", "With bodies and headers; a page then has fewer messages.")
CURSOR: Final = Text("cursor", "The cursor of the previous page; the filter must be the same.")
LIST: Final = (
    STATE,
    LIST_DUE_FROM,
    LIST_DUE_TO,
    WITH_TAG,
    WITH_KEY,
    GROUP,
    BODIES,
    CURSOR,
    QueryInt("limit", "At most this many messages.", 1, LIST_MAX, default=100),
)
TOPICS_LIMIT: Final = QueryInt("limit", "At most this many topics.", 1, LIST_MAX, default=1_000)
PREFIX: Final = Text("prefix", "Only topics whose names begin with it.")
CONTAINS: Final = Text("contains", "Only topics whose names contain it.", 200)
TOPIC_SORTS: Final = ("name", "waiting", "ready", "leased", "dead")
SORT: Final = Choice(
    "sort",
    "By name; or the topics with the most messages in a state first. A topic whose number changes "
    "between two pages may be missing or come twice.",
    TOPIC_SORTS,
)
DEAD: Final = (*LIST[1:], *FAILED, QueryFlag("history", "With the history of each message.", True))
EXACT: Final = QueryFlag(
    "exact", "Count each text by itself. Otherwise those that differ in numbers count together."
)
WITH_BODY: Final = QueryFlag("body", "False: without body, headers and own backoff.", True)
LIFE: Final = QueryFlag("life", "With the history of the message, step by step.")
MINUTES: Final = QueryInt(
    "minutes", "Number of minutes, each counted by itself.", 0, MINUTES_MAX, default=60
)
HOURS: Final = QueryInt(
    "hours", "Number of hours, each counted by itself.", 0, HOURS_MAX, default=24
)

TAIL_MAX: Final = 1_000
TAIL_WAIT_MS: Final = QueryInt("wait_ms", "How many ms to wait for a hand-out.", 0, WAIT_MS_MAX)
TAIL: Final = (
    QueryInt("after", "Number from which on; 0: from now on.", 0, 2**53),
    TAIL_WAIT_MS,
)

MAKE_CLAIM: Final = Shape(
    "Make a claim",
    GROUP,
    Int(
        "max",
        "At most this many messages; absent: as many as a claim may have.",
        1,
        CLAIM_ROWS_MAX,
    ),
    LEASE_MS,
    WANTED_TAGS,
    TAGS_MODE,
)
EXTEND_CLAIM: Final = Shape("Extend a claim", GROUP, LEASE_MS)
SETTLE_CLAIM: Final = Shape("Settle a claim", GROUP)
CLAIM_ROWS: Final = (
    GROUP,
    QueryInt("from", "Index of the first row, counted from 0.", 0, INT64_MAX),
    QueryInt(
        "to",
        "Index behind the last row; larger than the claim means all.",
        0,
        INT64_MAX,
        default=INT64_MAX,
    ),
)


# -------------------------------------------------------------------------- settings of a topic

ORDERS: Final = ("time", "priority")
MERGE_LEASED: Final = ("keep", "successor")
_DAY_MS: Final = 86_400_000
SETTINGS: Final = Shape(
    "Settings of a topic",
    Choice("order", "time: by due time; priority: highest first of what is due.", ORDERS),
    Int(
        "aging_ms",
        "In priority order: each such wait adds one to the priority; 0: never.",
        0,
        _DAY_MS,
    ),
    MERGE,
    Choice("merge_leased", "What a repeated id does while its message is leased.", MERGE_LEASED),
    TTL_MS,
    MAX_RETRY,
    BACKOFF,
    Int("lease_ms", "The lease of a receive that gives none.", 1, _DAY_MS // 2),
    Int("ended_keep_ms", "How long ended messages can be read.", 0, _DAY_MS),
    Int("dead_keep_ms", "How long dead letters are kept.", 0, 90 * _DAY_MS),
    Flag("dead_expired", "Messages that expired undelivered become dead letters too."),
    Nested(
        "rate_limit",
        "Deliveries of each group.",
        Shape(
            "Rate limit",
            Number("per_second", "Deliveries a second.", 0.001, 1e9),
            Int("burst", "Deliveries at once after a pause.", 1, 1_000_000),
            doc="a rate limit",
        ),
    ),
    Nested(
        "quota",
        "Limits on what the topic accepts; 0: no limit.",
        Shape(
            "Quota",
            Int("rate", "New messages a second, over ten seconds.", 0, 10**9),
            Int("pending", "Living messages.", 0, 2**53),
            Int("bytes", "Bytes of living messages.", 0, 2**53),
            Int("horizon_ms", "How far ahead a message may be due.", 0, 2**53),
            doc="a quota",
        ),
    ),
    OneOf("slots", "For clients that shard by key.", tuple(1 << power for power in range(15))),
    Flag("default_group", "False: only named groups see what is sent.", default=True),
    doc="topic settings",
)
