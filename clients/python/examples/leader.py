"""Prints the identity of the leader.

Usage: leader.py API_SERVER CA_FILE TOKEN_FILE. In a pod, in_cluster returns the three values.
"""

import sys

from coxswain.admin import ApiServer, Client, Finder, Follower, Options
from coxswain.admin.v1.leader_pb2 import GetLeaderRequest

server, ca_file, token_file = sys.argv[1:]
pod = Options(ca_file=ca_file, token_file=token_file)
finder = Finder(
    leases=ApiServer(server, pod), options=Options(token_file=pod.token_file), cluster_ca_file=pod.ca_file,
)


def identity(client: Client, seconds: float) -> str:
    return client.leader.GetLeader(GetLeaderRequest(), timeout=seconds).leader.holder_identity


with Follower(finder) as leader:
    print(leader.call(identity, timeout=60))
