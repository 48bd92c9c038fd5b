"""The settings of an oracle: the nodes and their UDP addresses, timing, secret and callbacks.

raftos has one global settings object and builds its cipher at import, with a published key. Here
each node has its own settings, which are complete when they are made.

The cluster identifies nodes by index, raftos by the text "host:port". A host is a numeric IPv4
address: raftos splits the text at its only colon, and a name would have to be resolved inside the
event loop. Messages and files contain indexes, since an address may change between two starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address
from random import Random
from typing import Any, Final, TypeAlias

from cryptography.fernet import InvalidToken
from raftos.conf import Configuration
from raftos.cryptors import Cryptor
from raftos.serializers import JSONSerializer

from delaylog.replication.configuration import CLUSTER_ID_SIZE
from delaylog.replication.epochs import EpochTick
from delaylog.replication.errors import ClusterError
from delaylog.replication.oracle import LogState

# -------------------------------------------------------------------------- nodes and addresses

Address: TypeAlias = tuple[str, int]
"""(numeric IPv4 host, UDP port)."""

PORT_MAX: Final = 65_535


class Roster:
    """The roster of one member."""

    def __init__(self, node: int, addresses: Mapping[int, Address]) -> None:
        """Raises ClusterError for invalid addresses."""
        self.node = node
        self.addresses: dict[int, Address] = {}
        self._indexes: dict[str, int] = {}
        self.change(addresses)

    def change(self, addresses: Mapping[int, Address]) -> None:
        """Use these members from now on. Raises ClusterError without changing anything."""
        if len(addresses) < 2:
            raise ClusterError("a cluster of one has nothing to elect")
        if self.node not in addresses:
            raise ClusterError(f"node {self.node} is not among the members")
        checked = {index: _checked(index, addresses[index]) for index in addresses}
        indexes = {raftos_id(address): index for index, address in checked.items()}
        if len(indexes) != len(checked):
            raise ClusterError(f"two members have the same UDP address: {checked}")
        self.addresses, self._indexes = checked, indexes

    @property
    def address(self) -> Address:
        """This node's own address."""
        return self.addresses[self.node]

    @property
    def others(self) -> tuple[int, ...]:
        """The indexes of all other nodes."""
        return tuple(index for index in self.addresses if index != self.node)

    def id_of(self, index: int) -> str:
        """raftos' name of a member. A former member gets a name that no other node has."""
        address = self.addresses.get(index)
        return f"#{index}" if address is None else raftos_id(address)

    def index_of(self, name: str) -> int | None:
        """The index of a raftos name, also of a former member; None for a former address."""
        return int(name[1:]) if name.startswith("#") else self._indexes.get(name)


def raftos_id(address: Address) -> str:
    """raftos' name of the node at an address."""
    return f"{address[0]}:{address[1]}"


def check_address(address: Address, what: str) -> Address:
    """Check that an address is numeric and has a port. Raises ClusterError."""
    host, port = address
    try:
        numeric = IPv4Address(host)
    except AddressValueError as error:
        raise ClusterError(f"{what} needs a numeric IPv4 host, not {host!r}") from error
    if type(port) is not int or not 0 < port <= PORT_MAX:
        raise ClusterError(f"{what} needs a port from 1 to {PORT_MAX}, not {port!r}")
    return str(numeric), port


def _checked(index: int, address: Address) -> Address:
    host, port = check_address(address, f"the UDP address of node {index}")
    numeric = IPv4Address(host)
    if numeric.is_unspecified or numeric.is_multicast or int(numeric) == 0xFFFF_FFFF:
        raise ClusterError(f"the UDP address of node {index} is no single machine's: {host}")
    return host, port


# ------------------------------------------------------------------------------------- settings

SECRET_BYTES_MIN: Final = 32
CIPHERS_KEPT: Final = 16
"""A process has one cluster, with two secrets during an exchange."""
SAMPLE_SECRET: Final[bytes] = Configuration.default_settings()["secret_key"]
"""raftos' default, which is published."""


@dataclass(frozen=True, slots=True)
class ElectionTiming:
    """Milliseconds; about these values are needed for a failover below one second."""

    heartbeat_ms: int = 50
    step_down_ms: int = 250
    """A leader that no majority has answered for this time steps down; a follower that has heard
    its leader within it supports no candidate."""
    election_min_ms: int = 250
    election_max_ms: int = 500
    """A follower that hears no leader stands after a random time between these."""
    transfer_deadline_ms: int = 1_000
    """A transfer is forgotten after this time, so that it never hangs."""

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_ms * 3 <= self.step_down_ms, "one lost heartbeat is no failure"
        assert self.step_down_ms <= self.election_min_ms, "the old leader goes before a new one"
        assert self.election_min_ms < self.election_max_ms, "at random, or votes split for ever"
        assert self.heartbeat_ms < self.transfer_deadline_ms, "a transfer has more than one chance"


@dataclass(frozen=True, slots=True)
class OracleSettings:
    """The secret and the callbacks of the host, which run in the event loop and must not block."""

    cluster_id: bytes
    """Part of the key, so that two clusters with one secret ignore each other."""
    secrets: Callable[[], tuple[bytes, ...]] = field(repr=False)
    """Secrets of at least 32 random bytes, at present: the first encrypts, and each decrypts, so
    that members exchange a secret one after the other."""
    tick: Callable[[], EpochTick | None] = lambda: None
    """Returns the tick for a leader's heartbeats; None for no tick."""
    accept_tick: Callable[[EpochTick], None] = lambda tick: None
    """Takes the tick of a heartbeat: ReplicationNode.accept_tick."""
    log_state: Callable[[], LogState | None] = LogState
    """Returns how complete this node's log is; None if it must not lead now (a learner, or shutting
    down), though it still votes. A preference only: safety does not depend on it."""
    hears: Callable[[], int | None] = lambda: None
    """Returns the other node that leads, as the host knows by other means, or None. This node is no
    candidate then, and supports no other one than that leader."""
    stretch: Callable[[], float] = lambda: 1.0
    """Returns the factor, 1 or more, by which a busy machine stretches the times of `timing`."""
    changed: Callable[[], None] = lambda: None
    """Called when the role or the leader has changed: call `suggests` and `leader` again. Poll them
    too, since the silence of a leader shows only there."""
    failed: Callable[[Exception], None] = lambda error: None
    """Called when the disk has failed: the oracle takes no further part; stop the node."""
    listen: Address | None = None
    """The address to listen on, if it is not the member's own, as behind a port mapping."""
    timing: ElectionTiming = field(default_factory=ElectionTiming)
    random: Random = field(default_factory=Random)

    def __post_init__(self) -> None:
        for secret in self.secrets():
            if secret == SAMPLE_SECRET:
                raise ClusterError("the secret is the published sample of raftos: make your own")
            if len(secret) < SECRET_BYTES_MIN:
                what = f"has {len(secret)} bytes" if secret else "is missing"
                raise ClusterError(f"the secret {what}, at least {SECRET_BYTES_MIN} are needed")
        if len(self.cluster_id) != CLUSTER_ID_SIZE:
            raise ClusterError(f"a cluster id has {CLUSTER_ID_SIZE} bytes")
        if self.listen is not None:
            check_address(self.listen, "the address to listen on")


class Cryptors:
    """The ciphers of an election whose secret may be exchanged."""

    def __init__(self, settings: OracleSettings) -> None:
        self._secrets = settings.secrets
        self._cluster_id = settings.cluster_id

    def prepare(self) -> None:
        """Make the ciphers of the present secrets, outside the event loop."""
        prepare(self._secrets(), self._cluster_id)

    def encrypt(self, data: bytes) -> bytes:
        """Encrypt by the first secret."""
        sealed: bytes = make_cryptor(self._secrets()[0], self._cluster_id).encrypt(data)
        return sealed

    def decrypt(self, data: bytes) -> bytes:
        """Decrypt by the secret that fits. Raises InvalidToken."""
        for secret in self._secrets():
            with suppress(InvalidToken):
                opened: bytes = make_cryptor(secret, self._cluster_id).decrypt(data)
                return opened
        raise InvalidToken


def prepare(secrets: Iterable[bytes], cluster_id: bytes) -> None:
    """Make the ciphers of these secrets, outside the event loop."""
    for secret in secrets:
        make_cryptor(secret, cluster_id)


@lru_cache(maxsize=CIPHERS_KEPT)
def make_cryptor(secret: bytes, cluster_id: bytes) -> Cryptor:
    """The cipher of one cluster. Deliberately takes some 50 ms: call it outside the event loop."""
    configuration = Configuration.__new__(Configuration)
    # All in one call: the cipher is built from the settings in the same object.
    configuration.configure(_raftos_settings(secret, cluster_id))
    assert isinstance(configuration.cryptor, Cryptor), "never in clear text"
    return configuration.cryptor


def _raftos_settings(secret: bytes, cluster_id: bytes) -> dict[str, Any]:
    """raftos' settings, without a path for files, which are not used."""
    defaults: dict[str, Any] = Configuration.default_settings()
    return {
        **defaults,
        "log_path": None,
        "serializer": JSONSerializer,
        "cryptor": Cryptor,
        "secret_key": secret,
        "salt": cluster_id,
    }
