# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Devices: making and removing them, what they follow, and what is refused."""

import contextlib
import os
import pathlib
import random
import re
import subprocess
import time

import pytest

from support import watch
from support.cases import path_of, list_cases, run_cases
from support.net import A, B, PEER, mac_of, rdma_links
from support.pairs import Server, next_port, rping
from support.procs import PATIENCE, Proc, run, until
from test_chaos import link_add, reload_module

pytestmark = pytest.mark.skipif(bool(PEER), reason="usiw's own devices")


@contextlib.contextmanager
def netdev(name, *kind):
    """A further netdev, up."""
    run("ip", "link", "add", name, *kind)
    try:
        run("ip", "link", "set", name, "up")
        yield name
    finally:
        subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)


def link_add_fails(device, over):
    """Output of a `rdma link add` that must fail."""
    done = subprocess.run(["rdma", "link", "add", device, "type", "usiw", "netdev", over], capture_output=True,
                          text=True, timeout=30, check=False)
    assert done.returncode != 0
    return done.stdout + done.stderr


def gid_of(device):
    """GID 0 as bytes."""
    with open(f"/sys/class/infiniband/{device}/ports/1/gids/0", encoding="ascii") as f:
        return bytes.fromhex(f.read().strip().replace(":", ""))


@pytest.mark.core
def test_unknown_netdev():
    assert re.search(r"No such device|does not exist|Wrong netdev|Cannot find", link_add_fails("usiw9", "nonesuch0"),
                     re.I)


@pytest.mark.core
def test_second_device_on_a_netdev():
    assert re.search(r"exist", link_add_fails("usiw9", A.netdev), re.I)
    assert "usiw9" not in rdma_links()


def test_name_is_taken():
    with netdev("d0", "type", "dummy"):
        assert "File exists" in link_add_fails(A.dev, "d0")
        assert rdma_links()[A.dev]["netdev"] == A.netdev
        run("rdma", "link", "add", "usiw9", "type", "usiw", "netdev", "d0")
        run("rdma", "link", "delete", "usiw9")


ATTACH = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "attach"


def attach(name, listed, *options):
    """packaging/attach, with this list of devices; what it says."""
    done = subprocess.run([ATTACH, *options, name], env={**os.environ, "USIW_DEVICES": str(listed)}, timeout=30,
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.core
def test_interface_in_the_list_gets_its_device(tmp_path):
    """Once, whenever it appears, by the name that the list has for it or the first free one; others do not."""
    listed = tmp_path / "devices"
    listed.write_text("# d1 no\nd0 mine\n  d2\n")
    with netdev("d0", "type", "dummy"), netdev("d1", "type", "dummy"):
        for name in ("d0", "d1", "d0"):
            assert attach(name, listed, "--listed") == (0, "")
        assert {name: link["netdev"] for name, link in rdma_links().items() if link["netdev"] in ("d0", "d1")} == {
            "mine": "d0"}
        assert attach("d1", listed) == (0, "")  # as usiw@d1.service does
        taken = [name for name, link in rdma_links().items() if link["netdev"] == "d1"]
        assert len(taken) == 1 and re.fullmatch(r"usiw\d+", taken[0])
        run("ip", "link", "set", "d1", "down")  # which 6.1 wants for the next
        run("ip", "link", "set", "d1", "name", "d2")
        assert attach("d2", listed, "--listed") == (0, "")  # it has its device already
        assert taken == [name for name, link in rdma_links().items() if link["netdev"] == "d2"]
        run("ip", "link", "set", "d2", "name", "d1")  # for who removes it
    until(lambda: "mine" not in rdma_links(), "the devices going with their netdevs")
    assert attach("d0", listed, "--listed") == (1, "usiw: there is no network interface d0\n")
    assert attach("d9", listed, "--listed") == (0, "")
    with netdev("d0", "type", "dummy"):  # and when it comes again
        assert attach("d0", listed, "--listed") == (0, "")
        assert rdma_links()["mine"]["netdev"] == "d0"


@pytest.fixture(name="udevd")
def run_udevd():
    """udev with the rule as `make install` writes it, and an empty /etc/usiw/devices, which the test may fill."""
    rule, listed = pathlib.Path("/run/udev/rules.d/90-usiw.rules"), pathlib.Path("/etc/usiw/devices")
    for path in (rule, listed):
        path.parent.mkdir(parents=True, exist_ok=True)
    template = ATTACH.with_name("90-usiw.rules.in").read_text(encoding="utf-8")
    rule.write_text(template.replace("@LIBEXEC@", str(ATTACH.parent)), encoding="utf-8")
    listed.write_text("", encoding="utf-8")
    with subprocess.Popen(["/lib/systemd/systemd-udevd"], stderr=subprocess.DEVNULL) as daemon:
        until(lambda: subprocess.run(["udevadm", "control", "--ping"], capture_output=True, check=False).returncode == 0,
              "udevd")
        yield listed
        daemon.terminate()
    for path in (rule, listed):
        path.unlink()


def test_udev_makes_the_devices_of_interfaces_that_come(udevd):
    udevd.write_text("d0 mine\nd5\n", encoding="utf-8")
    for _ in range(2):
        with netdev("d0", "type", "dummy"):
            until(lambda: rdma_links().get("mine", {}).get("netdev") == "d0", "the device of d0")
        until(lambda: "mine" not in rdma_links(), "it going with d0")
    with netdev("d1", "type", "dummy"):
        run("ip", "link", "set", "d1", "down")
        run("ip", "link", "set", "d1", "name", "d5")
        try:
            until(lambda: "d5" in {link["netdev"] for link in rdma_links().values()}, "the device of what is d5 now")
        finally:
            run("ip", "link", "set", "d5", "name", "d1")


def test_tunnel_is_refused():
    """Not an Ethernet-like netdev."""
    with netdev("t0", "type", "ipip", "local", A.ip, "remote", B.ip):
        assert link_add_fails("usiw9", "t0")


def test_unknown_device_cannot_be_deleted():
    assert subprocess.run(["rdma", "link", "delete", "nonesuch0"], capture_output=True, check=False).returncode != 0


def test_five_devices():
    """Several devices, each its own GID; their netdevs vanish with them inside."""
    names = [f"d{i}" for i in range(5)]
    try:
        for name in names:
            run("ip", "link", "add", name, "type", "dummy")
            run("rdma", "link", "add", f"u{name}", "type", "usiw", "netdev", name)
        assert len({gid_of(f"u{name}") for name in names}) == 5
    finally:
        for name in names:
            run("ip", "link", "del", name)
    until(lambda: set(rdma_links()) == {A.dev, B.dev}, "the devices going with their netdevs")


@pytest.mark.core
def test_gid_is_the_mac_and_follows_it():
    with netdev("d0", "type", "dummy"):
        run("rdma", "link", "add", "usiw9", "type", "usiw", "netdev", "d0")
        assert gid_of("usiw9")[:6].hex(":") == mac_of("d0")
        run("ip", "link", "set", "d0", "address", "02:11:22:33:44:55")
        until(lambda: gid_of("usiw9")[:6] == bytes.fromhex("021122334455"), "the GID following the MAC")
        run("rdma", "link", "delete", "usiw9")


def parent_of(device, *prefix):
    """/sys/class/infiniband/DEVICE/parent as a program sees it; None if the netdev is not there."""
    done = subprocess.run([*prefix, "cat", f"/sys/class/infiniband/{device}/parent"], capture_output=True, text=True,
                          timeout=30, check=False)
    assert done.returncode == 0 or "No such device" in done.stderr, done.stderr
    return None if done.returncode else done.stdout


@pytest.mark.core
def test_parent_is_the_netdev():
    """Its name, also after it was renamed, in its own network namespace only. There is no link to another device:
    by one to a PCI device, udev would give the RDMA device another name."""
    with netdev("d0", "type", "dummy"):
        run("rdma", "link", "add", "usiw9", "type", "usiw", "netdev", "d0")
        assert parent_of("usiw9") == "d0\n"
        run("ip", "link", "set", "d0", "down")  # which 6.1 wants for the next
        run("ip", "link", "set", "d0", "name", "d7")
        try:
            assert parent_of("usiw9") == "d7\n"
        finally:
            run("ip", "link", "set", "d7", "name", "d0")
        assert not os.path.exists("/sys/class/infiniband/usiw9/device")
        run("rdma", "link", "delete", "usiw9")
    run("ip", "netns", "add", "parents")
    inside = ["ip", "netns", "exec", "parents"]
    try:
        run(*inside, "ip", "link", "add", "d0", "type", "dummy")
        run(*inside, "rdma", "link", "add", "usiw9", "type", "usiw", "netdev", "d0")
        assert parent_of("usiw9", *inside) == "d0\n"
        assert parent_of("usiw9") is None
        run(*inside, "rdma", "link", "delete", "usiw9")
    finally:
        run("ip", "netns", "del", "parents")


def test_parent_is_read_while_the_netdev_goes():
    """Readers meet renames and the removal of netdev and device; a reader sees a name that the netdev had, or none."""
    read = "while :; do cat /sys/class/infiniband/usiw9/parent; done 2>/dev/null"
    readers = [Proc(["sh", "-c", read]) for _ in range(2)]
    for _ in range(3):
        run("ip", "link", "add", "d0", "type", "dummy")
        run("rdma", "link", "add", "usiw9", "type", "usiw", "netdev", "d0")
        for old, new in (("d0", "d7"), ("d7", "d0"), ("d0", "d7")):
            run("ip", "link", "set", old, "name", new)
        until(lambda: parent_of("usiw9") == "d7\n", "the new name")
        run("ip", "link", "del", "d7")
        until(lambda: "usiw9" not in rdma_links(), "the device going with its netdev")
    for reader in readers:
        reader.kill()
    lines = set("".join(reader.output for reader in readers).split())
    assert lines == {"d0", "d7"}, lines


@pytest.mark.core
def test_state_follows_the_link():
    with netdev("d0", "type", "dummy"):
        run("rdma", "link", "add", "usiw9", "type", "usiw", "netdev", "d0")
        until(lambda: rdma_links()["usiw9"]["state"] == "ACTIVE", "ACTIVE")
        run("ip", "link", "set", "d0", "down")
        until(lambda: rdma_links()["usiw9"]["state"] == "DOWN", "DOWN")
        run("ip", "link", "set", "d0", "up")
        until(lambda: rdma_links()["usiw9"]["state"] == "ACTIVE", "ACTIVE again")
        run("rdma", "link", "delete", "usiw9")


@contextlib.contextmanager
def changed(setting, value, back):
    """`ip link set` of both netdevs and back."""
    for site in (A, B):
        run("ip", "link", "set", site.netdev, setting, value)
    try:
        yield
    finally:
        for site in (A, B):
            run("ip", "link", "set", site.netdev, setting, back)


@pytest.mark.parametrize("mtu", [600, 1400, 3000, 9000])
def test_mtu(mtu):
    """New connections use the new MTU; all data arrives."""
    with changed("mtu", str(mtu), "1500"):
        rping(size=20000, count=10)
        wanted = ("send/sizes", "read/sizes", "write/1MiB")
        results = run_cases("verbs_data", [case for case in list_cases("verbs_data") if case.name in wanted])
        failed = [f"{name}: {result.text}" for name, result in results.items() if not result.passed]
        assert not failed, failed


def test_mtu_falls_under_traffic(kmsg, expected):
    """Connections of the old MTU go on, and do not make the kernel print a line for each packet."""
    expected.messages.append(watch.TOO_LONG)
    server = Server()
    client = server.client("--seconds", 60, "--connections", 2)
    client.wait_for("^connected")
    with changed("mtu", "600", "1500"):
        time.sleep(2)  # the programs have read of it
        kmsg.take()
        time.sleep(4)
        server.end_client(client)
        later = [record.text for record in kmsg.take()]
    assert not any(re.search(watch.TOO_LONG, text) for text in later), later
    server.stop()
    rping(count=3)


def test_mac_change_under_traffic():
    """The peer's MAC changes: neighbour discovery finds the new one and the connection lives on."""
    old = mac_of(B.netdev)
    server = Server()
    client = server.client("--seconds", 60)
    client.wait_for("^connected")
    try:
        run("ip", "link", "set", B.netdev, "address", "02:aa:bb:cc:dd:01")
        run("ip", "neigh", "flush", "dev", A.netdev)
        server.end_client(client)
        server.stop()
        rping(count=5)
    finally:
        run("ip", "link", "set", B.netdev, "address", old)
        run("ip", "neigh", "flush", "dev", A.netdev)
    rping(count=5)


def test_second_address():
    """Addresses may come and go: a connection by a new one works, and ends when it is taken away or goes on."""
    run("ip", "addr", "add", "10.9.1.2/32", "dev", B.netdev)
    run("ip", "route", "add", "10.9.1.2", "dev", A.netdev, "src", A.ip, "table", "101")
    run("ip", "rule", "add", "pref", "1105", "to", "10.9.1.2", "iif", "lo", "lookup", "101")
    run("ip", "rule", "add", "pref", "1106", "from", "10.9.1.2", "to", A.ip, "lookup", "102")
    try:
        rping(server=B._replace(ip="10.9.1.2"), count=5)
    finally:
        run("ip", "rule", "del", "pref", "1105")
        run("ip", "rule", "del", "pref", "1106")
        run("ip", "route", "del", "10.9.1.2", "table", "101")
        run("ip", "addr", "del", "10.9.1.2/32", "dev", B.netdev)


@pytest.mark.core
def test_device_on_lo():
    """One device on lo is both ends."""
    run("rdma", "link", "add", "usiwlo", "type", "usiw", "netdev", "lo")
    try:
        port = next_port()
        server = Proc(["rping", "-s", "-a", "127.0.0.1", "-p", port, "-C", 20, "-V", "-S", 30000]).wait_listening(port)
        Proc(["rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 20, "-V", "-S", 30000]).expect(0)
        server.expect(0, 20)
    finally:
        run("rdma", "link", "delete", "usiwlo")


def test_netns_deletion():
    """A namespace is deleted with a device and a running program inside."""
    run("ip", "netns", "add", "doomed")
    try:
        run("ip", "link", "add", "x0", "type", "veth", "peer", "name", "x1")
        run("ip", "link", "set", "x1", "netns", "doomed")
        run("ip", "-n", "doomed", "addr", "add", "10.99.0.1/24", "dev", "x1")
        run("ip", "-n", "doomed", "link", "set", "x1", "up")
        run("ip", "link", "set", "x0", "up")
        run("rdma", "link", "add", "usiw9", "type", "usiw", "netdev", "x1", where="ip netns exec doomed")
        server = Proc([path_of("traffic"), "server", "--to", "10.99.0.1", "--port", next_port()],
                      where="ip netns exec doomed")
        server.wait_for("^listening")
        run("rdma", "link", "delete", "usiw9")
        server.kill()
        run("rdma", "link", "add", "usiw9", "type", "usiw", "netdev", "x1", where="ip netns exec doomed")
    finally:
        run("ip", "netns", "del", "doomed")
    until(lambda: "usiw9" not in rdma_links(), "the device going with its namespace")
    until(lambda: subprocess.run(["ip", "link", "show", "x0"], capture_output=True, check=False).returncode != 0,
          "the veth pair going with the namespace")


@pytest.fixture(name="nic")
def hardware_netdev():
    """A netdev with a device of a bus below it, down, in the initial namespace; it is none of the two ends'."""
    subprocess.run(["modprobe", "virtio_net"], check=False, capture_output=True)  # built in on the debug kernel
    found = []

    def appeared():
        found[:] = [name for name in os.listdir("/sys/class/net") if os.path.exists(f"/sys/class/net/{name}/device")]
        return found
    until(appeared, "the NIC")
    return found[0]


def test_hardware_netdev_outlives_its_namespace(nic):
    """A virtual netdev goes with its namespace, hardware moves to the initial one: its device goes, under traffic,
    before the namespace does, and another one can be made."""
    inside = "ip netns exec doomed"
    for _ in range(3):
        run("ip", "netns", "add", "doomed")
        try:
            run("ip", "link", "set", nic, "netns", "doomed")
            run("ip", "-n", "doomed", "link", "set", "lo", "up")
            run("ip", "-n", "doomed", "addr", "add", "10.99.0.1/24", "dev", nic)
            run("ip", "-n", "doomed", "link", "set", nic, "up")
            run("rdma", "link", "add", "usiw9", "type", "usiw", "netdev", nic, where=inside)
            port = next_port()
            server = Proc([path_of("traffic"), "server", "--to", "10.99.0.1", "--port", port], where=inside)
            server.wait_for("^listening")
            client = Proc([path_of("traffic"), "client", "--from", "10.99.0.1", "--to", "10.99.0.1", "--port", port,
                           "--seconds", 60, "--connections", 3], where=inside)
            client.wait_for("^connected")
        finally:
            run("ip", "netns", "del", "doomed")
        # With the last of them the namespace goes.
        client.kill()
        server.kill()
        # The NIC comes up again as soon as it is back, which its old device may still hear of.
        until(
            lambda: subprocess.run(["ip", "link", "set", nic, "up"], capture_output=True, check=False).returncode == 0,
            "the NIC coming back")
        until(lambda: "usiw9" not in rdma_links(), "the device going with the namespace")
        run("rdma", "link", "add", "usiw9", "type", "usiw", "netdev", nic)
        run("rdma", "link", "delete", "usiw9")
        run("ip", "link", "set", nic, "down")


def test_netdev_goes_while_its_device_is_made(expected):
    """`ip link del` in the midst of `rdma link add`: either fails or both succeed, nothing is left and nothing
    waits."""
    # The core says so when it sees the netdev go.
    expected.messages += ["ib_query_port failed", "Couldn't set up InfiniBand P_Key/GID cache",
                          "Couldn't register device with driver model"]
    rng = random.Random(1)
    for _ in range(40):
        run("ip", "link", "add", "d0", "type", "dummy")
        adding = Proc(["rdma", "link", "add", "usiw9", "type", "usiw", "netdev", "d0"])
        time.sleep(rng.uniform(0, 0.06) * PATIENCE)
        run("ip", "link", "del", "d0")
        assert adding.wait(20) in (0, 1), adding.output
        until(lambda: "usiw9" not in rdma_links(), "the device going with its netdev")


@pytest.mark.core
def test_module_parameter_netdevs():
    """insmod usiw.ko netdevs=va,vb,nonesuch0 makes the devices that can be made."""
    for site in (A, B):
        run("rdma", "link", "delete", site.dev)
    until(lambda: subprocess.run(["rmmod", "usiw"], capture_output=True, check=False).returncode == 0, "rmmod", 15)
    reload_module([f"netdevs={A.netdev},{B.netdev}"])
    links = rdma_links()
    assert sorted(link["netdev"] for link in links.values()) == sorted([A.netdev, B.netdev])
    if set(links) != {A.dev, B.dev} or links[A.dev]["netdev"] != A.netdev:
        for name in links:
            run("rdma", "link", "delete", name)
        for site in (A, B):
            run("rdma", "link", "add", site.dev, "type", "usiw", "netdev", site.netdev)
    rping(count=5)


def test_module_parameter_unknown_netdev(expected):
    """A netdev that does not exist: one line in dmesg that says so."""
    expected.messages.append("nonesuch0")
    for site in (A, B):
        run("rdma", "link", "delete", site.dev)
    until(lambda: subprocess.run(["rmmod", "usiw"], capture_output=True, check=False).returncode == 0, "rmmod", 15)
    module = f"build/kmod/{os.uname().release}/usiw.ko"
    done = subprocess.run(["insmod", module, "netdevs=nonesuch0"], capture_output=True, text=True, check=False)
    said = done.stderr + run("dmesg").rpartition("\n" * 2)[2]
    assert "nonesuch0" in said
    if done.returncode != 0:
        run("insmod", module)
    for site in (A, B):
        if site.dev not in rdma_links():
            run("rdma", "link", "add", site.dev, "type", "usiw", "netdev", site.netdev)
    rping(count=2)


# ---- One clear line ----

@pytest.mark.core
def test_no_permission_for_raw_sockets():
    """Raw packets asked for by hand, without CAP_NET_RAW: one line on stderr that says what is missing."""
    proc = Proc(["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw", "rping", "-c", "-a", B.ip,
                 "-p", next_port(), "-C", 1], env={"USIW_PORT": "packet"})
    assert proc.wait(20) != 0
    lines = [line for line in proc.output.splitlines() if "usiw" in line]
    assert len(lines) == 1 and re.search(r"CAP_NET_RAW|cap_net_raw", lines[0]), proc.output


def test_module_without_provider():
    """A program that does not find the provider: no device for it, libibverbs says so; nothing in the kernel."""
    proc = Proc(["ibv_devinfo", "-d", A.dev], env={"RDMAV_DRIVERS": "/nonexistent/libnone", "IBV_SHOW_WARNINGS": 1})
    assert proc.wait(20) != 0
    assert re.search(r"No IB devices found|not found|Failed to|no userspace device-specific driver",
                     proc.output), proc.output


def test_provider_without_module():
    """Only the provider: one line that says to load the module, or no device at all, and no crash."""
    for site in (A, B):
        run("rdma", "link", "delete", site.dev)
    until(lambda: subprocess.run(["rmmod", "usiw"], capture_output=True, check=False).returncode == 0, "rmmod", 15)
    try:
        proc = Proc(["ibv_devinfo"])
        assert proc.wait(20) != 0
        assert len(proc.output.strip().splitlines()) <= 2 and proc.output.strip(), proc.output
    finally:
        reload_module()
        for site in (A, B):
            if site.dev not in rdma_links():
                link_add(site)
