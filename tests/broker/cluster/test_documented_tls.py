"""The certificates of docs/TLS.md: its commands are run as they stand, and three nodes use
what they make.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.cluster.growing import Growing

PAGE = Path(__file__).parents[3] / "docs" / "TLS.md"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Growing]:
    made = Growing(tmp_path)
    yield made
    made.clean_up()


def blocks() -> list[str]:
    """The indented blocks of the section, without their indent."""
    section = PAGE.read_text().split("## Certificates between nodes\n")[1].split("\n## ")[0]
    found = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    return ["".join(line[4:] for line in block.splitlines(True)) for block in found]


def test_three_nodes_with_the_certificates_of_the_page(nodes: Growing) -> None:
    authority, node_commands, table = blocks()
    script = f"set -e\n{authority}"
    subprocess.run(["bash", "-c", script], cwd=nodes.folder, check=True, capture_output=True)
    for node in (1, 2, 3):
        nodes.file_for(node, (1, 2, 3))
        place = nodes.folder / f"files{node}"
        place.mkdir()
        for name in ("nodes-ca.pem", "nodes-ca.key"):
            shutil.copy(nodes.folder / name, place / name)
        commands = f"set -e\n{node_commands}"
        subprocess.run(["bash", "-c", commands], cwd=place, check=True, capture_output=True)
        shutil.copy(nodes.folder / "cluster.secret", place / "cluster.secret")
        file = place / "cluster.toml"
        file.write_text(nodes.configs[node].read_text() + table)
        nodes.configs[node] = file
    nodes.start(new_cluster=True)
    nodes.until(lambda: len(nodes.voters()) == 3)
    assert nodes.on_leader("GET", "/v1/cluster").json["peer_tls"]
