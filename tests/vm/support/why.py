# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Plays the reasons for which a connection cannot be made, and has the line that people read for each."""

import contextlib
from typing import NamedTuple

from .net import nft
from .pairs import next_port
from .procs import Proc

#: Answers each datagram as a program does that knows nothing of usiw.
STRANGER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
print("bound", flush=True)
while True:
    s.sendto(b"SSH-2.0-OpenSSH_9.2", s.recvfrom(2000)[1])
"""


class Reason(NamedTuple):
    """Somebody connects there, and reads `line` behind the peer's address and port."""
    port: int
    line: str


@contextlib.contextmanager
def reasons(server_ip, server, client):
    """The reasons, each at a port of its own; `server` and `client` run a command at the ends."""
    nobody, drops, rejects, own, stranger = (Reason(next_port(), line) for line in (
        "the host has no usiw at this UDP port (ICMP port unreachable), or a firewall rejects it; TCP, siw, rxe and "
        "adapters are no peers",
        "no answer: no host has this address, or a firewall drops UDP",
        "a firewall prohibits it (ICMP)",
        "the firewall of this host does not let UDP out (EPERM)",
        "what answers there is not usiw, it begins with 53 53 48 2d 32 2e 30 2d"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(nft("inet usiw_why", "add chain inet usiw_why in { type filter hook input priority 0 ; }",
                                f"add rule inet usiw_why in udp dport {drops.port} drop",
                                f"add rule inet usiw_why in udp dport {rejects.port} "
                                "reject with icmpx admin-prohibited",
                                where=server))
        stack.enter_context(nft("inet usiw_own", "add chain inet usiw_own out { type filter hook output priority 0 ; }",
                                f"add rule inet usiw_own out udp dport {own.port} drop", where=client))
        answering = Proc(["/usr/bin/python3", "-c", STRANGER, server_ip, stranger.port], where=server)
        answering.wait_for("^bound")
        yield [nobody, drops, rejects, own, stranger]
        answering.kill()
