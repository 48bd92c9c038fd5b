"""Reading examples from a page: what belongs to what, and that a page's mistakes are named."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.docs.pages import BadPage, Kind, Story, commands_of, stories_of


def read(folder: Path, text: str) -> list[Story]:
    (folder / "PAGE.md").write_text(textwrap.dedent(text).lstrip("\n"))
    return stories_of(folder / "PAGE.md", folder)


def test_each_section_is_a_story_of_its_own(tmp_path: Path) -> None:
    stories = read(
        tmp_path,
        """
        # Page
        ```python
        print(1)
        ```
        ## Nothing to run
        Words, and columns:

            a | b

        ## Two
        <!-- run: name=first, expect="x y" -->
        ```python
        a = "x y"
        ```

        <!-- run: with=first -->
        ```python
        print(a)
        ```

        ```text
        x y
        ```
        """,
    )
    assert [story.title for story in stories] == ["Page", "Two"]
    first, second = stories[1].examples
    assert (first.place, first.kind, first.expected) == ("PAGE.md:13", Kind.PYTHON, ["x y"])
    assert second.goes_on is first
    assert (first.printed, second.printed) == (None, "x y")


def test_a_page_may_be_one_story(tmp_path: Path) -> None:
    stories = read(
        tmp_path,
        """
        # Tutorial
        <!-- examples: one story -->
        ## A
        ```python
        a = 1
        ```
        ## B
        <!-- run: with=previous -->
        ```python
        assert a == 1
        ```
        """,
    )
    assert [len(story.examples) for story in stories] == [2]
    assert stories[0].examples[1].goes_on is stories[0].examples[0]


def test_what_a_block_is(tmp_path: Path) -> None:
    (story,) = read(
        tmp_path,
        """
            pip install .
            delaylog serve --data-dir d

        <!-- run: file=worker.py -->
        ```python
        pass
        ```
        <!-- run: pytest -->
        ```python
        def test(): ...
        ```
        <!-- run: no, needs Spark -->
        ```python
        pass
        ```
        <!-- run: until="ready 3" -->
        ```console
        $ python worker.py
        ready …
        ```
        ```json
        {}
        ```

            curl --json '{}' \\
              http://127.0.0.1:8711/v1/x
        """,
    )
    assert [example.kind for example in story.examples] == [
        Kind.CONSOLE,
        Kind.FILE,
        Kind.PYTEST,
        Kind.NOT_RUN,
        Kind.CONSOLE,
        Kind.CONSOLE,
    ]
    assert story.examples[3].why_not == "needs Spark"
    assert story.examples[4].until == "ready 3"


def test_commands_and_what_they_print() -> None:
    assert commands_of("$ delaylog stats t\nready 3\nleased 0\n$ echo \\\n  done\ndone") == [
        ("delaylog stats t", "ready 3\nleased 0\n"),
        ("echo \\\n  done", "done\n"),
    ]
    assert commands_of("delaylog topics     # all of them\n\ncurl x") == [
        ("delaylog topics", None),
        ("curl x", None),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<!-- run: with=previous -->\n```python\n```", "PAGE.md:3: there is no example"),
        ("<!-- run: wiht=previous -->\n```python\n```", "PAGE.md:1: 'wiht' is none of"),
        ("<!-- run: no -->\n```python\n```", "PAGE.md:1: say why"),
        ("<!-- run: pytest -->\nwords", "PAGE.md:1: no example follows"),
        ("<!-- run: pytest -->", "PAGE.md:1: no example follows"),
        ("<!-- run: pytest -->\n```json\n```", "PAGE.md:3: this is nothing that is run"),
        ("```python\n", "PAGE.md:1: the block never ends"),
        ("```console\n$ rm -rf x\n```", "PAGE.md:2: is 'rm' run or not"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "PAGE.md").write_text(text)
    with pytest.raises(BadPage, match=complaint):
        stories_of(tmp_path / "PAGE.md", tmp_path)
