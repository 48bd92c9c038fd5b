"""`delaylog completion`: a script for bash, zsh or fish, generated from the parser."""

from __future__ import annotations

import argparse
import sys

import shtab

from delaylog.broker.cli.parser import make_parser


def completion_command(args: argparse.Namespace) -> int:
    """Print the script."""
    sys.stdout.write(shtab.complete(make_parser(), shell=args.shell).rstrip("\n") + "\n")
    return 0
