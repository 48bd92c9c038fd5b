"""Counts lines of code by folder, and words of docs: the measure of how much there is to own.

    tools/count_lines.py [TREE]

A line of code carries a token of Python. Blank lines, comments and docstrings do not count, nor do
other strings that stand alone. Generated files are counted apart from all others. The core is the
product without its leaves.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PRODUCT: Final = ("contract", "broker", "storage", "wheel", "replication", "client")
OTHERS: Final = ("tests", "bench", "tools", "examples")
LEAVES: Final = (
    "broker/keyspace",
    "broker/resp",
    "broker/camellia",
    "broker/push",
    "broker/streams",
    "broker/ui",
    "broker/history",
    "broker/drills",
    "client/spark",
    "client/spark_segments",
    "client/job_systems",
    "client/queues",
)
GENERATED: Final = "by `make twins`: change that one."
"""The docstring of a generated module says so."""
_SILENT: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def code_lines(source: str) -> int:
    """Physical lines that carry a token, without those of strings that are statements."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def counted(tree: Path, folder: str) -> Iterator[tuple[str, int, bool]]:
    """(path, lines of code, whether it is generated) of each module below a folder."""
    for path in sorted((tree / folder).rglob("*.py")):
        source = path.read_text()
        is_made = GENERATED in (ast.get_docstring(ast.parse(source)) or "")
        yield path.relative_to(tree).as_posix(), code_lines(source), is_made


def main() -> None:
    """Print the table of a tree, by default of this one."""
    tree = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    leaves = tuple(f"{leaf}/" for leaf in LEAVES)
    product = generated = core = 0
    print(f"{'':14}{'files':>7}{'code':>9}")
    for folder in (*PRODUCT, *OTHERS):
        found = list(counted(tree, folder))
        written = [count for _, count, is_made in found if not is_made]
        lines = sum(written)
        print(f"{folder:14}{len(written):7,}{lines:9,}")
        if folder in PRODUCT:
            product += lines
            generated += sum(count for _, count, is_made in found if is_made)
            core += sum(
                count
                for path, count, is_made in found
                if not is_made and not path.startswith(leaves)
            )
    words = sum(len(path.read_text().split()) for path in (tree / "docs").rglob("*.md"))
    print(
        f"\nproduct {product:,}, {core:,} of it core; {generated:,} generated; docs {words:,} words"
    )


if __name__ == "__main__":
    main()
