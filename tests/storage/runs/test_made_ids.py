"""Columns of ids against a model that reads one id: the broker's own, broken, chosen, empty."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.lookup.find_messages import ids_to_refs
from delaylog.storage.layout import HOUR_MAX, make_ref, ref_to_id


def id_to_ref(text: str) -> int | None:
    """A model of `ids_to_refs`: the ref behind one id, or None if no server made it."""
    match = re.fullmatch("~[0-7][0-9a-f]{15}", text)
    return int(text[1:], 16) if match else None


@given(st.integers(0, HOUR_MAX), st.integers(0, 2047), st.integers(0, 2**32 - 1))
def test_an_id_of_the_broker_is_read_as_its_ref(hour: int, tag: int, index: int) -> None:
    ref = make_ref(hour, tag, index)
    raw = ref_to_id(ref).encode()
    assert ids_to_refs(raw, np.array([len(raw)]))[0].tolist() == [ref]


def test_a_column_of_ids_is_read_as_each_of_them_is() -> None:
    """Legal and broken server-made ids, chosen ones, empty ones; alone and together."""
    texts = ["~" + "0" * 15 + "1", "", "abc", "~" + "f" * 16, "~7" + "f" * 15, "~" + "0" * 16]
    texts += ["~", "~" + "0" * 15, "~" + "0" * 17, "~" + "G" * 16, "~" + "A" * 16, "\xe9" * 17]
    texts += ["~" + "0123456789abcdef", "a~" + "0" * 15, "~8" + "0" * 15, "~39a4f0030000000g"]
    texts += ["39a4f00300000009", "~39A4f00300000009", "~+9a4f00300000009", "~39a4f_0300000009"]
    raws = [text.encode("latin-1") for text in texts] + ["~٣9a4f00300000009".encode()]
    wanted = [id_to_ref(text) or 0 for text in texts] + [0]
    refs, chosen = ids_to_refs(b"".join(raws), np.array([len(raw) for raw in raws]))
    assert refs.tolist() == wanted
    assert chosen.tolist() == [raw[:1] not in (b"", b"~") for raw in raws]
    assert [int(ids_to_refs(raw, np.array([len(raw)]))[0][0]) for raw in raws] == wanted
    assert ids_to_refs(b"", np.zeros(2, np.int64))[0].tolist() == [0, 0]
