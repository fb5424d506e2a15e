# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Two SENDs by pyverbs, connected by rdma_cm: cmid.py server|client ADDRESS PORT"""

import sys

from pyverbs import cm_enums as ce
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.qp import QPCap, QPInitAttr

end, address, port = sys.argv[1:]
capabilities = QPCap(max_send_wr=4, max_recv_wr=4)
if end == "server":
    info = AddrInfo(src=address, src_service=port, port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE)
    listener = CMID(creator=info, qp_init_attr=QPInitAttr(cap=capabilities))
    listener.listen()
    cmid = listener.get_request()
    received = cmid.reg_msgs(64)
    cmid.post_recv(received)
    cmid.accept()
else:
    info = AddrInfo(dst=address, dst_service=port, port_space=ce.RDMA_PS_TCP)
    cmid = CMID(creator=info, qp_init_attr=QPInitAttr(cap=capabilities))
    received = cmid.reg_msgs(64)
    cmid.post_recv(received)
    cmid.connect()

text = f"hello from the {end}".ljust(64)
sent = cmid.reg_msgs(64)
sent.write(text, 64)
if end == "client":
    cmid.post_send(sent)
    cmid.get_send_comp()
completion = cmid.get_recv_comp()
print("got", received.read(64, 0).decode().strip(), "bytes", completion.byte_len, flush=True)
if end == "server":
    cmid.post_send(sent)
    cmid.get_send_comp()
cmid.disconnect()
