"""Ask PyPI for known vulnerabilities of the pinned dependencies: `make lint`, and `make audit`.

A vulnerability fails. Without a network the audit is reported as "not run" and does not fail,
unless `--required`, which is for releases. An index that does not know a package, as a mirror may,
has not audited it: that is "not run" too. Pins of test clients of Redis are left out, because some
are old on purpose and nobody else installs them.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PINNED: Final = ("constraints.txt", "requirements-cluster.txt", "tests/spark/requirements.txt")
PIN: Final = re.compile(r"^([A-Za-z0-9._-]+==[^\s;\\]+)", re.MULTILINE)
TIMEOUT_S: Final = 10
OFFLINE: Final = re.compile(
    r"ConnectionError|ConnectTimeout|ReadTimeout|ProxyError|Could not connect"
)


@dataclass(frozen=True)
class Verdict:
    """What the audit has found; `ran` is false if it could not look at every package."""

    ran: bool
    vulnerable: tuple[str, ...]
    text: str


def pins() -> list[str]:
    """All pinned packages, as `name==version`."""
    return sorted({pin for name in PINNED for pin in PIN.findall((ROOT / name).read_text())})


def run_pip_audit(requirements: list[str]) -> subprocess.CompletedProcess[str]:
    """Audit these versions; nothing is installed."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(requirements))
        file.flush()
        program = Path(sys.executable).with_name("pip-audit")
        words = ["-r", file.name, "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        words += ["--format", "json", "--timeout", str(TIMEOUT_S)]
        return subprocess.run([program, *words], capture_output=True, text=True, check=False)


def judge(done: subprocess.CompletedProcess[str]) -> Verdict:
    """The verdict from the output of pip-audit. RuntimeError for an output that is neither."""
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        if OFFLINE.search(done.stderr):
            return Verdict(False, (), f"no network: {last[:200]}")
        raise RuntimeError(f"pip-audit failed with status {done.returncode}: {last}") from None
    vulnerable = tuple(
        f"{each['name']} {each['version']}: {one['id']}, fixed in "
        f"{', '.join(one['fix_versions']) or 'no version'}"
        for each in found
        for one in each.get("vulns", ())
    )
    skipped = [each["name"] for each in found if "skip_reason" in each]
    text = f"{len(found) - len(skipped)} of {len(found)} packages"
    if skipped:
        text += f"; the index does not know {', '.join(skipped[:3])}"
    return Verdict(bool(found) and not skipped, vulnerable, text)


def main(words: list[str] | None = None) -> int:
    """Print the verdict; 1 for a vulnerability, and with `--required` if the audit has not run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--required", action="store_true", help="fail if it cannot run")
    required = parser.parse_args(words).required
    verdict = judge(run_pip_audit(pins()))
    for line in verdict.vulnerable:
        print(f"vulnerable: {line}")
    print(f"dependency audit: {'done' if verdict.ran else 'not run'} ({verdict.text})")
    return int(bool(verdict.vulnerable) or (required and not verdict.ran))


if __name__ == "__main__":
    sys.exit(main())
