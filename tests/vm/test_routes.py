# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The kernel's rules change below live connections: MACs, routes, path MTU, IPsec policies."""

import contextlib
import pathlib
import random
import socket
import struct
import subprocess
import time

import pytest

from support.cases import path_of
from support.net import A, B, PEER, mac_of, nft, rdma_links, statistics
from support.pairs import AT_FULL_SPEED, Server, next_port
from support.ports import ipsec, pages_of, qps_of
from support.procs import PATIENCE, Proc, run, until

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

    def hears_of(self, ip, seconds):
        """Does anything of IPv4 arrive for this address?"""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                raw, where = self.sock.recvfrom(65536)
                if where[2] == socket.PACKET_OUTGOING or raw[12:14] != b"\x08\x00":
                    continue
                if raw[30:34] == socket.inet_aton(ip):
                    return True
        return False

    def wait(self, which, what):
        """The first frame that fits."""
        for frame in self.frames(10 * PATIENCE):
            if which(frame):
                return frame
        pytest.fail(f"no frame {what}")


#: Messages of one datagram, which go by raw packets, and such of many, which go by sockets while they last.
SHORT, LONG = ("--size", 1000), ("--size", 60000, *AT_FULL_SPEED)


def traffic(server, *options):
    """A client under way."""
    client = server.client("--seconds", 60, *(options if "--size" in options else (*SHORT, *options)))
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
    """Frames have the new source address. From frames with the old one a switch would learn the wrong port."""
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
    """A new route uses a gateway, and no event of a netdev, an address or a neighbour reports it."""
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
    """The ends have an MTU of 1500, a router between them one of 1400. ICMP about a connection lowers the MTU of the
    next connection."""
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
            # What is longer than the interface allows is several datagrams.
            sizes = [
                f.ip_bytes for f in wire.frames(2 * PATIENCE) if f.ports[0] != frame.ports[0] and f.ip_bytes <= 1500
            ]
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
    """Neither a new connection nor a live one sends in clear."""
    expected.messages.append("raw packets would go past IPsec")
    server = Server()
    with Wire() as wire:
        client = traffic(server)
        with ipsec_ordered():
            # It has moved to its socket, which the kernel keeps to the policy: nothing gets through.
            assert client.wait(60) not in (0, None), client.output
            list(wire.frames(0.5))
            new = server.client("--rounds", 3)
            assert new.wait(30) not in (0, None), new.output
            assert not list(wire.frames(1)), "data in clear"
    server.client("--rounds", 5).expect(0, 60)
    server.proc.kill()


@contextlib.contextmanager
def device_in_vrf(name):
    """A device `name` in a VRF. Its peer's address is one of another host, too: of B, by the main table."""
    run("modprobe", "vrf")
    run("ip", "link", "add", "red", "type", "vrf", "table", "10")
    try:
        run("ip", "link", "add", "r0", "type", "veth", "peer", "name", "r1")
        run("ip", "link", "set", "r0", "master", "red")
        for netdev in ("red", "r0", "r1"):
            run("ip", "link", "set", netdev, "up")
        run("ip", "addr", "add", "10.77.0.1/24", "dev", "r0")
        for netdev, mac in (("r0", mac_of("r1")), (A.netdev, mac_of(B.netdev))):
            run("ip", "neigh", "replace", "10.77.0.2", "lladdr", mac, "dev", netdev, "nud", "permanent")
        run("ip", "route", "add", "10.77.0.2/32", "dev", A.netdev)
        run("rdma", "link", "add", name, "type", "usiw", "netdev", "r0")
        yield
    finally:
        for args in (["route", "del", "10.77.0.2/32", "dev", A.netdev], ["neigh", "del", "10.77.0.2", "dev", A.netdev],
                     ["link", "del", "r0"], ["link", "del", "red"]):
            subprocess.run(["ip", *args], check=False)
        until(lambda: name not in rdma_links(), "the device going with its netdev")


def test_vrf_is_refused_and_nothing_leaves_by_another_network():
    """connect says so; and the VRF itself takes no device."""
    with device_in_vrf("usiw9"), Wire() as wire:
        failed = subprocess.run(["rdma", "link", "add", "usiw8", "type", "usiw", "netdev", "red"], check=False)
        assert failed.returncode != 0
        client = Proc([path_of("traffic"), "client", "--from", "10.77.0.1", "--to", "10.77.0.2", "--port", next_port(),
                       "--rounds", 3])
        assert client.wait(30) not in (0, None), client.output
        assert not wire.hears_of("10.77.0.2", 1), "a REQ for the VRF's host, at another"
        assert "Operation not supported" in client.output, client.output


# ---- A connection moves ----------------------------------------------------------------------

def goes_by(proc, *wanted):
    """Waits until the connections of a client or a server go by one of these ports (port, reason)."""
    until(lambda: (shown := set(qps_of(proc.pid))) and shown <= set(wanted),
          f"going by {wanted}, not {qps_of(proc.pid)}", timeout=30)
    assert proc.status is None, proc.output


def moves_data(client):
    """Work requests go on completing, for longer than a connection that hears nothing would live."""
    done = lambda: sum(e["drv_comp_ok"] for e in pages_of(client.pid))  # noqa: E731
    before = done()
    time.sleep(5)
    assert client.status is None, client.output
    assert done() > before + 10, "no data moves"


@contextlib.contextmanager
def second_wire():
    """Another veth pair between the ends, by which nothing goes yet."""
    run("ip", "link", "add", "va2", "type", "veth", "peer", "name", "vb2")
    try:
        for netdev in ("va2", "vb2"):
            for file, value in [("accept_local", 1), ("rp_filter", 0), ("arp_ignore", 1)]:
                pathlib.Path(f"/proc/sys/net/ipv4/conf/{netdev}/{file}").write_text(str(value), encoding="ascii")
            run("ip", "link", "set", netdev, "up")
            run("ip", "rule", "add", "pref", "1002", "iif", netdev, "lookup", "local")
        run("ip", "neigh", "replace", B.ip, "lladdr", mac_of("vb2"), "dev", "va2", "nud", "permanent")
        yield "va2"
    finally:
        for _ in range(2):
            run("ip", "rule", "del", "pref", "1002")
        run("ip", "link", "del", "va2")


TO_B = [f"{B.ip}/32", "src", A.ip, "table", "101"]


def test_route_moves_to_another_interface_and_back():
    """Data follows it by the socket. What comes by another interface the peer's raw port cannot see."""
    server = Server()
    client = traffic(server)
    goes_by(client, ("packet", "fastest"))
    with second_wire() as netdev:
        run("ip", "route", "replace", *TO_B, "dev", netdev)
        try:
            goes_by(client, ("socket", "netdev"))
            moves_data(client)
        finally:
            run("ip", "route", "replace", *TO_B, "dev", A.netdev)
        goes_by(client, ("packet", "fastest"))
        moves_data(client)
    finish(server, client)


def test_route_flaps_faster_than_moves_settle():
    """Every 50 to 300 ms to another interface or back, with two connections: nothing is lost or comes twice."""
    rng = random.Random(14)
    server = Server()
    client = traffic(server, "--connections", 2)
    goes_by(client, ("packet", "fastest"))
    flaps, end = 0, time.monotonic() + 10
    with second_wire() as netdev:
        try:
            while time.monotonic() < end and client.status is None:
                run("ip", "route", "replace", *TO_B, "dev", (netdev, A.netdev)[flaps % 2])
                flaps += 1
                time.sleep(rng.uniform(0.05, 0.3))
        finally:
            run("ip", "route", "replace", *TO_B, "dev", A.netdev)
        goes_by(client, ("packet", "fastest"))
        moves_data(client)
    print(f"{flaps} flaps")
    finish(server, client)


def test_link_of_the_packet_port_goes_down_and_up():
    """The route by it goes with it, and one by another interface is left."""
    server = Server()
    client = traffic(server)
    goes_by(client, ("packet", "fastest"))
    with second_wire() as netdev:
        run("ip", "route", "add", *TO_B, "dev", netdev, "metric", "100")
        back = [f"{A.ip}/32", "src", B.ip, "table", "102"]
        run("ip", "neigh", "replace", A.ip, "lladdr", mac_of("va2"), "dev", "vb2", "nud", "permanent")
        run("ip", "route", "add", *back, "dev", "vb2", "metric", "100")
        # At B the link only loses its carrier, and routes by it stay.
        linkdown = pathlib.Path(f"/proc/sys/net/ipv4/conf/{B.netdev}/ignore_routes_with_linkdown")
        linkdown.write_text("1", encoding="ascii")
        run("ip", "link", "set", A.netdev, "down")
        try:
            goes_by(client, ("socket", "netdev"), ("socket", "down"))
            moves_data(client)
        finally:
            run("ip", "link", "set", A.netdev, "up")
            linkdown.write_text("0", encoding="ascii")
            run("ip", "route", "replace", *TO_B, "dev", A.netdev)
            run("ip", "route", "replace", *back, "dev", B.netdev)
            run("ip", "-6", "addr", "replace", f"{A.ip6}/128", "dev", A.netdev, "nodad")
            run("ip", "-6", "route", "replace", B.ip6, "dev", A.netdev, "src", A.ip6, "table", "101")
        goes_by(client, ("packet", "fastest"))
        moves_data(client)
    finish(server, client)


def test_raw_packets_vanish():
    """A rule drops them and nobody says so: the connection goes on by its socket."""
    server = Server()
    client = traffic(server)
    goes_by(client, ("packet", "fastest"))
    chain = f"add chain netdev usiw_move out {{ type filter hook egress device {A.netdev} priority 0 ; }}"
    with nft("inet usiw_mark", "add chain inet usiw_mark out { type filter hook output priority 0 ; }",
             "add rule inet usiw_mark out meta l4proto udp meta mark set 7"), \
         nft("netdev usiw_move", chain, "add rule netdev usiw_move out meta l4proto udp meta mark != 7 drop"):
        goes_by(client, ("socket", "silent"))
        moves_data(client)
    goes_by(client, ("packet", "fastest"))
    moves_data(client)
    finish(server, client)


@pytest.mark.core
@pytest.mark.parametrize("port", [pytest.param("packet", marks=pytest.mark.provider), "socket"])
def test_a_router_marks(monkeypatch, port):
    """Congestion marks (ECN) on a part of what may be marked: the server sees them, the client is told, nothing is
    lost."""
    monkeypatch.setenv("USIW_PORT", port)
    server = Server()
    client = traffic(server, "--size", 30000)
    was = statistics(A.dev)
    chain = f"add chain netdev usiw_ce out {{ type filter hook egress device {A.netdev} priority 0 ; }}"
    with nft("netdev usiw_ce", chain, "add rule netdev usiw_ce out ip ecn ect0 numgen random mod 3 == 0 ip ecn set ce"):
        until(lambda: statistics(B.dev)["rx_ce"] > 100, "marked datagrams")
        until(lambda: statistics(A.dev)["tx_ce"] > was["tx_ce"] + 30, "news of them")
    moves_data(client)
    finish(server, client)


def test_path_mtu_falls_under_traffic():
    """Middle at 1400: what is on its way goes in fragments, what is cut later is short enough for raw packets."""
    server = Server()
    with Wire() as wire:
        client = traffic(server, "--size", 30000)
        frame = wire.wait(lambda f: f.ip_bytes > 1400, "of full size")
        chain = f"add chain netdev usiw_move in {{ type filter hook ingress device {B.netdev} priority 0 ; }}"
        with nft("netdev usiw_move", chain, "add rule netdev usiw_move in ip length > 1400 drop"):
            too_big(frame, 1400)
            try:
                until(lambda: {f.ip_bytes > 1400 for f in wire.frames(0.5)} == {False}, "only frames that get through")
                moves_data(client)
                goes_by(client, ("packet", "fastest"), ("socket", "long"))
            finally:
                run("ip", "route", "flush", "cache")
    finish(server, client)


def test_long_messages_go_by_the_socket_and_come_back():
    """As frames of many datagrams; and when they cease, by raw packets again."""
    server = Server()
    client = traffic(server, *LONG)
    with Wire() as wire:
        for proc in (client, server.proc):
            goes_by(proc, ("socket", "long"))
        wire.wait(lambda f: f.ip_bytes > 3000, "of several datagrams")
        moves_data(client)
        with client.stopped():
            goes_by(server.proc, ("packet", "fastest"))
        goes_by(server.proc, ("socket", "long"))
    finish(server, client)


def test_ipsec_comes_over_a_live_connection_and_goes():
    """It goes on in ESP; not one datagram goes in clear once both processes have said that they have moved."""
    server = Server()
    with Wire() as wire:
        client = traffic(server)
        goes_by(client, ("packet", "fastest"))
        with ipsec():
            for proc in (client, server.proc):
                goes_by(proc, ("socket", "ipsec"))
            list(wire.frames(0.5 * PATIENCE))
            moves_data(client)
            assert not list(wire.frames(2)), "data in clear"
        goes_by(client, ("packet", "fastest"))
        wire.wait(lambda f: True, "of raw packets")
    finish(server, client)

def test_lo_keeps_its_mac():
    """Before kernel 6.4 a device on lo needs a MAC address there. lo is without it again when the device is gone."""
    before = mac_of("lo")
    run("rdma", "link", "add", "usiwlo", "type", "usiw", "netdev", "lo")
    run("rdma", "link", "delete", "usiwlo")
    until(lambda: "usiwlo" not in rdma_links(), "the device being gone")
    until(lambda: mac_of("lo") == before, "lo having its own MAC again")
