"""The arguments of jobs that call a broker, and the options of the format that they become.

A job takes no token as an argument, because every user of the machine could see it: the token comes
from a file or from the environment, which the tasks of a session on this machine inherit.
"""

from __future__ import annotations

import argparse
import os
from typing import Final

from pyspark_delaylog.endpoints import URL

_FILES: Final = (
    ("token-file", "tokenFile", "file of mode 0600 with the token"),
    ("ca-file", "caFile", "the authorities that may have signed the broker's certificate"),
    ("client-cert", "clientCert", "this client's certificate"),
    ("client-key", "clientKey", "its key, of mode 0600"),
)


def add_connection_arguments(parser: argparse.ArgumentParser, doc: str, *, required: bool) -> None:
    """Arguments for the address, the token and TLS; `doc` describes the broker."""
    needed = required and not os.environ.get(URL)
    text = f"{doc} (variable {URL})"
    parser.add_argument("--endpoint", required=needed, metavar="URL", help=text)
    for flag, _, what in _FILES:
        variable = f"DELAYLOG_{flag.replace('-', '_').upper()}"
        parser.add_argument(f"--{flag}", metavar="FILE", help=f"{what} (variable {variable})")
    parser.add_argument(
        "--insecure-plain-token",
        action="store_true",
        help="send the token over plain http to other machines",
    )


def connection_options(args: argparse.Namespace) -> dict[str, str]:
    """The options of the format `delaylog`."""
    found = {} if args.endpoint is None else {"endpoint": args.endpoint}
    for flag, option, _ in _FILES:
        path = getattr(args, flag.replace("-", "_"))
        if path is not None:
            found[option] = path
    if args.insecure_plain_token:
        found["insecurePlainToken"] = "true"
    return found
