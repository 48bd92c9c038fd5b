"""What an oracle is told when it is made: timing, secret and what it asks of its host.

raftos keeps its settings in one object of its module and builds its cipher when it is imported,
with a key that is published. Here each node has settings of its own, complete when they are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from raftos.conf import Configuration
from raftos.cryptors import Cryptor
from raftos.serializers import JSONSerializer

from delaylog.replication.configuration import CLUSTER_ID_SIZE
from delaylog.replication.errors import ClusterError
from delaylog.replication.raftos_oracle.roster import Address, check_address
from delaylog.replication.watermark import EpochTick

SECRET_BYTES_MIN: Final = 32
SAMPLE_SECRET: Final[bytes] = Configuration.default_settings()["secret_key"]
"""What raftos uses if nobody says otherwise. Everybody knows it."""


@dataclass(frozen=True, slots=True)
class ElectionTiming:
    """Milliseconds; a fail-over below a second needs about these."""

    heartbeat_ms: int = 50
    step_down_ms: int = 250
    """A leader that no majority has answered for so long leads no more; a follower that has heard
    its leader within that time helps nobody to replace it."""
    election_min_ms: int = 250
    election_max_ms: int = 500
    """A follower that hears nothing stands after a random time between these."""
    transfer_deadline_ms: int = 1_000
    """A transfer that has not happened by then is forgotten: it must never hang."""

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_ms * 3 <= self.step_down_ms, "one lost heartbeat is no failure"
        assert self.step_down_ms <= self.election_min_ms, "the old leader goes before a new one"
        assert self.election_min_ms < self.election_max_ms, "at random, or votes split for ever"
        assert self.heartbeat_ms < self.transfer_deadline_ms, "a transfer has more than one chance"


class Standing(NamedTuple):
    """How complete a node's log is: among candidates the greater is preferred."""

    last_epoch: int = 0
    end: int = 0


def _no_tick() -> EpochTick | None:
    return None


def _take_nothing(tick: EpochTick) -> None:
    del tick


def _stand_always() -> Standing | None:
    return Standing()


def _nothing() -> None:
    pass


def _ignore(error: Exception) -> None:
    del error


@dataclass(frozen=True, slots=True)
class OracleSettings:
    """The secret and the host's side. Callbacks are called in the event loop and must not block."""

    cluster_id: bytes
    """Goes into the key, so that two clusters with one secret do not hear each other."""
    secret: bytes = field(repr=False)
    """At least 32 random bytes, the same on all members."""
    tick: Callable[[], EpochTick | None] = _no_tick
    """What a leader's heartbeats carry; None for nothing."""
    accept_tick: Callable[[EpochTick], None] = _take_nothing
    """What a heartbeat carried: ReplicationNode.accept_tick."""
    standing: Callable[[], Standing | None] = _stand_always
    """How complete this node's log is; None if it must not lead now (a learner, or shutting
    down). It then still votes. A preference only: safety does not lean on it."""
    changed: Callable[[], None] = _nothing
    """A role or a leader is another one: ask `suggests` and `leader` again. That a leader has
    fallen silent shows in those alone, so ask them from time to time too."""
    failed: Callable[[Exception], None] = _ignore
    """The disk failed: this oracle takes no further part and the node should stop."""
    listen: Address | None = None
    """Where to listen, if not at the member's own address: behind a mapping of ports, say."""
    timing: ElectionTiming = field(default_factory=ElectionTiming)
    random: Random = field(default_factory=Random)

    def __post_init__(self) -> None:
        if self.secret == SAMPLE_SECRET:
            raise ClusterError("the secret is the published sample of raftos: make one of your own")
        if len(self.secret) < SECRET_BYTES_MIN:
            what = f"has {len(self.secret)} bytes" if self.secret else "is missing"
            raise ClusterError(f"the secret {what}, at least {SECRET_BYTES_MIN} are needed")
        if len(self.cluster_id) != CLUSTER_ID_SIZE:
            raise ClusterError(f"a cluster id has {CLUSTER_ID_SIZE} bytes")
        if self.listen is not None:
            check_address(self.listen, "the address to listen on")


def make_cryptor(secret: bytes, cluster_id: bytes) -> Cryptor:
    """The cipher of one cluster. Takes some 50 ms, on purpose: call it off the event loop."""
    configuration = Configuration.__new__(Configuration)
    # All in one call: the cipher is built from what stands in the same object by then.
    configuration.configure(_raftos_settings(secret, cluster_id))
    assert isinstance(configuration.cryptor, Cryptor), "never in clear text"
    return configuration.cryptor


def _raftos_settings(secret: bytes, cluster_id: bytes) -> dict[str, Any]:
    """raftos' own, without a place for files: it is given none."""
    defaults: dict[str, Any] = Configuration.default_settings()
    return {
        **defaults,
        "log_path": None,
        "serializer": JSONSerializer,
        "cryptor": Cryptor,
        "secret_key": secret,
        "salt": cluster_id,
    }
