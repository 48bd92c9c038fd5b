"""Where the examples of a story run: a folder, live brokers on free ports, and child processes.

The one rule: an example runs as it stands but for the addresses it names, in a process of its own,
under a time limit, and leaving the stage ends all that was started on it. `http://127.0.0.1:87xx`
stands for a broker: each such port of a story gets one, unless the story starts it itself by
`delaylog serve`; three with commas between are the nodes of a cluster. An endpoint for Redis
clients, 127.0.0.1:6379, is there only if a story starts it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from delaylog.broker.cli.verbs import VERBS
from delaylog.broker.drills.trio import NODES, Trio
from delaylog.client.child_broker import ChildBroker, free_port
from tests.broker.conftest import Broker
from tests.docs.pages import OTHERS, Example, Kind, Story, commands_of, first_word
from tests.docs.run_blocks import MARK
from tests.starts.warm_child import WarmChildBroker

LIMIT_S: Final = 180.0
"""Of one example, also on a busy machine."""
ADDRESS: Final = re.compile(r"(?P<front>127\.0\.0\.1:)(?P<port>87\d\d|6379)\b")
MEMBERS: Final = re.compile(",".join([r"http://127\.0\.0\.1:(87\d\d)"] * len(NODES)))
REMOTE: Final = re.compile(
    rf"\bdelaylog (?:{'|'.join(verb.name for verb in VERBS.values() if verb.calls)})\b(?!.*--url)"
)
SERVE: Final = re.compile(r"^(?:\$ )?(delaylog serve\b.*)", re.MULTILINE)
DEFAULT_PORT: Final = 8711
REDIS_PORT: Final = 6379
DRIVER: Final = Path(__file__).with_name("run_blocks.py")


class ExampleFailed(AssertionError):
    """An example did not do what its page says; the text names page and line."""


class Stage:
    """The surroundings of one story. Use as `with Stage(story, folder) as stage:`."""

    def __init__(self, story: Story, folder: Path) -> None:
        self.story = story
        self.folder = folder / "work"
        self.folder.mkdir()
        self._aside = folder
        """For what belongs to the test and not to the reader."""
        self._ports: dict[int, int] = {}
        """The free port that stands for each of the page's."""
        self._all = ExitStack()
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._all.enter_context(self._runner)
        try:
            ports = {int(found["port"]) for found in ADDRESS.finditer(self.story.text)}
            if REMOTE.search(self.story.text):
                ports.add(DEFAULT_PORT)
            by_hand = {_served(each)[0] for each in SERVE.findall(self.story.text)}
            for found in MEMBERS.finditer(self.story.text):
                self._start_cluster([int(port) for port in found.groups()])
            for port in sorted(ports - by_hand - {REDIS_PORT, *self._ports}):
                self._start_unseen(port)
        except BaseException:
            self._all.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._all.close()

    def run(self, example: Example) -> None:
        """Run one example. Raises ExampleFailed where it does not do what the page says."""
        match example.kind:
            case Kind.PYTHON:
                self._judge(example, self._python(example))
            case Kind.PYTEST:
                self._judge(example, self._pytest(example))
            case Kind.CONSOLE:
                self._console(example)
            case Kind.FILE:
                assert example.file is not None
                (self.folder / example.file).write_text(self.placed(example.text))
            case Kind.NOT_RUN:
                pass

    def placed(self, text: str) -> str:
        """A text with the addresses of this stage's brokers."""
        return ADDRESS.sub(
            lambda found: f"{found['front']}{self._ports.get(int(found['port']), 0)}", text
        )

    def _python(self, example: Example) -> str:
        path = self._aside / "blocks.json"
        path.write_text(
            json.dumps([(each.page, each.line, self.placed(each.text)) for each in example.program])
        )
        printed = self._output(example, [sys.executable, "-W", "error", str(DRIVER), str(path)])
        return printed.split(MARK + "\n", 1)[-1]

    def _pytest(self, example: Example) -> str:
        name = example.file or f"test_line_{example.line}.py"
        (self.folder / name).write_text(self.placed(example.text))
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(self.folder), name]
        return self._output(example, [sys.executable, "-m", "pytest", *options])

    def _console(self, example: Example) -> None:
        """Commands one by one; what is expected of the whole block is looked for in all of it."""
        everything = []
        for command, shown in commands_of(example.text):
            if first_word(command) in OTHERS:
                continue
            if command.startswith("delaylog serve"):
                self._serve(command)
                continue
            printed = self._output(
                example, ["bash", "-e", "-o", "pipefail", "-c", self.placed(command)]
            )
            everything.append(printed)
            if shown is not None:
                _compare(example, shown, printed)
        self._judge(example, "".join(everything))

    def _serve(self, command: str) -> None:
        """A broker as the page starts it, but for its port."""
        port, folder, options = _served(command)
        if f"127.0.0.1:{REDIS_PORT}" in options:
            self._ports[REDIS_PORT] = free_port()
            options = [self.placed(option) for option in options]
        self._start(port, WarmChildBroker(self.folder / folder, options=options))

    def _start_unseen(self, port: int) -> None:
        """One that the page takes as there."""
        folder = self._aside / f"broker-{port}"
        folder.mkdir()
        broker = Broker(folder)
        self._all.callback(broker.kill)
        broker.start()
        self._ports[port] = broker.port

    def _start(self, port: int, broker: ChildBroker) -> None:
        self._all.callback(lambda: self._runner.run(broker.kill()))
        self._runner.run(broker.start())
        self._ports[port] = broker.port

    def _start_cluster(self, ports: list[int]) -> None:
        folder = self._aside / f"cluster-{ports[0]}"
        folder.mkdir()
        trio = Trio(folder)
        self._runner.run(trio.__aenter__())
        self._all.callback(lambda: self._runner.run(trio.__aexit__()))
        self._runner.run(trio.found())
        self._ports |= {
            port: trio.nodes[node].port for port, node in zip(ports, NODES, strict=True)
        }

    def _output(self, example: Example, command: list[str]) -> str:
        """What a child process prints; it has to end by itself with 0, or by SIGTERM in order."""
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            # What names no address calls this machine's broker.
            "DELAYLOG_URL": self.placed(f"http://127.0.0.1:{DEFAULT_PORT}"),
        }
        output = self._aside / "output"
        errors = self._aside / "errors"
        with output.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                _await_end(process, output, example.until)
            finally:
                _end_group(process)
        printed = output.read_text()
        if process.returncode != 0:
            why = "took too long" if process.returncode == -signal.SIGKILL else "failed"
            raise ExampleFailed(
                f"{example.place}: {why} (status {process.returncode})\n"
                f"{example.text}\n--- printed\n{printed}\n--- errors\n{errors.read_text()}"
            )
        return printed

    def _judge(self, example: Example, printed: str) -> None:
        said = [*example.expected, *([example.until] if example.until else ())]
        for text in said:
            if text not in printed:
                raise ExampleFailed(f"{example.place}: no {text!r} in what it prints:\n{printed}")
        if example.printed is not None:
            _compare(example, example.printed, printed)
        elif printed.strip() and example.kind is Kind.PYTHON and not said:
            raise ExampleFailed(f"{example.place}: the page does not say that it prints\n{printed}")


def play(story: Story, folder: Path) -> None:
    """Run a story. Raises ExampleFailed where an example does not do what its page says."""
    with Stage(story, folder) as stage:
        for example in story.examples:
            stage.run(example)


def _served(command: str) -> tuple[int, str, list[str]]:
    """The port, the folder and the other options of a `delaylog serve`."""
    words = shlex.split(command, comments=True)[2:]
    named = {"--data-dir": "delaylog-data", "--http": f"127.0.0.1:{DEFAULT_PORT}"}
    for name in named:
        if name in words:
            place = words.index(name)
            named[name] = words[place + 1]
            del words[place : place + 2]
    return int(named["--http"].rsplit(":", 1)[1]), named["--data-dir"], words


def _await_end(process: subprocess.Popen[bytes], output: Path, until: str | None) -> None:
    """Until it has ended; one that would go on is ended politely once it has printed `until`."""
    deadline_s = time.monotonic() + LIMIT_S
    asked = until is None
    while process.poll() is None and time.monotonic() < deadline_s:
        if not asked and until is not None and until in output.read_text():
            process.send_signal(signal.SIGTERM)
            asked = True
        time.sleep(0.02)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Also what it has started and left behind."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _compare(example: Example, shown: str, printed: str) -> None:
    wanted = r"[\s\S]*?".join(re.escape(part) for part in shown.strip().split("…"))
    if not re.fullmatch(wanted, printed.strip()):
        raise ExampleFailed(
            f"{example.place}: prints\n{printed.strip()}\n--- and not\n{shown.strip()}"
        )
