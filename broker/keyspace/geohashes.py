"""Places on the earth as whole numbers of 52 bits, longitude and latitude interleaved.

Near places have near numbers, so that a sorted set finds them. Web Mercator's latitudes are used
for scores, all latitudes for the texts of GEOHASH.
"""

from __future__ import annotations

from math import asin, cos, isfinite, pi, sin, sqrt
from typing import Final

LONGITUDE_MAX: Final = 180.0
LATITUDE_MAX: Final = 85.05112878
_STEPS: Final = 1 << 26
SCORE_MAX: Final = float(1 << 52)
_EARTH_METRES: Final = 6372797.560856
_DEGREE: Final = pi / 180.0
_ALPHABET: Final = b"0123456789bcdefghjkmnpqrstuvwxyz"
_TEXT_CHARS: Final = 11
_SPREADS: Final = (
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)


def _spread(bits: int) -> int:
    """Bit n of 32 to bit 2n."""
    for shift, mask in _SPREADS:
        bits = (bits | bits << shift) & mask
    return bits


def _gather(bits: int) -> int:
    """What `_spread` spread."""
    bits &= _SPREADS[-1][1]
    for (shift, _), (_, mask) in zip(reversed(_SPREADS), reversed(_SPREADS[:-1]), strict=False):
        bits = (bits | bits >> shift) & mask
    return (bits | bits >> 16) & 0xFFFFFFFF


def encode(longitude: float, latitude: float, latitude_max: float = LATITUDE_MAX) -> int:
    """The number of a place."""
    across = (longitude + LONGITUDE_MAX) / (2 * LONGITUDE_MAX) * _STEPS
    up = (latitude + latitude_max) / (2 * latitude_max) * _STEPS
    return _spread(int(across)) << 1 | _spread(int(up))


def decode(score: float) -> tuple[float, float]:
    """Longitude and latitude of a number: the middle of its cell."""
    # A sorted set may hold what is no place; this is what Redis makes of it.
    bits = int(score) if isfinite(score) else 0 if score > 0 else 1 << 63
    return (
        _middle(_gather(bits >> 1), LONGITUDE_MAX),
        _middle(_gather(bits), LATITUDE_MAX),
    )


def _middle(step: int, most: float) -> float:
    low = -most + step / _STEPS * (2 * most)
    high = -most + (step + 1) / _STEPS * (2 * most)
    return max(-most, min(most, (low + high) / 2))


def text(score: float) -> bytes:
    """The geohash of eleven characters; the last is always 0, there are no bits for it."""
    bits = encode(*decode(score), 90.0)
    digits = [bits >> (52 - 5 * (at + 1)) & 31 for at in range(_TEXT_CHARS - 1)]
    return bytes(_ALPHABET[digit] for digit in digits) + b"0"


def metres(one: tuple[float, float], other: tuple[float, float]) -> float:
    """How far two places (longitude, latitude) are from each other, on a sphere."""
    low, high = one[1] * _DEGREE, other[1] * _DEGREE
    across = sin((other[0] * _DEGREE - one[0] * _DEGREE) / 2)
    if across == 0:
        return _EARTH_METRES * abs(high - low)
    up = sin((high - low) / 2)
    return 2 * _EARTH_METRES * asin(sqrt(up * up + cos(low) * cos(high) * across * across))
