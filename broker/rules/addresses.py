"""Addresses as pairs of host and port: a host is a name, or a numeric IPv4 or IPv6 address."""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]


def is_numeric(host: str) -> bool:
    """Whether a host is an IPv4 or IPv6 address, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_ipv4(host: str) -> bool:
    """Whether a host is a numeric IPv4 address."""
    return is_numeric(host) and ":" not in host


def is_ipv6(host: str) -> bool:
    """Whether a host is a numeric IPv6 address."""
    return is_numeric(host) and ":" in host


def host_port(address: Address) -> str:
    """An address as a cluster file writes it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
