# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Programs without any right: user nobody, no capability. Their data goes by the sockets that the module hands out, by
the kernel's own rules: routes, firewall, IPsec."""

import contextlib
import ctypes
import errno
import os
import socket
import struct
import time

import pytest

from support.net import A, B, devices_for_all, unprivileged
from support.pairs import Server, next_port, pair, perftest, rping
from support.ports import ipsec, qps_of
from support.procs import run, until

UA, UB = unprivileged(A), unprivileged(B)


@pytest.fixture(autouse=True, scope="module")
def rights():
    """None but those of everybody."""
    with devices_for_all():
        yield


def live(server, site, *options):
    """A client whose connection is established and moves data, in messages of one datagram."""
    client = server.client("--seconds", 120, "--size", 1000, *options, site=site)
    client.wait_for("^connected")
    return client


@pytest.mark.core
@pytest.mark.parametrize("size", [pytest.param(64, marks=pytest.mark.provider), 30000])
def test_rping(size):
    rping(server=UB, client=UA, size=size, count=20)


def test_rping_ipv6():
    rping(server=UB._replace(ip=B.ip6), client=UA._replace(ip=A.ip6), size=4096)


@pytest.mark.core
@pytest.mark.parametrize("server, client", [(UB, A), (B, UA)], ids=["server", "client"])
def test_the_other_end_has_rights(server, client):
    """One end by raw packets, the other by its socket."""
    rping(server=server, client=client, size=20000, count=20)


@pytest.mark.core
@pytest.mark.provider
@pytest.mark.parametrize("tool", ["ib_send_lat", "ib_write_bw", "ib_read_bw"])
def test_perftest(tool):
    perftest(tool, "-s", 4096, "-n", 100, server=UB, client=UA)


def test_ucmatose():
    port = next_port()
    pair(["ucmatose", "-b", B.ip, "-p", port, "-C", 10, "-S", 4000],
         ["ucmatose", "-s", B.ip, "-b", A.ip, "-p", port, "-C", 10, "-S", 4000], port, UB, UA)


@pytest.mark.one_kernel("they share memory")
def test_processes_of_one_user_on_one_host():
    """The route is local: shared memory."""
    server = Server(UB)
    client = live(server, UB)
    shown = qps_of(client.pid)
    assert shown and all(e == ("shm", "same-host") for e in shown), shown
    client.kill()
    server.stop()


@pytest.mark.core
def test_port_and_reason_are_shown():
    server = Server(UB)
    client = live(server, UA)
    shown = qps_of(client.pid)
    assert shown and all(e == ("socket", "rights") for e in shown), shown
    client.kill()
    client = live(server, A)
    # Where the machine has stood still meanwhile, the connection has left its port as silent, and comes back.
    until(lambda: set(qps_of(client.pid)) == {("packet", "fastest")}, "raw packets", timeout=60)
    client.kill()
    server.stop()


@pytest.mark.parametrize("wish, port", [("socket", "socket"), ("shm", "socket"), ("packet", "packet"),
                                        ("auto", "packet")])
def test_port_by_hand(wish, port, monkeypatch):
    server = Server(UB)
    monkeypatch.setenv("USIW_PORT", wish)
    client = live(server, A)
    shown = qps_of(client.pid)
    assert shown and all(e[0] == port for e in shown), shown
    client.kill()
    server.stop()


def test_raw_packets_by_hand_without_the_right_say_so(monkeypatch):
    server = Server(UB)
    monkeypatch.setenv("USIW_PORT", "packet")
    client = server.client("--rounds", 1, site=UA)
    assert client.wait(30) != 0
    assert "no permission for raw sockets" in client.output
    server.stop()


@pytest.mark.one_kernel("only a virtual link takes merged datagrams as one frame")
@pytest.mark.core
@pytest.mark.parametrize("server, client", [(UB, UA), pytest.param(B, UA, marks=pytest.mark.provider),
                                            pytest.param(UB, A, marks=pytest.mark.provider), (B, A)],
                         ids=["neither", "server", "client", "both"])
def test_long_messages_are_merged(server, client):
    """They cross the virtual link as frames of many datagrams, whoever may use raw packets: for them such an end goes
    by its socket. How many a frame holds depends on how fast the host is. One that moves less than 256 segments
    in half a second leaves a connection where it is (provider/engine/long_messages.h)."""
    def sent():
        return [int(run("cat", f"/sys/class/net/{A.netdev}/statistics/tx_{what}")) for what in ("bytes", "packets")]
    before, start = sent(), time.monotonic()
    perftest("ib_send_bw", "-s", 65536, "-n", 300, server=server, client=client)
    total, frames = (now - then for now, then in zip(sent(), before))
    mtu = int(run("cat", f"/sys/class/net/{A.netdev}/mtu"))
    if total / mtu / (time.monotonic() - start) < 2 * 512:
        pytest.skip("this host is too slow for it, as the debug kernel is")
    assert total / frames > mtu + 14, (total, frames)  # an Ethernet header on each


@pytest.mark.one_kernel("one host")
@pytest.mark.parametrize("server, client", [("packet", "auto"), ("auto", "packet")])
def test_one_host_an_end_follows_the_one_that_takes_raw_packets_only(server, client, monkeypatch):
    """Over lo these reach raw ports only."""
    monkeypatch.setenv("USIW_PORT", server)
    listening = Server(B)
    monkeypatch.setenv("USIW_PORT", client)
    connected = live(listening, B)
    shown = qps_of(connected.pid) + qps_of(listening.proc.pid)
    assert len(shown) == 2 and all(e[0] == "packet" for e in shown), shown
    connected.kill()
    listening.stop()


@pytest.mark.one_kernel("one host")
@pytest.mark.parametrize("server, client", [("packet", "shm"), ("shm", "packet")])
def test_one_host_ends_without_a_common_port_say_so_at_once(server, client, monkeypatch):
    """In place of a connection on which nothing arrives."""
    monkeypatch.setenv("USIW_PORT", server)
    listening = Server(B)
    monkeypatch.setenv("USIW_PORT", client)
    connecting = listening.client("--rounds", 1, site=B)
    assert connecting.wait(20) != 0
    assert "EJECTED" in connecting.output.upper(), connecting.output
    assert listening.proc.status is None
    listening.proc.kill()


# ---- The kernel's rules ------------------------------------------------------------------

def test_a_firewall_rule_is_obeyed():
    """Raw packets would go on."""
    server = Server(UB)
    client = live(server, UA)
    run("nft", "add table inet usiw_test")
    try:
        run("nft", "add chain inet usiw_test out { type filter hook output priority 0 ; }")
        run("nft", f"add rule inet usiw_test out udp dport {server.port} drop")
        assert client.wait(60) != 0, "the connection outlives the rule that forbids it"
    finally:
        run("nft", "delete table inet usiw_test")
    server.proc.kill()


@pytest.mark.one_kernel("the keys of both ends are set in one namespace")
@pytest.mark.parametrize("site", [UA, A], ids=["nobody", "root"])
def test_ipsec_is_obeyed(site):
    """Where a policy orders ESP, data leaves as ESP, also of a process that may send raw packets."""
    with ipsec():
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:
            tap.bind((A.netdev, 0))
            tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            server = Server(UB)
            client = live(server, site)
            shown = qps_of(client.pid)
            protocols = {}
            deadline = time.monotonic() + 30
            while protocols.get(50, 0) < 200 and time.monotonic() < deadline:
                tap.settimeout(5)
                frame = tap.recv(200)
                if frame[12:14] == b"\x08\x00":
                    protocols[frame[23]] = protocols.get(frame[23], 0) + 1
            client.kill()
            server.proc.kill()
    assert protocols.get(50, 0) >= 200 and 17 not in protocols, protocols
    assert shown and all(e == ("socket", "ipsec") for e in shown), shown


# ---- A process that means harm ---------------------------------------------------------------

def steal(proc):
    """A duplicate of the process's data socket, as passing it on makes it."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(proc.pid)
    try:
        for entry in os.listdir(f"/proc/{proc.pid}/fd"):
            with contextlib.suppress(OSError):
                if not os.readlink(f"/proc/{proc.pid}/fd/{entry}").startswith("socket:"):
                    continue
                fd = libc.syscall(438, pidfd, int(entry), 0)
                if fd < 0:
                    continue
                sock = socket.socket(fileno=fd)
                with contextlib.suppress(OSError):
                    sock.getpeername()
                    if sock.type & socket.SOCK_DGRAM:
                        return sock
                sock.close()
    finally:
        os.close(pidfd)
    raise AssertionError("no data socket found")


def refused(errnos, call, *args):
    """The call fails with one of these."""
    with pytest.raises(OSError) as raised:
        call(*args)
    assert raised.value.errno in errnos, raised.value


def datagram(opcode, flags=0, psn=1, ack=1, payload=b""):
    """A TRP datagram."""
    return struct.pack(">IIHHH", psn, ack, opcode << 12 | flags, 64, 0) + payload


@pytest.mark.core
def test_a_data_socket_can_do_nothing_else():
    server = Server(UB)
    client = live(server, UA)
    sock = steal(client)
    other = (B.ip, 9)
    refused([errno.EISCONN], sock.sendto, b"x" * 20, other)
    refused([errno.EISCONN], sock.sendmsg, [b"x" * 20], [], 0, other)
    refused([errno.EOPNOTSUPP], sock.connect, other)
    refused([errno.EOPNOTSUPP], sock.bind, ("0.0.0.0", 0))
    refused([errno.EOPNOTSUPP], sock.listen)
    refused([errno.EOPNOTSUPP], sock.shutdown, socket.SHUT_RDWR)
    refused([errno.EOPNOTSUPP], sock.send, b"x" * 20, socket.MSG_MORE)
    refused([errno.EOPNOTSUPP], sock.send, b"x" * 20, socket.MSG_DONTROUTE)
    source = struct.pack("=I4s4s", 0, socket.inet_aton("127.0.0.1"), b"\0" * 4)
    refused([errno.EPERM], sock.sendmsg, [b"x" * 20], [(socket.IPPROTO_IP, 8, source)])
    refused([errno.EPERM], sock.sendmsg, [b"x" * 20], [(socket.IPPROTO_IP, socket.IP_TTL, struct.pack("=i", 1))])
    udp_cork, udp_encap = 1, 100
    for level, option in [(socket.IPPROTO_IP, socket.IP_OPTIONS), (socket.IPPROTO_IP, socket.IP_TRANSPARENT),
                          (socket.IPPROTO_IP, socket.IP_TTL), (socket.IPPROTO_IP, socket.IP_MULTICAST_IF),
                          (socket.IPPROTO_UDP, udp_cork), (socket.IPPROTO_UDP, udp_encap),
                          (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY), (socket.SOL_TCP, 31),
                          (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)]:
        refused([errno.EPERM], sock.setsockopt, level, option, 1)
    ecn_capable, another_class = 2, 0x28

    def takes_ecn():
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ecn_capable)
        return sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == ecn_capable
    assert any(takes_ecn() for _ in range(100))   # its owner says what it needs for its next datagram
    refused([errno.EPERM], sock.setsockopt, socket.IPPROTO_IP, socket.IP_TOS, another_class)
    refused([errno.EINVAL], sock.setsockopt, socket.IPPROTO_IP, socket.IP_TOS, b"\2")
    assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) in (0, ecn_capable)
    # The kernel before 6.8 does not ask the module about SOL_SOCKET: what leads past the routes is sent nowhere then.
    for option, there, back in [(socket.SO_BINDTODEVICE, b"lo", b""), (socket.SO_DONTROUTE, 1, 0)]:
        try:
            sock.setsockopt(socket.SOL_SOCKET, option, there)
        except PermissionError:
            continue
        refused([errno.EPERM], sock.send, b"x" * 20)
        sock.setsockopt(socket.SOL_SOCKET, option, back)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief:
        # Nobody else gets the port by what the process says of its socket.
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            thief.setsockopt(socket.SOL_SOCKET, option, 1)
            with contextlib.suppress(PermissionError):
                sock.setsockopt(socket.SOL_SOCKET, option, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        refused([errno.EADDRINUSE], thief.bind, sock.getsockname())
        refused([errno.EADDRINUSE], thief.bind, ("0.0.0.0", sock.getsockname()[1]))
    assert client.status is None
    sock.close()
    client.kill()
    server.stop()


@pytest.mark.core
def test_a_port_has_one_socket_whatever_its_connections():
    """For each datagram UDP walks the sockets of a port. The data sockets of its connections are not among them."""
    server = Server(UB)
    clients = [live(server, UA) for _ in range(3)]
    table = run("cat", "/proc/net/udp", where=B.where).splitlines()[1:]
    at_port = [line for line in table if line.split()[1].endswith(f":{server.port:04X}")]
    assert len(at_port) == 1, at_port
    for client in clients:
        assert client.status is None
        client.kill()
    server.stop()


@pytest.mark.core
def test_handshakes_from_a_data_socket_harm_its_own_connection_at_most():
    """The peer's other connections go on, its listener takes new ones; see docs/security.md."""
    server = Server(UB)
    bystander, client = live(server, UA), live(server, UA)
    sock = steal(client)
    params = struct.pack(">BBHIHHHH", 1, 0, 0, 0, 1, 1, 1500, 64)
    for opcode in range(16):
        for payload in (b"", params, os.urandom(60)):
            for flags in (0, 8, 16):
                with contextlib.suppress(OSError):
                    sock.send(datagram(opcode, flags, payload=payload))
    sock.close()
    time.sleep(1)
    assert bystander.status is None
    rounds = server.client("--rounds", 5, site=UA)
    rounds.expect(0, 60)
    client.kill()
    bystander.kill()
    server.proc.kill()


@pytest.mark.core
def test_the_socket_dies_with_its_connection():
    """A duplicate that somebody else holds neither sends nor keeps the port."""
    server = Server(UB)
    client = live(server, UA)
    sock = steal(client)
    name = sock.getsockname()
    client.kill()
    def dead():
        try:
            sock.send(datagram(5))
        except OSError as error:
            return error.errno == errno.ENOTCONN
        return False
    until(dead, "the socket is dead")
    server.proc.kill()
    def free():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as fresh:
            try:
                fresh.bind(name)
            except OSError:
                return False
        return True
    until(free, "the port is free")
    refused([errno.ENOTCONN], sock.send, b"x" * 20)
    sock.close()


def test_closing_it_under_way_ends_that_connection_only():
    server = Server(UB)
    bystander = live(server, UA)
    victim = live(server, UA)
    victim.signal(19)
    # Its descriptors are its own to close: a debugger's call stands for the program's own.
    sock = steal(victim)
    sock.close()  # one of two descriptors: nothing ends
    victim.signal(18)
    time.sleep(0.5)
    assert victim.status is None and bystander.status is None
    victim.kill()
    bystander.kill()
    server.stop()
