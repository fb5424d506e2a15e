# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Connects by rdma_cm what rdma-core's tests connect by themselves.

Most of their tests make two QPs in one process, tell each the number of the other, and lead both to RTS. A device that
is connected by rdma_cm alone can run the same test on the same verbs when that one step is another: here the QPs, which
are in INIT by then, are given to a listening and a connecting id. Nothing else of the tests is replaced.
"""

import itertools

from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
import pyverbs.cm_enums as ce

_ports = itertools.count(18000)


class Connector:
    """Replaces RCResources.to_rts of the package `base` within a `with`; `address` is the device's own."""

    def __init__(self, base, address):
        self._class = base.RCResources
        self._theirs = self._class.to_rts
        self._address = address
        self._waiting = {}  # QP number: the resources that want it connected, and which QP of them

    def __enter__(self):
        self._waiting.clear()
        self._class.to_rts = lambda resources: self._connect(resources)

    def __exit__(self, *_):
        self._class.to_rts = self._theirs

    def _connect(self, resources):
        """Called once for each side; the second one finds the first."""
        for number, peer, qp in zip(resources.qps_num, resources.rqps_num, resources.qps):
            other = self._waiting.pop(peer, None)
            if other is None:
                self._waiting[number] = resources, qp
            else:
                self._pair(resources, qp, *other)

    def _pair(self, passive, passive_qp, active, active_qp):
        port = str(next(_ports))
        channel = CMEventChannel()
        listener = CMID(creator=channel, port_space=ce.RDMA_PS_TCP)
        listener.bind_addr(AddrInfo(src=self._address, src_service=port, port_space=ce.RDMA_PS_TCP,
                                    flags=ce.RAI_PASSIVE))
        listener.listen()
        client_channel = CMEventChannel()
        client = CMID(creator=client_channel, port_space=ce.RDMA_PS_TCP)
        client.resolve_addr(AddrInfo(src=self._address, dst=self._address, dst_service=port,
                                     port_space=ce.RDMA_PS_TCP))
        expect(client_channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
        client.resolve_route()
        expect(client_channel, ce.RDMA_CM_EVENT_ROUTE_RESOLVED).ack_cm_event()
        client.connect(ConnParam(resources=16, depth=16, qp_num=active_qp.qp_num))
        request = expect(channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
        server = CMID(creator=request, listen_id=listener)
        request.ack_cm_event()
        server.accept(ConnParam(resources=16, depth=16, qp_num=passive_qp.qp_num))
        expect(client_channel, ce.RDMA_CM_EVENT_ESTABLISHED).ack_cm_event()
        expect(channel, ce.RDMA_CM_EVENT_ESTABLISHED).ack_cm_event()
        # The ids live as long as the QPs; a channel has to outlive its ids.
        passive.rdma_cm = getattr(passive, "rdma_cm", []) + [(server, listener, channel)]
        active.rdma_cm = getattr(active, "rdma_cm", []) + [(client, client_channel)]


def expect(channel, wanted):
    """The next event, which has to be this one."""
    event = CMEvent(channel)
    if event.event_type != wanted:
        text = event.event_str()
        event.ack_cm_event()
        raise AssertionError(f"rdma_cm: {text} in place of event {wanted}")
    return event
