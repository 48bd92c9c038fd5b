"""Sizes of the physical log that other modules derive limits from; nothing is imported for them."""

from typing import Final

PAYLOAD_BYTES_MAX: Final = 256 << 20
"""Largest payload of a frame."""
SEGMENT_BYTES_MAX: Final = 128 << 20
"""Largest segment, unless a log is told another size."""
