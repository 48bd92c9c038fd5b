"""The settings of the endpoint for Redis clients, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from delaylog.broker.host.config import is_loopback, one_of, parse_address
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.system.process_memory import memory_share


@dataclass(frozen=True, slots=True)
class RespConfig:
    """The endpoint for Redis clients."""

    host: str
    port: int
    after_write: bool = False
    """With `resp-fsync = everysec`, answers wait for the write but not for the fsync."""
    maxmemory: int = 0
    """Bytes; 0 = no limit."""
    scripts: bool = True
    """Whether clients may run Lua."""


def configured(values: Mapping[str, str], *, no_auth: bool) -> RespConfig | None:
    """None: without an endpoint. Raises ConfigError."""
    everysec = one_of(values["resp_fsync"], "resp-fsync", ("always", "everysec")) == "everysec"
    if not values["resp"]:
        return None
    if everysec and values["cluster"]:
        raise ConfigError("resp-fsync must be always in a cluster: an answered write must survive")
    host, port = parse_address(values["resp"], "resp")
    scripts = one_of(values["resp_scripts"], "resp-scripts", ("auto", "on", "off"))
    trusted = is_loopback(host) or not no_auth
    return RespConfig(
        host=host,
        port=port,
        scripts=trusted if scripts == "auto" else scripts == "on",
        after_write=everysec,
        maxmemory=_memory(values["resp_maxmemory"]),
    )


def _memory(text: str) -> int:
    if text == "auto":
        return memory_share()
    found = re.fullmatch(r"([0-9]{1,18})(|kb|mb|gb)", text)
    if found is None:
        raise ConfigError(
            f"resp-maxmemory must be auto, 0 for no limit, or like 512mb or 4gb, not {text!r}"
        )
    return int(found[1]) << {"": 0, "kb": 10, "mb": 20, "gb": 30}[found[2]]
