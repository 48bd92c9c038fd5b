"""The table of settings, and their values from flags, environment and a TOML file, unchecked.

Flags override `DELAYLOG_…` variables, variables override the file, and the file overrides the
defaults. `config` checks the values.
"""

from __future__ import annotations

import errno
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from delaylog.broker.host.rows import Option
from delaylog.broker.leaves import is_installed, options_of
from delaylog.extras import PUSH, REDIS, missing_part

ADMIN_TOKEN: Final = "DELAYLOG_ADMIN_TOKEN"
"""The variable of the first administrator's token."""


class ConfigError(Exception):
    """A setting is invalid; the text names the setting and its allowed values."""


class InUseError(ConfigError):
    """Another process uses an address or a folder. Try again once it has ended."""


def cannot_listen(where: str, error: OSError) -> ConfigError:
    """The error of a listener; `where` = the address, and the option that has it."""
    kind = InUseError if error.errno == errno.EADDRINUSE else ConfigError
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    return kind(f"cannot listen on {where}: {reason}")


OPTIONS: Final = (
    Option("data-dir", "./delaylog-data", "data folder, for the log and the hours"),
    Option("http", "127.0.0.1:8711", "address of the HTTP listener; port 0 picks a free port"),
    Option("http-host", "", "host names that requests may use, comma-separated; others get 421"),
    Option("http-allowed-origin", "", "origins of web pages that may call, comma-separated"),
    Option("fsync", "always", "always: answer after fdatasync; interval: may lose 50 ms"),
    *options_of(REDIS),
    Option("tls-cert", "", "certificate chain (PEM); HTTP and Redis clients then have to use TLS"),
    Option("tls-key", "", "key of the certificate (PEM), if not in the same file"),
    Option("tls-client-ca", "", "CAs (PEM) of client certificates, which are then verified"),
    Option("tls-policy", "intermediate", "intermediate: TLS 1.2 and newer; modern: TLS 1.3 only"),
    Option("tls-ca", "", "CAs (PEM) of other nodes, for calls to them; empty = the system's"),
    Option("insecure", "", "what to waive beyond loopback: no-auth, no-tls; comma-separated"),
    Option("cluster", "", "TOML file of the cluster that this node belongs to"),
    Option("node", "", "index of this node, if the cluster file does not set it"),
    Option("archive-hold", "off", "on: keep ended hours until POST /v1/archive/release"),
    *options_of(PUSH),
    Option("audit", "changes", "what is audited: changes, all (data calls too) or off"),
    Option("log-level", "info", "debug, info, warning or error"),
    Option("log-format", "auto", "json, text, or auto: text on a terminal, json elsewhere"),
)


Source: TypeAlias = Literal["flag", "environment", "file", "default"]
"""Where the value of a setting comes from."""
CONFIG_VARIABLE: Final = "DELAYLOG_CONFIG"
_KEYS: Final = "`delaylog config` lists the keys, with - for _; limits and oidc are tables"


def default_of(name: str) -> str:
    """The default of a setting."""
    return next(option.default for option in OPTIONS if option.name == name)


@dataclass(frozen=True, slots=True)
class Sourced:
    """The value of one setting, and where it comes from."""

    option: Option
    value: str
    source: Source


@dataclass(frozen=True, slots=True)
class Sources:
    """All settings, before they are checked."""

    settings: tuple[Sourced, ...]
    limits: Any
    """The file's `[limits]` table."""
    oidc: Any
    """The file's `[oidc]` table; None: it has none."""
    file: str | None

    @property
    def values(self) -> dict[str, str]:
        return {each.option.key: each.value for each in self.settings}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is spelled almost like an unknown one."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, known, 1)), None)


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The end of an error about an unknown name: the nearest one, or else where they are listed."""
    near = nearest(name, known)
    return f"did you mean {near}?" if near else otherwise


_OF_LEAVES: Final = (("DELAYLOG_RESP", REDIS), ("DELAYLOG_PUSH", PUSH))
"""How the variables of leaves begin, whose settings the table lacks where the leaf is missing."""


def _refuse_missing(environ: Mapping[str, str]) -> None:
    """Raise ConfigError if a variable is set that a missing leaf would read."""
    for begin, leaf in _OF_LEAVES:
        if not is_installed(leaf):
            for variable, value in environ.items():
                if value and (variable == begin or variable.startswith(f"{begin}_")):
                    raise ConfigError(f"{variable}: {missing_part(leaf)}")


def _read_file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def read_sources(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Sources:
    """The settings of all sources, unchecked. An empty variable counts as absent. ConfigError if
    the file cannot be read, or has an unknown key, or if a variable is of a missing leaf.
    """
    _refuse_missing(environ)
    path = flags.get("config") or environ.get(CONFIG_VARIABLE)
    table = _read_file(path) if path else {}
    limits_table = table.pop("limits", {})
    oidc_table = table.pop("oidc", None)
    known = {option.key for option in OPTIONS}
    for name in table:
        if name not in known:
            meant = did_you_mean(name, [*known, "limits", "oidc"], _KEYS)
            raise ConfigError(f"{path} has an unknown key {name!r}; {meant}")
        if not isinstance(table[name], str):
            raise ConfigError(f"{name} in {path} must be text in quotes, not {table[name]!r}")
    settings = tuple(_sourced(option, flags, environ, table) for option in OPTIONS)
    return Sources(settings, limits_table, oidc_table, path)


def _sourced(
    option: Option, flags: Mapping[str, Any], environ: Mapping[str, str], table: Mapping[str, str]
) -> Sourced:
    if (flag := flags.get(option.key)) is not None:
        return Sourced(option, str(flag), "flag")
    if variable := environ.get(option.variable):
        return Sourced(option, variable, "environment")
    if option.key in table:
        return Sourced(option, table[option.key], "file")
    return Sourced(option, option.default, "default")
