"""The first administrator: a token made by `delaylog init`, or given in the environment.

`delaylog init` works without a broker, so it cannot write to the log. It leaves the digest of the
token in a file of the data folder; the node writes it to the log when it leads, and deletes the
file. Anyone who can write to the data folder owns the broker, so `init` may replace a lost token.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from delaylog.broker.engine.access.commands import put_principal, rotate
from delaylog.broker.engine.access.grants import parse_grant
from delaylog.broker.engine.access.principals import Principal, Secret
from delaylog.broker.engine.access.token_form import digest_of
from delaylog.broker.engine.errors import BadRequestError
from delaylog.storage.files.file_system import parent_of, read_file, replace_file

if TYPE_CHECKING:
    from delaylog.broker.engine.state import EngineState
    from delaylog.storage.files.file_system import FileSystem

FILE: Final = "first-admin"
NAME: Final = "admin"
_DIGEST: Final = re.compile(rb"[0-9a-f]{64}")


def leave_digest(fs: FileSystem, folder: str, token: str) -> None:
    """Leave the digest of a token for the node that will serve the folder."""
    path = f"{folder}/{FILE}"
    replace_file(fs, path, [digest_of(token).hex().encode()])
    fs.sync_folder(parent_of(path))


def is_awaited(fs: FileSystem, folder: str) -> bool:
    """Whether a digest waits in the folder."""
    return fs.exists(f"{folder}/{FILE}")


def awaited(fs: FileSystem, folder: str) -> bytes | None:
    """The digest that waits in the folder; None without one. Raises BadRequestError."""
    if not is_awaited(fs, folder):
        return None
    path = f"{folder}/{FILE}"
    found = _DIGEST.fullmatch(read_file(fs, path))
    if found is None:
        raise BadRequestError(f"{path} holds no digest: delete it, or run delaylog init again")
    return bytes.fromhex(found[0].decode())


def adopt(state: EngineState, token: str | None, now_ms: int) -> None:
    """Write the first administrator to the log of a node that leads.

    `token` = that of the environment. It counts only until there is an administrator, of any name:
    if it is still in the environment when `admin` is revoked, it must not come back.
    """
    left = awaited(state.fs, state.folder)
    if left is not None:
        _give(state, Secret(left, now_ms), now_ms)
    if token is not None and not any(each.is_admin for each in state.access.principals.values()):
        _give(state, Secret(digest_of(token), now_ms), now_ms)


def clear(state: EngineState) -> None:
    """Delete the file: what `adopt` wrote to the log is committed."""
    path = f"{state.folder}/{FILE}"
    if state.fs.exists(path):
        state.fs.unlink(path)


def _give(state: EngineState, secret: Secret, now_ms: int) -> None:
    """Make the administrator with this secret, or give an existing one this secret too."""
    known = state.access.principals.get(NAME)
    if known is not None and known.is_admin:
        if secret.digest not in state.access.by_digest:
            rotate(state, NAME, secret, now_ms, previous_until_ms=now_ms)
        return
    admin = Principal(NAME, (parse_grant("admin"),), (secret,), created_ms=now_ms)
    put_principal(state, admin, now_ms)
