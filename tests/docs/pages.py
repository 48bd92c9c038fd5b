"""The examples of a page of Markdown: what is run, how, and what it has to print.

Read from the text alone; nothing is run here. An example belongs to the story of its `##` section
(or of the whole page, where that begins with `<!-- examples: one story -->`): what one example
leaves behind, in files and in brokers, the next ones of its story find.

A comment right before an example says what cannot be seen from it:

    <!-- run: with=previous -->         goes on in the program of the example before it
    <!-- run: with=NAME -->             goes on in the program of the one that has name=NAME
    <!-- run: file=worker.py -->        is only written to that file, for later commands
    <!-- run: until="handled 3" -->     runs until it has printed that, then gets SIGTERM
    <!-- run: expect="done" -->         prints that among other things
    <!-- run: pytest -->                is a file of tests
    <!-- run: no, needs Spark -->       is not run, and why

A block of ```text right after an example is what it prints; `…` in it stands for anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

DIRECTIVE: Final = re.compile(r"<!-- run: (?P<words>.*) -->")
WORD: Final = re.compile(r"""(?P<name>[a-z]+)(?:=(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s",]+)))?""")
KNOWN: Final = frozenset({"with", "name", "file", "until", "expect", "pytest"})
ONE_STORY: Final = "<!-- examples: one story -->"
OURS: Final = frozenset({"curl", "delaylog", "echo", "printf", "python", "seq"})
"""First words of commands that are run."""
OTHERS: Final = frozenset({"cd", "export", "git", "make", "pip", "pytest"})
"""First words of commands that change the reader's machine, or take too long: tests elsewhere."""


class BadPage(Exception):
    """The page says something about an example that cannot be understood; names file and line."""


class Kind(StrEnum):
    """How an example is run."""

    PYTHON = "python"
    PYTEST = "pytest"
    CONSOLE = "console"
    FILE = "file"
    NOT_RUN = "not run"


@dataclass(slots=True)
class Example:
    """One example; `line` counts from 1 and is that of the first line of `text`."""

    page: str
    line: int
    kind: Kind
    text: str
    goes_on: Example | None = None
    name: str | None = None
    file: str | None = None
    until: str | None = None
    expected: list[str] = field(default_factory=list)
    printed: str | None = None
    """All that it prints, with `…` for anything; None where the page does not show it."""
    why_not: str = ""
    """Why it is not run."""

    @property
    def program(self) -> list[Example]:
        """What it goes on from, the first of all first, and itself."""
        return [*(self.goes_on.program if self.goes_on else ()), self]

    @property
    def place(self) -> str:
        """Where a reader finds it."""
        return f"{self.page}:{self.line}"


@dataclass(slots=True)
class Story:
    """Examples of one section, in their order."""

    page: str
    title: str
    examples: list[Example] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All their texts, with those from elsewhere that they go on from."""
        return "\n".join(part.text for example in self.examples for part in example.program)


@dataclass(slots=True)
class _Block:
    language: str
    line: int
    text: str
    end: int
    """Index of the first line after it."""


def stories_of(path: Path, root: Path) -> list[Story]:
    """The stories of a page that have examples. Raises BadPage, which names file and line."""
    page = str(path.relative_to(root))
    lines = path.read_text().splitlines()
    whole = ONE_STORY in lines
    stories = [Story(page, _title(lines))]
    named: dict[str, Example] = {}
    directive: dict[str, list[str]] | str | None = None
    directive_line = 0
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("## ") and not whole:
            stories.append(Story(page, line.removeprefix("## ").strip()))
        found = DIRECTIVE.fullmatch(line.strip())
        if found:
            directive, directive_line = _words(found["words"], f"{page}:{at + 1}"), at + 1
            at += 1
            continue
        block = _block_at(lines, at, page)
        if block is None:
            if line.strip() and directive is not None:
                raise BadPage(f"{page}:{directive_line}: no example follows")
            at += 1
            continue
        example = _example(block, directive, page, stories[-1], named)
        directive = None
        at = block.end
        if example is not None:
            stories[-1].examples.append(example)
            at = _take_printed(lines, example, at, page)
    if directive is not None:
        raise BadPage(f"{page}:{directive_line}: no example follows")
    return [story for story in stories if story.examples]


def commands_of(text: str) -> list[tuple[str, str | None]]:
    """The commands of a console block, each with what it prints, as far as the block shows that.

    Where lines begin with `$ ` the others are output; else each line is a command. A command goes
    on after a backslash.
    """
    joined = text.replace("\\\n", "\\\0")
    lines = joined.splitlines()
    prompted = any(line.startswith("$ ") for line in lines)
    commands: list[tuple[str, str | None]] = []
    for line in lines:
        whole = line.replace("\\\0", "\\\n")
        if prompted and not line.startswith("$ "):
            if not commands:
                raise BadPage(f"output before the first command: {line!r}")
            command, printed = commands[-1]
            commands[-1] = command, (printed or "") + whole + "\n"
        elif whole.strip():
            commands.append((whole.removeprefix("$ ").split("     # ")[0].strip(), None))
    return commands


def first_word(command: str) -> str:
    """The program that a command runs."""
    return command.split(maxsplit=1)[0]


def _title(lines: list[str]) -> str:
    return next((line[2:].strip() for line in lines if line.startswith("# ")), "beginning")


def _words(words: str, place: str) -> dict[str, list[str]] | str:
    """What a directive says: values by name, or why the example is not run."""
    if words.startswith("no"):
        why = words.removeprefix("no").removeprefix(",").strip()
        if not why:
            raise BadPage(f"{place}: say why it is not run: <!-- run: no, WHY -->")
        return why
    said: dict[str, list[str]] = {}
    for found in WORD.finditer(words):
        if found["name"] not in KNOWN:
            raise BadPage(f"{place}: {found['name']!r} is none of {', '.join(sorted(KNOWN))}")
        said.setdefault(found["name"], []).append(found["quoted"] or found["bare"] or "")
    if WORD.sub("", words).strip(" ,"):
        raise BadPage(f"{place}: cannot read {words!r}")
    return said


def _block_at(lines: list[str], at: int, page: str) -> _Block | None:
    """The fenced or indented block that begins at a line."""
    line = lines[at]
    if line.startswith("```"):
        for end in range(at + 1, len(lines)):
            if lines[end].startswith("```"):
                return _Block(line[3:].strip(), at + 2, "\n".join(lines[at + 1 : end]), end + 1)
        raise BadPage(f"{page}:{at + 1}: the block never ends")
    if line.startswith("    ") and line.strip() and (at == 0 or not lines[at - 1].strip()):
        end = at
        while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
            end += 1
        while not lines[end - 1].strip():
            end -= 1
        text = "\n".join(each[4:] for each in lines[at:end])
        return _Block("indented", at + 1, text, end)
    return None


def _example(
    block: _Block,
    directive: dict[str, list[str]] | str | None,
    page: str,
    story: Story,
    named: dict[str, Example],
) -> Example | None:
    kind = _kind(block, directive, f"{page}:{block.line}")
    if kind is None:
        if directive is not None:
            raise BadPage(f"{page}:{block.line}: this is nothing that is run")
        return None
    example = Example(page, block.line, kind, block.text)
    if isinstance(directive, str):
        example.why_not = directive
    if not isinstance(directive, dict):
        return example
    example.name = _only(directive, "name")
    example.file = _only(directive, "file")
    example.until = _only(directive, "until")
    example.expected = directive.get("expect", [])
    goes_on = _only(directive, "with")
    if goes_on == "previous":
        before = [each for each in story.examples if each.kind is Kind.PYTHON]
        example.goes_on = before[-1] if before else None
    elif goes_on is not None:
        example.goes_on = named.get(goes_on)
    if goes_on is not None and example.goes_on is None:
        raise BadPage(f"{example.place}: there is no example {goes_on!r} before this one")
    if example.name is not None:
        named[example.name] = example
    return example


def _kind(block: _Block, directive: dict[str, list[str]] | str | None, place: str) -> Kind | None:
    if block.language == "indented" and all(
        first_word(line) not in OURS | OTHERS
        for line in block.text.splitlines()
        if line.strip() and not line.startswith(" ")
    ):
        return None
    if block.language not in {"python", "console", "indented"}:
        return None
    if isinstance(directive, str):
        return Kind.NOT_RUN
    if block.language != "python":
        for command, _ in commands_of(block.text):
            if first_word(command) not in OURS | OTHERS:
                raise BadPage(f"{place}: is {first_word(command)!r} run or not? See tests/docs")
        return Kind.CONSOLE
    if directive and "pytest" in directive:
        return Kind.PYTEST
    return Kind.FILE if directive and "file" in directive else Kind.PYTHON


def _take_printed(lines: list[str], example: Example, at: int, page: str) -> int:
    """Give an example the text block right after it; returns where to go on."""
    after = at
    while after < len(lines) and not lines[after].strip():
        after += 1
    if after < len(lines) and lines[after].startswith("```text"):
        block = _block_at(lines, after, page)
        assert block is not None
        example.printed = block.text
        return block.end
    return at


def _only(directive: dict[str, list[str]], name: str) -> str | None:
    values = directive.get(name)
    return values[-1] if values else None
