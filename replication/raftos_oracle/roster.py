"""The nodes of elections and their UDP addresses.

The cluster identifies nodes by index, raftos by the text "host:port". A host is a numeric IPv4
address: raftos splits the text at its only colon, and a name would have to be resolved inside the
event loop. Messages and files contain indexes, since an address may change between two starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import AddressValueError, IPv4Address
from typing import Final, TypeAlias

from delaylog.replication.errors import ClusterError

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
