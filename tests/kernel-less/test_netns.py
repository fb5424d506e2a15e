# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Two network namespaces with a veth pair between them: an MTU of 1500, routes, neighbours, and each kind of port."""

import os
import re
import subprocess
import time

import pytest

from hosts import A4, B4, B6, both, frames, mac_of
from stats import counters_of
from support.cases import path_of
from support.net import link_local_of, nft
from support.pairs import next_port
from support.procs import Proc, run, until

#: --port of the server and of the client. Shared memory does not reach beyond the namespace; auto is packets here.
KINDS = [("auto", "auto"), ("shm", "shm"), ("packet", "socket"), ("socket", "auto")]

CM_USER, CM_LINKS = path_of("cm_user"), path_of("cm_links")


@pytest.fixture(params=KINDS, ids="-".join)
def kinds(request):
    return request.param


@pytest.mark.parametrize("address", [B4, B6], ids=["ipv4", "ipv6"])
def test_rping(usiw_run, other_host, address, kinds):
    port = next_port()
    options = ["-p", str(port), "-C", "30", "-S", "30000", "-V"]
    both(usiw_run, other_host, ["rping", "-s", "-a", address, *options], ["rping", "-c", "-a", address, *options],
         port, kinds)


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
    assert packet_sockets() == (1 if kinds[1] == "auto" else 0)
    server.signal(9)
    server.wait()
    client.wait(30)
    assert "DISCONNECT" in client.output and "status 12" not in client.output


@pytest.fixture
def traffic(usiw_run, other_host):
    """traffic(kinds, prefix): server and client that exchange data until they are killed; the client runs behind
    `prefix`."""
    def start(kinds, prefix=()):
        port = next_port()
        server = Proc([*other_host.split(), usiw_run.path, "--port", kinds[0], "rping", "-s", "-a", B4, "-p",
                       str(port)]).wait_listening(port)
        client = Proc(
            [*prefix, usiw_run.path, "--port", kinds[1], "rping", "-c", "-a", B4, "-p", port, "-C", 100000000])
        both_ends.extend((server, client))
        until(lambda: frames("va") > started + 100, "traffic")
        return server, client
    started, both_ends = frames("va"), []
    yield start
    for proc in both_ends:
        proc.kill()


def goes_on(*processes):
    """Data still moves, later than a connection without any progress lasts (4 s here)."""
    time.sleep(5)
    for proc in processes:
        if proc.status is not None:
            proc.fail("has ended")
    before = frames("va")
    until(lambda: frames("va") > before + 100, "traffic")


NO_NET_RAW = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"]


def test_auto_without_the_right(traffic):
    """Sockets, with the same peer."""
    _, client = traffic(("auto", "auto"), NO_NET_RAW)
    assert packet_sockets() == 0
    assert client.status is None


def test_check_says_which_way(usiw_run, other_host):
    as_root = usiw_run(["true"], ["--check"]).expect(0)
    assert "a connection by raw packets works" in as_root
    assert "by va " in as_root and "raw packets, to" in as_root
    without = Proc([*NO_NET_RAW, usiw_run.path, "--check"]).expect(0)
    assert "raw packets, to" not in without and "UDP sockets, to all other hosts: raw packets need CAP_NET_RAW" in without


def test_packet_port_that_cannot_be_made(traffic):
    """The right is there, but not the address space that DPDK wants: said once, and by sockets."""
    _, client = traffic(("auto", "auto"), ["prlimit", "--as=250000000"])
    assert packet_sockets() == 0
    assert "DPDK" in client.output


@pytest.mark.parametrize("end", ["server", "client"])
@pytest.mark.parametrize("pair", [("auto", "auto"), ("socket", "auto"), ("auto", "socket")], ids="-".join)
def test_mac_changes(traffic, other_host, pair, end):
    """One end's interface gets another MAC under a connection; both go on. With packets that end says so to its
    neighbour; a kernel says nothing until it has something to send."""
    server, client = traffic(pair)
    device, where, kind, peer = {"server": ("vb", other_host, pair[0], A4), "client": ("va", "", pair[1], B4)}[end]
    was = mac_of(device, where)
    run("ip", "link", "set", device, "address", f"{was[:-2]}{int(was[-2:], 16) ^ 0x55:02x}", where=where)
    if kind == "socket":
        run("bash", "-c", f"echo > /dev/udp/{peer}/9", where=where)
    goes_on(server, client)


@pytest.mark.parametrize("pair", [("packet", "packet"), ("socket", "socket"), ("packet", "socket")], ids="-".join)
def test_congestion_marks(traffic, pair):
    """The wire marks a part of what may be marked: the one end sees it, tells, and the other hears. Nothing is lost."""
    server, client = traffic(pair)
    was = counters_of(client)
    assert was["tx_ce"] == counters_of(server)["rx_ce"] == 0
    with nft("netdev usiw_ce", "add chain netdev usiw_ce out { type filter hook egress device va priority 0 ; }",
             "add rule netdev usiw_ce out ip ecn ect0 numgen random mod 3 == 0 ip ecn set ce"):
        until(lambda: counters_of(server)["rx_ce"] > 100, "marked datagrams")
        until(lambda: counters_of(client)["tx_ce"] > 30, "news of them")
    now = counters_of(client)
    assert now["rx_ce"] == counters_of(server)["tx_ce"] == 0, "of the other direction"
    assert now["retrans_fast"] - was["retrans_fast"] < 20
    goes_on(server, client)


@pytest.mark.parametrize("pair", [("socket", "socket"), ("auto", "auto")], ids="-".join)
def test_what_may_be_marked_is_dropped(traffic, pair):
    """There are such routers (RFC 3168, 6.1). They cost time-outs, no connection, and none any more once that is known.
    A raw packet that its own host drops stops the ring (docs/troubleshooting.md): the connection goes on by its
    socket."""
    server, client = traffic(pair)
    chains = [f"add chain netdev usiw_ect {way} {{ type filter hook {way} device va priority 0 ; }}"
              for way in ("ingress", "egress")]
    rules = [f"add rule netdev usiw_ect {way} ip ecn ect0 drop" for way in ("ingress", "egress")]
    with nft("netdev usiw_ect", *chains, *rules):
        goes_on(server, client)
        was = counters_of(client)
        until(lambda: counters_of(client)["tx_pkts"] > was["tx_pkts"] + 2000, "traffic that cannot be marked")
        # A message would cost one each; a busy machine has some without that.
        assert pair == ("auto", "auto") or counters_of(client)["rto"] < was["rto"] + 200
    goes_on(server, client)


def test_route_changes(traffic, other_host):
    """The route gets a gateway: packets go to its MAC from then on."""
    run("ip", "link", "add", "gw", "link", "vb", "type", "macvlan", where=other_host)
    try:
        run("ip", "addr", "add", "10.77.0.3/32", "dev", "gw", where=other_host)
        run("ip", "link", "set", "gw", "up", where=other_host)
        # Both devices would answer.
        run("ip", "neigh", "replace", "10.77.0.3", "lladdr", mac_of("gw", other_host), "nud", "permanent", "dev", "va")
        server, client = traffic(("socket", "auto"))
        before = frames("gw", other_host)
        run("ip", "route", "add", f"{B4}/32", "via", "10.77.0.3")
        try:
            until(lambda: frames("gw", other_host) > before + 1000, "frames by the gateway")
        finally:
            run("ip", "route", "del", f"{B4}/32")
        goes_on(server, client)
    finally:
        run("ip", "link", "del", "gw", where=other_host)


def test_neighbours_are_verified(traffic):
    """Packets go past the kernel; it still asks now and then whether their neighbour is there."""
    _, client = traffic(("auto", "auto"))
    mac = re.search(r"lladdr (\S+)", run("ip", "neigh", "show", B4, "dev", "va"))[1]
    run("ip", "neigh", "replace", B4, "lladdr", mac, "nud", "stale", "dev", "va")
    until(lambda: "STALE" not in run("ip", "neigh", "show", B4, "dev", "va"), "use of the neighbour", 8)
    assert client.status is None


def test_preferred_address(usiw_run, other_host):
    """--address is where connections come from when the program leaves it open."""
    run("ip", "addr", "replace", "10.77.0.9/24", "dev", "va")
    port = next_port()
    options = ["-p", str(port), "-C", "5", "-V"]
    server = Proc([*other_host.split(), usiw_run.path, "rping", "-s", "-a", B4, *options, "-d"]).wait_listening(port)
    client = usiw_run(["rping", "-c", "-a", B4, *options], ["--address", "10.77.0.9"])
    client.expect(0)
    server.expect(0)


@pytest.mark.parametrize("bind", ["named", "any"])
def test_link_local(usiw_run, other_host, kinds, bind):
    """An address with its interface, at a listener of this address and at one on all."""
    to = f"{link_local_of('vb', other_host)}%va"
    port = next_port()
    options = ["-p", str(port), "-C", "10", "-S", "30000", "-V"]
    own = ["-I", f"{link_local_of('va')}%va"] if bind == "named" else []
    both(usiw_run, other_host, ["rping", "-s", "-a", to.replace("%va", "%vb") if bind == "named" else "::", *options],
         ["rping", "-c", "-a", to, *own, *options], port, kinds)


def test_link_local_of_this_host(usiw_run, other_host):
    """A process to another on one host, by shared memory and by sockets; the other host has no part in it."""
    own = f"{link_local_of('va')}%va"
    for kind in ("shm", "socket"):
        port = next_port()
        options = ["-p", str(port), "-C", "10", "-S", "30000", "-V"]
        server = usiw_run(["rping", "-s", "-a", own, *options], ["--port", kind]).wait_listening(port)
        usiw_run(["rping", "-c", "-a", own, *options], ["--port", kind]).expect(0, 60)
        server.expect(0, 60)


@pytest.fixture
def two_links(other_host):
    """A second wire; at each end both netdevs have one and the same link-local address."""
    run("ip", "link", "add", "va2", "type", "veth", "peer", "name", "vb2")
    run("ip", "link", "set", "vb2", "netns", re.search(r"--target (\d+)", other_host)[1])
    try:
        for device, where, address in (("va", "", "fe80::78"), ("va2", "", "fe80::78"), ("vb", other_host, "fe80::77"),
                                       ("vb2", other_host, "fe80::77")):
            run("ip", "link", "set", device, "up", where=where)
            run("ip", "addr", "add", f"{address}/64", "dev", device, "nodad", where=where)
        for device in ("va", "va2"):
            run("ping", "-q", "-c", 1, "-w", 10, f"fe80::77%{device}")
        yield
    finally:
        run("ip", "link", "del", "va2")
        run("ip", "addr", "del", "fe80::78/64", "dev", "va")
        run("ip", "addr", "del", "fe80::77/64", "dev", "vb", where=other_host)


def test_one_address_on_two_links(usiw_run, other_host, two_links):
    """Two addresses that differ in nothing but their link: two listeners at one port, and whoever asks reaches that of
    the link; from one address on both."""
    port = next_port()
    options = ["-p", str(port), "-C", "10", "-S", "30000", "-V"]
    servers = {}
    for link in ("", "2"):
        servers[link] = Proc([*other_host.split(), usiw_run.path, "rping", "-s", "-a", f"fe80::77%vb{link}", *options])
        servers[link].wait_listening(port)
    for link in ("2", ""):
        client = usiw_run(["rping", "-c", "-a", f"fe80::77%va{link}", "-I", f"fe80::78%va{link}", *options])
        client.expect(0, 60)
        servers[link].expect(0, 60)
        assert link == "" or servers[""].status is None, servers[""].output


@pytest.mark.parametrize("own", [[], ["bind", "::", 0], ["bind", "fe80::78%va", 0]], ids=["none", "any", "named"])
def test_one_listener_for_all_links(usiw_run, other_host, two_links, kinds, own):
    """A listener on all addresses, and who connects to the same address of one link and of the other: the route says
    from where, or the id is bound to all or to an address. Each link carries its own connection."""
    port = next_port()
    server = Proc([*other_host.split(), usiw_run.path, "--port", kinds[0], CM_USER, "bind", "::", port, "listen",
                   "serve", 2])
    server.wait_for("^listen 0")
    for link, other in (("va", "va2"), ("va2", "va")):
        before = frames(link), frames(other)
        bound = [str(word).replace("%va", f"%{link}") for word in own]
        client = usiw_run([CM_USER, *bound, "connect", f"fe80::77%{link}", port], ["--port", kinds[1]])
        assert "connect 0" in client.expect(0, 60)
        assert frames(link) - before[0] > frames(other) - before[1] + 10
    assert server.expect(0, 60).count("serve 0") == 2


@pytest.mark.parametrize("device", [[], ["--address", "fd77::1"]], ids=["any", "of-one-link"])
def test_connections_that_differ_in_their_link(usiw_run, other_host, two_links, kinds, device):
    """Two at a time with the same addresses and ports, at either end in one process: each gets its own messages. One of
    the links may be that of the device, where packets go raw if the port is for these."""
    port = next_port()
    server = Proc([*other_host.split(), usiw_run.path, "--port", kinds[0], CM_LINKS, "serve", port])
    server.wait_for("^listening")
    before = {link: frames(link) for link in ("va", "va2")}
    ends = [f"fe80::{end}%{link}" for link in before for end in ("78", "77")]
    usiw_run([CM_LINKS, "connect", port, *ends], ["--port", kinds[1], *device]).expect(0, 60)
    server.expect(0, 60)
    for link, count in before.items():
        assert frames(link) > count + 20


def test_connections_of_this_host_that_differ_in_their_link(usiw_run, other_host, two_links):
    """From an address to itself, by shared memory and by sockets: two links, and nothing else to tell two connections
    apart. The processes stand for devices of different links."""
    for kind in ("shm", "socket"):
        port = next_port()
        server = usiw_run([CM_LINKS, "serve", port], ["--port", kind])
        server.wait_for("^listening")
        ends = [f"fe80::78%{link}" for link in ("va", "va", "va2", "va2")]
        usiw_run([CM_LINKS, "connect", port, *ends], ["--port", kind, "--address", "fd77::1"]).expect(0, 60)
        server.expect(0, 60)


def test_link_local_without_its_link(usiw_run, other_host):
    """Neither to bind nor to connect."""
    address = link_local_of("va")
    assert "Invalid argument" in usiw_run(["rping", "-s", "-a", address, "-p", str(next_port())]).expect(255, 30)
    assert usiw_run(["rping", "-c", "-a", link_local_of("vb", other_host), "-p", str(next_port())]).wait(30) != 0
