"""Verbs about access: `init`, and `token create`, `list`, `rotate`, `revoke`, `generate`.

A token is printed once, alone on standard output, so that a script can store it. Everything else
goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import secrets
import sys
import time
from datetime import UTC, datetime
from typing import Any, Final

from delaylog.broker.calls.access.first_admin import leave_digest
from delaylog.broker.cli.failing import DONE
from delaylog.broker.cli.remote import connection_of, emit
from delaylog.broker.engine.access.token_form import RANDOM_BYTES, make_token
from delaylog.broker.host.settings.options import ConfigError
from delaylog.client._async.transport import AsyncTransport
from delaylog.client.calls.call import Call
from delaylog.client.calls.requests import request
from delaylog.client.options import split_connection
from delaylog.client.wire.leader_route import LeaderRoute
from delaylog.storage.files.file_system import make_folder
from delaylog.storage.files.os_file_system import OsFileSystem

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN: Final = re.compile(r"([0-9]{1,9})([smhd])\Z")


def init_command(args: argparse.Namespace) -> int:
    """`delaylog init`: make the first administrator's token for a data folder."""
    token = _new_token()
    try:
        make_folder(args.data_dir)
        owner = os.stat(args.data_dir).st_uid
        if owner != os.geteuid():
            raise ConfigError(
                f"data-dir {args.data_dir} belongs to user {_user(owner)}, whose broker could not "
                f"read the file that init writes; run init as that user"
            )
        leave_digest(OsFileSystem(), args.data_dir, token)
    except OSError as error:
        raise ConfigError(f"data-dir {args.data_dir} cannot be used: {error.strerror}") from None
    _say(
        f"The token of the administrator 'admin', which is not shown again. {args.data_dir} holds "
        "only its digest.\nIt is valid from the next start of the broker. From then on every call "
        "needs a token."
    )
    print(token)
    return DONE


async def token_command(args: argparse.Namespace) -> int:
    """`delaylog token …`."""
    if args.action == "generate":
        print(_new_token())
        return DONE
    if args.action == "list":
        for principal in (await _carry(args, request("listPrincipals")))["principals"]:
            _print(principal, _described(principal), args)
        return DONE
    if args.action == "revoke":
        await _carry(args, request("revokePrincipal", args.principal))
        _print({"principal": args.principal, "result": "done"}, f"{args.principal} revoked", args)
        return DONE
    answer = await _carry(args, _rotation(args) if args.action == "rotate" else _creation(args))
    if args.json:
        emit(answer)
        return DONE
    _say(_described(answer))
    if answer["token"] is not None:
        print(answer["token"])
    elif args.action == "create":
        _say(
            f"{args.principal} existed: its grants and limits are now these, its tokens are as "
            "before. `delaylog token rotate` makes a new token."
        )
    return DONE


def _user(user_id: int) -> str:
    """The name of a user, or its number if it has none."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


def _creation(args: argparse.Namespace) -> Call[dict[str, Any]]:
    return request(
        "putPrincipal",
        args.principal,
        grants=args.allow,
        redis=[word for rule in args.redis for word in rule.split()],
        certificates=args.certificate,
        messages_per_s=args.messages_per_s,
        calls_per_s=args.calls_per_s,
        expires_at_ms=_expiry(args),
    )


def _rotation(args: argparse.Namespace) -> Call[dict[str, Any]]:
    return request(
        "rotatePrincipal",
        args.principal,
        finish=args.finish,
        grace_ms=None if args.grace is None else span_ms(args.grace, "--grace"),
        expires_at_ms=_expiry(args),
    )


def _expiry(args: argparse.Namespace) -> int | None:
    if args.expires is None:
        return None
    return int(time.time() * 1000) + span_ms(args.expires, "--expires")


def span_ms(text: str, option: str) -> int:
    """The milliseconds of a time such as 90d, 12h, 30m or 45s. Raises ConfigError."""
    found = _SPAN.match(text)
    if found is None:
        raise ConfigError(f"{option} is a number and a unit, such as 90d, 12h or 30m, not {text!r}")
    return int(found[1]) * _UNITS_MS[found[2]]


async def _carry(args: argparse.Namespace, call: Call[dict[str, Any]]) -> dict[str, Any]:
    credentials, options = split_connection(connection_of(args))
    transport = AsyncTransport(LeaderRoute(args.url, (), credentials), **options)
    try:
        return await transport.carry(call)
    finally:
        await transport.close()


def _described(principal: dict[str, Any]) -> str:
    """One line about a principal."""
    words = [principal["principal"], *principal["grants"]]
    if principal["redis"]:
        words.append(f"redis={' '.join(principal['redis'])!r}")
    words += principal["certificates"]
    words += [
        f"{name}={principal[name]}" for name in ("messages_per_s", "calls_per_s") if principal[name]
    ]
    words += [f"token={_time(token['created_ms'])}{_until(token)}" for token in principal["tokens"]]
    words.append(f"used={_time(principal['used_ms'])}")
    return " ".join(words)


def _until(token: dict[str, Any]) -> str:
    expires_ms = token["expires_at_ms"]
    return "" if expires_ms is None else f"..{_time(expires_ms)}"


def _time(at_ms: int | None) -> str:
    if at_ms is None:
        return "never"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _print(members: dict[str, Any], text: str, args: argparse.Namespace) -> None:
    if args.json:
        emit(members)
    else:
        print(text)


def _new_token() -> str:
    return make_token(secrets.token_bytes(RANDOM_BYTES))


def _say(text: str) -> None:
    print(text, file=sys.stderr)
