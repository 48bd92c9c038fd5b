"""What is handed out: the sdist and the wheel are built, installed and used as a stranger would.

Everything happens in environments of its own, away from the checkout: nothing of it, nor what is
installed beside these tests, may be what makes it work. It needs the package index, or what pip
has kept of it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from delaylog.client.child_broker import free_ports

ROOT: Final = Path(__file__).parents[1]
FILES: Final = ("pyproject.toml", "README.md", "LICENSE")
LIMIT_S: Final = 300.0
QUIET: Final = ("--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")

FOLDERS: Final = ("broker", "client", "contract", "replication", "storage", "wheel")
APART: Final = {
    "client/spark/": "pyspark_delaylog/",
    "client/spark_segments/": "pyspark_delaylog_segments/",
}
"""What ships by another name than that of its folder, in a distribution of its own."""

OF_SPARK: Final = tuple(f"delaylog/{folder}" for folder in APART)

BUILD: Final = "from setuptools import build_meta; build_meta.{hook}('dist')"
PROGRAM: Final = """
import sys
from datetime import timedelta

from delaylog.client import Client

with Client(sys.argv[1]) as client:
    sent = client.send("reminders", "pay the rent", delay=timedelta(milliseconds=50))
    (message,) = client.receive("reminders", wait=timedelta(seconds=5))
    assert message.id == sent.id and message.deliver_at_ms == sent.deliver_at_ms
    client.ack(message)
    print(message.text)
"""
TYPED_PROGRAM: Final = """
from datetime import timedelta
from typing import assert_type

from delaylog.client import AsyncClient, AsyncMessage, Client, Message, Sent, Settled


def once(url: str) -> list[str]:
    with Client(url, linger=timedelta(milliseconds=5)) as client:
        assert_type(client.send("reminders", "pay the rent", delay=timedelta(days=1)), Sent)
        messages = client.receive("reminders", max=10, wait=timedelta(seconds=1))
        assert_type(messages, list[Message])
        assert_type(client.ack(messages), list[Settled])
        return [message.text for message in messages]


async def often(url: str) -> None:
    async with AsyncClient(url) as client:
        assert_type(await client.send("reminders", b"again"), Sent)

        @client.consumer("reminders", concurrency=4)
        async def handle(message: AsyncMessage) -> None:
            print(message.body.decode())

        await client.run()
"""
EMBEDDED_PROGRAM: Final = """
import sys
from datetime import timedelta

import delaylog

assert "numpy" not in sys.modules, "importing delaylog alone is to cost nothing"
clock = delaylog.ManualClock()
with delaylog.open("folder", clock=clock) as queue:
    queue.send("reminders", "pay the rent", delay=timedelta(days=30))
    clock.advance(days=30, ms=-1)
    assert queue.receive("reminders") == []
    clock.advance(ms=1)
    print(queue.receive("reminders")[0].text)
"""
CLIENT_PROGRAM: Final = """
import asyncio
import sys
from datetime import timedelta

from delaylog import AsyncClient, Client

async def again(url):
    async with AsyncClient(url) as client:
        await client.send("reminders", "and the other half")
        (message,) = await client.receive("reminders", wait=timedelta(seconds=5))
        await client.ack(message)
        print(message.text)

with Client(sys.argv[1]) as client:
    client.send_many("reminders", ["pay the rent"], headers={"a": "b"}, backoff={"first_ms": 5})
    (message,) = client.receive("reminders", wait=timedelta(seconds=5))
    client.ack(message)
    print(message.text, message.headers)
asyncio.run(again(sys.argv[1]))
"""
SERVE_AND_CALL: Final = """
import asyncio, pathlib, subprocess, sys
from delaylog.client.child_broker import ChildBroker

async def main():
    async with ChildBroker(pathlib.Path("data")) as broker:
        call = await asyncio.create_subprocess_exec(*sys.argv[1:], broker.url)
        assert await call.wait() == 0
        assert await broker.stop() == 0

asyncio.run(main())
"""


def environment(**more: str) -> dict[str, str]:
    """Of a program that must not find what is installed beside these tests."""
    apart = ("PYTHON", "VIRTUAL_ENV", "MYPY", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(apart)}
    return {**kept, **more}


def run(*command: str | Path, cwd: Path) -> str:
    """What it prints; nothing of this environment reaches it but the programs on the path."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout


def contents(wheel: Path) -> dict[str, bytes]:
    """Its files, but for the list that holds their hashes."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")
        }


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packed, so that building leaves nothing in the checkout."""
    copy = tmp_path_factory.mktemp("sources") / "delaylog"
    copy.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*FOLDERS, "src"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with what the project asks for to be built, and nothing else.

    It is made once for all builds, where `python -m build` makes one for each.
    """
    folder = tmp_path_factory.mktemp("builder")
    venv.create(folder, with_pip=False)
    found = folder / "bin" / "python"
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert wanted.pop("build-backend") == "setuptools.build_meta"
    pip = (sys.executable, "-P", "-m", "pip", "--python", found, "install")
    run(*pip, *QUIET, *wanted.pop("requires"), cwd=folder)
    assert wanted == {}
    return found


def build(builder: Path, sources: Path, hook: str) -> Path:
    """Call a hook of the build backend, as front ends do; the file that it makes."""
    run(builder, "-P", "-c", BUILD.format(hook=hook), cwd=sources)
    (found,) = (sources / "dist").glob("*.whl" if hook == "build_wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def sdist(builder: Path, sources: Path) -> Path:
    return build(builder, sources, "build_sdist")


@pytest.fixture(scope="module")
def wheel(builder: Path, sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    return build(builder, unpacked, "build_wheel")


@pytest.fixture(scope="module")
def client(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel alone: `pip install delaylog`."""
    folder = tmp_path_factory.mktemp("client") / "venv"
    venv.create(folder, with_pip=False)
    found = folder / "bin" / "python"
    pip = (sys.executable, "-P", "-m", "pip", "--python", found, "install")
    run(*pip, *QUIET, wheel, cwd=folder)
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel and the extra `server`."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(folder, with_pip=True)
    found = folder / "bin" / "python"
    run(found, "-m", "pip", "install", *QUIET, f"{wheel}[server]", cwd=folder)
    return found


def test_the_sdist_builds_the_wheel_that_the_checkout_builds(
    builder: Path, sources: Path, wheel: Path
) -> None:
    direct = build(builder, sources, "build_wheel")
    assert direct.name == wheel.name
    assert contents(direct) == contents(wheel)


def test_the_sdist_holds_plain_files(sdist: Path) -> None:
    """Where links are not supported it has to unpack and build too."""
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    names = {member.name.split("/", 1)[-1] for member in members}
    assert [member.name for member in members if member.issym() or member.islnk()] == []
    package = {"src/delaylog/py.typed", "src/delaylog/wheel/__init__.py"}
    assert {"LICENSE", "README.md", *package} <= names


def test_the_wheel_holds_every_module_once(wheel: Path) -> None:
    names = set(contents(wheel))
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    wanted = {f"delaylog/{path.relative_to(ROOT)}" for path in paths}
    wanted |= {f"delaylog/{path.name}" for path in (ROOT / "src/delaylog").glob("*.py")}
    wanted = {name for name in wanted if not name.startswith(OF_SPARK)}
    modules = {name for name in names if name.endswith(".py")}
    assert modules == wanted
    assert "delaylog/py.typed" in names
    page = [path for path in (ROOT / "broker/ui/page").rglob("*") if path.is_file()]
    assert {f"delaylog/{path.relative_to(ROOT)}" for path in page} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_data_source_of_spark_is_a_wheel_of_its_own(builder: Path, tmp_path: Path) -> None:
    """It needs neither delaylog nor, where a cluster has its own, PySpark."""
    project = ROOT / "ops" / "pyspark-delaylog"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    sources = shutil.copytree(project, tmp_path / "project", ignore=ignored)
    found = build(builder, sources, "build_wheel")
    paths = [path for folder in APART for path in (ROOT / folder).rglob("*.py")]
    wanted = {str(path.relative_to(ROOT)) for path in paths}
    for folder, package in APART.items():
        wanted = {re.sub(f"^{folder}", package, name) for name in wanted}
    assert {name for name in contents(found) if name.endswith(".py")} == wanted
    said = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert {re.split("[>=]", each)[0] for each in said["dependencies"]} == {
        "numpy",
        "pyarrow",
        "requests",
    }


def test_both_distributions_ask_for_one_version() -> None:
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    path = ROOT / "ops" / "pyspark-delaylog" / "pyproject.toml"
    theirs = tomllib.loads(path.read_text())["project"]
    version = ours["version"]
    assert theirs["version"] == version
    (asked,) = ours["optional-dependencies"]["spark"]
    assert asked == f"pyspark-delaylog[folders,pyspark]=={version}"
    assert f"delaylog=={version}" in theirs["optional-dependencies"]["folders"]


def test_what_is_installed_fits_together(python: Path) -> None:
    assert "No broken requirements" in run(python, "-m", "pip", "check", cwd=python.parent)


def test_it_serves_and_a_small_program_sends_and_receives(python: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "both.py").write_text(SERVE_AND_CALL)
    assert run(python, "both.py", python, "program.py", cwd=tmp_path) == "pay the rent\n"
    version = run(python.parent / "delaylog", "--version", cwd=tmp_path)
    assert version.startswith("delaylog ")
    where = run(python, "-c", "import delaylog; print(delaylog.__file__)", cwd=tmp_path)
    assert Path(where).is_relative_to(python.parents[1])


def test_the_client_alone_sends_and_receives_and_names_what_the_broker_needs(
    client: Path, python: Path, tmp_path: Path
) -> None:
    """It has no NumPy. Its command calls a broker too, but cannot be one."""
    installed = {path.name for path in client.parents[1].glob("lib/*/site-packages/*")}
    assert {"delaylog", "msgpack", "aiohttp"} <= installed
    assert not {"numpy", "crc32c", "uvloop", "sortedcontainers", "prometheus_client"} & installed
    (tmp_path / "program.py").write_text(CLIENT_PROGRAM)
    (tmp_path / "both.py").write_text(SERVE_AND_CALL)
    said = run(python, "both.py", client, "program.py", cwd=tmp_path)
    assert said == "pay the rent {'a': 'b'}\nand the other half\n"
    program = client.parent / "delaylog"
    said = run(python, "both.py", program, "send", "reminders", "again", "--url", cwd=tmp_path)
    assert "~" in said
    serve = subprocess.run(
        [program, "serve"], cwd=tmp_path, env=environment(), capture_output=True, check=False
    )
    assert (serve.returncode, serve.stdout) == (2, b"")
    assert serve.stderr == (
        b"delaylog: delaylog serve needs the broker, which is not installed; "
        b"run: pip install 'delaylog[server]'\n"
    )


def test_a_program_with_the_broker_inside_moves_thirty_days(python: Path, tmp_path: Path) -> None:
    (tmp_path / "embedded.py").write_text(EMBEDDED_PROGRAM)
    assert run(python, "embedded.py", cwd=tmp_path) == "pay the rent\n"


def test_pytest_finds_the_fixtures_of_what_is_installed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/entry_points.txt"))
        said = ConfigParser()
        said.read_string(archive.read(name).decode())
    assert said["console_scripts"]["delaylog"] == "delaylog.broker.cli:main"
    plugin = said["pytest11"]["delaylog"].replace(".", "/") + ".py"
    assert plugin in contents(wheel)


def test_programs_are_type_checked_against_it(python: Path, tmp_path: Path) -> None:
    """py.typed is there, and the public names carry what `mypy --strict` asks for."""
    (tmp_path / "typed.py").write_text(TYPED_PROGRAM)
    checker = (sys.executable, "-P", "-m", "mypy", "--python-executable", python)
    said = run(*checker, "--strict", "--cache-dir", tmp_path / "cache", "typed.py", cwd=tmp_path)
    assert "Success" in said


class Members:
    """Three nodes of a new cluster, started by the command of an environment."""

    def __init__(self, folder: Path, python: Path) -> None:
        self._folder = folder
        self._program = python.parent / "delaylog"
        ports = free_ports(6)
        self.ports = dict(enumerate(ports[:3], start=1))
        lines = ['cluster = "three"']
        for node, peer in enumerate(ports[3:], start=1):
            lines += [f"[members.{node}]", f'peer = "127.0.0.1:{peer}"']
            lines += [f'http = "127.0.0.1:{self.ports[node]}"']
        (folder / "cluster.toml").write_text("\n".join(lines) + "\n")
        self._environment = environment(DELAYLOG_CLUSTER_SECRET=secrets.token_hex(32))

    @contextmanager
    def running(self, node: int) -> Iterator[subprocess.Popen[str]]:
        where = ["--data-dir", f"node-{node}", "--http", f"127.0.0.1:{self.ports[node]}"]
        which = ["--cluster", "cluster.toml", "--node", str(node), "--new-cluster"]
        with subprocess.Popen(
            [self._program, "serve", *where, *which],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def await_ready(self, node: int) -> None:
        """A node is ready once it knows who leads."""
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.ports[node]}/readyz").close()
            except OSError:
                assert time.monotonic() < until, "there is no leader"
                time.sleep(0.1)
            else:
                return


def test_a_cluster_starts_with_the_extra_alone(wheel: Path, python: Path, tmp_path: Path) -> None:
    """Nothing is installed but delaylog[cluster]: no raftos.

    It is the last one, since it puts that into the environment of the others.
    """
    run(python, "-m", "pip", "install", *QUIET, f"{wheel}[cluster]", cwd=tmp_path)
    members = Members(tmp_path, python)
    with ExitStack() as nodes:
        for node in members.ports:
            nodes.enter_context(members.running(node))
        for node in members.ports:
            members.await_ready(node)
