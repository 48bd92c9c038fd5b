"""What an application may be, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from delaylog.client import Client
from delaylog.client.workers.pool_process import LoadError, load

MODULE = """
from delaylog.client import Client
class shop:
    client = Client("http://127.0.0.1:9")
def make():
    return Client("http://127.0.0.1:9")
async def make_later():
    return None
number = 5
def five():
    return 5
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "pool_app.py").write_text(MODULE)
    (tmp_path / "pool_broken.py").write_text("import pool_absent")


@pytest.mark.parametrize("name", ["pool_app:shop.client", "pool_app:make"])
def test_a_client_and_a_function_that_returns_one(name: str) -> None:
    assert isinstance(load(name), Client)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pool_app", "given as MODULE:NAME"),
        (":client", "given as MODULE:NAME"),
        ("pool_nowhere:client", "no module 'pool_nowhere'"),
        ("pool_nowhere.tasks:client", "no module 'pool_nowhere'"),
        ("pool_app:absent", "'pool_app' has no 'absent'"),
        ("pool_app:shop.absent", "has no 'shop.absent'"),
        ("pool_app:number", "is a int, not a client"),
        ("pool_app:five", "is a int, not a client"),
        ("pool_app:Client", "neither a client nor a function"),
        ("pool_app:make_later", "neither a client nor a function"),
    ],
)
def test_anything_else(name: str, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        load(name)


def test_a_module_that_cannot_be_imported_says_why() -> None:
    with pytest.raises(ModuleNotFoundError, match="pool_absent"):
        load("pool_broken:client")
