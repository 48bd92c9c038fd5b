"""For tests of the dashboard: a real Chromium, a real broker, and what both say afterwards.

A test fails if a page logs an error, throws one, or breaks the policy of its origin. `make test-ui`
makes the environment; without a browser every test fails, since a page that nobody opened is not
tested.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.broker.conftest import (  # noqa: F401
    Broker,
    broker,
    secured,
    secured_broker,
    sound_broker,
    start_broker,
    topic,
)
from tests.ui.looking import Looking

ROOT: Final = Path(__file__).parents[2]
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
WIDE: Final = {"width": 1_280, "height": 900}
ZONE: Final = "Europe/Berlin"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests; each has a context of its own."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found is not None, "no Chromium on this machine: run tests/ui/get_chromium.sh"
    with sync_playwright() as playwright:
        # Chromium's sandbox needs what containers and root lack; the pages are our own.
        yield playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])


@pytest.fixture
def look(browser: Browser) -> Iterator[Callable[..., Looking]]:
    """Opens a browser's window at a broker. All windows must be without errors at the end."""
    opened: list[tuple[BrowserContext, Looking]] = []

    def start(url: str, **options: Any) -> Looking:
        context = browser.new_context(
            **{"viewport": WIDE, "timezone_id": ZONE, "locale": "en-GB", **options}
        )
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
        page = context.new_page()
        looking = Looking(page, url)
        opened.append((context, looking))
        return looking

    yield start
    for context, _ in opened:
        context.close()
    assert [error for _, looking in opened for error in looking.errors] == []
