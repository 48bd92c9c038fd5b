"""Parameters of camellia's calls: form-encoded or in the query, parsed as Java's frameworks do.

In camellia, the web framework checks parameters: it answers a missing or malformed one with HTTP
400. A refusal by the call itself is answered with HTTP 200 and a `code`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

from delaylog.broker.calls.answers import Problem
from delaylog.broker.web.http_context import HttpContext

FORM: Final = "application/x-www-form-urlencoded"
_FIELDS_MAX: Final = 64
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}\Z")
_TRUE: Final = frozenset({"true", "on", "yes", "1"})
_FALSE: Final = frozenset({"false", "off", "no", "0"})
_BITS: Final = {"int": 31, "long": 63}


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter. An optional one has a default, which is also used for an empty value."""

    name: str
    kind: Literal["text", "int", "long", "flag"]
    doc: str
    default: Any = None
    required: bool = False

    def parse(self, text: str) -> Any:
        """The parsed value. Raises a Problem that names the parameter."""
        if self.kind == "text":
            return text
        word = "".join(text.split()).lower()
        if not word and not self.required:
            return self.default
        if self.kind == "flag":
            if word in _TRUE or word in _FALSE:
                return word in _TRUE
            raise Problem("bad_request", f"{self.name} must be true or false", field=self.name)
        bits = _BITS[self.kind]
        if not _WHOLE.match(word) or not -(1 << bits) <= int(word) < 1 << bits:
            raise Problem(
                "bad_request",
                f"{self.name} must be a whole number of {bits + 1} bits",
                field=self.name,
            )
        return int(word)

    def schema(self) -> dict[str, Any]:
        """The parameter's JSON schema."""
        kinds: dict[str, dict[str, Any]] = {
            "text": {"type": "string"},
            "flag": {"type": "boolean"},
            "int": {"type": "integer", "format": "int32", "minimum": -(1 << 31)},
            "long": {"type": "integer", "format": "int64", "minimum": -(1 << 63)},
        }
        schema = dict(kinds[self.kind], description=self.doc)
        if self.kind in _BITS:
            schema["maximum"] = (1 << _BITS[self.kind]) - 1
        if self.default is not None:
            schema["default"] = self.default
        return schema


async def read_params(ctx: HttpContext, params: tuple[Param, ...]) -> dict[str, Any]:
    """The call's parameters by name, from query and form body; the first value of a name counts."""
    texts: dict[str, str] = {}
    sources = [ctx.query_text]
    if ctx.request.method != "GET":
        declared = ctx.request.headers.get("Content-Type", FORM)
        body = await ctx.body()
        if declared.partition(";")[0].strip().lower() == FORM:
            sources.append(body.decode("utf-8", "replace"))
    for source in sources:
        try:
            pairs = parse_qsl(source, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
        except ValueError:
            raise Problem("bad_request", f"at most {_FIELDS_MAX} parameters") from None
        for name, value in pairs:
            texts.setdefault(name, value)
    values: dict[str, Any] = {}
    for param in params:
        text = texts.get(param.name)
        if text is not None:
            values[param.name] = param.parse(text)
        elif param.required:
            raise Problem("bad_request", f"{param.name} is missing", field=param.name)
        else:
            values[param.name] = param.default
    return values
