"""Members and their addresses: numeric, different, and as many as a cluster may have."""

from __future__ import annotations

import pytest

from delaylog.replication.errors import ClusterError
from delaylog.replication.raftos_oracle.settings import Address, Roster

A, B, C = ("10.0.0.1", 7_001), ("10.0.0.2", 7_001), ("127.0.0.1", 65_535)


def test_names_and_indexes() -> None:
    roster = Roster(3, {1: A, 3: B, 7: C})
    assert roster.address == B
    assert roster.others == (1, 7)
    assert roster.id_of(7) == "127.0.0.1:65535"
    assert [roster.index_of(roster.id_of(index)) for index in (1, 3, 7, 9)] == [1, 3, 7, 9]


@pytest.mark.parametrize(
    ("addresses", "what"),
    [
        ({0: A}, "nothing to elect"),
        ({1: A, 2: B, 3: C}, "node 0 is not among"),
        ({0: A, 1: B, 2: B}, "the same UDP address"),
        ({0: A, 1: B, 2: ("localhost", 1)}, "node 2 needs a numeric IPv4 host, not 'localhost'"),
        ({0: A, 1: B, 2: ("::1", 1)}, "numeric"),
        ({0: A, 1: B, 2: ("010.0.0.3", 1)}, "numeric"),
        ({0: A, 1: B, 2: ("0.0.0.0", 1)}, "no single machine's"),
        ({0: A, 1: B, 2: ("224.0.0.1", 1)}, "no single machine's"),
        ({0: A, 1: B, 2: ("255.255.255.255", 1)}, "no single machine's"),
        ({0: A, 1: B, 2: ("10.0.0.3", 0)}, "a port from 1 to 65535, not 0"),
        ({0: A, 1: B, 2: ("10.0.0.3", 65_536)}, "port"),
        ({0: A, 1: B, 2: ("10.0.0.3", True)}, "port"),
    ],
)
def test_what_cannot_work(addresses: dict[int, Address], what: str) -> None:
    with pytest.raises(ClusterError, match=what):
        Roster(0, addresses)
