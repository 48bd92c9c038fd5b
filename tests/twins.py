"""Twins: modules that are written once, for asyncio, and made for threads from that.

`make twins` writes them; `test_twins` fails when somebody changed one without the other. Only
what differs by `await` is made so: where threads and tasks do different things, each has its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TWINS: Final = {
    "broker/embedded/async_broker_calls.py": "broker/embedded/broker_calls.py",
    "client/async_control.py": "client/control_calls.py",
    "client/async_topics.py": "client/topic_calls.py",
    "client/async_link.py": "client/link.py",
    "client/broker_calls.py": "client/sync_broker_calls.py",
    "client/plain_client.py": "client/plain_sync_client.py",
}
"""What is written, and what is made of it."""

RULES: Final = (
    (r"\basync def\b", "def"),
    (r"\basync (for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bmerged_async\b", "merged"),
    (r"\basync_plain_client\b", "plain_client"),
    (r"\bclient\.plain_client\b", "client.plain_sync_client"),
    (r"\basync_transport\b", "sync_transport"),
    (r"\bAsyncTransport\b", "SyncTransport"),
    (r"\basync_link\b", "link"),
    (r"\bbroker_calls\b", "sync_broker_calls"),
    (r"\bBrokerCalls\b", "SyncBrokerCalls"),
    (r"\bPlainClient\b", "PlainSyncClient"),
    (r"\bevent loops\b", "threads"),
    (r"\ban asyncio client\b", "a client with threads"),
    (r"\basyncio programs\b", "programs with threads"),
    (r"\bAsync(?=[A-Z])", ""),
)
"""In this order; words of a module's text as well as its code."""


def made_of(source: str) -> str:
    """The twin of a module: its text, with imports and lines as ruff lays them out."""
    path = ROOT / source
    text = path.read_text()
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    head, _, rest = text.partition('\n"""\n')
    text = f'{head}\n\nMade from {path.name} by `make twins`: change that one.\n"""\n{rest}'
    for command in (["check", "--select", "I", "--fix"], ["format"]):
        made = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", path, "-"],
            cwd=ROOT,
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = made.stdout
    return text


def main() -> None:
    """Write all of them."""
    for source, twin in TWINS.items():
        (ROOT / twin).write_text(made_of(source))


if __name__ == "__main__":
    main()
