"""Credentials: the token and the TLS files of a client, and the addresses that may get the token.

The SDK, the command line and the Spark connector share these rules. This module imports only
`secret_files` and the standard library, because `make twins` copies both into `pyspark_delaylog`,
which runs without `delaylog`. No repr, error, log line or pickle contains a token.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import ssl
from collections.abc import Mapping
from typing import Final, NoReturn, TypedDict, Unpack
from urllib.parse import urlsplit

from delaylog.secret_files import exposure

TOKEN: Final = "DELAYLOG_TOKEN"
TOKEN_FILE: Final = "DELAYLOG_TOKEN_FILE"
CA_FILE: Final = "DELAYLOG_CA_FILE"
CLIENT_CERT: Final = "DELAYLOG_CLIENT_CERT"
CLIENT_KEY: Final = "DELAYLOG_CLIENT_KEY"
TOKEN_BYTES_MAX: Final = 16 << 10
"""The longest token. A JWT with many claims takes a few KiB."""

log = logging.getLogger(__name__)


class CredentialsError(ValueError):
    """A token, a TLS file or an address cannot be used. Nothing was sent."""


class CredentialOptions(TypedDict, total=False):
    """The options that `Credentials` takes."""

    token: str | None
    token_file: str | os.PathLike[str] | None
    tls: ssl.SSLContext | None
    ca_file: str | os.PathLike[str] | None
    client_cert: str | os.PathLike[str] | None
    client_key: str | os.PathLike[str] | None
    insecure_plain_token: bool


class Headers(dict[str, str]):
    """Headers whose repr hides their values, so that logs and tracebacks may show it."""

    def __repr__(self) -> str:
        return f"Headers({', '.join(self)})"


class Credentials:
    """The token and the TLS context of one client.

    The token is the first of: `token`, the contents of `token_file`, the variable DELAYLOG_TOKEN,
    the contents of the file that DELAYLOG_TOKEN_FILE names. An empty variable counts as absent.
    """

    def __init__(
        self, environ: Mapping[str, str] = os.environ, **given: Unpack[CredentialOptions]
    ) -> None:
        """Raises CredentialsError for values that cannot be used, TypeError for wrong types."""
        for name in given.keys() - CredentialOptions.__annotations__.keys():
            raise TypeError(f"a client has no option {name!r}")
        self._insecure = given.get("insecure_plain_token", False)
        if not isinstance(self._insecure, bool):
            kind = type(self._insecure).__name__
            raise TypeError(f"insecure_plain_token is True or False, not {kind}")
        self._may_receive: dict[str, bool] = {}
        self._file: str | None = None
        self._token = self._find_token(environ, given.get("token"), given.get("token_file"))
        self.files = {
            "ca_file": _path("ca_file", given.get("ca_file")),
            "client_cert": _path("client_cert", given.get("client_cert")),
            "client_key": _path("client_key", given.get("client_key")),
        }
        """The paths of the files of TLS, for libraries that read them themselves."""
        self.tls = self._find_tls(environ, given.get("tls"))

    def _find_token(
        self, environ: Mapping[str, str], token: object, token_file: object
    ) -> str | None:
        path = _path("token_file", token_file)
        if token is not None:
            return checked_token(token)
        if path is None and environ.get(TOKEN):
            return checked_token(environ[TOKEN], f"the variable {TOKEN}")
        self._file = path if path is not None else environ.get(TOKEN_FILE) or None
        return None if self._file is None else read_token_file(self._file)

    def _find_tls(self, environ: Mapping[str, str], tls: object) -> ssl.SSLContext | None:
        files = self.files
        if tls is not None:
            # False would mean "do not verify certificates" to some libraries.
            if not isinstance(tls, ssl.SSLContext):
                raise TypeError(f"tls is an ssl.SSLContext or None, not {type(tls).__name__}")
            if both := [name for name, path in files.items() if path is not None]:
                raise CredentialsError(f"give tls or {' and '.join(both)}, not both")
            return tls
        if files["ca_file"] is None:
            files["ca_file"] = environ.get(CA_FILE) or None
        if files["client_cert"] is None and files["client_key"] is None:
            files["client_cert"] = environ.get(CLIENT_CERT) or None
            files["client_key"] = environ.get(CLIENT_KEY) or None
        return make_tls(**files)

    def __repr__(self) -> str:
        return f"Credentials({'token' if self._token is not None else 'no token'})"

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: a pickle would contain the token."""
        raise TypeError("credentials cannot be pickled: make a client in each process")

    @property
    def token(self) -> str | None:
        """The current token."""
        return self._token

    def token_for(self, url: str) -> str | None:
        """The token, if calls to this address may carry it."""
        return self._token if self._token is not None and self.may_receive(url) else None

    def may_receive(self, url: str) -> bool:
        """Whether calls to this address may carry the token; true without a token."""
        if self._token is None or self._insecure:
            return True
        found = self._may_receive.get(url)
        if found is None:
            found = self._may_receive[url] = _is_https(url) or is_loopback(url)
        return found

    def check(self, url: str) -> None:
        """CredentialsError for an address that contains a secret or may not get the token."""
        check_no_user(url)
        if not self.may_receive(url):
            raise CredentialsError(
                f"the token would go over plain http to {url}, readable by everybody on the way: "
                "use an https address, or accept it with insecure_plain_token "
                "(--insecure-plain-token)"
            )

    def obstacle(self, node: str, url: str) -> str | None:
        """Why a node may not send this client to an address; None if it may."""
        if "@" in url:
            return "it has a user or password"
        if self._token is None:
            return None
        if _is_https(node) and not _is_https(url):
            return "the token would leave https"
        return None if self.may_receive(url) else "the token would go over plain http"

    def renewed(self, refused: str | None) -> bool:
        """Whether the token file now has another token than the one that a broker refused."""
        if self._file is None:
            return False
        if self._token == refused:
            try:
                self._token = read_token_file(self._file)
            except CredentialsError as error:
                log.warning("the broker refused the token, and a new one cannot be read: %s", error)
        return self._token != refused


def check_no_user(url: str) -> None:
    """CredentialsError for an address with a user or a password, which the error does not show.

    Any `@` counts: a password with a slash ends up in the path.
    """
    if "@" in url:
        raise CredentialsError(
            "an address holds no user or password: give the address alone, and the token as token "
            "or in a token file"
        )


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def checked_token(token: object, where: str = "the token") -> str:
    """The token, if a header can carry it. CredentialsError without its text, or TypeError."""
    if not isinstance(token, str):
        raise TypeError(f"token is a text or None, not {type(token).__name__}")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsError(f"{where} is empty, or has other than printable ASCII characters")
    if len(token) > TOKEN_BYTES_MAX:
        raise CredentialsError(f"{where} is longer than {TOKEN_BYTES_MAX} bytes")
    return token


def read_token_file(path: str) -> str:
    """The token in a regular file that nobody else can read. CredentialsError otherwise."""
    try:
        # A FIFO must not block; the check below refuses it.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            _check(path, os.fstat(descriptor), "token file")
            content = file.read(TOKEN_BYTES_MAX + 2)
    except OSError as error:
        raise CredentialsError(f"token file {path}: {error.strerror}") from None
    return checked_token(content.decode("latin-1").strip(), f"token file {path}: its content")


def make_tls(
    ca_file: str | None, client_cert: str | None, client_key: str | None
) -> ssl.SSLContext | None:
    """The context that trusts these authorities and shows this certificate; None for no files.

    `ca_file` replaces the authorities of the system. The key may be in the certificate's file.
    """
    if ca_file is None and client_cert is None and client_key is None:
        return None
    if client_cert is None and client_key is not None:
        raise CredentialsError(f"client key {client_key}: give its certificate as client_cert too")
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise CredentialsError(f"CA file {ca_file}: {_reason(error)}") from None
    if client_cert is not None:
        key = client_key or client_cert
        try:
            _check(key, os.stat(key), "client key")
            context.load_cert_chain(client_cert, client_key, _no_password)
        except OSError as error:
            named = " and ".join(dict.fromkeys((client_cert, key)))
            raise CredentialsError(f"client certificate {named}: {_reason(error)}") from None
        except _Encrypted:
            raise CredentialsError(f"client key {key}: is encrypted; decrypt it first") from None
    return context


class _Encrypted(Exception):
    """OpenSSL asks for the password of a key. Without this it would ask on the terminal."""


def _no_password() -> NoReturn:
    raise _Encrypted


def _reason(error: OSError) -> str:
    """Why a file cannot be used. OpenSSL gives one error for several causes."""
    if isinstance(error, ssl.SSLError):
        return f"not PEM, or the key is of another certificate ({error.reason or error})"
    return error.strerror or str(error)


def _check(path: str, found: os.stat_result, what: str) -> None:
    fault = exposure(path, found)
    if fault is not None:
        raise CredentialsError(f"{what} {path}: {fault}")


def _is_https(url: str) -> bool:
    return url.lower().startswith("https:")


def _path(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} is a path or None, not {type(value).__name__}")
    return os.fspath(value)
