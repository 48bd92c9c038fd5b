"""`delaylog cluster certs`: makes and renews certificates for the members of a cluster file.

For development and tests: the keys of the authorities lie beside the certificates, without a
passphrase. There are two authorities, since clients trust the one of the servers, and a certificate
of the other opens the ports between the nodes. Files that the command did not make, or that were
changed since, are never overwritten: `made.json` has a digest of each that it made.
"""

from __future__ import annotations

import argparse
import hashlib
import ipaddress
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from delaylog.broker.cli.failing import DONE
from delaylog.broker.cli.output import emit
from delaylog.broker.cli.parser import add_action, add_json, complete_files, complete_folders
from delaylog.broker.host.settings.options import ConfigError
from delaylog.extras import command

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    from delaylog.broker.cluster.config import Member

SERVERS: Final = "servers"
NODES: Final = "nodes"
_KINDS: Final = {SERVERS: "server", NODES: "node"}
"""Authorities, and the names of the files of what they sign."""
_MANIFEST: Final = "made.json"
_AUTHORITY_DAYS: Final = 3_650
_DAYS: Final = 90
_BACKDATED: Final = timedelta(minutes=5)
"""Certificates begin earlier, since the clocks of machines differ."""
_DNS_NAME: Final = re.compile(r"[A-Za-z0-9*_.-]+")
_HELP: Final = (
    "make or renew certificates of all members of a cluster file, for development and tests only"
)


def add_certs(actions: Any) -> None:
    """Arguments of `delaylog cluster certs`."""
    certs = add_action(
        actions,
        "certs",
        _HELP,
        "cluster certs certs --cluster cluster.toml",
        "cluster certs certs --cluster cluster.toml --renew",
    )
    complete_folders(certs.add_argument("folder", metavar="DIR", help="folder of the set"))
    complete_files(
        certs.add_argument("--cluster", required=True, metavar="FILE", help="cluster file")
    )
    certs.add_argument(
        "--renew",
        action="store_true",
        help="replace the certificates of servers and nodes; the authorities stay",
    )
    certs.add_argument(
        "--days", type=int, default=_DAYS, metavar="N", help=f"their lifetime (default {_DAYS})"
    )
    certs.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name or address at which clients call every node; may be given again",
    )
    add_json(certs)


def certs_command(args: argparse.Namespace) -> int:
    """0 when every certificate is there."""
    # Of the server; other actions of `cluster` need only the client.
    from delaylog.broker.cluster.config.cluster_file import read_members

    try:
        import cryptography  # noqa: F401
    except ImportError:
        needed = "delaylog cluster certs needs the package cryptography, which is not installed"
        raise ConfigError(f"{needed}; run: {command('tls')}") from None
    if not 1 <= args.days <= _AUTHORITY_DAYS:
        raise ConfigError(f"--days must be from 1 to {_AUTHORITY_DAYS}, not {args.days}")
    name, members = read_members(args.cluster)
    made = _Set(Path(args.folder), datetime.now(UTC), renew=args.renew)
    made.make(name, members, args.host, timedelta(days=args.days))
    made.close()
    if args.json:
        emit({"folder": args.folder, "made": made.made, "kept": made.kept})
    else:
        print("\n".join(_report(args.folder, made, members)))
    return DONE


def _report(folder: str, made: _Set, members: Sequence[Member]) -> Iterator[str]:
    yield f"made {len(made.made)} files in {folder}, kept {len(made.kept)}"
    yield "for development and tests only: the authorities' keys lie beside the certificates"
    if not made.made:
        yield "nothing was missing; --renew makes new certificates of servers and nodes"
    for member in members:
        yield f"node {member.node} ({member.name}): copy {folder}/{member.name}/ beside its files"
    yield from (
        "",
        "in the cluster file of each node (paths are relative to it):",
        "    [tls]",
        '    ca = "nodes-ca.pem"',
        '    cert = "node.pem"',
        '    key = "node.key"',
        "and https:// before each `http`; options of serve on each node:",
        "    --tls-cert server.pem --tls-key server.key --tls-ca servers-ca.pem",
        f"clients: --ca-file {folder}/servers-ca.pem",
        "nodes that run read copied files by themselves, without a restart",
    )


@dataclass
class _Signer:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


@dataclass
class _Set:
    """The files of one folder."""

    folder: Path
    now: datetime
    renew: bool
    made: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        path = self.folder / _MANIFEST
        self._digests: dict[str, str] = {}
        if path.exists():
            try:
                self._digests = dict(json.loads(path.read_text()))
            except (ValueError, TypeError):
                raise ConfigError(f"{path} is damaged: make the set in another folder") from None

    def make(
        self, cluster: str, members: Sequence[Member], hosts: Sequence[str], life: timedelta
    ) -> None:
        """Make what is missing, and with `renew` the certificates of servers and nodes again."""
        for authority, kind in _KINDS.items():
            signer = self._authority(authority, f"{cluster} {authority} CA, development only")
            for member in members:
                place = f"{member.name}/{kind}"
                names = [member.name, *_hosts(member, kind), *hosts]
                missing = [x for x in (f"{place}.key", f"{place}.pem") if self._is_missing(x)]
                if self.renew or missing:
                    self._check([f"{place}.key", f"{place}.pem"])
                    self._pair(place, *_issue(signer, member.name, names, kind, self.now, life))
                else:
                    self.kept += [f"{place}.key", f"{place}.pem"]
                copy = f"{member.name}/{authority}-ca.pem"
                content = (self.folder / f"{authority}-ca.pem").read_bytes()
                if self._is_missing(copy) or (self.folder / copy).read_bytes() != content:
                    self._check([copy])
                    self._write(copy, content)
                else:
                    self.kept.append(copy)

    def close(self) -> None:
        """Record what was made."""
        _replace(self.folder / _MANIFEST, json.dumps(self._digests, indent=1).encode(), 0o644)

    # ------------------------------------------------------------------ files

    def _is_missing(self, name: str) -> bool:
        return not (self.folder / name).exists()

    def _check(self, names: Sequence[str]) -> None:
        """Refuse to overwrite what this command did not make."""
        for name in names:
            path = self.folder / name
            if path.exists() and _digest(path.read_bytes()) != self._digests.get(name):
                raise ConfigError(
                    f"{path} was not made by this command, or was changed since: move it away, or "
                    "make the set in another folder"
                )

    def _pair(self, place: str, key: bytes, certificate: bytes) -> None:
        self._write(f"{place}.key", key, 0o600)
        self._write(f"{place}.pem", certificate)

    def _write(self, name: str, content: bytes, mode: int = 0o644) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # First, so that a file that was written is known even if the command is interrupted.
        self._digests[name] = _digest(content)
        self.close()
        _replace(path, content, mode)
        self.made.append(name)

    # ------------------------------------------------------------------ authorities

    def _authority(self, authority: str, name: str) -> _Signer:
        """The authority of this name; made if it is not there."""
        key_name, certificate_name = f"{authority}-ca.key", f"{authority}-ca.pem"
        missing = [each for each in (key_name, certificate_name) if self._is_missing(each)]
        if len(missing) == 1:
            raise ConfigError(
                f"{self.folder / missing[0]} is missing, and the other file of this authority is "
                "there: put it back, or make the set in another folder"
            )
        if missing:
            self.folder.mkdir(parents=True, exist_ok=True)
            key, certificate = _make_authority(name, self.now)
            self._pair(f"{authority}-ca", key, certificate)
        else:
            self._check([key_name, certificate_name])
            self.kept += [key_name, certificate_name]
        signer = _read_signer(self.folder / key_name, self.folder / certificate_name)
        if signer.certificate.not_valid_after_utc <= self.now:
            raise ConfigError(
                f"{self.folder / certificate_name} has expired: make a set in another folder"
            )
        return signer


def _hosts(member: Member, kind: str) -> list[str]:
    """The hosts of a member in its certificate, besides its name."""
    if kind == _KINDS[NODES]:
        return [member.peer[0]]
    resp = [] if member.resp is None else [member.resp[0]]
    return [urlsplit(member.http_url).hostname or "", *resp]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Write a file under another name, then rename it: a broker never reads half of it."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    new.rename(path)


# ------------------------------------------------------------------ certificates


def _make_authority(name: str, now: datetime) -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    usage = _usage(signs_certificates=True)
    builder = _builder(name, name, key, key, now, timedelta(days=_AUTHORITY_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return _signed(builder.add_extension(usage, critical=True), key, key)


def _issue(
    signer: _Signer, name: str, hosts: Sequence[str], kind: str, now: datetime, life: timedelta
) -> tuple[bytes, bytes]:
    """A new key and its certificate. Nodes are servers and clients of each other."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.SERVER_AUTH]
    if kind == _KINDS[NODES]:
        uses.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    life = min(life, signer.certificate.not_valid_after_utc - now)
    (issuer,) = signer.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    builder = _builder(name, str(issuer.value), key, signer.key, now, life)
    names = x509.SubjectAlternativeName([_general_name(each) for each in dict.fromkeys(hosts)])
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage(uses), False),
        (names, False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    return _signed(builder, key, signer.key)


def _builder(
    name: str, issuer: str, key: Any, signer: Any, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    public, above = key.public_key(), signer.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(above), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _DNS_NAME.fullmatch(host):
            raise ConfigError(f"{host!r} is no address and no name of a host") from None
        return x509.DNSName(host)


def _signed(builder: x509.CertificateBuilder, key: Any, signer: Any) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    certificate = builder.sign(signer, hashes.SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private, certificate.public_bytes(Encoding.PEM)


def _read_signer(key: Path, certificate: Path) -> _Signer:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    loaded: Any = load_pem_private_key(key.read_bytes(), None)
    return _Signer(loaded, x509.load_pem_x509_certificate(certificate.read_bytes()))
