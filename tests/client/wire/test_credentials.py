"""Credentials: which source a token comes from, which files are refused, and who may get it."""

from __future__ import annotations

import copy
import os
import pickle
import ssl
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from delaylog.client import AsyncPlainClient, Client, PlainClient
from delaylog.client.wire.credentials import (
    TOKEN_BYTES_MAX,
    Credentials,
    CredentialsError,
    Headers,
)
from tests.client.certificates import Certificates

SECRET = "s3cret-of-the-test"
REMOTE = "http://broker.example:8711"


def token_file(folder: Path, content: str = SECRET, mode: int = 0o600, name: str = "token") -> Path:
    path = folder / name
    path.write_text(content)
    path.chmod(mode)
    return path


def test_the_first_source_counts(tmp_path: Path) -> None:
    """Argument, file argument, variable, file of a variable."""
    one, other = (token_file(tmp_path, name, name=name) for name in ("argued", "named"))
    environ = {"DELAYLOG_TOKEN": "variable", "DELAYLOG_TOKEN_FILE": str(other)}

    def found(environ: dict[str, str], **given: Any) -> str | None:
        return Credentials(environ=environ, **given).token

    assert found(environ, token="given", token_file=one) == "given"
    assert found(environ, token_file=one) == "argued"
    assert found(environ, token_file=str(one)) == "argued"
    assert found(environ) == "variable"
    assert found(environ | {"DELAYLOG_TOKEN": ""}) == "named"
    assert found({"DELAYLOG_TOKEN": "", "DELAYLOG_TOKEN_FILE": ""}) is None
    assert found({}) is None
    with pytest.raises(CredentialsError, match="token file : No such file"):
        found(environ, token_file="")


def test_the_environment_is_asked_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYLOG_TOKEN_FILE", str(token_file(tmp_path)))
    assert Credentials().token == SECRET


@pytest.mark.parametrize("content", [SECRET, f"{SECRET}\n", f"  {SECRET}\r\n\n"])
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_private_file_is_read(tmp_path: Path, content: str, mode: int) -> None:
    """Also through a link, as volumes of secrets have them."""
    path = token_file(tmp_path, content, mode)
    link = tmp_path / "link"
    link.symlink_to(path)
    for each in (path, link):
        assert Credentials(token_file=each, environ={}).token == SECRET


@pytest.mark.parametrize("mode", [0o660, 0o604, 0o644, 0o620, 0o602, 0o610, 0o666])
def test_a_file_that_others_reach_is_refused(tmp_path: Path, mode: int) -> None:
    """The error names the file and the command that repairs it."""
    path = token_file(tmp_path, mode=mode)
    with pytest.raises(CredentialsError) as caught:
        Credentials(token_file=path, environ={})
    assert f"token file {path}: others than its owner" in str(caught.value)
    assert f"(mode {mode:o}); run: chmod 600 {path}" in str(caught.value)
    path.chmod(0o600)
    assert Credentials(token_file=path, environ={}).token == SECRET


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n",
        f"{SECRET}\n{SECRET}",
        f"{SECRET} x",
        f"{SECRET}\0",
        "é",
        "x" * (TOKEN_BYTES_MAX + 1),
    ],
)
def test_a_file_without_one_token_is_refused_unseen(tmp_path: Path, content: str) -> None:
    path = token_file(tmp_path, content)
    with pytest.raises(CredentialsError, match=f"token file {path}: its content is") as caught:
        Credentials(token_file=path, environ={})
    assert SECRET not in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A FIFO that nobody writes to blocks nothing."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    for path, why in (
        (tmp_path, "is not a regular file|Is a directory"),
        (fifo, "is not a regular file"),
        (tmp_path / "none", "No such file or directory"),
    ):
        with pytest.raises(CredentialsError, match=rf"token file {path}: ({why})"):
            Credentials(token_file=path, environ={})


@pytest.mark.parametrize("token", ["", f"{SECRET} x", f"{SECRET}\r\nX: y", f"{SECRET}é"])
def test_a_token_that_no_header_carries_is_refused_unseen(token: str) -> None:
    for given, where in (({"token": token}, "the token"), ({}, "the variable DELAYLOG_TOKEN")):
        environ = {} if given else {"DELAYLOG_TOKEN": token or " "}
        with pytest.raises(CredentialsError, match=where) as caught:
            Credentials(environ=environ, **given)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"token": b"x"}, "token is a text or None, not bytes"),
        ({"token_file": 3}, "token_file is a path or None, not int"),
        ({"ca_file": 3}, "ca_file is a path or None, not int"),
        ({"tls": False}, "tls is an ssl.SSLContext or None, not bool"),
        ({"insecure_plain_token": None}, "insecure_plain_token is True or False, not NoneType"),
        ({"passwort": "x"}, "a client has no option 'passwort'"),
        ({"insecure_plain_token": 1}, "insecure_plain_token is True or False, not int"),
    ],
)
def test_types(given: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Credentials(environ={}, **given)


def test_a_changed_file_has_a_new_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = token_file(tmp_path, "old")
    credentials = Credentials(token_file=path, environ={})
    assert not credentials.renewed("old"), "the file is as it was"
    new = token_file(tmp_path, "new", name="new")
    new.rename(path)
    assert credentials.renewed("old")
    assert credentials.token == "new"
    assert credentials.renewed("old"), "another thread has read it already"
    assert not credentials.renewed("new")
    path.chmod(0o644)
    assert not credentials.renewed("new")
    assert f"chmod 600 {path}" in caplog.text
    assert not Credentials(token="old", environ={}).renewed("old")


def test_the_token_is_in_no_repr_and_no_pickle() -> None:
    credentials = Credentials(token=SECRET, environ={})
    client = Client("http://127.0.0.1:9", token=SECRET)
    plain = PlainClient("http://127.0.0.1:9", token=SECRET)
    others = [AsyncPlainClient("http://127.0.0.1:9", token=SECRET), client, plain]
    transport = client._links[0].transport
    shown = [repr(credentials), repr(Headers(Authorization=f"Bearer {SECRET}"))]
    for each in (*others, transport):
        shown += [repr(each), repr(vars(each))]
    assert SECRET not in "".join(shown)
    for each in (credentials, *others):
        for take in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled: make"):
                take(each)
    client.close()
    plain.close()


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("https://broker.example", True),
        ("HTTPS://broker.example", True),
        ("http://127.0.0.1:8711", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:8711", True),
        ("http://localhost:8711", True),
        ("http://LOCALHOST.", True),
        ("http://broker.example", False),
        ("http://127.0.0.1.example", False),
        ("http://localhost.example", False),
        ("http://0.0.0.0:8711", False),
        ("http://10.0.0.1", False),
        ("http://[fe80::1]", False),
        ("http://2130706433", False),
        ("http://", False),
        ("http://[", False),
        ("", False),
    ],
)
def test_where_a_token_may_go(url: str, may: bool) -> None:
    """Over TLS, or inside this machine."""
    credentials = Credentials(token=SECRET, environ={})
    assert credentials.may_receive(url) is may
    assert credentials.token_for(url) == (SECRET if may else None)
    assert Credentials(environ={}).may_receive(url)
    insecure = Credentials(token=SECRET, insecure_plain_token=True, environ={})
    assert insecure.token_for(url) == SECRET


@pytest.mark.parametrize("make", [Client, PlainClient, AsyncPlainClient])
def test_a_client_that_would_show_its_token_is_not_made(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"over plain http to http://broker.example:8711.*https"):
        make(REMOTE, token=SECRET)
    monkeypatch.setenv("DELAYLOG_TOKEN", SECRET)
    with pytest.raises(ValueError, match="insecure_plain_token"):
        make(REMOTE)
    make(REMOTE, insecure_plain_token=True)
    monkeypatch.delenv("DELAYLOG_TOKEN")
    make(REMOTE)


@pytest.mark.parametrize("make", [Client, PlainClient, AsyncPlainClient])
@pytest.mark.parametrize(
    "url",
    [
        f"https://me:{SECRET}@h",
        f"https://me:{SECRET}@h:no-port",
        f"ftp://me:{SECRET}@h",
        f"https://me:{SECRET}/x@h",
        f"{SECRET}@h",
    ],
)
def test_a_password_in_an_address_is_refused_unseen(make: Any, url: str) -> None:
    with pytest.raises(ValueError, match="holds no user or password") as caught:
        make(url)
    assert SECRET not in str(caught.value)


def test_files_of_tls(certificates: Certificates) -> None:
    """By argument, by variable; the system's authorities count without a file."""
    c = certificates

    def made(environ: dict[str, str] | None = None, **given: Any) -> ssl.SSLContext | None:
        return Credentials(environ=environ or {}, **given).tls

    assert made() is None
    context = made(ca_file=c.ca)
    assert context is not None
    (only,) = context.get_ca_certs()
    assert dict(entry[0] for entry in only["subject"])["commonName"] == "an authority"
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert made({"DELAYLOG_CA_FILE": str(c.ca)}).get_ca_certs() == [only]  # type: ignore[union-attr]
    pair = {"DELAYLOG_CLIENT_CERT": str(c.client), "DELAYLOG_CLIENT_KEY": str(c.client_key)}
    assert made(pair) is not None
    assert made(client_cert=c.client, client_key=c.client_key) is not None
    own = ssl.create_default_context()
    assert made({"DELAYLOG_CA_FILE": "/none"}, tls=own) is own


def test_files_of_tls_that_cannot_be_used(certificates: Certificates, tmp_path: Path) -> None:
    """Each error names its file, and none asks on the terminal."""
    c = certificates
    odd, open_key, locked = (tmp_path / name for name in ("odd", "open.key", "locked.key"))
    odd.write_text("no PEM")
    odd.chmod(0o600)
    open_key.write_bytes(c.client_key.read_bytes())
    open_key.chmod(0o644)
    words = ["openssl", "ec", "-in", c.client_key, "-aes128", "-passout", "pass:x", "-out", locked]
    subprocess.run(words, check=True, capture_output=True)
    locked.chmod(0o600)
    own = ssl.create_default_context()
    for given, said in (
        ({"ca_file": "/none"}, "CA file /none: No such file"),
        ({"ca_file": odd}, f"CA file {odd}: not PEM"),
        ({"client_key": c.client_key}, f"client key {c.client_key}: give its certificate"),
        ({"client_cert": c.client}, f"client key {c.client}: others|client certificate {c.client}"),
        ({"client_cert": "/none"}, "client certificate /none: No such file"),
        ({"client_cert": c.client, "client_key": odd}, f"{odd}: not PEM"),
        ({"client_cert": c.client, "client_key": c.server_key}, "key is of another certificate"),
        ({"client_cert": c.client, "client_key": open_key}, f"run: chmod 600 {open_key}"),
        ({"client_cert": c.client, "client_key": locked}, f"client key {locked}: is encrypted"),
        ({"tls": own, "ca_file": c.ca}, "give tls or ca_file, not both"),
    ):
        with pytest.raises(CredentialsError, match=said):
            Credentials(environ={}, **given)  # type: ignore[arg-type]
    assert stat.S_IMODE(open_key.stat().st_mode) == 0o644
