"""Command line of delaylog."""

from delaylog.broker.cli.main import main

__all__ = ["main"]
