"""Keys of a terminal, one by one and without echo, for a screen that goes on meanwhile."""

from __future__ import annotations

import asyncio
import os
import sys
from types import TracebackType
from typing import Any, Final, Self

KEY_BYTES_MAX: Final = 16
"""Bytes of one read: a key that sends a sequence, such as an arrow, arrives whole."""


class Keyboard:
    """A context in which standard input gives keys; without a terminal there, none."""

    def __init__(self) -> None:
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            import termios
            import tty

            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
            asyncio.get_running_loop().add_reader(sys.stdin, self._read)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            import termios

            asyncio.get_running_loop().remove_reader(sys.stdin)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        pressed = os.read(sys.stdin.fileno(), KEY_BYTES_MAX).decode("utf-8", "replace")
        # Keys that were pressed while the screen was drawn arrive together.
        keys = [pressed] if pressed.startswith("\x1b") else list(pressed)
        # The end of the input ends the screen, as q does.
        for key in keys or ["q"]:
            self._keys.put_nowait(key)

    async def key(self, seconds: float) -> str | None:
        """The next key, or None if none is pressed within this time."""
        try:
            return await asyncio.wait_for(self._keys.get(), seconds)
        except TimeoutError:
            return None
