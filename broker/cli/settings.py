"""`delaylog serve`: its settings are options, and it runs a broker."""

from __future__ import annotations

import argparse
from typing import Final

from delaylog.broker.cli.parser import add_examples, complete_files, complete_folders
from delaylog.broker.host.config import load_config
from delaylog.broker.host.settings.options import OPTIONS, Option

_PATHS: Final = ("cluster", "tls-cert", "tls-key", "tls-client-ca", "tls-ca")


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delaylog serve`."""
    _add_settings(parser)
    parser.add_argument(
        "--new-cluster",
        action="store_true",
        help="the cluster has never run: nodes with empty data folders start as voters",
    )
    add_examples(
        parser,
        "serve",
        "serve --data-dir /var/lib/delaylog --resp 127.0.0.1:6379",
        "serve --config delaylog.toml",
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    complete_files(
        parser.add_argument("--config", metavar="FILE", help="TOML file (variable DELAYLOG_CONFIG)")
    )
    for option in OPTIONS:
        add_setting(parser, option)


def add_setting(parser: argparse.ArgumentParser, option: Option) -> None:
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
    from delaylog.broker.host.serve import serve
    from delaylog.broker.host.watch.logs import set_up_logs

    set_up_logs(config.log_level, config.log_format)
    return serve(config)
