"""What happens when a frame cannot be applied.

The frame is in the log, and the state is changed in part. The engine then takes no more frames and
no checkpoint, and its host ends the process: a restart applies the log to an intact state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from delaylog.broker.engine.state import EngineState

_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def whole(
    apply: Callable[Concatenate[EngineState, _Rest], _Result],
) -> Callable[Concatenate[EngineState, _Rest], _Result]:
    """Note in `state.failure` that `apply` has raised an error."""

    @wraps(apply)
    def noted(state: EngineState, /, *args: _Rest.args, **kwargs: _Rest.kwargs) -> _Result:
        try:
            return apply(state, *args, **kwargs)
        except Exception as error:
            state.failure = error
            raise

    return noted
