"""Documents methods that are made from functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any


def document(
    method: Any, make: Callable[..., Any], parameters: Sequence[Parameter], answer: object
) -> None:
    """Have `help` and `inspect.signature` show the method as if it were written by hand."""
    itself = Parameter("self", Parameter.POSITIONAL_ONLY)
    method.__name__, method.__doc__ = make.__name__, make.__doc__
    # `get_type_hints` reads the annotations in the module of `__wrapped__`.
    method.__wrapped__ = make
    method.__annotations__ = {each.name: each.annotation for each in parameters}
    method.__signature__ = Signature([itself, *parameters], return_annotation=answer)
