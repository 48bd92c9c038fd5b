"""`delaylog cluster certs`: makes and renews certificates for the members of a cluster file.

For development and tests: the keys of the authorities lie beside the certificates, without a
passphrase. There are two authorities, since clients trust the one of the servers, and a certificate
of the other opens the ports between the nodes. Files that the command did not make, or that were
changed since, are never overwritten: `made.json` has a digest of each that it made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from delaylog.broker.cli.failures import DONE, WRONG
from delaylog.broker.cli.output import emit
from delaylog.broker.cli.parser import add_action, add_json, complete_files, complete_folders
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.system.private_files import replace_file
from delaylog.broker.host.tls.certificates import (
    Certificate,
    Fault,
    Gravity,
    Hosts,
    presented,
    validity,
)
from delaylog.broker.host.tls.certificates import names as named
from delaylog.extras import command

if TYPE_CHECKING:
    from delaylog.broker.cluster.config import Member
    from delaylog.broker.host.tls.authority import Authority

SERVERS: Final = "servers"
NODES: Final = "nodes"
_KINDS: Final = {SERVERS: "server", NODES: "node"}
"""Authorities, and the names of the files of what they sign."""
_MANIFEST: Final = "made.json"
_AUTHORITY_DAYS: Final = 3_650
_DAYS: Final = 90
_BACKDATED: Final = timedelta(minutes=5)
"""Certificates begin earlier, since the clocks of machines differ."""
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
    """0 when every certificate is there, is valid and names its hosts."""
    # Of the server; other actions of `cluster` need only the client.
    from delaylog.broker.cluster.config import read_members

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
        faults = [each.text for each in made.faults]
        emit({"folder": args.folder, "made": made.made, "kept": made.kept, "faults": faults})
    else:
        print("\n".join(_report(args.folder, made, members)))
    return WRONG if any(each.gravity is not Gravity.WARNS for each in made.faults) else DONE


def _report(folder: str, made: _Set, members: Sequence[Member]) -> Iterator[str]:
    yield f"made {len(made.made)} files in {folder}, kept {len(made.kept)}"
    yield "for development and tests only: the authorities' keys lie beside the certificates"
    if made.faults:
        yield from (each.text for each in made.faults)
        yield "run it with --renew, which makes new certificates of servers and nodes"
    elif not made.made:
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
class _Set:
    """The files of one folder. The list of what was made has their digests; of a file that is
    being replaced that of both contents.
    """

    folder: Path
    now: datetime
    renew: bool
    made: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    """What is wrong with certificates that were kept."""

    def __post_init__(self) -> None:
        path = self.folder / _MANIFEST
        self._digests: dict[str, str] = {}
        if path.exists():
            try:
                found = dict(json.loads(path.read_text()))
                self._digests = {name: str(digests) for name, digests in found.items()}
            except (ValueError, TypeError):
                raise ConfigError(f"{path} is damaged: make the set in another folder") from None

    def make(
        self, cluster: str, members: Sequence[Member], hosts: Sequence[str], life: timedelta
    ) -> None:
        """Make what is missing, and with `renew` the certificates of servers and nodes again."""
        begin = self.now - _BACKDATED
        for authority, kind in _KINDS.items():
            signer = self._authority(authority, f"{cluster} {authority} CA, development only")
            end = min(self.now + life, signer.end)
            for member in members:
                place = f"{member.name}/{kind}"
                names = [member.name, *_hosts(member, kind), *hosts]
                chain = () if self.renew else self._chain(place)
                if chain:
                    self.kept += [f"{place}.key", f"{place}.pem"]
                    self.faults += validity(f"{place}.pem", chain, self.now.timestamp())
                    self.faults += named(f"{place}.pem", chain[0], Hosts(told=tuple(names)))
                else:
                    self._check([f"{place}.key", f"{place}.pem"])
                    pair = signer.issue(member.name, names, begin, end, node=authority == NODES)
                    self._pair(place, *pair)
                copy = f"{member.name}/{authority}-ca.pem"
                content = (self.folder / f"{authority}-ca.pem").read_bytes()
                if self._is_missing(copy) or (self.folder / copy).read_bytes() != content:
                    self._check([copy])
                    self._write(copy, content)
                else:
                    self.kept.append(copy)

    def close(self) -> None:
        """Record what was made."""
        replace_file(self.folder / _MANIFEST, json.dumps(self._digests, indent=1).encode(), 0o644)

    # ------------------------------------------------------------------ files

    def _is_missing(self, name: str) -> bool:
        return not (self.folder / name).exists()

    def _check(self, names: Sequence[str]) -> None:
        """Refuse to overwrite what this command did not make."""
        for name in names:
            path = self.folder / name
            known = self._digests.get(name, "").split()
            if path.exists() and _digest(path.read_bytes()) not in known:
                raise ConfigError(
                    f"{path} was not made by this command, or was changed since: move it away, or "
                    "make the set in another folder"
                )

    def _chain(self, place: str) -> tuple[Certificate, ...]:
        """A certificate that is there with its key; empty if one is missing, or if they differ, as
        after an interruption.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        key, certificate = (self.folder / f"{place}{end}" for end in (".key", ".pem"))
        try:
            # An encrypted key is not of this command, and must not ask for its password.
            context.load_cert_chain(certificate, key, "")
        except (FileNotFoundError, ssl.SSLError):
            return ()
        return presented(f"{place}.pem", context)

    def _pair(self, place: str, key: bytes, certificate: bytes) -> None:
        self._write(f"{place}.key", key, 0o600)
        self._write(f"{place}.pem", certificate)

    def _write(self, name: str, content: bytes, mode: int = 0o644) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # An interrupted command leaves the old file or the new one: both are known.
        before = [_digest(path.read_bytes())] if path.exists() else []
        self._digests[name] = " ".join([*before, _digest(content)])
        self.close()
        replace_file(path, content, mode)
        self._digests[name] = _digest(content)
        self.made.append(name)

    # ------------------------------------------------------------------ authorities

    def _authority(self, authority: str, name: str) -> Authority:
        """The authority of this name; made if it is not there."""
        from delaylog.broker.host.tls.authority import Authority

        key_name, certificate_name = f"{authority}-ca.key", f"{authority}-ca.pem"
        has_key = not self._is_missing(key_name)
        if not has_key and not self._is_missing(certificate_name):
            raise ConfigError(
                f"{self.folder / key_name} is missing, and the certificate of this authority is "
                "there: put it back, or make the set in another folder"
            )
        self._check([key_name, certificate_name])
        if self._is_missing(certificate_name):
            begin, end = self.now - _BACKDATED, self.now + timedelta(days=_AUTHORITY_DAYS)
            # A new certificate of the same key verifies all that the key has signed.
            key = (self.folder / key_name).read_bytes() if has_key else None
            signer = Authority.create(name, begin, end, key)
            self._pair(f"{authority}-ca", signer.key_pem, signer.pem)
            return signer
        self.kept += [key_name, certificate_name]
        signer = Authority.read(
            (self.folder / key_name).read_bytes(), (self.folder / certificate_name).read_bytes()
        )
        if signer.end <= self.now:
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
