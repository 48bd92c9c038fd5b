"""Look for secrets in the files of the repository: `make lint`.

The detectors are those of detect-secrets for keys of a known form, and one for tokens of delaylog.
Detectors that guess by entropy or by the name of a variable are left out, since they report
hundreds of test values; so are slow ones for a few vendors. Nothing is sent anywhere. A line that
must contain a fake one ends with the comment `pragma: allowlist secret`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.core.scan import scan_file
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.settings import transient_settings

ROOT: Final = Path(__file__).resolve().parents[1]
LEFT_OUT: Final = frozenset(
    {
        "CloudantDetector",
        "IbmCloudIamDetector",
        "IbmCosHmacDetector",
        "IPPublicDetector",
        "SoftlayerDetector",
    }
)
TOKEN: Final = re.compile(r"dlt_[A-Za-z0-9_-]{43}[A-Za-z0-9]{6}(?![A-Za-z0-9_-])")
"""A token of delaylog: 32 bytes in base64url, and a checksum in base62."""


def detectors() -> dict[str, list[re.Pattern[str]]]:
    """The detectors by name, with the expressions of which one must match a file."""
    kinds: list[Any] = list(get_mapping_from_secret_type_to_class().values())
    found = {}
    for kind in kinds:
        if issubclass(kind, RegexBasedDetector) and kind.__name__ not in LEFT_OUT:
            patterns = kind().denylist
            found[kind.__name__] = [re.compile(p.pattern, p.flags | re.MULTILINE) for p in patterns]
    return found


def files() -> list[Path]:
    """The files of the repository, those to be added included."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def search(paths: Iterable[Path]) -> Iterator[tuple[Path, int, str]]:
    """File, line and kind of each secret."""
    known = detectors()
    for path in paths:
        text = path.read_bytes().decode("latin-1")
        for match in TOKEN.finditer(text):
            yield path, text.count("\n", 0, match.start()) + 1, "token of delaylog"
        # A whole file at once is searched much faster than its lines.
        suspected = [
            name for name, patterns in known.items() if any(p.search(text) for p in patterns)
        ]
        if suspected:
            plugins = [{"name": name} for name in suspected]
            with transient_settings({"plugins_used": plugins}):
                for secret in scan_file(str(path)):
                    yield path, secret.line_number, secret.type


def main() -> int:
    """Print where secrets are, but not the secrets; 1 if there are any."""
    found = sorted(
        {(str(path.relative_to(ROOT)), line, kind) for path, line, kind in search(files())}
    )
    for path, line, kind in found:
        print(f"{path}:{line}: {kind}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
