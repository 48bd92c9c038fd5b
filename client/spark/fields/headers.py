"""Headers that the broker cannot keep, because it stores a map of texts.

Spark's type allows repeated names, null values and values that are not text. A row with such
headers is refused, since the alternative is to lose data silently. The check costs no work per row
unless some row has several headers or one is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def wrong_headers(column: Any) -> Any:
    """A mask of the rows whose headers cannot be sent; `headers_fault` says why."""
    rows = pc.list_parent_indices(column).to_numpy()
    names, values = pc.list_flatten(column).flatten()
    wrong = pc.or_(names.is_null(), values.is_null()).to_numpy(zero_copy_only=False).copy()
    wrong |= _not_text(values)
    if len(rows) and (rows[1:] == rows[:-1]).any():
        wrong |= _repeated(rows, names)
    mask = np.zeros(len(column), np.bool_)
    mask[rows[wrong]] = True
    return pa.array(mask)


def headers_fault(pairs: list[dict[str, Any] | None]) -> str:
    """Why the headers of one row cannot be sent."""
    seen = set()
    for pair in pairs:
        name, value = (None, None) if pair is None else (pair["key"], pair["value"])
        if name is None:
            return "the name of a header is null"
        if value is None:
            return f"the value of header {name!r} is null; leave the header out or make it empty"
        try:
            value.decode()
        except UnicodeDecodeError:
            return f"the value of header {name!r} is not UTF-8; encode it, for example as base64"
        if name in seen:
            return f"header {name!r} occurs twice; the broker keeps one value of a name"
        seen.add(name)
    raise AssertionError("these headers can be sent")


def _not_text(values: Any) -> Any:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([not _is_text(value) for value in values.to_pylist()], np.bool_)
    return np.zeros(len(values), np.bool_)


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _repeated(rows: Any, names: Any) -> Any:
    """A mask of the headers whose name an earlier one of the same row has."""
    codes = names.dictionary_encode()
    numbers = codes.indices.fill_null(len(codes.dictionary)).to_numpy(zero_copy_only=False)
    places = rows.astype(np.int64) * (len(codes.dictionary) + 1) + numbers
    repeated = np.ones(len(places), np.bool_)
    repeated[np.unique(places, return_index=True)[1]] = False
    return repeated
