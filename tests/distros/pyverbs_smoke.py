# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""rdma-core's own Python bindings, with each kind of object once."""

from pyverbs.cq import CQ, CompChannel, CqInitAttrEx, CQEX
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR, MW
from pyverbs.pd import PD, ParentDomain, ParentDomainInitAttr
from pyverbs.qp import QP, QPCap, QPInitAttr, QPInitAttrEx, QPEx
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr

# By number: pyverbs has moved their names more than once.
PORT_ACTIVE, LOCAL_WRITE, MW_BIND, MW_TYPE_2, QPT_RC, RESET, INIT = 4, 1, 16, 2, 2, 0, 1
INIT_ATTR_PD, INIT_ATTR_SEND_OPS_FLAGS, WITH_RDMA_WRITE, WITH_SEND = 1, 64, 1, 4

names = [device.name.decode() for device in get_device_list()]
assert names == ["usiw0"], names

with Context(name=names[0]) as context:
    attr = context.query_device()
    assert attr.max_qp > 0, attr
    assert context.query_port(1).state == PORT_ACTIVE
    with PD(context) as pd, CompChannel(context) as channel, CQ(context, 16, None, channel) as cq:
        with MR(pd, 4096, LOCAL_WRITE | MW_BIND) as mr, MW(pd, MW_TYPE_2):
            mr.write("abc", 3)
            assert mr.read(3, 0) == b"abc"
        with SRQ(pd, SrqInitAttr(SrqAttr(max_wr=8))) as srq:
            assert srq.query().max_wr >= 8
        cap = QPCap(max_send_wr=4, max_recv_wr=4)
        with QP(pd, QPInitAttr(qp_type=QPT_RC, scq=cq, rcq=cq, cap=cap)) as qp:
            assert qp.query(0)[0].qp_state in (RESET, INIT)
        # The functions of ibv_wr_*() moved within the QP from version to version.
        ops = WITH_SEND | WITH_RDMA_WRITE
        wanted = QPInitAttrEx(qp_type=QPT_RC, scq=cq, rcq=cq, cap=cap, pd=pd,
                              comp_mask=INIT_ATTR_PD | INIT_ATTR_SEND_OPS_FLAGS,
                              send_ops_flags=ops)
        with QPEx(context, wanted) as qp:
            qp.wr_start()
            qp.wr_abort()
        with CQEX(context, CqInitAttrEx(cqe=8)), ParentDomain(context, ParentDomainInitAttr(pd=pd)):
            pass
print("pyverbs: every kind of object was made and is gone")
