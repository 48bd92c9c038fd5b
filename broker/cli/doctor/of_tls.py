"""`delaylog doctor tls`: reads the TLS files of a configuration and says what they lack.

It needs no broker. It reads the options of `serve` from flags, variables and the configuration
file, as `serve` does.
"""

from __future__ import annotations

import argparse
import ssl
from typing import Any, Final

from delaylog.broker.cli.doctor.findings import Mark, findings, print_report
from delaylog.broker.cli.parser import add_action, add_json, complete_files
from delaylog.broker.cli.settings import add_setting
from delaylog.broker.host.config import load_config
from delaylog.broker.host.settings.options import OPTIONS, ConfigError
from delaylog.broker.host.tls.certificates import Fault, Hosts
from delaylog.broker.host.tls.client_tls import ClientTls
from delaylog.broker.host.tls.server_tls import ServerTls

_USABLE: Final = "a broker can read these files"
_CHECKS: Final = {
    "validity": "all certificates of tls-cert are valid for some time",
    "use": "clients take the certificate for that of a server",
    "chain": "the chain is complete",
    "names": "the certificate names the hosts that clients use",
    "authorities": "tls-client-ca holds CAs that are valid for some time",
}
"""The checks of `broker/host/tls/certificates.py`, and the text of each if it finds nothing."""


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
    try:
        tls = ServerTls(config.tls, refuses=False)
        if config.tls_ca is not None:
            tls.roots = ClientTls(config.tls_ca).roots
    except ConfigError as error:
        unusable = (Mark.FAIL, str(error), "a broker does not start with these files")
        return print_report(findings("files", _USABLE, [unusable]), as_json=args.json)
    tls.hosts = Hosts(told=(*args.host, *config.called_at))
    faults = tls.faults()
    if config.tls_ca is None:
        faults += tls.unknown_issuers(
            ssl.create_default_context().get_ca_certs(binary_form=True), "the CAs of this machine"
        )
    report = findings("files", _USABLE, [])
    for check, holds in _CHECKS.items():
        if check != "authorities" or config.tls.client_ca is not None:
            found = [_found(fault) for fault in faults if fault.check == check]
            report += findings(check, holds, found)
    return print_report(report, as_json=args.json)


def _found(fault: Fault) -> tuple[Mark, str, str]:
    mark = Mark.FAIL if fault.severity == "error" else Mark.WARN
    return mark, fault.text, fault.advice
