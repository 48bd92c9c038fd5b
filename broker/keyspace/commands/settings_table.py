"""The settings that CONFIG knows: name, kind, default, bounds, and whether it can be changed.

    flag yes|no      number low high      memory low high (takes kb, mb, gb)      text      words

`fixed` is refused as Redis refuses it; `held` could be changed in Redis, but not here: what it
already is may be set again, anything else is refused with a clear word. Nothing in this table is
read by the broker itself: what means something is wired through `ServerState.on_setting`, and what
the broker's own configuration decides comes from `ServerState.given`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_INT: Final = 2**31 - 1
_LONG: Final = 2**63 - 1
_ROWS: Final = f"""\
acl-pubsub-default       words  resetchannels allchannels,resetchannels held
acllog-max-len           number 128 0 {_LONG}
activedefrag             flag   no held
active-expire-effort     number 1 1 10
activerehashing          flag   yes
always-show-logo         flag   no fixed
aof-load-truncated       flag   yes
aof-rewrite-incremental-fsync flag yes
aof-timestamp-enabled    flag   no held
aof-use-rdb-preamble     flag   yes
appenddirname            text   appendonlydir fixed
appendfilename           text   appendonly.aof fixed
appendfsync              words  everysec everysec,always,no held
appendonly               flag   no held
auto-aof-rewrite-min-size memory 67108864 0 {_LONG}
auto-aof-rewrite-percentage number 100 0 {_INT}
bind                     text   127.0.0.1 held
busy-reply-threshold     number 5000 0 {_LONG}
client-output-buffer-limit text normal_0_0_0_slave_268435456_67108864_60_pubsub_33554432_\
8388608_60 held
client-query-buffer-limit memory 1073741824 1048576 {_LONG}
cluster-enabled          flag   no fixed
crash-log-enabled        flag   yes
daemonize                flag   no fixed
databases                number 16 1 {_INT} fixed
dbfilename               text   dump.rdb protected
dir                      text   . protected
disable-thp              flag   yes fixed
dynamic-hz               flag   yes
enable-debug-command     words  no no,yes,local fixed
enable-module-command    words  no no,yes,local fixed
enable-protected-configs words  no no,yes,local fixed
hash-max-listpack-entries number 512 0 {_LONG}
hash-max-listpack-value  memory 64 0 {_LONG}
hll-sparse-max-bytes     memory 3000 0 {_LONG}
hz                       number 10 0 {_INT}
io-threads               number 1 1 128 fixed
io-threads-do-reads      flag   no fixed
latency-monitor-threshold number 0 0 {_LONG}
latency-tracking         flag   no held
lazyfree-lazy-eviction   flag   no
lazyfree-lazy-expire     flag   no
lazyfree-lazy-server-del flag   no
lazyfree-lazy-user-del   flag   no
lazyfree-lazy-user-flush flag   no
lfu-decay-time           number 1 0 {_INT}
lfu-log-factor           number 10 0 {_INT}
list-compress-depth      number 0 0 {_INT}
list-max-listpack-size   number -2 -{_INT + 1} {_INT}
logfile                  text   - fixed
loglevel                 words  notice debug,verbose,notice,warning held
maxclients               number 10000 1 {2**32 - 1}
maxmemory                memory 0 0 {2**64 - 1} held
maxmemory-clients        memory 0 0 {_LONG} held
maxmemory-eviction-tenacity number 10 0 100
maxmemory-policy         words  noeviction volatile-lru,volatile-lfu,volatile-random,volatile-ttl,\
allkeys-lru,allkeys-lfu,allkeys-random,noeviction held
maxmemory-samples        number 5 1 {_INT}
min-replicas-max-lag     number 10 0 {_INT}
min-replicas-to-write    number 0 0 {_INT} held
no-appendfsync-on-rewrite flag  no
notify-keyspace-events   events -
pidfile                  text   - fixed
port                     number 6379 0 65535 held
proto-max-bulk-len       memory 536870912 1048576 {_LONG}
protected-mode           flag   no held
rdbchecksum              flag   yes fixed
rdbcompression           flag   yes
repl-backlog-size        memory 1048576 1 {_LONG}
repl-backlog-ttl         number 3600 0 {_LONG}
repl-diskless-sync       flag   yes
repl-ping-replica-period number 10 1 {_INT}
repl-timeout             number 60 1 {_INT}
replica-announce-ip      text   - held
replica-announce-port    number 0 0 65535 held
replica-lazy-flush       flag   no
replica-priority         number 100 0 {_INT} held
replica-read-only        flag   yes held
replica-serve-stale-data flag   yes held
replicaof                text   - fixed
requirepass              text   - held
save                     text   - held
set-max-intset-entries   number 512 0 {_LONG}
slowlog-log-slower-than  number 10000 -1 {_LONG}
slowlog-max-len          number 128 0 {_LONG}
stop-writes-on-bgsave-error flag yes
stream-node-max-bytes    memory 4096 0 {_LONG}
stream-node-max-entries  number 100 0 {_LONG}
supervised               words  no upstart,systemd,auto,no fixed
tcp-backlog              number 4096 0 {_INT} fixed
tcp-keepalive            number 300 0 {_INT} held
timeout                  number 0 0 {_INT} held
tls-port                 number 0 0 65535 held
tracking-table-max-keys  number 1000000 0 {_LONG}
unixsocket               text   - fixed
unixsocketperm           text   0 fixed
zset-max-listpack-entries number 128 0 {_LONG}
zset-max-listpack-value  memory 64 0 {_LONG}
"""
ALIASES: Final = {
    b"hash-max-ziplist-entries": b"hash-max-listpack-entries",
    b"hash-max-ziplist-value": b"hash-max-listpack-value",
    b"list-max-ziplist-size": b"list-max-listpack-size",
    b"lua-time-limit": b"busy-reply-threshold",
    b"min-slaves-max-lag": b"min-replicas-max-lag",
    b"min-slaves-to-write": b"min-replicas-to-write",
    b"repl-ping-slave-period": b"repl-ping-replica-period",
    b"slave-lazy-flush": b"replica-lazy-flush",
    b"slave-priority": b"replica-priority",
    b"slave-read-only": b"replica-read-only",
    b"slave-serve-stale-data": b"replica-serve-stale-data",
    b"slaveof": b"replicaof",
    b"zset-max-ziplist-entries": b"zset-max-listpack-entries",
    b"zset-max-ziplist-value": b"zset-max-listpack-value",
}
"""Older names that mean the same."""
_CHANGES: Final = ("fixed", "protected", "held")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row."""

    name: bytes
    kind: str
    default: bytes
    low: int = 0
    high: int = 0
    words: tuple[bytes, ...] = ()
    change: str = ""
    """`fixed`, `protected`, `held`; empty = it may be changed."""


def _read(row: str) -> Setting:
    name, kind, default, *rest = row.split()
    change = rest.pop() if rest and rest[-1] in _CHANGES else ""
    value = b"" if default == "-" else default.replace("_", " ").encode()
    words = tuple(rest[0].encode().split(b",")) if kind == "words" else ()
    low, high = map(int, rest) if kind in ("number", "memory") else (0, 0)
    assert kind in ("flag", "number", "memory", "text", "words", "events"), row
    return Setting(name.encode(), kind, value, low, high, words, change)


SETTINGS: Final = {setting.name: setting for setting in map(_read, _ROWS.splitlines())}
"""By name; the older ones of ALIASES are not among them."""
