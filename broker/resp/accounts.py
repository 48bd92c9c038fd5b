"""Who may come in: a file of `user:token` or `token` lines (user `default`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from delaylog.broker.config import ConfigError

TOKEN_CHARS_MIN: Final = 8
_DEFAULT: Final = b"default"


def read_accounts(path: str) -> dict[bytes, bytes]:
    """User -> token. Raises ConfigError, never with a token in its text."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read resp-auth {path}: {error.strerror}") from None
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
                f"{path}, line {number}: write `user:token` or `token` without blanks, a token of "
                f"at least {TOKEN_CHARS_MIN} characters"
            )
        if user in accounts:
            raise ConfigError(f"{path}, line {number}: this user stands there twice")
        accounts[user] = token
    if not accounts:
        raise ConfigError(f"resp-auth {path} names nobody: nobody could come in")
    return accounts
