# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A network namespace per end, with a device in each. Runs in a guest of its own (--topology netns)."""

import pathlib
import re
import time

import pytest

from support.cases import PROGRAMS
from support.net import A, B, PEER, devices_for_all, netem, rdma_links, unprivileged
from support.pairs import AT_FULL_SPEED, Server, next_port, perftest, rping
from support.procs import Proc, run, until
from support.why import reasons

pytestmark = pytest.mark.netns

SHARED_PORT = 7471

TAKER = """
import os, socket, sys, time
os.setuid(65534)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, getattr(socket, sys.argv[1]), 1)
s.bind((sys.argv[2], int(sys.argv[3])))
print("bound", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("size", [64, 30000])
def test_rping(size):
    rping(size=size, count=20)


def test_rping_on_any_address():
    rping(bind="0.0.0.0")


def test_same_namespace():
    rping(server=B, client=B)


def test_listener_takes_no_port_of_another_namespace():
    """A listener in A leaves the port free in B and in the initial namespace, for UDP as for RDMA."""
    port = next_port()
    server = Proc(["rping", "-s", "-a", "0.0.0.0", "-p", port], where=A.where).wait_listening(port)
    bind = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('0.0.0.0', {port}))"
    run("/usr/bin/python3", "-c", bind, where=B.where)
    run("/usr/bin/python3", "-c", bind)
    server.kill()


def test_new_device_beside_a_foreign_listener(expected):
    """A device made in B while A listens on all addresses, on a port that is taken in B: rdma_cm knows it all the
    same."""
    expected.state_changes = True
    port = next_port()
    server = Proc(["rping", "-s", "-a", "0.0.0.0", "-p", port], where=A.where).wait_listening(port)
    hold = f"import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('0.0.0.0', {port})); " \
           "print('bound', flush=True); time.sleep(600)"
    holder = Proc(["/usr/bin/python3", "-c", hold], where=B.where)
    holder.wait_for("^bound")
    run("rdma", "link", "delete", B.dev)
    run("rdma", "link", "add", B.dev, "type", PEER or "usiw", "netdev", B.netdev, where=B.where)
    until(lambda: B.dev in rdma_links(), "the device")
    rping(count=5)
    holder.kill()
    server.kill()


@pytest.mark.parametrize("tool", ["ib_send_lat", "ib_write_bw", "ib_read_lat"])
def test_perftest(tool):
    perftest(tool, "-s", 4096, "-n", 100)


@pytest.fixture
def debian_buffers():
    """Both limits of a socket's buffers as Debian has them."""
    paths = [pathlib.Path(f"/proc/sys/net/core/{name}_max") for name in ("rmem", "wmem")]
    before = [path.read_text(encoding="ascii") for path in paths]
    for path in paths:
        path.write_text("212992", encoding="ascii")
    yield
    for path, value in zip(paths, before):
        path.write_text(value, encoding="ascii")


def udp_counters(site):
    """Datagrams that a namespace has received, and those that a socket had no space for."""
    names, values = re.findall("^Udp: (.*)$", run("cat", "/proc/net/snmp", where=site.where), re.M)
    found = dict(zip(names.split(), map(int, values.split())))
    return found["InDatagrams"], found["RcvbufErrors"]


@pytest.mark.skipif(bool(PEER), reason="which sockets others have is their business")
@pytest.mark.parametrize("without_module", [False, True], ids=["module", "usiw-run"])
def test_default_socket_buffers_of_a_user_do_not_overflow(without_module, debian_buffers):
    """16 QPs with long messages, user nobody, and sockets that hold what Debian's defaults let a user have: each sender
    keeps to its share, so that the sockets lose nothing.

    Shares are for those that have been heard of late, and what is sent again comes on top: on a processor that others
    have too, a run may lose some. A run that keeps to its shares is enough; without shares none of them does."""
    prefix = [pathlib.Path(PROGRAMS).parents[1] / "run" / "usiw-run"] if without_module else []

    def share_lost():
        port = next_port()
        command = [*prefix, "ib_send_bw", "-R", "-F", "-s", 65536, "-n", 30, "-q", 16, "-p", port]
        before = udp_counters(B)
        server = Proc(command, where=unprivileged(B).where).wait_listening(port)
        Proc([*command, B.ip], where=unprivileged(A).where).expect(0, 300)
        server.expect(0)
        got, lost = (now - then for now, then in zip(udp_counters(B), before))
        print(f"{lost} of {got + lost} datagrams found the socket full")
        assert got > 1000, "the data went another way"
        return lost / got

    with devices_for_all():
        assert any(share_lost() < 0.003 for _ in range(6))


@pytest.mark.skipif(bool(PEER), reason="what the module says")
def test_why_a_connection_could_not_be_made():
    """One line in dmesg for each, since rdma_cm says UNREACHABLE or REJECTED and no more."""
    with reasons(B.ip, B.where, A.where) as found:
        clients = [Proc(["rping", "-c", "-a", B.ip, "-p", reason.port, "-C", 1], where=A.where) for reason in found]
        for client in clients:
            assert client.wait(60) != 0, client.output
        said = run("dmesg")
        for reason in found:
            assert said.count(f"usiw: {A.dev}: no connection to {B.ip}:{reason.port}: {reason.line}\n") == 1, said[-3000:]


def test_verified_traffic():
    server = Server(B, "--events")
    clients = [server.client("--rounds", 30, "--connections", 2), server.client("--rounds", 30, "--events")]
    for client in clients:
        client.expect(0, 90)
    server.stop()


def test_bad_wire():
    server = Server()
    with netem("loss 1% reorder 5% duplicate 1% delay 100us"):
        server.client("--rounds", 30).expect(0, 90)
    server.stop()


def test_peer_killed():
    server = Server()
    client = server.client("--seconds", 60)
    client.wait_for("^connected")
    time.sleep(0.3)
    server.proc.kill()
    assert client.wait(20) == 2, client.output


def test_link_delete_and_add():
    server = Server()
    client = server.client("--seconds", 60)
    client.wait_for("^connected")
    run("rdma", "link", "delete", B.dev)
    assert client.wait(30) == 2, client.output
    server.proc.kill()
    run("rdma", "link", "add", B.dev, "type", PEER or "usiw", "netdev", B.netdev, where=B.where)
    until(lambda: B.dev in rdma_links(), "the device")
    rping(count=5)


def rping_server(site):
    return Proc(["rping", "-s", "-a", "0.0.0.0", "-p", SHARED_PORT, "-C", 5], where=site.where)


def rping_client(server, client):
    return Proc(["rping", "-c", "-a", server.ip, "-p", SHARED_PORT, "-C", 5], where=client.where)


def test_two_servers_on_one_port():
    """rdma_cm lets each listen on both devices; each is reached by its own namespace's addresses only."""
    in_a, in_b = rping_server(A), rping_server(B)
    try:
        in_a.wait_listening(SHARED_PORT)
        in_b.wait_listening(SHARED_PORT)
        rping_client(B, A).expect(0, 30)
        in_b.expect(0, 30)
        assert in_a.status is None, in_a.output
        assert rping_client(B, A).wait(30) != 0
        assert in_a.status is None, in_a.output
        rping_client(A, B).expect(0, 30)
        in_a.expect(0, 30)
    finally:
        in_a.kill()
        in_b.kill()


@pytest.mark.parametrize("option", ["SO_REUSEADDR", "SO_REUSEPORT"])
def test_port_that_a_user_shares(option, expected):
    """An unprivileged user has bound one address first, and lets others in."""
    expected.messages.append(r"cma_listen_on_dev, error -98")
    taker = Proc(["python3", "-c", TAKER, option, B.ip, SHARED_PORT], where=B.where)
    try:
        taker.wait_for("^bound")
        server = rping_server(B)
        assert server.wait(30) != 0, server.output
    finally:
        taker.kill()


@pytest.mark.parametrize("option", ["SO_REUSEADDR", "SO_REUSEPORT"])
def test_port_of_a_listener_is_not_shared(option):
    server = rping_server(B)
    try:
        server.wait_listening(SHARED_PORT)
        taker = Proc(["python3", "-c", TAKER, option, B.ip, SHARED_PORT], where=B.where)
        assert taker.wait(30) != 0
        assert "Address already in use" in taker.output
    finally:
        server.kill()


def test_namespace_goes_away_under_traffic(expected):
    """Last of all: B's namespace is deleted with its device, a server and live connections."""
    expected.state_changes = True
    expected.messages.append("ib_query_port failed")  # the core's cache of ports, when the netdev is gone already
    server = Server()
    client = server.client("--seconds", 90, *AT_FULL_SPEED)
    client.wait_for("^connected")
    run("ip", "netns", "del", B.ns)
    # The namespace lives on until the server has gone: end it; then device and netdev go.
    server.proc.kill()
    assert client.wait(60) == 2, client.output
    # A veth goes with its other end.
    until(lambda: not {A.dev, B.dev} & rdma_links().keys(), "the devices going with the namespace", timeout=30)
