"""The repository's own audits: what counts as a finding, as nothing found, and as not looked at."""

from __future__ import annotations

import json
import runpy
import secrets
import string
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
AUDIT = runpy.run_path(str(ROOT / "tools" / "audit_dependencies.py"))
SEARCH = runpy.run_path(str(ROOT / "tools" / "find_secrets.py"))

CLEAN = {"name": "six", "version": "1.17.0", "vulns": []}
FOUND = {
    "name": "old",
    "version": "1.0",
    "vulns": [
        {"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"], "aliases": [], "description": "bad"},
        {"id": "PYSEC-2", "fix_versions": [], "aliases": [], "description": "worse"},
    ],
}
UNKNOWN = {"name": "odd", "skip_reason": "Dependency not found on PyPI and could not be audited"}
NO_NETWORK = """Traceback (most recent call last):
socket.gaierror: [Errno -2] Name or service not known
requests.exceptions.ConnectionError: HTTPSConnectionPool(host='pypi.org', port=443): Max retries
"""


def ended(status: int, out: object, err: str = "") -> subprocess.CompletedProcess[str]:
    text = out if isinstance(out, str) else json.dumps({"dependencies": out, "fixes": []})
    return subprocess.CompletedProcess([], status, text, err)


@pytest.mark.parametrize(
    ("done", "status", "required", "said"),
    [
        (ended(0, [CLEAN]), 0, 0, "dependency audit: done (1 of 1 packages)"),
        (ended(1, [CLEAN, FOUND]), 1, 1, "vulnerable: old 1.0: PYSEC-1, fixed in 1.1, 2.0"),
        (ended(1, [FOUND]), 1, 1, "vulnerable: old 1.0: PYSEC-2, fixed in no version"),
        (ended(1, "", NO_NETWORK), 0, 1, "dependency audit: not run (no network: requests"),
        (ended(1, "", "ERROR: Could not connect to it"), 0, 1, "not run (no network: ERROR: Could"),
        (
            ended(0, [CLEAN, UNKNOWN]),
            0,
            1,
            "not run (1 of 2 packages; the index does not know odd)",
        ),
        (ended(1, [FOUND, UNKNOWN]), 1, 1, "vulnerable: old 1.0: PYSEC-1"),
        (ended(0, []), 0, 1, "not run (0 of 0 packages)"),
    ],
    ids=[
        "nothing",
        "a vulnerability",
        "one without a remedy",
        "no network",
        "no service",
        "an unknown package",
        "a vulnerability beside an unknown package",
        "no packages",
    ],
)
def test_what_an_audit_says(
    done: subprocess.CompletedProcess[str],
    status: int,
    required: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only a vulnerability fails `make lint`; a release needs a whole audit too."""
    main = AUDIT["main"]
    monkeypatch.setitem(main.__globals__, "run_pip_audit", lambda pins: done)
    assert main([]) == status
    assert main(["--required"]) == required
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("out", ["", "usage: pip-audit", "[]", "{}"])
def test_a_broken_audit_is_not_taken_for_one_without_a_network(out: str) -> None:
    with pytest.raises(RuntimeError, match="status 2: no such option"):
        AUDIT["judge"](ended(2, out, "usage\nno such option"))


def test_every_pinned_package_is_audited() -> None:
    pins = AUDIT["pins"]()
    named = {pin.partition("==")[0].lower() for pin in pins}
    assert {"aiohttp", "raftos", "cryptography", "pyspark", "pip_audit"} <= named
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert {line for line in lines if line and not line.startswith("#")} <= set(pins)


def made_token() -> str:
    """Of the form of delaylog's tokens."""
    checksum = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(6))
    return f"dlt_{secrets.token_urlsafe(32)}{checksum}"


def searched(folder: Path, text: str) -> list[Any]:
    path = folder / "notes.py"
    path.write_text(text)
    return list(SEARCH["search"]([path]))


def test_secrets_of_a_known_form_are_found(tmp_path: Path) -> None:
    """Each is put together here, so that this file has none."""
    path = tmp_path / "notes.py"
    letters = "".join(secrets.choice(string.ascii_letters) for _ in range(36))
    for secret, kind in (
        (made_token(), "token of delaylog"),
        (f"ghp_{letters}", "GitHub Token"),
        ("-----BEGIN " + "RSA PRIVATE KEY-----", "Private Key"),
        (f"https://me:{letters[:12]}@host.example/", "Basic Auth Credentials"),
        (f"AKIA{letters[:16].upper()}", "AWS Access Key"),
    ):
        text = f"first = 1\nsecret = '{secret}'\n"
        assert searched(tmp_path, text) == [(path, 2, kind)], kind
        if kind != "token of delaylog":
            assert searched(tmp_path, f"secret = '{secret}'  # pragma: allowlist secret") == []


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1], lambda t: t[1:], lambda t: f"{t}x", lambda t: t[:20]]
)
def test_what_is_no_token_is_left_alone(tmp_path: Path, change: Any) -> None:
    assert searched(tmp_path, change(made_token())) == []


def test_the_repository_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert SEARCH["main"]() == 0, capsys.readouterr().out
