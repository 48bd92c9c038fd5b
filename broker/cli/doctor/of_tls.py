"""`delaylog doctor tls`: reads the TLS files of a configuration and says what they lack.

It needs no broker. It reads the options of `serve` from flags, variables and the configuration
file, as `serve` does.
"""

from __future__ import annotations

import argparse
import ssl
import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from delaylog.broker.cli.doctor.findings import Finding, Found, Mark, findings, print_report
from delaylog.broker.cli.parser import add_action, add_json, complete_files
from delaylog.broker.cli.settings import add_setting
from delaylog.broker.host.config import Config, TlsConfig, is_loopback, load_config
from delaylog.broker.host.settings.options import OPTIONS, ConfigError
from delaylog.broker.host.tls.client_tls import ClientTls
from delaylog.broker.host.tls.pem import certificates_in
from delaylog.broker.host.tls.server_tls import ServerTls
from delaylog.extras import command

if TYPE_CHECKING:
    from cryptography import x509

_ANY: Final = ("0.0.0.0", "::")
_USABLE: Final = "a broker can start with these files"


def tls_arguments(actions: Any) -> None:
    """Arguments of `delaylog doctor tls`."""
    tls = add_action(
        actions,
        "tls",
        "check the certificates and keys of the options of serve, without a broker",
        "doctor tls --config delaylog.toml --host broker.example",
    )
    complete_files(tls.add_argument("--config", metavar="FILE", help="TOML file"))
    for option in OPTIONS:
        if option.name.startswith("tls-"):
            add_setting(tls, option)
    tls.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or address at which clients call the broker; may be given again",
    )
    add_json(tls)


def tls_command(args: argparse.Namespace) -> int:
    """`delaylog doctor tls`: 0, or 1 if a check fails. A warning is no failure."""
    config = load_config(vars(args))
    if config.tls is None:
        raise ConfigError("there is no TLS to check: give --tls-cert FILE, or --config FILE")
    _require_cryptography()
    report = findings("files", _USABLE, _usable(config.tls))
    try:
        chain = _certificates("tls-cert", config.tls.cert)
        client_ca = config.tls.client_ca
        client_cas = None if client_ca is None else _certificates("tls-client-ca", client_ca)
    except ConfigError as error:
        # What the file contains cannot be checked. `_usable` has named the same file, unless
        # OpenSSL takes what `cryptography` does not.
        if report[0].mark is Mark.OK:
            report = [Finding("files", Mark.FAIL, str(error))]
        return print_report(report, as_json=args.json)
    from delaylog.broker.cli.doctor.tls_checks import Examined, examine

    examined = Examined(
        chain,
        now=datetime.now(UTC),
        hosts=[*args.host, *_hosts(config)],
        client_cas=client_cas,
        roots=_roots(config),
        roots_named=config.tls_ca is not None,
    )
    return print_report([*report, *examine(examined)], as_json=args.json)


def _usable(tls: TlsConfig) -> Found:
    """Whether a broker would start with the files: the key fits, only its owner may read it."""
    try:
        ServerTls(tls)
    except ConfigError as error:
        yield Mark.FAIL, str(error), "a broker does not start with these files"


def _hosts(config: Config) -> Iterator[str]:
    """The names and the address at which the configuration expects clients."""
    yield from config.http_hosts
    if config.http_host not in _ANY and not is_loopback(config.http_host):
        yield config.http_host


def _certificates(name: str, path: str) -> list[x509.Certificate]:
    """The certificates of a PEM file. Raises ConfigError."""
    from cryptography import x509

    try:
        return [x509.load_der_x509_certificate(each) for each in certificates_in(name, path)]
    except ValueError as error:
        raise ConfigError(f"{name} {path}: a certificate in it is damaged: {error}") from None


def _roots(config: Config) -> frozenset[x509.Name]:
    """The subjects of the CAs that this machine trusts, or `tls-ca` instead."""
    from cryptography import x509

    context = ssl.create_default_context()
    if config.tls_ca is not None:
        context = ClientTls(config.tls_ca).context
    found = set()
    with warnings.catch_warnings():
        # Systems trust some old CAs whose certificates break the rules of today.
        warnings.simplefilter("ignore")
        for each in context.get_ca_certs(binary_form=True):
            with suppress(ValueError):
                found.add(x509.load_der_x509_certificate(each).subject)
    return frozenset(found)


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigError(
            f"delaylog doctor tls needs the package cryptography; run: {command('tls')}"
        ) from None
