"""`delaylog worker` ends soon after SIGTERM in every state, and refuses what cannot run.

Each application writes a file `there` when it has reached its state.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from tests.client.pool.test_pool import LIMIT_S, Place, await_that, stop
from tests.client.workers.live import Live

SOON_S: Final = 30.0
GRACE_S: Final = 0.5

HEAD: Final = """
import asyncio, os, signal, threading, time
from datetime import timedelta
from delaylog import AsyncClient, Client
URL, MUTE, DEAF = os.environ["APP_URL"], os.environ["APP_MUTE"], os.environ["APP_DEAF"]
NAMESPACE = os.environ["APP_NAMESPACE"]

def arrive():
    open("there", "w").close()

"""
IDLE: Final = """
@client.consumer("t", grace=timedelta(seconds=0.5))
def handle(message):
    pass
"""
CONNECTS: Final = """
def arrive_connected():
    while not client.connected():
        time.sleep(0.01)
    arrive()
threading.Thread(target=arrive_connected, daemon=True).start()
"""

STATES: Final = {
    "importing": "arrive(); time.sleep(600)",
    "importing, deaf to the signal": """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
arrive(); time.sleep(600)
""",
    "dying again and again": "arrive(); os._exit(9)",
    "connected": f"client = Client(URL, namespace=NAMESPACE)\n{IDLE}{CONNECTS}",
    "nobody listens": f"client = Client(DEAF)\n{IDLE}\narrive()",
    "no answer comes": f"client = Client(MUTE)\n{IDLE}\narrive()",
    "no host has the name": f"client = Client('http://nowhere.invalid:1')\n{IDLE}\narrive()",
    "schedules are put at a broker that is away": """
client = AsyncClient(DEAF)
@client.task("t", grace=timedelta(seconds=0.5)).every("0 3 * * *")
async def tidy():
    pass
arrive()
""",
    "messages are queued for a broker that is away": f"""
client = Client(DEAF)
{IDLE}
def queue():
    client.send_soon("t", "x")
    time.sleep(1)
    arrive()
threading.Thread(target=queue, daemon=True).start()
""",
    "a thread handles for longer than the grace period": """
client = Client(URL, namespace=NAMESPACE)
@client.consumer("t", grace=timedelta(seconds=0.5))
def handle(message):
    arrive(); time.sleep(600)
client.send("t", "x")
""",
    "a task handles for longer than the grace period": """
client = AsyncClient(URL, namespace=NAMESPACE)
@client.consumer("t", grace=timedelta(seconds=0.5))
async def handle(message):
    arrive(); await asyncio.sleep(600)
Client(URL, namespace=NAMESPACE).send("t", "x")
""",
}
STUBBORN: Final = {
    "a handler blocks the event loop": """
client = AsyncClient(URL, namespace=NAMESPACE)
@client.consumer("t", grace=timedelta(seconds=0.5))
async def handle(message):
    arrive(); time.sleep(600)
Client(URL, namespace=NAMESPACE).send("t", "x")
""",
    "a thread of the application goes on": """
client = AsyncClient(URL, namespace=NAMESPACE)
@client.consumer("t", grace=timedelta(seconds=0.5))
async def handle(message):
    pass
threading.Thread(target=time.sleep, args=(600,)).start()
arrive()
""",
}
STUBBORN_S: Final = 60.0
"""The grace period, what a stop may take besides, and the last sends."""


def running(
    place: Place, text: str, *options: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    """A pool of this application."""
    place.write(HEAD + text)
    return place.pool(*options)


def ends(place: Place, process: subprocess.Popen[str]) -> tuple[float, str]:
    """Ask it to end when it has reached its state; returns the seconds it took, and its log."""
    await_that((place.folder / "there").exists)
    began_s = time.monotonic()
    log = stop(process)
    return time.monotonic() - began_s, log


@pytest.fixture
def place(tmp_path: Path, live: Live) -> Iterator[Place]:
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        socket.socket() as deaf,
    ):
        # Bound, and not listening: connections are refused.
        deaf.bind(("127.0.0.1", 0))
        urls = [f"http://127.0.0.1:{each.getsockname()[1]}" for each in (mute, deaf)]
        yield Place(tmp_path, live, APP_MUTE=urls[0], APP_DEAF=urls[1])


@pytest.mark.parametrize("state", STATES)
def test_it_ends_within_the_grace_period(place: Place, state: str) -> None:
    with running(place, STATES[state], "--processes", "2") as process:
        took_s, log = ends(place, process)
    assert took_s < GRACE_S + SOON_S, log


@pytest.mark.parametrize("state", STUBBORN)
def test_a_process_that_does_not_end_is_ended(place: Place, state: str) -> None:
    with running(place, STUBBORN[state]) as process:
        took_s, log = ends(place, process)
    assert took_s < STUBBORN_S, log


def test_it_ends_at_any_moment_of_its_start(place: Place) -> None:
    """Also before it has processes, and before these handle signals."""
    for after_s in (0.0, 0.4, 0.8, 1.2, 1.6):
        with running(place, f"client = Client(URL, namespace=NAMESPACE)\n{IDLE}") as process:
            time.sleep(after_s)
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=SOON_S)
            # 130: before the pool handles signals itself.
            assert process.returncode in (0, 130, -signal.SIGTERM), log


BELOW: Final = (
    "shop_app runs or closes its client when it is imported: put that below "
    '`if __name__ == "__main__":`'
)
ASYNC_IDLE: Final = """
client = AsyncClient(URL)
@client.consumer("t")
async def handle(message):
    pass
"""


@pytest.mark.parametrize(
    "text",
    [
        # As the end of a script: the signal would end this run, and the pool would go on.
        f"client = Client(URL)\n{IDLE}\nclient.run()\nclient.close()",
        f"client = Client(URL)\n{IDLE}\nclient.start()",
        f"client = Client(URL)\n{IDLE}\nclient.close()",
        f"with Client(URL) as client:\n    pass\n{IDLE}".replace("@client", "@Client(URL)"),
        f"{ASYNC_IDLE}asyncio.run(client.run())",
        f"{ASYNC_IDLE}asyncio.run(client.close())",
        f"{ASYNC_IDLE}\nasync def main():\n    async with client:\n        await client.run()\n"
        "asyncio.run(main())",
        "import delaylog, tempfile\nwith delaylog.open(tempfile.mkdtemp()) as client:\n    pass",
    ],
)
def test_a_module_that_runs_or_closes_its_client_is_refused(place: Place, text: str) -> None:
    with running(place, text, "--processes", "2") as process:
        _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1, log
    (line,) = log.splitlines()
    assert line.endswith(BELOW)


def test_a_module_with_the_guard_runs_both_ways(place: Place) -> None:
    text = """
client = Client(URL, namespace=NAMESPACE)
@client.consumer("t")
def handle(message):
    arrive()
if __name__ == "__main__":
    client.run()
    client.close()
"""
    place.live.send(["one"])
    with running(place, text) as process:
        ends(place, process)
    (place.folder / "there").unlink()
    place.live.send(["two"])
    script = subprocess.Popen(
        [sys.executable, "shop_app.py"], cwd=place.folder, env=place.env, stderr=subprocess.DEVNULL
    )
    await_that((place.folder / "there").exists)
    script.send_signal(signal.SIGTERM)
    assert script.wait(LIMIT_S) == 0


def test_a_function_that_returns_a_closed_client_is_refused(place: Place) -> None:
    with running(
        place, "def client():\n    made = Client(URL)\n    made.close()\n    return made"
    ) as run:
        _, log = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 1
    assert "closes its client" in log
