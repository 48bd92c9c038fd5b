"""Seals of state entries: any flipped bit breaks one, whatever the entry says.

Method: a flip adds or takes a power of two times a factor, so the proof is arithmetic over all
256 bits; random entries then show that the code does what the arithmetic says.
"""

from __future__ import annotations

import numpy as np

from delaylog.storage.hours import state_seal
from delaylog.storage.hours.state_seal import broken, broken_one, sealed, sealed_values
from delaylog.storage.layout import STATE_ENTRY, STATE_ENTRY_SIZE, StateArray

BITS = STATE_ENTRY_SIZE * 8


def some_entries(count: int, seed: int = 1) -> StateArray:
    raw = np.random.default_rng(seed).integers(0, 256, count * STATE_ENTRY_SIZE, np.uint8)
    return raw.view(STATE_ENTRY)


def test_no_flip_can_leave_the_upper_half_alone() -> None:
    """Adding d changes the upper half by d's own, plus a carry if d has a lower half."""
    for bit in range(BITS):
        factor = int(state_seal._FACTORS[bit // 64])
        for delta in (factor << bit % 64, -(factor << bit % 64)):
            upper, lower = divmod(delta % 2**64, 2**32)
            assert upper != 0, bit
            assert upper != 2**32 - 1 or lower == 0, bit


def test_every_flip_of_some_entries() -> None:
    leased = np.zeros(1, STATE_ENTRY)
    leased["state"], leased["cause"], leased["attempts"] = 3, 1, 1
    leased["lease"], leased["time"] = 1 << 40 | 1, 1_700_000_000_000
    for entries in (np.zeros(1, STATE_ENTRY), leased, *some_entries(50).reshape(-1, 1)):
        good = sealed(entries)
        flips = np.repeat(good, BITS)
        raw = flips.view(np.uint8).reshape(BITS, STATE_ENTRY_SIZE)
        bits = np.arange(BITS)
        raw[bits, bits // 8] ^= (1 << bits % 8).astype(np.uint8)
        assert not broken(good).any()
        assert broken(flips).all()
        assert not broken_one(good.tobytes(), 0)
        assert all(broken_one(flips.tobytes(), at * STATE_ENTRY_SIZE) for at in range(0, BITS, 7))


def test_seals_follow_from_the_rest() -> None:
    entries = some_entries(1_000)
    good = sealed(entries)
    assert sealed(good).tobytes() == good.tobytes()
    assert b"".join(sealed(one).tobytes() for one in entries.reshape(-1, 1)) == good.tobytes()
    fields = ["state", "cause", "attempts", "lease", "time", "forward"]
    values = [sealed_values(*entry) for entry in entries[fields].tolist()]
    assert b"".join(values) == good.tobytes()
    for name in ("state", "cause", "attempts", "lease", "time", "forward"):
        assert (good[name] == entries[name]).all()
    assert np.zeros(3, STATE_ENTRY).tobytes() == sealed(np.zeros(3, STATE_ENTRY)).tobytes()


def test_pinned_seal() -> None:
    entry = np.zeros(1, STATE_ENTRY)
    entry["state"], entry["lease"], entry["time"], entry["forward"] = 3, 5, 6, 7
    assert f"{int(sealed(entry)['seal'][0]):08x}" == "3dc851c8"
