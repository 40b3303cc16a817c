"""Prints the controllers of a running manager. Usage: list.py ADDRESS CA_FILE TOKEN_FILE."""

import sys

from coxswain.admin import connect
from coxswain.admin.v1.controllers_pb2 import ListControllersRequest, Phase

with connect(sys.argv[1], ca_file=sys.argv[2], token_file=sys.argv[3]) as client:
    for controller in client.controllers.ListControllers(ListControllersRequest()).controllers:
        print(f"{controller.name:50} {Phase.Name(controller.phase)}")
