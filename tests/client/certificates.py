"""An authority, and the certificates that it issues for 127.0.0.1 and for a client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Authority, write_pair


@dataclass(frozen=True)
class Certificates:
    """PEM files; each certificate's key is in a file beside it."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Make the authority and both certificates."""
    authority = Authority("an authority")
    ca = folder / "ca.pem"
    ca.write_bytes(authority.pem)
    made = [ca]
    for name in ("server", "client"):
        made += write_pair(folder, name, authority.issue(name, hosts=["127.0.0.1"]))
    return Certificates(*made)
