"""What the dashboard adds: files below `/ui/`. Its pages show live reads, a part of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delaylog.broker.process.leaves import Leaf

if TYPE_CHECKING:
    from delaylog.broker.web.mounts import Files


def _files() -> Files:
    from delaylog.broker.ui.files import UI, answer_of
    from delaylog.broker.web.mounts import Files

    return Files(UI, answer_of)


LEAF: Final = Leaf("dashboard", folders=("streams",), files=_files)
