"""An authority of its own, and certificates that it signs for 127.0.0.1 and for a client."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """PEM files; each certificate's key is in a file beside it."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Make the authority and both certificates."""

    def openssl(*words: object) -> None:
        done = subprocess.run(
            ["openssl", *map(str, words)], capture_output=True, check=False, text=True
        )
        assert done.returncode == 0, done.stderr

    def key(name: str) -> Path:
        path = folder / f"{name}.key"
        openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", path)
        path.chmod(0o600)
        return path

    ca, ca_key = folder / "ca.pem", key("ca")
    own = ["-x509", "-days", 2, "-subj", "/CN=an authority"]
    openssl("req", "-new", "-key", ca_key, *own, "-out", ca)

    def signed(name: str) -> tuple[Path, Path]:
        path, request, mine = folder / f"{name}.pem", folder / f"{name}.csr", key(name)
        extensions = folder / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1\n")
        openssl("req", "-new", "-key", mine, "-subj", f"/CN={name}", "-out", request)
        signer = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial"]
        openssl(
            *("x509", "-req", "-in", request, *signer, "-days", 2, "-extfile", extensions),
            *("-out", path),
        )
        return path, mine

    server, server_key = signed("server")
    client, client_key = signed("client")
    return Certificates(ca, server, server_key, client, client_key)
