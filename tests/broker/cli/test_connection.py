"""How commands reach a broker: where the token comes from, and that nothing shows it."""

from __future__ import annotations

import io
import json
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.cli.arguments import CONNECTION
from delaylog.broker.cli.connection import RECONNECT
from delaylog.broker.cli.main import main
from delaylog.client.child_broker import free_port
from delaylog.client.wire import credentials, endpoints, exchange
from tests.client.certificates import Certificates, make_certificates
from tests.http_server import Handler, served

SECRET = "s3cret-of-the-test"
TOPICS: dict[str, Any] = {"topics": []}


class Door(ThreadingHTTPServer):
    """Answers every call and keeps the tokens."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), DoorHandler)
        self.tokens: list[str | None] = []
        self.bodies: list[Any] = []
        self.status, self.answer = 200, TOPICS
        self.pause_s = 0.0
        """How long each answer takes."""
        self.later: list[dict[str, Any]] = []
        """The answers after the first one; the last one stays."""
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_address[1]}"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)


class DoorHandler(Handler):
    server: Door

    def respond(self) -> None:
        if self.command == "POST":
            sent = json.loads(self.read())
            self.server.bodies.append(sent)
            row = {"id": "~1", "deliver_at_ms": 1, "result": "created"}
            self.server.answer = {"messages": [row for _ in sent]}
        self.server.tokens.append(self.headers.get("Authorization"))
        time.sleep(self.server.pause_s)
        self.answer(self.server.status, json.dumps(self.server.answer).encode())
        if self.server.later:
            self.server.answer = self.server.later.pop(0)


@pytest.fixture
def door() -> Iterator[Door]:
    with served(Door()) as server:
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return path


def standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_token_by_file_variable_and_standard_input(
    door: Door, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = ["topics", "--url", door.url]
    assert main(topics) == 0
    assert main([*topics, "--token-file", str(secret)]) == 0
    monkeypatch.setenv("DELAYLOG_TOKEN_FILE", str(secret))
    assert main(topics) == 0
    monkeypatch.setenv("DELAYLOG_TOKEN", "of-the-variable")
    assert main(topics) == 0
    standard_input(monkeypatch, b"of-the-input\n")
    assert main([*topics, "--token", "-", "--token-file", str(secret)]) == 0
    assert door.tokens == [
        None,
        f"Bearer {SECRET}",
        f"Bearer {SECRET}",
        "Bearer of-the-variable",
        "Bearer of-the-input",
    ]


def test_an_address_by_variable(
    door: Door, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the forms that clients take; an option wins."""
    # Of a broker that is slow, the command would ask the other one who leads.
    monkeypatch.setattr(exchange, "QUIET_S", 600.0)
    own = door.url.replace("http:", "delaylog:")
    door.answer = {"topics": [], "messages": [], "cursor": None}
    for value in (door.url, f" {own}/ ", f"http://127.0.0.1:9 , {own}"):
        monkeypatch.setenv("DELAYLOG_URL", value)
        assert main(["topics"]) == 0, value
        assert main(["list", "t"]) == 0, value
    # `list` also asks whether a topic that shows nothing exists.
    assert door.tokens == [None] * 9
    assert main(["topics", "--url", "http://127.0.0.1:9"]) == 1
    assert "127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "variable", "said"),
    [
        (["--url", "nonsense"], "", "the address 'nonsense' has no scheme"),
        (["--url", "http://a/v1"], "", "ends before /v1"),
        ([], "redis://a", "DELAYLOG_URL: the address 'redis://a' has the scheme 'redis'"),
        ([], "http://a http://b", "DELAYLOG_URL has 2 brokers, and a command calls one"),
    ],
)
def test_an_address_that_is_none(
    words: list[str],
    variable: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DELAYLOG_URL", variable)
    for verb in (["topics"], ["list", "t"], ["cluster", "doctor"]):
        assert main([*verb, *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("delaylog: ")
        assert said in line


def test_the_options_are_those_of_clients() -> None:
    """The table of the command line, which loads without the client, agrees with the client's."""
    url, *rest = CONNECTION
    assert (url.variable, url.default) == (endpoints.URL, endpoints.DEFAULT_URL)
    assert [each.variable for each in rest] == [
        *(credentials.TOKEN, credentials.TOKEN_FILE, credentials.CA_FILE),
        *(credentials.CLIENT_CERT, credentials.CLIENT_KEY),
    ]


def test_a_token_of_the_input_is_read_once_for_several_calls(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    standard_input(monkeypatch, f"{SECRET}\n".encode())
    door.answer, door.later = {"topics": [], "cursor": "next"}, [TOPICS]
    assert main(["topics", "--token", "-", "--url", door.url]) == 0
    assert door.tokens == [f"Bearer {SECRET}"] * 2


def test_lines_behind_the_token_are_messages(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, f"{SECRET}\none\ntwo\n".encode())
    assert main(["send", "t", "--token", "-", "--url", door.url]) == 0
    assert door.tokens == [f"Bearer {SECRET}"]
    assert [each["body"] for each in door.bodies[0]] == ["one", "two"]


def test_a_terminal_is_asked_without_an_echo(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, b"seen by everybody\n")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: SECRET)
    assert main(["topics", "--token", "-", "--url", door.url]) == 0
    assert door.tokens == [f"Bearer {SECRET}"]


@pytest.mark.parametrize("words", [["--token", SECRET], [f"--token={SECRET}"]])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_token_in_the_arguments_is_refused_unseen(
    words: list[str], more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["topics", *words, *more])
    said = capsys.readouterr()
    assert caught.value.code == 2
    assert "--token-file or DELAYLOG_TOKEN" in said.err
    assert SECRET not in said.out + said.err


@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", f"https://me:{SECRET}@h"], "holds no user or password"),
        (
            ["--url", "http://broker.example:1", "--token-file", "FILE"],
            "over plain http to http://b",
        ),
        (["--token-file", "OPEN"], "run: chmod 600 "),
        (["--ca-file", "/none"], "CA file /none: No such file"),
    ],
)
def test_an_unusable_option_is_one_line(
    words: list[str], said: str, more: list[str], secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = secret.with_name("opened")
    opened.write_text(SECRET)
    opened.chmod(0o644)
    given = [{"FILE": str(secret), "OPEN": str(opened)}.get(word, word) for word in words]
    for verb in (["topics"], ["cluster", "doctor"]):
        assert main([*verb, *given, *more]) == 2
        shown = capsys.readouterr()
        assert said in shown.err
        assert SECRET not in shown.out + shown.err
        if more:
            assert json.loads(shown.err)["error"]["code"] == "usage"


def test_plain_http_to_another_machine_may_be_accepted(
    secret: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loopback address plays the other machine."""
    monkeypatch.setattr("delaylog.client.wire.credentials.is_loopback", lambda url: False)
    words = ["topics", "--url", "http://127.0.0.1:9", "--token-file", str(secret)]
    assert main(words) == 2
    assert "insecure_plain_token" in capsys.readouterr().err
    assert main([*words, "--insecure-plain-token"]) == 1
    assert "Connection refused" in capsys.readouterr().err


def test_a_refusal_is_printed_as_the_broker_says_it(
    door: Door, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    door.status = 403
    door.answer = {"code": "forbidden", "status": 403, "detail": "the right read is missing"}
    assert main(["topics", "--url", door.url, "--token-file", str(secret)]) == 1
    assert capsys.readouterr().err == "delaylog: 403 forbidden: the right read is missing\n"
    assert len(door.tokens) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topics"], "topics: 1 s"),
        (["dead", "t", "--max", "0"], "dead: 0 messages"),
        (["token", "list"], "token list: 1 s"),
        (["cluster", "doctor"], "cluster doctor: 1 s"),
        (["cluster", "handover"], "cluster handover: 1 s"),
    ],
)
def test_a_call_that_lasts_says_so(
    door: Door, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    door.pause_s = 1.4
    door.status, door.answer = 404, {"code": "unknown", "status": 404, "detail": "nothing"}
    assert main([*words, "--url", door.url]) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()[0]) == ("", f"delaylog: {said}")
    assert main([*words, "--url", door.url, "--json"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["error"]["code"] == "unknown"


def test_a_private_authority_and_a_client_certificate(
    certificates: Certificates, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    c = certificates
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(c.ca))
    tls.load_cert_chain(c.server, c.server_key)
    tls.verify_mode = ssl.CERT_REQUIRED
    with served(Door(tls)) as server:
        words = ["topics", "--url", server.url, "--token-file", str(secret)]
        pair = ["--client-cert", str(c.client), "--client-key", str(c.client_key)]
        assert main([*words, "--ca-file", str(c.ca), *pair]) == 0
        assert main([*words, *pair]) == 1
        assert "--ca-file names the authority that signed" in capsys.readouterr().err
    assert server.tokens == [f"Bearer {SECRET}"]


def test_the_doctor_gives_no_token_to_a_member_outside_of_tls(
    door: Door, certificates: Certificates, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    c = certificates
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(c.server, c.server_key)
    with served(Door(tls)) as server:
        member = {"node": 1, "name": "one", "http": door.url}
        server.answer = {"cluster": "c", "members": [member]}
        words = ["--url", server.url, "--token-file", str(secret), "--ca-file", str(c.ca)]
        assert main(["cluster", "doctor", *words]) == 1
    assert "is not called: the token would leave https" in capsys.readouterr().out
    assert (door.tokens, server.tokens) == ([], [f"Bearer {SECRET}"])


def test_a_command_outlasts_a_restart_and_soon_gives_up_a_wrong_port(
    capsys: pytest.CaptureFixture[str],
) -> None:
    door = Door()
    door.server_close()
    # The port that it had may be anybody's now.
    door.server_address = ("127.0.0.1", free_port())
    door.url = f"http://127.0.0.1:{door.server_address[1]}"

    def come() -> None:
        door.socket = door.socket.__class__(door.address_family, door.socket_type)
        door.server_bind()
        door.server_activate()
        door.serve_forever()

    coming = threading.Timer(0.7, come)
    coming.start()
    assert main(["topics", "--url", door.url]) == 0
    door.shutdown()
    coming.join()
    door.server_close()
    began_s = time.monotonic()
    assert main(["stats", "t", "--url", door.url]) == 1
    assert RECONNECT.total_seconds() <= time.monotonic() - began_s < 15
    assert "Connection refused" in capsys.readouterr().err


def test_a_list_follows_its_pages(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, or as many as --limit; a page may be shorter than what was asked for."""
    for line, name, count in (
        ("topics", "topics", 4),
        ("schedule list t", "schedules", 4),
        ("schedule list t --limit 2", "schedules", 2),
    ):
        pages = [{name: [{"n": each}], "cursor": each} for each in ("a", "b", "c", None)]
        # A list of a topic first asks whether that exists.
        first = [{}] if name == "schedules" else []
        door.answer, *door.later = *first, *pages
        assert main([*line.split(), "--url", door.url, "--json"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == count


def test_a_list_without_pages_says_that_it_is_cut(
    door: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker lists that many at most, and has no cursor for the rest."""
    for words, name in (
        (["target", "list"], "targets"),
        (["transactions", "list"], "transactions"),
    ):
        for count, cut in ((999, False), (1_000, True)):
            door.answer = {name: [{"state": "on"}] * count}
            assert main([*words, "--url", door.url, "--json"]) == 0
            said = capsys.readouterr()
            assert len(said.out.splitlines()) == count
            assert ("only the first 1,000 are listed" in said.err) == cut
            assert ("give a topic" in said.err) == (cut and name == "targets")
