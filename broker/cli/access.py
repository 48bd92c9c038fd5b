"""Verbs about access: `init`, and `token create`, `list`, `show`, `rotate`, `revoke`, `generate`.

A token is printed once, alone on standard output, so that a script can store it. Everything else
goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import pwd
import secrets
import sys
from typing import Any

from delaylog.broker.cli.arguments import add_broker, add_option, add_options, name
from delaylog.broker.cli.connection import call, given
from delaylog.broker.cli.failures import DONE, UsageError
from delaylog.broker.cli.output import emit, print_table, say
from delaylog.broker.cli.parser import (
    add_action,
    add_actions,
    add_examples,
    add_json,
    complete_folders,
)
from delaylog.broker.cli.values import time_text
from delaylog.broker.engine.access.token_form import RANDOM_BYTES, make_token
from delaylog.broker.host.settings import default_of
from delaylog.contract.calls.table import (
    CALLS_PER_S,
    EXPIRES_AT_MS,
    FINISH,
    GRACE_MS,
    MESSAGES_PER_S,
)
from delaylog.storage.files.file_system import make_folder
from delaylog.storage.files.os_file_system import OsFileSystem


def init_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog init`."""
    complete_folders(
        parser.add_argument(
            "data_dir",
            nargs="?",
            default=default_of("data-dir"),
            metavar="DATA_DIR",
            help="the data folder (default %(default)s)",
        )
    )
    add_json(parser)
    add_examples(parser, "init /var/lib/delaylog > admin.token")


def token_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog token`."""
    actions = add_actions(parser)
    create = add_action(
        actions,
        "create",
        "create a principal and print its token, or change what an existing one may do",
        "token create shop --allow 'producer:orders.*' --expires +90d",
    )
    _add_principal(create)
    for flag, metavar, text in (
        (
            "--allow",
            "GRANT",
            "RIGHTS[:[NAMESPACE/]TOPIC[:GROUP]], such as producer:orders.*; may be given again",
        ),
        (
            "--certificate",
            "ID",
            "identity in a client certificate that proves it, such as dns:worker.example",
        ),
    ):
        create.add_argument(flag, action="append", default=[], metavar=metavar, help=text)
    add_options(create, MESSAGES_PER_S, CALLS_PER_S, EXPIRES_AT_MS)
    rotate = add_action(
        actions,
        "rotate",
        "print a new token for a principal",
        "token rotate shop --grace 1d",
        "token rotate shop --finish",
    )
    _add_principal(rotate)
    add_option(rotate, GRACE_MS, help="how long the previous token stays valid (default 1d)")
    add_options(rotate, FINISH, EXPIRES_AT_MS)
    show = add_action(
        actions, "show", "show a principal, without its tokens", "token show shop --json"
    )
    _add_principal(show)
    revoke = add_action(
        actions, "revoke", "revoke a principal with all its tokens", "token revoke shop"
    )
    _add_principal(revoke)
    add_broker(
        add_action(
            actions, "list", "list the principals, without their tokens", "token list --json"
        ),
        topic=None,
        namespace=False,
    )
    generate = add_action(
        actions,
        "generate",
        "print a new token, for DELAYLOG_ADMIN_TOKEN",
        "token generate > admin.token",
    )
    add_json(generate)


def _add_principal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("principal", type=name, metavar="NAME", help="the principal")
    add_broker(parser, topic=None, namespace=False)


def init_command(args: argparse.Namespace) -> int:
    """`delaylog init`: make the first administrator's token for a data folder."""
    # Of the server; `token` calls a broker and needs only the client.
    from delaylog.broker.calls.access.first_admin import leave_digest

    token = _new_token()
    try:
        make_folder(args.data_dir)
        owner = os.stat(args.data_dir).st_uid
        if owner != os.geteuid():
            raise UsageError(
                f"{args.data_dir} belongs to user {_user(owner)}, whose broker could not "
                f"read the file that init writes; run init as that user"
            )
        leave_digest(OsFileSystem(), args.data_dir, token)
    except OSError as error:
        raise UsageError(f"{args.data_dir} cannot be used: {error.strerror}") from None
    _say(
        f"The token of the administrator 'admin', which is not shown again. {args.data_dir} holds "
        "only its digest.\nIt is valid from the next start of the broker. From then on every call "
        "needs a token."
    )
    say(args, {"token": token}, token)
    return DONE


async def token_command(args: argparse.Namespace) -> int:
    """`delaylog token …`."""
    if args.action == "generate":
        token = _new_token()
        say(args, {"token": token}, token)
    elif args.action == "list":
        _print_principals((await call(args, "listPrincipals"))["principals"], args)
    elif args.action == "show":
        _print_principals([await call(args, "getPrincipal", args.principal)], args)
    elif args.action == "revoke":
        await call(args, "revokePrincipal", args.principal)
        revoked = {"principal": args.principal, "result": "done"}
        say(args, revoked, f"{args.principal} revoked")
    elif args.action == "rotate":
        members = given(args, GRACE_MS, FINISH, EXPIRES_AT_MS)
        _print_token(await call(args, "rotatePrincipal", args.principal, **members), args)
    else:
        answer = await call(
            args,
            "putPrincipal",
            args.principal,
            grants=args.allow,
            certificates=args.certificate,
            **given(args, MESSAGES_PER_S, CALLS_PER_S, EXPIRES_AT_MS),
        )
        _print_token(answer, args)
    return DONE


def _print_token(answer: dict[str, Any], args: argparse.Namespace) -> None:
    """Print the token alone on standard output, and the principal beside it."""
    if args.json:
        emit(answer)
        return
    _say(_described(answer))
    if args.action == "create" and not answer["grants"]:
        _say(
            f"warning: {args.principal} may do nothing, since it has no grant; "
            f"`delaylog token create {args.principal} --allow RIGHTS:TOPIC` sets its grants"
        )
    if answer["token"] is not None:
        print(answer["token"])
    elif args.action == "create":
        _say(
            f"{args.principal} existed: its grants, certificates and limits are now these, its "
            "tokens are as before. `delaylog token rotate` makes a new token."
        )


def _print_principals(principals: list[dict[str, Any]], args: argparse.Namespace) -> None:
    if args.json:
        for each in principals:
            emit(each)
    elif sys.stdout.isatty():
        columns = ("principal", "grants", "tokens", "used")
        rows = [
            (
                each["principal"],
                " ".join(each["grants"]),
                " ".join(_lifetime(token) for token in each["tokens"]),
                _time(each["used_ms"]),
            )
            for each in principals
        ]
        print_table(columns, rows)
    else:
        for each in principals:
            print(_described(each))


def _user(user_id: int) -> str:
    """The name of a user, or its number if it has none."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


def _described(principal: dict[str, Any]) -> str:
    """One line about a principal."""
    words = [principal["principal"], *principal["grants"]]
    words += principal["certificates"]
    words += [
        f"{name}={principal[name]}" for name in ("messages_per_s", "calls_per_s") if principal[name]
    ]
    words += [f"token={_lifetime(token)}" for token in principal["tokens"]]
    words.append(f"used={_time(principal['used_ms'])}")
    return " ".join(words)


def _lifetime(token: dict[str, Any]) -> str:
    expires_ms = token["expires_at_ms"]
    end = "" if expires_ms is None else f"..{time_text(expires_ms)}"
    return f"{time_text(token['created_ms'])}{end}"


def _time(at_ms: int | None) -> str:
    return "never" if at_ms is None else time_text(at_ms)


def _new_token() -> str:
    return make_token(secrets.token_bytes(RANDOM_BYTES))


def _say(text: str) -> None:
    print(text, file=sys.stderr)
