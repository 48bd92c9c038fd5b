"""Redis commands, native verbs and delay queues by Lua, beside Redis in the same run.

Three servers stand side by side and are asked in turns: redis-server (append-only file synced
every second), the broker with `--resp-fsync everysec`, which promises the same, and with `always`,
which answers after the fsync. The one rule: a ratio is taken round by round, and is the median.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker_process import Brokers, ServerProcess
from redis_peer import Benchmark, Load, RedisProcess, ask, reference_programs
from resp_load import timed_msend
from sending import Timed
from settings import BODY_BYTES, INGEST_LANES, Settings
from tables import Column, Table, Target, at_least, median, microseconds, rate, span, times
from workers import run_apart

CLIENTS: Final = 50
KEYS: Final = 100_000
REDIS: Final = "redis"
FSYNCS: Final = ("everysec", "always")
COMMANDS: Final = ("SET", "GET", "INCR", "LPUSH", "HSET", "SADD", "ZADD", "LRANGE_100")
AIMS: Final = {("SET", 16): 0.5, ("GET", 16): 0.5, ("ZADD", 16): 0.4}
MSEND_ROWS: Final = 1_000
# Requests from which the length of a round is taken; they also fill what is read later.
PROBE: Final = {1: 3_000, 16: 20_000, 50: 20_000}

COLUMNS: Final = (
    Column("commands/s", "rate", rate),
    Column("least - most", "span", span),
    Column("Redis", "redis_rate", rate),
    Column("of Redis", "ratio", times),
    Column("server CPU us", "server_us", microseconds),
    Column("Redis CPU us", "redis_us", microseconds),
    Column("CPU of Redis", "cpu_ratio", times),
)

# One message of a delay queue as people build it: the body in a hash, the due time in a set.
DELAY_SEND: Final = b"""redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])"""
# The three of a camellia queue: the message with its time to live, ids in a set, a list and a set.
CAMELLIA_SEND: Final = b"""redis.call('SET', KEYS[1] .. ARGV[1], ARGV[2], 'PX', ARGV[3])
return redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])"""
CAMELLIA_MOVE: Final = b"""for i = 1, tonumber(ARGV[1]) do
  redis.call('ZREM', KEYS[1], ARGV[1 + i])
  redis.call('LPUSH', KEYS[2], ARGV[1 + i])
end
return tonumber(ARGV[1])"""
CAMELLIA_PULL: Final = b"""local id = redis.call('RPOP', KEYS[1])
if id then
  redis.call('ZADD', KEYS[2], ARGV[1], id)
  return id
end
return nil"""
MOVED_AT_ONCE: Final = 10


class Place(NamedTuple):
    """A server and the port where it speaks RESP."""

    server: ServerProcess
    port: int


@dataclass(slots=True)
class Runs:
    """The timed rounds of one case on one server."""

    timed: list[Timed] = field(default_factory=list)

    @property
    def server_us(self) -> float:
        """Processor time a command over all rounds: ticks of 10 ms are much for one of them."""
        spent_s = sum(each.server_cpu_s for each in self.timed)
        return spent_s / sum(each.messages for each in self.timed) * 1e6


class Bench:
    """The three servers, and rounds of cases against them in turns."""

    def __init__(self, places: dict[str, Place], programs: Path, settings: Settings) -> None:
        self.places = places
        self._benchmark = Benchmark(programs)
        self._settings = settings

    def compare(self, loads: dict[str, Load], pipeline: int) -> dict[str, Runs]:
        """One case on the servers that `loads` names; windows are equally long on each."""
        requests, runs = {}, {name: Runs() for name in loads}
        for name, load in loads.items():
            probed = self._run(name, load, PROBE[pipeline])
            wished = int(probed.rate * self._settings.resp_round_s)
            requests[name] = max(PROBE[pipeline], wished)
        for _ in range(self._settings.resp_rounds):
            for name, load in loads.items():
                runs[name].timed.append(self._run(name, load, requests[name]))
        return runs

    def _run(self, name: str, load: Load, requests: int) -> Timed:
        place = self.places[name]
        return self._benchmark.run(place.server, place.port, load, requests)


@contextmanager
def _bench(brokers: Brokers, settings: Settings) -> Iterator[Bench]:
    programs = reference_programs()
    with ExitStack() as stack:
        folder = stack.enter_context(brokers.folder())
        redis = stack.enter_context(RedisProcess(programs, folder))
        places = {REDIS: Place(redis, redis.port)}
        for fsync in FSYNCS:
            options = ("--resp", "127.0.0.1:0", "--resp-fsync", fsync)
            broker = stack.enter_context(brokers.fresh(*options))
            places[fsync] = Place(broker, broker.port_of("resp"))
        yield Bench(places, programs, settings)


def commands(brokers: Brokers, settings: Settings) -> Table:
    """Ordinary commands, alone and pipelined."""
    table = Table(
        f"resp: redis-benchmark, {CLIENTS} clients, {BODY_BYTES} B, {KEYS:,} keys, against Redis "
        f"7.0.15 with AOF everysec, median of {settings.resp_rounds} interleaved rounds",
        COLUMNS,
    )
    with _bench(brokers, settings) as bench:
        for pipeline in (1, 16):
            for name in COMMANDS:
                if name == "LRANGE_100":
                    # Its own test would fill the list once more each time.
                    load = Load(options(pipeline), ("lrange", "mylist", "0", "99"))
                else:
                    load = Load((*options(pipeline), "-t", name.lower()))
                runs = bench.compare(dict.fromkeys(bench.places, load), pipeline)
                aim = AIMS.get((name, pipeline))
                _add(table, f"{name} -P {pipeline}", runs, aim)
    return table


def delay_queues(brokers: Brokers, settings: Settings) -> Table:
    """The delay log by its verbs, and delay queues that are made of Redis commands by Lua."""
    table = Table(
        f"resp delay queues: {CLIENTS} clients, {BODY_BYTES} B bodies, against Redis 7.0.15 with "
        f"AOF everysec, median of {settings.resp_rounds} interleaved rounds",
        COLUMNS,
    )
    with _bench(brokers, settings) as bench:
        _sends(table, bench)
        _bulk(table, bench, settings)
        _camellia(table, bench)
    table.notes.append(
        "DL.SEND and DL.MSEND stand beside a hash and a sorted set by EVALSHA on Redis, a message "
        "a call; answers of `always` come after the fsync."
    )
    return table


def _sends(table: Table, bench: Bench) -> None:
    body = "x" * BODY_BYTES
    send = ("dl.send", "bench", "3600000", body)
    script = _script(bench, REDIS, DELAY_SEND)
    # Hardly an id comes twice.
    queue = ("evalsha", script, "2", "bodies", "due", "__rand_int__", body, "18__rand_int__")
    for pipeline in (50, 1):
        alike = options(pipeline)
        loads = {REDIS: Load((*alike, "-r", "1000000000"), queue)}
        loads |= {fsync: Load(alike, send) for fsync in FSYNCS}
        runs = bench.compare(loads, pipeline)
        for fsync in FSYNCS:
            figures = _figures(runs, fsync)
            target = (
                at_least(figures["ratio"], 0.6, "0.6 x Redis")
                if pipeline == 1
                else at_least(figures["rate"], 100e3, "100 k/s")
            )
            table.add(f"DL.SEND -P {pipeline}, {fsync}", figures, [target])


def _bulk(table: Table, bench: Bench, settings: Settings) -> None:
    for fsync in reversed(FSYNCS):
        place = bench.places[fsync]
        runs = Runs()
        for _ in range(settings.resp_rounds):
            outcome = run_apart(
                timed_msend,
                place.port,
                place.server.process_id,
                rows=MSEND_ROWS,
                body_size=BODY_BYTES,
                lanes=INGEST_LANES,
                seconds=settings.resp_round_s,
            )
            runs.timed.append(outcome.value)
        figures = _figures({fsync: runs}, fsync)
        target = at_least(figures["rate"], 500e3, "500 k/s")
        case = f"DL.MSEND of {MSEND_ROWS:,}, {INGEST_LANES} connections, {fsync} (messages)"
        table.add(case, figures, [target])


def _camellia(table: Table, bench: Bench) -> None:
    body = "x" * BODY_BYTES
    ids = ["__rand_int__"] * MOVED_AT_ONCE
    # Scripts leave more ids behind for the next one than it takes.
    for case, script, words in (
        (
            "camellia send",
            CAMELLIA_SEND,
            ("2", "msg|", "waiting", "__rand_int__", body, "3600000", "18__rand_int__"),
        ),
        (
            f"camellia move of {MOVED_AT_ONCE}",
            CAMELLIA_MOVE,
            ("2", "waiting", "ready", str(MOVED_AT_ONCE), *ids),
        ),
        ("camellia pull", CAMELLIA_PULL, ("2", "ready", "acks", "18__rand_int__")),
    ):
        digests = {_script(bench, name, script) for name in bench.places}
        assert len(digests) == 1, "servers name the same script differently"
        for pipeline in (1, 16):
            load = Load(options(pipeline), ("evalsha", *digests, *words))
            runs = bench.compare(dict.fromkeys(bench.places, load), pipeline)
            _add(table, f"{case} -P {pipeline}", runs, 0.4)


def options(pipeline: int) -> tuple[str, ...]:
    """What redis-benchmark is told of connections, pipelining, values and keys."""
    return (
        *("-c", str(CLIENTS), "-P", str(pipeline)),
        *("-d", str(BODY_BYTES), "-r", str(KEYS)),
    )


def _script(bench: Bench, name: str, text: bytes) -> str:
    digest = ask(bench.places[name].port, b"SCRIPT", b"LOAD", text)
    assert isinstance(digest, bytes)
    return digest.decode()


def _add(table: Table, case: str, runs: dict[str, Runs], aim: float | None) -> None:
    for fsync in FSYNCS:
        figures = _figures(runs, fsync)
        targets: list[Target] = []
        if aim is not None:
            targets = [at_least(figures["ratio"], aim, f"{aim} x Redis")]
        table.add(f"{case}, {fsync}", figures, targets)


def _figures(runs: dict[str, Runs], name: str) -> dict[str, Any]:
    """What a broker did, and what Redis did in the same rounds if it was asked."""
    ours = runs[name]
    rates = [each.rate for each in ours.timed]
    figures: dict[str, Any] = {
        "rate": median(rates),
        "span": [min(rates), max(rates)],
        "server_us": ours.server_us,
    }
    if redis := runs.get(REDIS):
        figures["redis_rate"] = median([each.rate for each in redis.timed])
        figures["redis_us"] = redis.server_us
        pairs = zip(ours.timed, redis.timed, strict=True)
        figures["ratio"] = median([mine.rate / its.rate for mine, its in pairs])
        figures["cpu_ratio"] = ours.server_us / max(redis.server_us, 1e-3)
    return figures
