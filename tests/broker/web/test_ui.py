"""The files of the dashboard: what is served, with which headers, to whom, and what they repeat."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from delaylog.broker.engine.late.timeline import CAUSES
from delaylog.broker.host.watch.lateness import RECENT
from delaylog.broker.ui.files import KINDS, PAGE, UI, names
from delaylog.storage.hours.hot_seconds import HOT_ROWS_MIN
from tests.broker.conftest import Broker

BYTES_MAX: Final = 60_000
"""Of all files, compressed as they are sent."""
LINES_MAX: Final = 400
FOLDER_FILES_MAX: Final = 20
OTHERS: Final = {
    "lib/standalone.module.js": "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
}
"""Files of others and their SHA-256, as the npm package has them that lib/THIRD_PARTY.txt names."""
OWN: Final = sorted(names() - OTHERS.keys() - {"lib/THIRD_PARTY.txt"})
IMPORT: Final = re.compile(r"^(?:import|export)\b[^;]*?from \"([^\"]+)\";", re.MULTILINE)
ABROAD: Final = re.compile(r"(?:https?:)?//[a-z]|\beval\b|(?:inner|outer)HTML|insertAdjacent")


def test_each_file_is_served_as_it_is_and_compressed(broker: Broker) -> None:
    for name in names():
        plain = broker.call("GET", UI + name)
        assert plain.status == 200
        assert plain.body == (PAGE / name).read_bytes()
        assert plain.headers["Content-Type"] == KINDS[Path(name).suffix]
        packed = broker.call("GET", UI + name, headers={"Accept-Encoding": "gzip, br"})
        assert packed.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(packed.body) == plain.body


def test_pages_may_load_nothing_from_elsewhere(broker: Broker) -> None:
    """The policy, and that no file asks for what it forbids."""
    policy = broker.call("GET", UI).headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    for name in OWN:
        text = (PAGE / name).read_text().replace("http://www.w3.org/2000/svg", "")
        assert ABROAD.findall(text) == [], name


def test_what_a_browser_has_is_not_sent_again(broker: Broker) -> None:
    tag = broker.call("GET", UI).headers["ETag"]
    for said in (tag, f"W/{tag}", f'"x", {tag}', "*", " * "):
        again = broker.call("GET", UI, headers={"If-None-Match": said})
        assert (again.status, again.body) == (304, b"")
    for said in ('"x"', tag.strip('"'), '"*"'):
        assert broker.call("GET", UI, headers={"If-None-Match": said}).status == 200


@pytest.mark.parametrize("name", ["nothing.js", "../files.py", "..%2ffiles.py", "lib", "lib/", "/"])
def test_nothing_else_is_served(
    broker: Broker, name: str, assert_problem: Callable[..., dict[str, Any]]
) -> None:
    assert_problem(broker.call("GET", UI + name), 404, "unknown")


def test_browsers_are_led_from_the_root(
    broker: Broker, assert_problem: Callable[..., dict[str, Any]]
) -> None:
    """Programs that ask for the root get JSON, as ever."""
    asked = broker.call("GET", "/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert (asked.status, asked.headers["Location"]) == (303, UI)
    assert broker.call("GET", "/").json == {"name": "delaylog"}
    assert broker.call("GET", UI[:-1]).status == 303
    assert broker.call("HEAD", UI).status == 200
    assert_problem(broker.call("POST", UI, {}), 405, "method")


def test_all_of_it_is_small() -> None:
    sizes = {name: len(gzip.compress((PAGE / name).read_bytes())) for name in names()}
    del sizes["lib/THIRD_PARTY.txt"]
    assert sum(sizes.values()) <= BYTES_MAX


@pytest.mark.parametrize(
    ("name", "constant", "expected"),
    [
        ("pages/overview.js", "HOT", HOT_ROWS_MIN),
        ("parts/chart.js", "COLUMNS", RECENT),
    ],
)
def test_numbers_of_the_broker_are_the_same_in_the_page(
    name: str, constant: str, expected: int
) -> None:
    (found,) = re.findall(
        rf"^const {constant} = ([\d_]+);$", (PAGE / name).read_text(), re.MULTILINE
    )
    assert int(found) == expected


def test_the_page_has_words_for_each_cause() -> None:
    words = (PAGE / "parts" / "late.js").read_text().split("const WORDS = {")[1].split("};")[0]
    assert re.findall(r"(\w+): \"", words) == list(CAUSES)


def test_files_of_others_are_those_of_the_registry() -> None:
    found = {path.relative_to(PAGE).as_posix() for path in (PAGE / "lib").iterdir()}
    assert found == {*OTHERS, "lib/THIRD_PARTY.txt"}
    said = (PAGE / "lib" / "THIRD_PARTY.txt").read_text()
    for name, digest in OTHERS.items():
        assert hashlib.sha256((PAGE / name).read_bytes()).hexdigest() == digest
        assert digest in said


def test_modules_are_small_and_import_what_is_there() -> None:
    imported = {"app.js"}
    for name in OWN:
        text = (PAGE / name).read_text()
        assert len(text.splitlines()) <= LINES_MAX, name
        for other in IMPORT.findall(text):
            path = (PAGE / name).parent.joinpath(other).resolve().relative_to(PAGE.resolve())
            assert path.as_posix() in names(), f"{name} imports {other}"
            imported.add(path.as_posix())
    assert {name for name in OWN if name.endswith(".js")} <= imported, "a module that nobody needs"
    for folder in {path.parent for path in PAGE.rglob("*.js")}:
        assert len(list(folder.iterdir())) <= FOLDER_FILES_MAX, folder
