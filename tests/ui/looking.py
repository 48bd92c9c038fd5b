"""A window of the browser on a dashboard: opens places, waits for what they show, notes errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from playwright.sync_api import ConsoleMessage, Error, Locator, Page, expect

ROOT: Final = Path(__file__).parents[2]
AXE: Final = ROOT / ".venv-ui" / "node_modules" / "axe-core" / "axe.min.js"
SHOTS: Final = ROOT / ".ui-pictures"
SERIOUS: Final = ("serious", "critical")
WAIT_MS: Final = 30_000

expect.set_options(timeout=WAIT_MS)


class Looking:
    """One window. Refusals that a test expects are named in `refused`, as statuses."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        self.refused: set[int] = set()
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._said)
        page.on("pageerror", self._thrown)

    def _said(self, message: ConsoleMessage) -> None:
        expected = any(f"status of {each} " in message.text for each in self.refused)
        if message.type == "error" and not expected:
            self.errors.append(message.text)

    def _thrown(self, error: Error) -> None:
        self.errors.append(str(error))

    def at(self, place: str) -> Looking:
        """Go to a place of the dashboard, such as `/topics`."""
        self.page.goto(f"{self.url}/ui/#{place}")
        return self

    def sees(self, text: str) -> Looking:
        """Wait until the page shows a text."""
        expect(self.page.get_by_text(text).first).to_be_visible()
        return self

    def press(self, name: str, *, exact: bool = True) -> Looking:
        """Press the button of this name."""
        self.page.get_by_role("button", name=name, exact=exact).first.click()
        return self

    def follow(self, name: str) -> Looking:
        """Follow the link of this name."""
        self.page.get_by_role("link", name=name, exact=True).first.click()
        return self

    def fill(self, **fields: str) -> Looking:
        """Fill fields by their labels; underscores are spaces."""
        for label, text in fields.items():
            self.field(label.replace("_", " ")).fill(text)
        return self

    def field(self, label: str) -> Locator:
        """The field of this label, in a dialog if one is open."""
        dialog = self.page.locator("dialog[open]")
        place = dialog if dialog.count() else self.page
        return place.get_by_label(label, exact=True)

    def confirm(self, name: str) -> Looking:
        """Press a button of the open dialog, and wait until the dialog has closed."""
        dialog = self.page.locator("dialog[open]")
        dialog.get_by_role("button", name=name, exact=True).click()
        expect(dialog).to_have_count(0)
        return self

    def faults(self, *rules: str) -> list[str]:
        """Serious faults of accessibility of the page, by all rules of axe-core or some."""
        assert AXE.exists(), f"no {AXE}: make test-ui installs it"
        # As a script of the page it would break the page's policy.
        self.page.evaluate(AXE.read_text())
        options: dict[str, Any] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = list(rules)
        found: dict[str, Any] = self.page.evaluate("options => axe.run(options)", options)
        return [
            f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes']]}"
            for each in found["violations"]
            if each["impact"] in SERIOUS
        ]

    def shoot(self, name: str) -> Path:
        """A picture of the whole page."""
        SHOTS.mkdir(exist_ok=True)
        path = SHOTS / f"{name}.png"
        self.page.screenshot(path=path, full_page=True, animations="disabled")
        return path
