"""The cluster's configuration: members, addresses, secret, TLS; read from the cluster file.

Imports: replication; of the cluster only `fitness.targets` (priorities) and `peers`.
Everything is checked when it is read, and a bad value raises ClusterError that names its key.
Begin with `cluster_file`, then `cluster_config`.
"""

from delaylog.broker.cluster.config.cluster_config import ClusterConfig, cluster_id_of
from delaylog.broker.cluster.config.cluster_file import (
    MEMBERS_MAX,
    NODE_VARIABLE,
    SECRET_VARIABLE,
    load_cluster,
)
from delaylog.broker.cluster.config.member import (
    Member,
    check_founding,
    check_members,
    make_member,
)
from delaylog.broker.rules.addresses import Address

__all__ = [
    "MEMBERS_MAX",
    "NODE_VARIABLE",
    "SECRET_VARIABLE",
    "Address",
    "ClusterConfig",
    "Member",
    "check_founding",
    "check_members",
    "cluster_id_of",
    "load_cluster",
    "make_member",
]
