"""Users and tokens: a file of `user:token` or `token` lines (user `default`)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from delaylog.broker.host.config import ConfigError
from delaylog.broker.host.private_files import private_file_fault

TOKEN_CHARS_MIN: Final = 8
AUTH_WAIT_SECONDS: Final = 0.5
"""After a wrong token, the next one from that address is checked only after this time."""
_ADDRESSES_MAX: Final = 1_024
_DEFAULT: Final = b"default"

log = logging.getLogger("delaylog.resp")


def read_accounts(path: str) -> dict[bytes, bytes]:
    """Read user -> token. Raises ConfigError, whose text never has a token."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read resp-auth {path}: {error.strerror}") from None
    fault = private_file_fault(path, "resp-auth")
    if fault is not None:
        raise ConfigError(fault)
    accounts: dict[bytes, bytes] = {}
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line.startswith(b"#"):
            continue
        user, colon, token = line.partition(b":")
        if not colon:
            user, token = _DEFAULT, line
        if not user or len(token) < TOKEN_CHARS_MIN or b" " in line:
            raise ConfigError(
                f"{path}, line {number}: write `user:token` or `token` without blanks; a token has "
                f"at least {TOKEN_CHARS_MIN} characters"
            )
        if user in accounts:
            raise ConfigError(f"{path}, line {number}: this user is listed twice")
        accounts[user] = token
    if not accounts:
        raise ConfigError(f"resp-auth {path} names no user: no client could authenticate")
    return accounts


class FailedLogins:
    """Recent wrong tokens by address."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[int, float]] = {}
        """Address -> number of failures, and the time of the next attempt."""

    def note(self, host: str, now: float) -> None:
        """Count a wrong token. The first one and every doubling are logged."""
        count = self._failed.pop(host, (0, 0.0))[0] + 1
        if len(self._failed) >= _ADDRESSES_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed[host] = count, now + AUTH_WAIT_SECONDS
        if count & (count - 1) == 0:
            log.warning(
                "a Redis client sent a wrong token", extra={"address": host, "failures": count}
            )

    def left(self, host: str, now: float) -> float:
        """Return the seconds until the next attempt of this address."""
        failed = self._failed.get(host)
        return 0.0 if failed is None else failed[1] - now
