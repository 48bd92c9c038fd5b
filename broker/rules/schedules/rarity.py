"""How long a search for an instant may take where a caller waits for it.

A search goes from period to period or from day to day, so its cost is the number of days that it
looks at. A rule that matches once in 28 years costs a thousand of them for an instant. Calls that
put or preview such a rule refuse it; one that is stored fires whatever its search costs, which is
once in years.
"""

from __future__ import annotations

from typing import Final

from delaylog.contract.errors import MemberError

DAYS_MAX: Final = 500
"""Days of one search: about a millisecond. The 29 February takes at most 312 of them, a Friday the
13th 465.
"""


def too_rare(field: str) -> MemberError:
    """The refusal of a cron expression or a rule."""
    what = (
        f"matches too rarely, or never: {DAYS_MAX} days were looked at for one instant; make it "
        "match more often, or put a schedule of fewer conditions whose consumer judges the rest"
    )
    return MemberError(f"{field} {what}", field=field, what=what)
