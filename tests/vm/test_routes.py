# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The kernel's rules change below live connections: MACs, routes, path MTU, IPsec policies."""

import contextlib
import socket
import struct
import time

import pytest

from support.net import A, B, PEER, mac_of, rdma_links, statistics
from support.pairs import Server
from support.procs import PATIENCE, run, until

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(bool(PEER), reason="usiw's own frames")]

ETH_P_ALL = 3
GATEWAY = "10.9.0.254"


class Frame:
    """An Ethernet frame with UDP over IPv4 in it, from A to B."""

    def __init__(self, raw):
        ihl = 4 * (raw[14] & 15)
        self.dst, self.src = (":".join(f"{b:02x}" for b in raw[at:at + 6]) for at in (0, 6))
        self.ip_bytes = int.from_bytes(raw[16:18], "big")
        self.ip_header = raw[14:14 + ihl]
        self.ports = struct.unpack("!HH", raw[14 + ihl:18 + ihl])
        self.udp_header = raw[14 + ihl:22 + ihl]
        self.opcode = raw[14 + ihl + 8 + 8] >> 4


class Wire:
    """Sees what arrives at B."""

    def __enter__(self):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.sock.bind((B.netdev, ETH_P_ALL))
        self.sock.settimeout(0.2)
        return self

    def __exit__(self, *_):
        self.sock.close()

    def frames(self, seconds):
        """Those with data of the next seconds."""
        ends = socket.inet_aton(A.ip) + socket.inet_aton(B.ip)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                raw, where = self.sock.recvfrom(65536)
                if where[2] == socket.PACKET_OUTGOING or len(raw) < 56 or raw[12:14] != b"\x08\x00" or raw[23] != 17:
                    continue
                if raw[26:34] == ends and (frame := Frame(raw)).opcode == 0:
                    yield frame

    def wait(self, which, what):
        """The first frame that fits."""
        for frame in self.frames(10 * PATIENCE):
            if which(frame):
                return frame
        pytest.fail(f"no frame {what}")


def traffic(server, *options):
    """A client under way."""
    client = server.client("--seconds", 60, *options)
    client.wait_for("^connected")
    return client


def finish(server, client):
    """Still alive, and all data right."""
    assert client.status is None, client.output
    client.signal(15)
    client.wait(30)
    server.client("--rounds", 5).expect(0, 60)
    server.stop()


def test_own_mac_changes_under_traffic():
    """D6: frames have the new source; at the old one a switch would learn the wrong port."""
    old, new = mac_of(A.netdev), "02:00:00:00:aa:01"
    server = Server()
    with Wire() as wire:
        client = traffic(server)
        wire.wait(lambda f: f.src == old, "from the old MAC")
        try:
            run("ip", "link", "set", A.netdev, "address", new)
            wire.wait(lambda f: f.src == new, "from the new MAC")
            time.sleep(1)
            assert client.status is None, client.output
        finally:
            run("ip", "link", "set", A.netdev, "address", old)
        wire.wait(lambda f: f.src == old, "from the old MAC again")
    finish(server, client)


def test_next_hop_is_replaced_silently():
    """D5: a route by a gateway comes, and neither netdev nor address nor neighbour says so."""
    route = ["dev", A.netdev, "src", A.ip, "table", "101"]
    gateway_mac = "02:00:00:00:aa:fe"
    run("ip", "neigh", "replace", GATEWAY, "lladdr", gateway_mac, "dev", A.netdev, "nud", "permanent")
    server = Server()
    with Wire() as wire:
        client = traffic(server)
        wire.wait(lambda f: f.dst == mac_of(B.netdev), "to the peer itself")
        try:
            run("ip", "route", "replace", f"{B.ip}/32", "via", GATEWAY, "onlink", *route)
            wire.wait(lambda f: f.dst == gateway_mac, "to the gateway")
        finally:
            run("ip", "route", "replace", f"{B.ip}/32", *route)
        wire.wait(lambda f: f.dst == mac_of(B.netdev), "to the peer itself again")
    run("ip", "neigh", "del", GATEWAY, "dev", A.netdev)
    finish(server, client)


def too_big(frame, mtu):
    """B's host tells A's that a router in the middle could not pass the frame on."""
    quote = frame.ip_header + frame.udp_header
    body = struct.pack("!HH", 0, mtu) + quote
    total = sum(struct.unpack(f"!{len(body) // 2}H", body)) + 0x0304
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
        sock.bind((B.ip, 0))
        sock.sendto(struct.pack("!BBH", 3, 4, ~total & 0xffff) + body, (A.ip, 0))


def test_path_mtu_is_learned_for_new_connections():
    """D7: ends at 1500, middle at 1400: ICMP about a connection lowers the next one's MTU."""
    server = Server()
    with Wire() as wire:
        client = traffic(server, "--size", 30000)
        frame = wire.wait(lambda f: f.ip_bytes > 1400, "of full size")
        too_big(frame, 1400)
        until(lambda: "mtu 1400" in run("ip", "route", "get", B.ip, "from", A.ip), "the kernel knowing the path's MTU")
        try:
            client.signal(15)
            client.wait(30)
            second = traffic(server, "--size", 30000)
            sizes = [f.ip_bytes for f in wire.frames(2 * PATIENCE) if f.ports[0] != frame.ports[0]]
            assert sizes and 1300 < max(sizes) <= 1400, max(sizes, default=0)
        finally:
            run("ip", "route", "flush", "cache")
    finish(server, second)


@contextlib.contextmanager
def ipsec_ordered():
    """A policy for what A sends to B, and no security association."""
    run("modprobe", "xfrm_user")
    policy = ["src", f"{A.ip}/32", "dst", f"{B.ip}/32", "proto", "udp", "dir", "out"]
    run("ip", "xfrm", "policy", "add", *policy, "tmpl", "src", A.ip, "dst", B.ip, "proto", "esp", "mode", "transport")
    try:
        yield
    finally:
        run("ip", "xfrm", "policy", "delete", *policy)


def test_ipsec_policy_forbids_raw_packets(expected):
    """D3: neither a new connection nor a live one sends in clear."""
    expected.messages.append("raw packets would go past IPsec")
    server = Server()
    with Wire() as wire:
        client = traffic(server)
        with ipsec_ordered():
            assert client.wait(30) not in (0, None), client.output
            assert statistics(A.dev)["route_forbidden"] >= 1
            list(wire.frames(0.5))
            new = server.client("--rounds", 3)
            assert new.wait(30) not in (0, None), new.output
            assert not list(wire.frames(1)), "data in clear"
    server.client("--rounds", 5).expect(0, 60)
    server.proc.kill()


def test_lo_keeps_its_mac():
    """D9: what a device on lo needed, on kernels before 6.4, goes with it."""
    before = mac_of("lo")
    run("rdma", "link", "add", "usiwlo", "type", "usiw", "netdev", "lo")
    run("rdma", "link", "delete", "usiwlo")
    until(lambda: "usiwlo" not in rdma_links(), "the device being gone")
    until(lambda: mac_of("lo") == before, "lo having its own MAC again")
