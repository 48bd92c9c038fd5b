"""What an archive of `delaylog spark archive` holds."""

import json
from pathlib import Path


def hours_of(archive: Path) -> dict:
    """The archived hours: name, and rows, files and time of the copy."""
    return json.loads((archive / "_manifest.json").read_text())["hours"]
