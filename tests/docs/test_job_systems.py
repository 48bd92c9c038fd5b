"""docs/job-systems/: what the pages claim is backed by tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.job_systems_list import DOCUMENT, FEATURES, REDIS, ROOT, SYSTEMS, System

PAGE = DOCUMENT.read_text()


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_each_entry_has_a_test_and_each_system_a_section(system: System) -> None:
    text = system.path.read_text()
    assert system.tests.keys() <= set(FEATURES)
    for name in system.tests.values():
        assert f"def {name}(" in text
    assert f"\n## {system.name}\n" in PAGE


def test_tests_that_the_pages_name_exist() -> None:
    files = [*REDIS.rglob("test_*.py"), *ROOT.glob("tests/client/job_systems/test_*.py")]
    defined = {
        name
        for file in files
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    pages = [*DOCUMENT.parent.glob("*.md"), ROOT / "docs" / "JOB_SYSTEMS.md"]
    named = {name for page in pages for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert named
    assert named <= defined


def test_install_lines_beside_the_redis_endpoint_bring_lua() -> None:
    """Without the extra `redis` job systems fail at their first script."""
    wrong = [
        f"{page.name}: {line}"
        for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
        for line in re.findall(r"pip install (.*)\n.*delaylog serve .*--resp ", page.read_text())
        if not re.search(r"\[[a-z,]*\b(redis)\b[a-z,]*\]", line) or "server" not in line
    ]
    assert wrong == []
