"""What camellia adds: an API below `/camellia/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delaylog.broker.process.leaves import Leaf

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode
    from delaylog.broker.host.tls.contexts import ClientTls
    from delaylog.broker.web.mounts import MountedApi


def _api(node: ServingNode, nodes_tls: ClientTls | None) -> MountedApi:
    from delaylog.broker.camellia.face import CamelliaFace
    from delaylog.broker.camellia.openapi import described

    return CamelliaFace(node, described, nodes_tls=nodes_tls)


LEAF: Final = Leaf("camellia", api=_api)
