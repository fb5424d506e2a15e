# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Netdevs beside the plain one: VLANs, bonds, and several links with link-local addresses of their own. In a guest with
a namespace per end (--topology netns)."""

import contextlib
import pathlib
import re
import subprocess

import pytest

from support.cases import PROGRAMS, path_of
from support.net import A, B, link_local_of, rdma_links
from support.pairs import Server, next_port, pair, rping
from support.procs import Proc, run, until

pytestmark = [pytest.mark.netns, pytest.mark.kernel]

CM_USER, CM_LINKS = path_of("cm_user"), path_of("cm_links")
USIW_RUN = str(pathlib.Path(PROGRAMS).parents[1] / "run" / "usiw-run")

VLAN_ID = 5
OWN_MAC = {A.ns: "02:00:00:00:05:0a", B.ns: "02:00:00:00:05:0b"}


def ip(end, *words):
    """ip(8) in the namespace of an end."""
    return run("ip", "-n", end.ns, *words)


def frames(end, netdev):
    """Frames that a netdev has received."""
    return int(re.search(r"RX:.*?\\\s+\d+\s+(\d+)", ip(end, "-s", "-o", "link", "show", "dev", netdev))[1])


@contextlib.contextmanager
def addressed(end, netdev, address):
    """The end on another netdev of its namespace; the netdev is the caller's."""
    ip(end, "addr", "add", address, "dev", netdev, *(["nodad"] if ":" in address else []))
    ip(end, "link", "set", netdev, "up")
    yield end._replace(netdev=netdev, ip=address.partition("/")[0])


@contextlib.contextmanager
def device(end, name):
    """A device of its own on the end's netdev."""
    run("rdma", "link", "add", name, "type", "usiw", "netdev", end.netdev, where=end.where)
    try:
        yield end._replace(dev=name)
    finally:
        if name in rdma_links():
            run("rdma", "link", "delete", name)


@contextlib.contextmanager
def wire(name_a, name_b, b=B):
    """One more veth pair between the namespaces."""
    run("ip", "link", "add", name_a, "netns", A.ns, "type", "veth", "peer", "name", name_b, "netns", b.ns)
    try:
        yield
    finally:
        drop_link(A, name_a)


def drop_link(end, netdev):
    """Unless it has gone by itself."""
    with contextlib.suppress(AssertionError):
        ip(end, "link", "del", netdev)


def greet(a, b):
    """Both know each other's MAC: see conftest.neighbours."""
    run("ping", "-q", "-c", 1, "-w", 10, b.ip, where=a.where)
    run("ping", "-q", "-c", 1, "-w", 10, a.ip, where=b.where)


# ---- VLAN ----------------------------------------------------------------------------------


@pytest.fixture
def vlan(request):
    """Both ends on a VLAN of the wire: without a device there, with one, or with one whose netdev has a MAC of its own
    (else rdma_cm of 6.1 cannot tell the VLAN from the netdev below it)."""
    kind = getattr(request, "param", "device")
    with contextlib.ExitStack() as stack:
        ends = []
        for end, address in ((A, "10.5.0.1/24"), (B, "10.5.0.2/24")):
            netdev = f"{end.netdev}.{VLAN_ID}"
            mac = ["address", OWN_MAC[end.ns]] if kind == "mac" else []
            ip(end, "link", "add", "link", end.netdev, "name", netdev, *mac, "type", "vlan", "id", str(VLAN_ID))
            stack.callback(drop_link, end, netdev)
            on_it = stack.enter_context(addressed(end, netdev, address))
            if kind != "none":
                on_it = stack.enter_context(device(on_it, f"usiwv{len(ends)}"))
            ends.append(on_it)
        greet(*ends)
        yield ends


@pytest.mark.parametrize("vlan", ["none", "device", "mac"], indirect=True)
def test_vlan(vlan):
    """Verified data, tagged; the MTU is that of the VLAN. The wire below has its own connections."""
    a, b = vlan
    before = frames(B, b.netdev)
    rping(server=b, client=a, size=30000)
    assert frames(B, b.netdev) > before + 200
    rping(server=a, client=b, bind="0.0.0.0")
    for end in vlan:
        ip(end, "link", "set", end.netdev, "mtu", "1300")
    rping(server=b, client=a, size=30000)
    rping()


@pytest.mark.parametrize("vlan", ["none"], indirect=True)
def test_vlan_without_the_module(vlan):
    """usiw-run at both ends; the server's device stands for the VLAN, the client's for the netdev below."""
    a, b = vlan
    port = next_port()
    common = ["-p", port, "-C", 10, "-S", 30000, "-V"]
    before = frames(B, b.netdev)
    pair([USIW_RUN, "--address", b.ip, "rping", "-s", "-a", b.ip, *common],
         [USIW_RUN, "--address", A.ip, "rping", "-c", "-a", b.ip, "-I", a.ip, *common], port, b, a)
    assert frames(B, b.netdev) > before + 200


@pytest.mark.parametrize("vlan", ["none", "device"], indirect=True)
def test_link_local_of_a_vlan(vlan):
    """It has that of the netdev below, whose MAC it has."""
    addresses = [f"{link_local_of(end.netdev, end.where)}%{end.netdev}" for end in vlan]
    a, b = vlan
    assert link_local_of(A.netdev, A.where) == addresses[0].partition("%")[0]
    port = next_port()
    common = ["-p", port, "-C", 10, "-S", 30000, "-V"]
    to_b = addresses[1].partition("%")[0] + "%" + a.netdev
    before = frames(B, b.netdev)
    pair(["rping", "-s", "-a", addresses[1], *common],
         ["rping", "-c", "-a", to_b, "-I", addresses[0], *common], port, b, a)
    assert frames(B, b.netdev) > before + 200


@pytest.mark.parametrize("vlan", ["none", "device"], indirect=True)
def test_wire_and_vlan_at_a_time(vlan):
    """Two connections of a process that differ in nothing but the link: by one device, or by one on each."""
    here, there = (link_local_of(end.netdev, end.where) for end in vlan)
    both = [address for end in (A, vlan[0]) for address in (f"{here}%{end.netdev}", f"{there}%{end.netdev}")]
    port = next_port()
    server = Proc([CM_LINKS, "serve", port], where=B.where)
    server.wait_for("^listening")
    Proc([CM_LINKS, "connect", port, *both], where=A.where).expect(0, 120)
    server.expect(0, 60)


@pytest.mark.parametrize("vlan", ["none", "device"], indirect=True)
def test_vlan_goes_under_traffic(vlan, expected):
    """The VLAN is deleted at one end: both programs hear of it in bounded time."""
    expected.messages.append("ib_query_port failed")
    a, b = vlan
    server = Server(b)
    client = server.client("--seconds", 90, site=a)
    client.wait_for("^connected")
    ip(B, "link", "del", b.netdev)
    assert client.wait(60) == 2, client.output
    server.proc.kill()
    until(lambda: "usiwv1" not in rdma_links(), "the device going with its netdev")
    rping(count=3)  # the wire below goes on


def test_vlan_in_another_namespace():
    """A VLAN of A's netdev in a namespace without a device: before 6.4 rdma_cm takes A's, which has its MAC. Nothing
    goes by that device; the program is told so at once, and usiw-run works there."""
    with contextlib.ExitStack() as stack:
        c = stack.enter_context(third())
        there, here = f"{A.netdev}.{VLAN_ID}", f"{B.netdev}.{VLAN_ID}"
        for end, netdev in ((A, there), (B, here)):
            ip(end, "link", "add", "link", end.netdev, "name", netdev, "type", "vlan", "id", str(VLAN_ID))
            stack.callback(drop_link, end if end is B else c, netdev)
        ip(A, "link", "set", there, "netns", c.ns)
        a = stack.enter_context(addressed(c, there, "10.5.0.1/24"))
        b = stack.enter_context(addressed(B, here, "10.5.0.2/24"))
        greet(a, b)
        port = next_port()
        server = Proc([CM_USER, "bind", b.ip, port, "listen", "wait"], where=b.where, stdin=subprocess.PIPE)
        server.wait_for("^listen 0")
        client = Proc([CM_USER, "bind", a.ip, 0, "connect", b.ip, port], where=a.where)
        client.wait(20)
        assert re.search("^bind (ENODEV|0\nconnect ENETUNREACH)$", client.output, re.M), client.output
        listener = Proc([CM_USER, "bind", a.ip, port, "listen"], where=a.where)
        listener.wait(20)
        assert re.search("^bind (ENODEV|0\nlisten ENETUNREACH)$", listener.output, re.M), listener.output
        server.line()
        server.expect(0)
        rping(count=3)
        port = next_port()
        pair([USIW_RUN, CM_USER, "bind", a.ip, port, "listen", "serve", 1],
             [CM_USER, "connect", a.ip, port], port, server=a, client=b)


# ---- Bond ----------------------------------------------------------------------------------


@pytest.fixture(params=["none", "active"])
def bond(request):
    """A on a bond of two wires, B on a bridge over them; yields the ends, and whether the bond's MAC changes."""
    with contextlib.ExitStack() as stack:
        for i in "12":
            stack.enter_context(wire(f"ba{i}", f"bb{i}"))
        ip(B, "link", "add", "br9", "type", "bridge", "stp_state", "0")
        stack.callback(ip, B, "link", "del", "br9")
        ip(A, "link", "add", "bond9", "type", "bond", "mode", "active-backup", "miimon", "50",
           "fail_over_mac", request.param)
        stack.callback(ip, A, "link", "del", "bond9")
        for i in "12":
            ip(A, "link", "set", f"ba{i}", "master", "bond9")
            ip(B, "link", "set", f"bb{i}", "master", "br9")
            ip(B, "link", "set", f"bb{i}", "up")
        a = stack.enter_context(device(stack.enter_context(addressed(A, "bond9", "10.6.0.1/24")), "usiwb0"))
        b = stack.enter_context(device(stack.enter_context(addressed(B, "br9", "10.6.0.2/24")), "usiwb1"))
        until(lambda: "LOWER_UP" in ip(A, "link", "show", "bond9"), "the bond's carrier")
        greet(a, b)
        yield a, b, request.param == "active"


def active_slave():
    """By which wire the bond goes."""
    return re.search(r"active_slave (\S+)", ip(A, "-d", "link", "show", "bond9"))[1]


def test_bond_fails_over_under_traffic(bond):
    """There and back, with verified data all the time: nothing is lost but time. Where the bond's MAC changes with the
    wire, rdma_cm says so to the program; not when it is the first one again."""
    a, b, mac_changes = bond
    server = Server(b)
    client = server.client("--seconds", 300, "--connections", 2, site=a)
    client.wait_for("^connected")
    for _ in range(2):
        old = active_slave()
        new = "ba2" if old == "ba1" else "ba1"
        ip(A, "link", "set", old, "down")
        until(lambda new=new: active_slave() == new, "the other wire")
        before = frames(A, new)
        until(lambda new=new, before=before: frames(A, new) > before + 200, "traffic by the other wire", timeout=30)
        ip(A, "link", "set", old, "up")
        until(lambda old=old: "LOWER_UP" in ip(A, "link", "show", old), "the first wire")
    server.end_client(client)
    assert client.output.count("address changed") == (2 if mac_changes else 0), client.output
    server.stop()


# ---- Link-local addresses ------------------------------------------------------------------


@contextlib.contextmanager
def third():
    """A third namespace."""
    run("ip", "netns", "add", "usiw_c")
    try:
        yield B._replace(ns="usiw_c", where="ip netns exec usiw_c")
    finally:
        run("ip", "netns", "del", "usiw_c")


def test_one_address_on_two_links():
    """Two peers have the same link-local address, each on its link: whoever asks reaches that of the link. So has the
    one between them, which asks from the same address on both."""
    with contextlib.ExitStack() as stack:
        c = stack.enter_context(third())
        port = next_port()
        common = ["-p", port, "-C", 5, "-S", 5000, "-V"]
        links = []
        for letter, peer in (("b", B), ("c", c)):
            stack.enter_context(wire(f"la{letter}", f"l{letter}", peer))
            for end, netdev, address in ((A, f"la{letter}", "fe80::78/64"), (peer, f"l{letter}", "fe80::77/64")):
                on_it = stack.enter_context(addressed(end, netdev, address))
                stack.enter_context(device(on_it, f"usiw{netdev}"))
            to = f"fe80::77%la{letter}"
            run("ping", "-q", "-c", 1, "-w", 10, to, where=A.where)
            server = Proc(["rping", "-s", "-a", f"fe80::77%l{letter}", *common], where=peer.where).wait_listening(port)
            links.append((to, server))
        for to, server in reversed(links):
            Proc(["rping", "-c", "-a", to, "-I", to.replace("::77", "::78"), *common], where=A.where).expect(0, 60)
            server.wait(30)
            assert "DISCONNECT" in server.output, server.output
            assert server is links[0][1] or links[0][1].status is None, links[0][1].output
        # The same of listeners on all addresses, and of ids that leave it to the route from where.
        port = next_port()
        servers = [Proc([CM_USER, "bind", "::", port, "listen", "serve", 1], where=peer.where) for peer in (B, c)]
        for server in servers:
            server.wait_for("^listen 0")
        for (to, _), server in zip(links, servers):
            assert "connect 0" in Proc([CM_USER, "connect", to, port], where=A.where).expect(0, 60)
            assert "serve 0" in server.expect(0, 60)
        # Two connections of one process at a time, of which all addresses and ports are the same.
        port = next_port()
        servers = [Proc([CM_LINKS, "serve", port, n], where=peer.where) for n, peer in enumerate((B, c))]
        for server in servers:
            server.wait_for("^listening")
        both = [address for to, _ in links for address in (to.replace("::77", "::78"), to)]
        Proc([CM_LINKS, "connect", port, *both], where=A.where).expect(0, 120)
        for server in servers:
            server.expect(0, 60)


def test_link_local_of_the_wire():
    """The addresses that the kernel has given the ends, with a listener on all addresses."""
    port = next_port()
    common = ["-p", port, "-C", 10, "-S", 30000, "-V"]
    to = f"{link_local_of(B.netdev, B.where)}%{A.netdev}"
    run("ping", "-q", "-c", 1, "-w", 10, to, where=A.where)
    pair(["rping", "-s", "-a", "::", *common], ["rping", "-c", "-a", to, *common], port)


def test_link_local_without_its_link():
    """To bind it takes the interface's name, too."""
    server = Proc(["rping", "-s", "-a", link_local_of(B.netdev, B.where), "-p", next_port()], where=B.where)
    assert server.wait(30) != 0 and "Invalid argument" in server.output, server.output
