"""The notebook of docs/notebooks runs from its first cell to its last, and draws what it says."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from PIL import Image
from pyspark.sql import SparkSession

from tests.spark.real.real_broker import RealBroker
from tests.spark.session import ROOT

NOTEBOOK = ROOT / "docs" / "notebooks" / "audit.ipynb"
BLUE, BLACK = (31, 119, 180), (0, 0, 0)
"""Of bars and of the forecast, as matplotlib draws them."""


def test_the_notebook_runs_and_its_figures_show_messages(
    spark: SparkSession, real: RealBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a kernel and a session of its own; the fixture says where Java is."""
    assert spark.version
    monkeypatch.setenv("ENDPOINT", real.url)
    monkeypatch.setenv("FOLDER", str(tmp_path / "data"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "committed without outputs"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    printed = "".join(
        output.text for cell in code for output in cell.outputs if output.get("name") == "stdout"
    )
    assert "30,000 rows, 30,000 added" in printed
    assert "10,000 messages acknowledged" in printed
    assert "20,000 messages to come" in printed
    assert real.counts("notebook") == {"waiting": 20_000, "acked": 10_000}
    lateness, to_come = pictures(code)
    assert share(lateness, BLUE) > 0.005
    assert share(to_come, BLUE) > 0.05
    assert share(to_come, BLACK) > share(lateness, BLACK)


def pictures(code: list[Any]) -> list[Image.Image]:
    """All figures, in order."""
    outputs = [output for cell in code for output in cell.outputs if "data" in output]
    encoded = [output.data["image/png"] for output in outputs if "image/png" in output.data]
    return [Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB") for text in encoded]


def share(picture: Image.Image, color: tuple[int, int, int]) -> float:
    """The share of the pixels that have this color."""
    pixels = list(picture.getdata())
    return pixels.count(color) / len(pixels)
