# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""RDMA's exclusive mode: each network namespace, as each pod, has its own device and nobody else's. Runs in a guest of
its own (--topology exclusive)."""

import json
import re

import pytest

from support.net import A, B, devices_for_all, rdma_links, unprivileged
from support.pairs import Server, next_port, pair, perftest, rping
from support.procs import Proc, run, until

pytestmark = pytest.mark.exclusive


def devices(site):
    """Names of the RDMA devices that a program at `site` finds."""
    return [line.split()[0] for line in run("ibv_devices", where=site.where).splitlines()[2:] if line.strip()]


@pytest.mark.parametrize("site,other", [(A, B), (B, A)], ids=["A", "B"])
def test_each_namespace_sees_its_own_device_only(site, other):
    assert devices(site) == [site.dev]
    assert [entry["ifname"] for entry in json.loads(run("rdma", "-j", "dev", where=site.where))] == [site.dev]
    assert run("ibv_devinfo", "-d", other.dev, status=255, where=site.where).count("No such device") <= 1
    assert other.dev not in run("rdma", "resource", "show", "cm_id", where=site.where)


def test_initial_namespace_sees_no_device():
    assert rdma_links() == {}


def test_rping():
    rping(size=4096, count=20)


def test_rping_on_any_address():
    rping(bind="0.0.0.0")


def test_one_port_in_both_namespaces():
    """A wildcard listener in each, on one port: nothing crosses."""
    port = next_port()
    servers = {
        site: Proc(["rping", "-s", "-a", "0.0.0.0", "-p", port, "-C", 5, "-v"], where=site.where).wait_listening(port)
        for site in (A, B)
    }
    run("rping", "-c", "-a", B.ip, "-p", port, "-C", 5, where=A.where)
    assert "rdma-ping-4" in servers[B].expect(0)
    assert servers[A].status is None
    assert "rdma-ping" not in servers[A].output
    run("rping", "-c", "-a", A.ip, "-p", port, "-C", 5, where=B.where)
    assert "rdma-ping-4" in servers[A].expect(0)


@pytest.mark.parametrize("tool", ["ib_send_lat", "ib_write_bw", "ib_read_lat"])
def test_perftest(tool):
    perftest(tool, "-s", 4096, "-n", 100)


#: /dev/infiniband as a container runtime makes it: the nodes of the pod's own device, and rdma_cm. Then the command.
POD = """\
set -e
device=$1
shift
mount -t tmpfs none /mnt
for node in rdma_cm $(grep -lx "$device" /sys/class/infiniband_verbs/*/ibdev | cut -d/ -f5); do
    cp -a "/dev/infiniband/$node" "/mnt/$node"
done
mount --move /mnt /dev/infiniband
exec "$@"
"""


@pytest.fixture(name="pods")
def _pods(tmp_path):
    """Both ends for programs of user nobody, each in a pod with one device."""
    script = tmp_path / "pod"
    script.write_text(POD, encoding="ascii")
    with devices_for_all():
        yield [
            unprivileged(site._replace(where=f"{site.where} unshare --mount sh {script} {site.dev}")) for site in (A, B)
        ]


def test_unprivileged_pod_sees_one_device(pods):
    for site in pods:
        assert run("ls", "/dev/infiniband", where=site.where).split()[0] == "rdma_cm"
        assert len(run("ls", "/dev/infiniband", where=site.where).split()) == 2
        assert devices(site) == [site.dev]


def test_unprivileged_rping(pods):
    rping(server=pods[1], client=pods[0], size=4096, count=20)
    rping(bind="0.0.0.0", server=pods[1], client=pods[0])


@pytest.mark.parametrize("tool", ["ib_send_lat", "ib_write_bw", "ib_read_lat"])
def test_unprivileged_perftest(pods, tool):
    perftest(tool, "-s", 4096, "-n", 100, server=pods[1], client=pods[0])


def test_unprivileged_ucmatose(pods):
    port = next_port()
    pair(["ucmatose", "-b", B.ip, "-p", port, "-C", 10, "-S", 4000],
         ["ucmatose", "-s", B.ip, "-b", A.ip, "-p", port, "-C", 10, "-S", 4000], port, pods[1], pods[0])


def test_no_address_of_a_foreign_device():
    """Who binds to the other namespace's address finds no device."""
    out = Proc(["rping", "-s", "-a", B.ip, "-p", next_port()], where=A.where)
    assert out.wait(20) != 0
    assert re.search(r"rdma_bind_addr: (No such device|Cannot assign requested address)", out.output)


def test_foreign_device_cannot_be_opened():
    """The node of the other namespace's device, opened by its number."""
    numbers = sorted(re.findall(r"uverbs(\d+)", run("ls", "/dev/infiniband")))
    assert len(numbers) == 2
    script = ("import os, sys\nfor n in sys.argv[1:]:\n"
              " try: os.open(f'/dev/infiniband/uverbs{n}', os.O_RDWR); print('opened', n)\n"
              " except OSError as e: print('refused', n, e.errno)")
    seen = {site: run("/usr/bin/python3", "-c", script, *numbers, where=site.where).split() for site in (A, B)}
    for site in (A, B):
        assert seen[site].count("opened") == 1, seen
        assert seen[site].count("refused") == 1, seen
    assert seen[A].index("opened") != seen[B].index("opened"), seen


def test_device_moves_out_and_back_under_traffic(expected):
    """All of its connections end in order; nobody hangs; then the device works where it was."""
    expected.state_changes = True
    run("ip", "netns", "attach", "initial", 1)
    server = Server()
    client = server.client("--seconds", 60)
    client.wait_for("^connected")
    run("rdma", "dev", "set", B.dev, "netns", "initial", where=B.where)
    run("ip", "netns", "del", "initial")
    assert client.wait(30) == 2, client.output
    server.proc.kill()
    assert B.dev in rdma_links()
    assert devices(B) == []
    run("rdma", "dev", "set", B.dev, "netns", B.ns)
    until(lambda: devices(B) == [B.dev], "the device in its namespace")
    rping(count=5)


def test_netdev_in_another_namespace_than_the_device(expected):
    """A device whose interface lies in another namespace serves nobody, and says so by an error."""
    expected.state_changes = True
    run("rdma", "dev", "set", B.dev, "netns", A.ns, where=B.where)
    try:
        assert sorted(devices(A)) == sorted([A.dev, B.dev])
        out = Proc(["rping", "-s", "-a", B.ip, "-p", next_port()], where=A.where)
        assert out.wait(20) != 0
        server = Proc(["rping", "-s", "-a", B.ip, "-p", next_port()], where=B.where)
        assert server.wait(20) != 0
    finally:
        run("rdma", "dev", "set", B.dev, "netns", B.ns, where=A.where)
    until(lambda: devices(B) == [B.dev], "the device in its namespace")
    rping(count=5)


def test_pod_ends_under_traffic(expected):
    """Last of all: B's namespace is deleted with its device and a server in it; device and wire go, A's client is
    told."""
    expected.state_changes = True
    server = Server()
    client = server.client("--seconds", 90)
    client.wait_for("^connected")
    run("ip", "netns", "del", B.ns)
    server.proc.kill()
    assert client.wait(60) == 2, client.output
    until(lambda: not {A.dev, B.dev} & {*rdma_links(), *devices(A)}, "the devices going with the wire", timeout=30)
