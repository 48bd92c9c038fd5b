"""A stage must notice when a page says what is not so: each way in which an example can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import stage
from tests.docs.pages import stories_of
from tests.docs.stage import ExampleFailed


def play(folder: Path, text: str) -> None:
    (folder / "PAGE.md").write_text(text)
    for story in stories_of(folder / "PAGE.md", folder):
        stage.play(story, folder)


def test_what_a_page_says_rightly_passes(tmp_path: Path) -> None:
    """A broker by hand, two others, a file, a program that goes on until it is ended."""
    play(
        tmp_path,
        """
```console
$ delaylog serve --data-dir ./data
$ delaylog send t one
~…
$ curl -s http://127.0.0.1:8711/healthz http://127.0.0.1:8721/healthz
…
```
<!-- run: file=forever.py -->
```python
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("begun", flush=True)
while True:
    time.sleep(1)
```
<!-- run: until="begun" -->
```console
$ python forever.py
begun
```
<!-- run: name=first -->
```python
print(1)
```
```text
1
```
<!-- run: with=first, expect="2" -->
```python
print(2, 2)
```
<!-- run: pytest -->
```python
def test_nothing() -> None:
    assert True
```
""",
    )
    assert (tmp_path / "work" / "data").is_dir()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```python\n\n1 / 0\n```", r'(?s)PAGE.md:2: failed.*File "PAGE.md", line 3.*ZeroDivision'),
        ("```python\nprint(1)\n```", "PAGE.md:2: the page does not say that it prints"),
        ("```python\nprint(1)\n```\n```text\n2\n```", "PAGE.md:2: prints\n1"),
        ('<!-- run: expect="2" -->\n```python\nprint(1)\n```', "no '2' in what it prints"),
        ("```console\n$ echo 1\n2\n```", "PAGE.md:2: prints\n1"),
        ("```console\n$ delaylog verify nowhere\n```", "PAGE.md:2: failed"),
        ("<!-- run: pytest -->\n```python\ndef test(): assert False\n```", "PAGE.md:3: failed"),
        ('<!-- run: until="x" -->\n```python\n```', "PAGE.md:3: no 'x' in what it prints"),
        ("```python\nimport warnings\nwarnings.warn('old')\n```", "PAGE.md:2: failed"),
    ],
)
def test_what_a_page_says_wrongly_fails(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ExampleFailed, match=complaint):
        play(tmp_path, text)


def test_an_example_that_never_ends_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "LIMIT_S", 0.5)
    with pytest.raises(ExampleFailed, match=r"PAGE.md:2: took too long"):
        play(tmp_path, "```python\nimport time\ntime.sleep(60)\n```")
