# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A network namespace per end, with a device in each. Runs in a guest of its own (--topology netns)."""

import time

import pytest

from support.net import A, B, PEER, netem, rdma_links
from support.pairs import Server, next_port, perftest, rping
from support.procs import Proc, run, until

pytestmark = pytest.mark.netns


@pytest.mark.parametrize("size", [64, 30000])
def test_rping(size):
    rping(size=size, count=20)


def test_rping_on_any_address():
    rping(bind="0.0.0.0")


def test_same_namespace():
    rping(server=B, client=B)


def test_one_port_in_both_namespaces():
    """A wildcard listener in each, on one port: rdma_cm listens on the devices of both for either, and nothing crosses."""
    port = next_port()
    servers = {site: Proc(["rping", "-s", "-a", "0.0.0.0", "-p", port, "-C", 5, "-v"], where=site.where).wait_listening(port)
               for site in (A, B)}
    run("rping", "-c", "-a", B.ip, "-p", port, "-C", 5, where=A.where)
    assert "rdma-ping-4" in servers[B].expect(0)
    assert servers[A].status is None
    assert "rdma-ping" not in servers[A].output
    run("rping", "-c", "-a", A.ip, "-p", port, "-C", 5, where=B.where)
    assert "rdma-ping-4" in servers[A].expect(0)


def test_listener_takes_no_port_of_another_namespace():
    """A listener in A leaves the port free in B and in the initial namespace, for UDP as for RDMA."""
    port = next_port()
    server = Proc(["rping", "-s", "-a", "0.0.0.0", "-p", port], where=A.where).wait_listening(port)
    bind = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('0.0.0.0', {port}))"
    run("/usr/bin/python3", "-c", bind, where=B.where)
    run("/usr/bin/python3", "-c", bind)
    server.kill()


def test_new_device_beside_a_foreign_listener(expected):
    """A device made in B while A listens on all addresses, on a port that is taken in B: rdma_cm knows it all the same."""
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


def test_namespace_goes_away_under_traffic(expected):
    """Last of all: B's namespace is deleted with its device, a server and live connections."""
    expected.state_changes = True
    server = Server()
    client = server.client("--seconds", 90)
    client.wait_for("^connected")
    run("ip", "netns", "del", B.ns)
    # The namespace lives on until the server has gone: end it; then device and netdev go.
    server.proc.kill()
    assert client.wait(60) == 2, client.output
    # A veth goes with its other end.
    until(lambda: not {A.dev, B.dev} & rdma_links().keys(), "the devices going with the namespace", timeout=30)
