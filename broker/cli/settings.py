"""`delaylog serve`, and `delaylog config`, which shows the settings that it would run with."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from delaylog.broker.cli.arguments import CONNECTION
from delaylog.broker.cli.failures import DONE, WRONG
from delaylog.broker.cli.output import emit, print_table
from delaylog.broker.cli.parser import add_examples, add_json, complete_files, complete_folders
from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.config import load_config
from delaylog.broker.host.rows import Option
from delaylog.broker.host.settings import (
    ADMIN_TOKEN,
    CONFIG_VARIABLE,
    OPTIONS,
    ConfigError,
    nearest,
    read_sources,
)

_PREFIX: Final = "DELAYLOG_"
_PATHS: Final = ("cluster", "tls-cert", "tls-key", "tls-client-ca", "tls-ca")


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog serve`."""
    _add_settings(parser)
    parser.add_argument(
        "--new-cluster",
        action="store_true",
        help="the cluster has never run: nodes with empty data folders start as voters",
    )
    holds = parser.add_mutually_exclusive_group()
    holds.add_argument(
        "--hold",
        action="store_const",
        const=True,
        help="deliver, push and fire nothing until `delaylog resume`: for a copy of a data folder",
    )
    holds.add_argument(
        "--release-hold",
        dest="hold",
        action="store_const",
        const=False,
        help="deliver, push and fire: a restored folder is held otherwise",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="as --log-format json; the ready line and errors are JSON too",
    )
    add_examples(
        parser,
        "serve",
        "serve --data-dir /var/lib/delaylog --resp 127.0.0.1:6379",
        "serve --config delaylog.toml",
    )


def config_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog config`."""
    complete_files(
        parser.add_argument(
            "--check",
            metavar="FILE",
            help="judge this configuration file by itself: status 0, or 1 and what is wrong",
        )
    )
    _add_settings(parser)
    add_json(parser)
    add_examples(
        parser,
        "config",
        "config --config delaylog.toml --json",
        "config --check delaylog.toml",
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    complete_files(
        parser.add_argument("--config", metavar="FILE", help="TOML file (variable DELAYLOG_CONFIG)")
    )
    for option in OPTIONS:
        _add_setting(parser, option)


def _add_setting(parser: argparse.ArgumentParser, option: Option) -> None:
    """The flag of a setting."""
    default = f"default {option.default}; " if option.default else ""
    argument = parser.add_argument(
        f"--{option.name}",
        dest=option.key,
        metavar="VALUE",
        help=f"{option.help} ({default}variable {option.variable})",
    )
    if option.name == "data-dir":
        complete_folders(argument)
    elif option.name in _PATHS:
        complete_files(argument)


def serve_command(args: argparse.Namespace) -> int:
    """`delaylog serve`."""
    config = load_config(vars(args))
    from delaylog.broker.host.watch.logs import set_up_logs
    from delaylog.broker.process.serve import serve

    set_up_logs(config.log_level, "json" if args.json else config.log_format)
    return serve(config, as_json=args.json)


def config_command(args: argparse.Namespace) -> int:
    """`delaylog config`: a line for each setting; with --check, 1 if the file is wrong."""
    if args.check is not None:
        return _check(args)
    rows = _rows(args)
    if args.json:
        for row in rows:
            emit(row)
    else:
        columns = ("setting", "value", "default", "source")
        print_table(columns, [[row[each] for each in columns] for row in rows])
        _say_mistyped()
    return DONE


def _say_mistyped() -> None:
    """Name the variables that nothing reads and that are spelled almost like one that is read.

    Others may be of the user's own programs.
    """
    # Imported here, because `serve` alone needs none of the cluster's code.
    from delaylog.broker.cluster.config import SECRET_VARIABLE

    known = [each.variable for each in (*OPTIONS, *CONNECTION)]
    known += [ADMIN_TOKEN, CONFIG_VARIABLE, SECRET_VARIABLE]
    names = {each.removeprefix(_PREFIX): each for each in known}
    for variable in sorted(os.environ.keys() - known):
        # Compared without the prefix, which makes all of them alike.
        near = nearest(variable.removeprefix(_PREFIX), names)
        if near and variable.startswith(_PREFIX):
            hint = f"did you mean {names[near]}?"
            print(f"delaylog: nothing reads the variable {variable}; {hint}", file=sys.stderr)


def _check(args: argparse.Namespace) -> int:
    wrong: str | None = None
    try:
        # Alone: no flag and no variable makes a wrong file right.
        load_config({"config": args.check}, {})
    except ConfigError as error:
        wrong = str(error)
    if args.json:
        emit({"file": args.check, "valid": wrong is None, "error": wrong})
    elif wrong is None:
        print(f"{args.check} is valid")
    else:
        print(wrong if args.check in wrong else f"{args.check}: {wrong}")
    return DONE if wrong is None else WRONG


def _rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every setting of `serve`, every limit, and what the verbs that call a broker use."""
    sources = read_sources(vars(args), os.environ)
    for each in sources.settings:
        yield _row(each.option.name, each.value, each.option.default, each.source)
    limits = sources.limits if isinstance(sources.limits, dict) else {}
    for limit in fields(Limits):
        value, source = limits.get(limit.name, limit.default), "default"
        if limit.name in limits:
            source = "file"
        yield _row(f"limits.{limit.name}", value, limit.default, source)
    if sources.oidc is not None:
        yield _row("oidc", "configured", "", "file")
    yield _from_environment(ADMIN_TOKEN, "", secret=True)
    for option in CONNECTION:
        yield _from_environment(option.variable, option.default, secret=option.name == "token")


def _from_environment(variable: str, default: str, *, secret: bool) -> dict[str, Any]:
    value = os.environ.get(variable)
    if not value:
        return _row(variable, default, default, "default")
    # A password in an address is refused by the verbs, and not shown here either.
    hidden = secret or "@" in value
    return _row(variable, "(set)" if hidden else value, default, "environment")


def _row(setting: str, value: Any, default: Any, source: str) -> dict[str, Any]:
    return {"setting": setting, "value": value, "default": default, "source": source}
