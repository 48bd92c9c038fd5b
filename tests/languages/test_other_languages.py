"""The programs of docs/OTHER_LANGUAGES.md, which are in examples/: their clients are generated from
the document of a broker, by the commands of the page, and they print what the page shows.

`make test-languages` makes the environment with the generators and compilers.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.broker.conftest import Broker
from tests.programs import run_program

ROOT: Final = Path(__file__).parents[2]
TOOLS: Final = ROOT / ".venv-languages"
PAGE: Final = (ROOT / "docs" / "OTHER_LANGUAGES.md").read_text()
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LIMIT_S: Final = 600
"""A first build compiles Go's standard library."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """It has logged no error when the test is done."""
    broker = Broker(tmp_path)
    broker.start()
    try:
        yield broker
        broker.end_well()
    finally:
        broker.kill()


def environment(broker: Broker) -> dict[str, str]:
    """Where the page's programs are found, and no registry."""
    assert TOOLS.exists(), f"no {TOOLS.name}: make test-languages makes it"
    java = [f"{os.environ['JAVA_HOME']}/bin"] if os.environ.get("JAVA_HOME") else []
    return {
        **os.environ,
        "PATH": ":".join([*java, str(TOOLS / "bin"), os.environ["PATH"]]),
        "DELAYLOG_URL": broker.url,
        "GOCACHE": str(TOOLS / "go-cache"),
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "npm_config_offline": "true",
    }


@pytest.mark.parametrize(
    ("section", "program"),
    [("TypeScript", "examples/typescript/reminders.mts"), ("Go", "examples/go/main.go")],
)
def test_a_generated_client_sends_receives_and_acks(
    section: str, program: str, broker: Broker, tmp_path: Path
) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "node_modules").symlink_to(TOOLS / "node_modules")
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    assert f"(../{program})" in text
    shutil.copy(ROOT / program, folder)
    printed, shown = "", ""
    for kind, block in BLOCK.findall(text):
        if kind == "sh":
            placed = block.replace("127.0.0.1:8711", f"127.0.0.1:{broker.port}")
            for command in placed.replace("\\\n", "").splitlines():
                if command.startswith(("npm install", "pip install")):
                    continue
                done = run_program(
                    *("bash", "-c", command),
                    cwd=folder,
                    env=environment(broker),
                    timeout=LIMIT_S,
                )
                assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
                printed = done.stdout
        else:
            assert kind == "text"
            shown = block
    assert printed == shown != ""
    assert broker.call("GET", "/v1/topics/reminders/messages/rent").json["state"] == "acked"
