"""The settings of push, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from delaylog.broker.host.config import words
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.rules.push_addresses import AddressRules, parse_networks

_PORT: Final = re.compile(r"[0-9]{1,5}")


def configured(values: Mapping[str, str]) -> AddressRules:
    """What pushes may reach. Raises ConfigError."""
    try:
        networks = parse_networks(filter(str.strip, values["push_allow"].split(",")))
    except ValueError as error:
        raise ConfigError(f"push-allow: {error}") from None
    ports = {int(each) for each in words(values, "push-ports", _PORT, "ports from 1 to 65535")}
    if not ports or not all(1 <= port <= 65_535 for port in ports):
        raise ConfigError(f"push-ports must be ports from 1 to 65535, not {values['push_ports']!r}")
    return AddressRules(networks, frozenset(ports))
