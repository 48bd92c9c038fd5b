"""Workers: one function in a forked process, its value and its processor time.

Load runs beside the server, never inside the program that samples it. The one rule: a worker that
fails fails the measurement, with its own traceback; one that outlives its time is killed.
"""

from __future__ import annotations

import multiprocessing
import resource
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, Generic, ParamSpec, TypeVar

from load import LoadError

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")

# Fork, not spawn: prepared columns are shared with the worker without copying them.
_FORK: Final = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Value]):
    """What the function returned, and what its process cost in all."""

    value: Value
    cpu_s: float


class Worker(Generic[Value]):
    """A function that runs in a process of its own from now on."""

    def __init__(self, function: Callable[..., Value], *args: Any, **options: Any) -> None:
        receiver, sender = _FORK.Pipe(duplex=False)
        self._pipe = receiver
        self._process = _FORK.Process(
            target=_run, args=(sender, function, args, options), daemon=True
        )
        self._process.start()
        sender.close()

    @property
    def busy(self) -> bool:
        """Whether its value has yet to come."""
        return not self._pipe.poll()

    def result(self, *, timeout_s: float = 600.0) -> Outcome[Value]:
        """Wait for the value."""
        try:
            if not self._pipe.poll(timeout_s):
                raise LoadError(f"a load generator did not finish within {timeout_s:.0f} s")
            ok, value, cpu_s = self._pipe.recv()
        except EOFError:
            raise LoadError("a load generator died") from None
        finally:
            self.kill()
        if not ok:
            raise LoadError(f"a load generator failed:\n{value}")
        return Outcome(value, cpu_s)

    def kill(self) -> None:
        """End it, whatever it does; harmless when it has ended."""
        self._process.join(0.5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()


def run_apart(
    function: Callable[Parameters, Value], *args: Parameters.args, **options: Parameters.kwargs
) -> Outcome[Value]:
    """Run a function in a process of its own and wait for it."""
    return Worker(function, *args, **options).result()


def _run(
    pipe: Connection, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    try:
        value = function(*args, **options)
        used = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send((True, value, used.ru_utime + used.ru_stime))
    except Exception:
        pipe.send((False, traceback.format_exc(), 0.0))
    finally:
        pipe.close()
