"""Prometheus itself, over samples that a test makes up, or scraping brokers; the rules of ops/.

`get_prometheus.sh` finds or fetches the programs, and fails where it cannot.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from delaylog.client.child_broker import free_ports
from tests.waiting import await_that

RULES_FILE: Final = Path(__file__).parents[2] / "ops" / "prometheus" / "rules.yaml"
RULES: Final[list[dict[str, Any]]] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
]
ALERTS: Final = {rule["alert"] for rule in RULES if "alert" in rule}
START_S: Final = 30


@cache
def program(name: str) -> str:
    """The path of `prometheus` or `promtool`."""
    script = Path(__file__).parent / "get_prometheus.sh"
    found = subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return f"{found.stdout.strip()}/{name}"


def promtool(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class Prometheus:
    """One process, stopped by `stop`."""

    def __init__(self, folder: Path, config: Mapping[str, Any] | None = None) -> None:
        """`config`: what the file says besides the rules. `folder` may have blocks in `data`."""
        (self.port,) = free_ports(1)
        at = folder / "prometheus.yaml"
        at.write_text(yaml.safe_dump(dict(config or {})))
        self._log = (folder / "prometheus.log").open("w+")
        self._process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={at}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        await_that(self._ready, self.log, seconds=START_S)

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def _ready(self) -> bool:
        assert self._process.poll() is None, self.log()
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **query: object) -> Any:
        """The `data` of an answer of the API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(query)}"
        try:
            with urlopen(url, timeout=30) as answer:
                return json.loads(answer.read())["data"]
        except HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def alerts(self) -> list[dict[str, Any]]:
        """All alerts that are pending or firing: `state`, `labels`, `annotations`."""
        found: list[dict[str, Any]] = self.ask("alerts")["alerts"]
        return found

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(START_S)
        self._log.close()


def backfill(folder: Path, lines: Iterable[str]) -> None:
    """Make blocks of samples in OpenMetrics text: `name{labels} value seconds`."""
    text = folder / "samples"
    with text.open("w") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.write("# EOF\n")
    made = promtool("tsdb", "create-blocks-from", "openmetrics", "--quiet", text, folder / "data")
    assert made.returncode == 0, made.stderr


def expanded(rule: Mapping[str, Any], rules: Sequence[Mapping[str, Any]] = RULES) -> str:
    """The expression of a rule, with those of the recorded series that it names."""
    text: str = rule["expr"]
    for each in rules:
        if "record" in each and each["record"] in text:
            text = text.replace(each["record"], f"({expanded(each, rules)})")
    return text
