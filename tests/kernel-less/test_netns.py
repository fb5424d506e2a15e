# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Two network namespaces with a veth pair between them: an MTU of 1500, routes, neighbours, and each kind of port."""

import os
import subprocess

import pytest

from support.pairs import next_port
from support.procs import Proc, run, until

A4, B4, A6, B6 = "10.77.0.1", "10.77.0.2", "fd77::1", "fd77::2"


@pytest.fixture(scope="module")
def other_host():
    """What to put before a command to run it at B; A is this namespace."""
    with subprocess.Popen(["unshare", "--net", "sleep", "1000"]) as holder:
        try:
            where = f"nsenter --target {holder.pid} --net"
            until(lambda: os.readlink("/proc/self/ns/net") != os.readlink(f"/proc/{holder.pid}/ns/net"), "a namespace")
            run("ip", "link", "add", "va", "type", "veth", "peer", "name", "vb", "netns", str(holder.pid))
            for device, four, six, at in (("va", A4, A6, ""), ("vb", B4, B6, where)):
                run("ip", "addr", "add", f"{four}/24", "dev", device, where=at)
                run("ip", "addr", "add", f"{six}/64", "dev", device, "nodad", where=at)
                run("ip", "link", "set", device, "up", where=at)
            yield where
        finally:
            holder.kill()


#: --port of the server and of the client. Shared memory does not reach beyond the namespace.
KINDS = [("auto", "auto"), ("packet", "packet"), ("packet", "socket"), ("auto", "packet")]


@pytest.fixture(params=KINDS, ids="-".join)
def kinds(request):
    return request.param


def both(usiw_run, where, server, client, port, kinds=("auto", "auto")):
    first = Proc([*where.split(), usiw_run.path, "--port", kinds[0], *server]).wait_listening(port)
    second = usiw_run(client, ["--port", kinds[1]])
    second.expect(0, 60)
    first.expect(0, 60)
    return second.output


@pytest.mark.parametrize("address", [B4, B6], ids=["ipv4", "ipv6"])
def test_rping(usiw_run, other_host, address, kinds):
    port = next_port()
    options = ["-p", str(port), "-C", "30", "-S", "30000", "-V"]
    both(usiw_run, other_host, ["rping", "-s", "-a", address, *options], ["rping", "-c", "-a", address, *options], port, kinds)


@pytest.mark.parametrize("tool", ["ib_send_bw", "ib_read_bw", "ib_write_bw"])
def test_perftest(usiw_run, other_host, tool, kinds):
    port = next_port()
    options = ["-R", "-F", "-p", str(port), "-s", "65536", "-n", "500"]
    both(usiw_run, other_host, [tool, *options], [tool, *options, B4], port, kinds)


def test_listening_on_any_address(usiw_run, other_host):
    port = next_port()
    options = ["-p", str(port), "-C", "5", "-V"]
    both(usiw_run, other_host, ["rping", "-s", "-a", "0.0.0.0", *options], ["rping", "-c", "-a", B4, *options], port)


def packet_sockets():
    with open("/proc/self/net/packet", encoding="ascii") as f:
        return len(f.readlines()) - 1


def test_killed_peer_is_told(usiw_run, other_host, kinds):
    """kill -9 on the other host; and packets are what they are said to be."""
    port = next_port()
    server = Proc([*other_host.split(), usiw_run.path, "--port", kinds[0], "rping", "-s", "-a", B4, "-p",
                   str(port)]).wait_listening(port)
    client = usiw_run(["rping", "-c", "-a", B4, "-p", port, "-v", "-C", 100000000], ["--port", kinds[1]])
    client.wait_for("ping data")
    assert packet_sockets() == (1 if kinds[1] == "packet" else 0)
    server.signal(9)
    server.wait()
    client.wait(30)
    assert "DISCONNECT" in client.output and "status 12" not in client.output


def test_preferred_address(usiw_run, other_host):
    """--address is where connections come from when the program leaves it open."""
    run("ip", "addr", "replace", "10.77.0.9/24", "dev", "va")
    port = next_port()
    options = ["-p", str(port), "-C", "5", "-V"]
    server = Proc([*other_host.split(), usiw_run.path, "rping", "-s", "-a", B4, *options, "-d"]).wait_listening(port)
    client = usiw_run(["rping", "-c", "-a", B4, *options], ["--address", "10.77.0.9"])
    client.expect(0)
    server.expect(0)
