# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Connects a QP to itself, sends a message, and reads its own memory: to_itself.py GID_INDEX"""

import sys

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
PSN = 0x123456


def attributes(context, qpn, gid_index):
    route = GlobalRoute(dgid=context.query_gid(1, gid_index), sgid_index=gid_index)
    attr = QPAttr(port_num=1)
    attr.dest_qp_num = qpn
    attr.path_mtu = e.IBV_MTU_1024
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.qp_access_flags = RIGHTS
    attr.rq_psn = attr.sq_psn = PSN
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
    attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route, dlid=0)
    return attr


def wait(cq, number):
    done = []
    while len(done) < number:
        done += cq.poll(1)[1]
    assert all(wc.status == e.IBV_WC_SUCCESS for wc in done), [wc.status for wc in done]


def main():
    context = Context(name="usiw0")
    pd, cq = PD(context), CQ(context, 10)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(4, 4, 1, 1, 0)))
    mr = MR(pd, 256, RIGHTS)
    qp.to_rts(attributes(context, qp.qp_num, int(sys.argv[1])))
    mr.write("to itself", 9, 0)
    qp.post_recv(RecvWR(sg=[SGE(mr.buf + 64, 64, mr.lkey)], num_sge=1))
    qp.post_send(SendWR(sg=[SGE(mr.buf, 9, mr.lkey)], num_sge=1, opcode=e.IBV_WR_SEND,
                        send_flags=e.IBV_SEND_SIGNALED))
    wait(cq, 2)
    read = SendWR(sg=[SGE(mr.buf + 128, 9, mr.lkey)], num_sge=1, opcode=e.IBV_WR_RDMA_READ,
                  send_flags=e.IBV_SEND_SIGNALED)
    read.set_wr_rdma(mr.rkey, mr.buf)
    qp.post_send(read)
    wait(cq, 1)
    assert mr.read(9, 64) == mr.read(9, 128) == b"to itself"


main()
