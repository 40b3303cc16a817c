"""Connects to the admin API of Coxswain, a Kubernetes controller manager.

`coxswain.admin.v1` contains the generated messages and stubs. This package adds connections: `connect` creates a client
of one replica, a `Finder` finds the replicas by their Leases, and a `Follower` sends calls to the leader.
"""

from coxswain.admin.connection import Client, Options, connect
from coxswain.admin.discovery import (
    CERTIFICATE_NAME,
    ApiServer,
    ApiServerError,
    Finder,
    Lease,
    Leases,
    NotVouchedFor,
    Replica,
    Replicas,
    in_cluster,
)
from coxswain.admin.follower import Follower, NoLeader

__all__ = [
    "CERTIFICATE_NAME",
    "ApiServer",
    "ApiServerError",
    "Client",
    "Finder",
    "Follower",
    "Lease",
    "Leases",
    "NoLeader",
    "NotVouchedFor",
    "Options",
    "Replica",
    "Replicas",
    "connect",
    "in_cluster",
]
