"""Runs blocks of a page one after another as one program; a child process of the tests starts it.

Its one argument is a JSON file of `[page, first line, text]`. A traceback names the page and its
line. Before the last block it prints MARK, so that what only that one printed can be told.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

MARK: Final = "\x1e--- the block itself ---"


def main() -> None:
    blocks = json.loads(Path(sys.argv[1]).read_text())
    # As for a program of the reader's own, in the folder where it is started.
    sys.path[0] = str(Path.cwd())
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, (page, line, text) in enumerate(blocks, 1):
        if number == len(blocks):
            print(MARK, flush=True)
        exec(compile("\n" * (line - 1) + text, page, "exec"), names)


if __name__ == "__main__":
    main()
