"""The examples of docs/JOB_SYSTEMS.md are run as they stand, but for the address they name."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest

from tests.broker.conftest import Broker
from tests.client.job_systems.conftest import ROOT

PAGE = (ROOT / "docs" / "JOB_SYSTEMS.md").read_text()
SECTIONS = {
    section.partition("\n")[0]: section
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)
    if "```python" in section
}


@pytest.mark.parametrize("title", SECTIONS)
def test_the_examples_do_what_they_say(
    title: str,
    broker: Broker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    section = SECTIONS[title]
    shop = ModuleType("shop")
    monkeypatch.setitem(sys.modules, shop.__name__, shop)
    for example in re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        placed = example.replace("127.0.0.1:8711", f"127.0.0.1:{broker.port}")
        exec(compile(placed, "JOB_SYSTEMS.md", "exec"), vars(shop))
    printed = re.findall(r"^```text\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert capsys.readouterr().out == "".join(printed)
