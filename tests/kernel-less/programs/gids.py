# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Changes the addresses of an interface, and prints the first GIDs after each command: gids.py COMMAND..."""

import subprocess
import sys

import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr

NUMBER = 4
SYSFS = "/sys/class/infiniband/usiw0/ports/1/gids/{}"


def gids(context):
    found = [str(context.query_gid(1, i)) for i in range(NUMBER)]
    files = [open(SYSFS.format(i), encoding="ascii").read().strip() for i in range(NUMBER)]
    assert found == files, (found, files)
    return found


def main():
    context = Context(name="usiw0")
    pd, cq = PD(context), CQ(context, 10)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(4, 4, 1, 1, 0)))
    print(*gids(context), flush=True)
    for command in sys.argv[1:]:
        subprocess.run(command.split(), check=True)
        event = context.get_async_event()
        assert event.event_type == e.IBV_EVENT_GID_CHANGE, event.event_type
        event.ack()
        print(*gids(context), flush=True)
    qp.close()


main()
