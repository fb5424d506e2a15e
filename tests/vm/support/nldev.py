# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What `rdma resource show` shows, without a program: it is asked after each test, and a start costs 0.2 s in a
guest."""

import os
import socket
import struct

NETLINK_RDMA = 20
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLA_TYPE_MASK = 0x3fff  # without the bit of nested attributes

#: <rdma/rdma_netlink.h>: RDMA_NL_NLDEV and its RDMA_NLDEV_CMD_RES_GET, and RDMA_NLDEV_ATTR_*.
RES_GET = 5 << 10 | 9
DEV_NAME, RES_SUMMARY, ENTRY, ENTRY_NAME, ENTRY_CURR = 2, 15, 16, 17, 18


def attributes(data):
    """(type, payload) of each netlink attribute."""
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & NLA_TYPE_MASK, data[4:length]
        data = data[length + 3 & ~3:]


def messages():
    """The payload of each answer, one for a device."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_RDMA) as s:
        s.settimeout(30)
        s.send(struct.pack("=IHHII", 16, RES_GET, NLM_F_REQUEST | NLM_F_DUMP, 1, 0))
        while True:
            data = s.recv(1 << 16)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", data, 16)[0]
                    raise OSError(code, os.strerror(code))
                yield data[16:length]
                data = data[length + 3 & ~3:]


def text(data):
    """A string without the zero that ends it."""
    return data.rstrip(b"\0").decode()


def resources():
    """{device: {object: count}}."""
    found = {}
    for message in messages():
        of = list(attributes(message))
        name = next(text(data) for kind, data in of if kind == DEV_NAME)
        entries = [dict(attributes(entry)) for kind, table in of if kind == RES_SUMMARY
                   for entry_kind, entry in attributes(table) if entry_kind == ENTRY]
        found[name] = {text(entry[ENTRY_NAME]): struct.unpack("=Q", entry[ENTRY_CURR])[0] for entry in entries}
    return found
