"""Jobs for rq, named by text: rq_jobs.add and so on."""

from __future__ import annotations

import ran


def add(a: int, b: int) -> int:
    ran.note(f"add:{a}+{b}")
    return a + b


def fail() -> None:
    ran.note("fail")
    raise ValueError("this job fails")


def fail_once(path: str) -> str:
    """Fails until the file is there, which it makes."""
    ran.note("fail_once")
    try:
        with open(path, "x"):
            pass
    except FileExistsError:
        return "second try"
    raise ValueError("first try")
