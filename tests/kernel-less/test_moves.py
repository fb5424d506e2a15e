# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A connection by raw packets goes on by its data socket, and back: its route moves, its link goes down, its packets
vanish. Two namespaces with two wires; all data is verified, and `usiw stat` says by which port it goes."""

import contextlib
import os
import random
import re
import signal
import threading
import time

import pytest

from hosts import A4, A6, B4, B6, frames, mac_of, received
from stats import devices
from support.net import nft
from support.pairs import AT_FULL_SPEED, REST_MS, next_port
from support.procs import Proc, run, until

TRAFFIC = os.path.join(os.environ["VM_PROGRAMS"], "traffic")

PACKETS = ("packet", "fastest")
ELSEWHERE = ("socket", "netdev")
DOWN = ("socket", "down")
SILENT = ("socket", "silent")
LONG = ("socket", "long")

#: Messages of one datagram, which go by raw packets, and such of many.
SHORT, MANY = ("--size", 1000), ("--size", 60000)

#: Of A and B, by the name of the family.
ENDS = {"ipv4": (A4, B4), "ipv6": (A6, B6)}


def qps_of(proc):
    """The QPs of a program, as `usiw stat` shows them."""
    return [q for d in devices().values() for q in d["qps"] if q["pid"] == proc.pid]


def ways_of(proc):
    """By which port, and why, each of its connections goes."""
    return sorted((q["gauges"]["data_port"], q["gauges"]["data_port_why"]) for q in qps_of(proc)
                  if q["gauges"]["data_port"] != "none")


def goes_by(proc, *wanted):
    """Waits until its connections go by these, one for each; of a set any will do."""
    def fits():
        shown = ways_of(proc)
        return len(shown) == len(wanted) and all(
            way in want if isinstance(want, set) else way == want for way, want in zip(shown, wanted))
    try:
        until(fits, "", timeout=30)
    except AssertionError:
        proc.fail(f"goes by {ways_of(proc)}, not {wanted}")
    if proc.status is not None:
        proc.fail("has ended")


def rounds_of(client):
    return sum(q["counters"]["comp_ok"] for q in qps_of(client))


def goes_on(*clients):
    """More work requests complete."""
    for client in clients:
        before = rounds_of(client)
        until(lambda c=client, was=before: c.status is not None or rounds_of(c) > was + 50, "more rounds")
        if client.status is not None:
            client.fail("has ended")


def moves_data(*clients):
    """Work requests go on completing, for longer than a connection that hears nothing would live (4 s here)."""
    before = [rounds_of(c) for c in clients]
    time.sleep(5)
    for client, was in zip(clients, before):
        if client.status is not None:
            client.fail("has ended")
        if rounds_of(client) < was + 10:
            client.fail("moves no data")


@pytest.fixture
def started():
    """Processes that end with the test."""
    procs = []
    yield procs
    for proc in procs:
        proc.kill()


@pytest.fixture
def server(usiw_run, other_host, started):
    """server(at=B4): one for any number of clients."""
    def start(at=B4):
        port = next_port()
        proc = Proc([*other_host.split(), usiw_run.path, TRAFFIC, "server", "--to", at, "--port", port, "--events"])
        proc.wait_for("^listening")
        proc.port = port
        started.append(proc)
        return proc
    return start


@pytest.fixture
def client(usiw_run, started):
    """client(server, to=B4, at=A4, ...): one that runs until its time is ended. It rests after each round unless the
    options have --pause-ms."""
    def start(peer, *options, to=B4, at=A4, where=""):
        sized = options if "--size" in options else (*SHORT, *options)
        paced = sized if "--pause-ms" in sized else ("--pause-ms", REST_MS, *sized)
        proc = Proc([*where.split(), usiw_run.path, TRAFFIC, "client", "--from", at, "--to", to, "--port", peer.port,
                     "--seconds", 300, "--events", *paced])
        proc.wait_for("^connected")
        started.append(proc)
        return proc
    return start


def finish(*clients):
    """All that they have exchanged was right, and the connections ended in order."""
    for c in clients:
        c.signal(signal.SIGUSR1)
    for c in clients:
        c.expect(0, 60)


def setting(device, name, value, where=""):
    run("sh", "-c", f"echo {value} > /proc/sys/net/ipv4/conf/{device}/{name}", where=where)


class Wires:
    """Both wires; by the second one nothing goes yet."""

    def __init__(self, other_host):
        #: Its device on the first wire and on the second one, where it is, and the peer's address.
        self.a, self.b = ("va", "va2", ""), ("vb", "vb2", other_host)

    def by(self, number, end, address):
        """The route of this end to the address leaves by a wire."""
        run("ip", "route", "replace", f"{address}/{128 if ':' in address else 32}", "dev", end[number], where=end[2])

    def back(self, end, address):
        """... as at first."""
        run("ip", "route", "del", f"{address}/{128 if ':' in address else 32}", where=end[2])


@pytest.fixture
def wires(other_host):
    pid = re.search(r"--target (\d+)", other_host)[1]
    run("ip", "link", "add", "va2", "type", "veth", "peer", "name", "vb2", "netns", pid)
    try:
        for device, where in (("va", ""), ("va2", ""), ("vb", other_host), ("vb2", other_host)):
            setting(device, "rp_filter", 0, where)
            run("ip", "link", "set", device, "up", where=where)
        for where in ("", other_host):
            setting("all", "rp_filter", 0, where)
        # IPv6 answers for an address only where that is.
        for device, where, peer, there in (("va2", "", "vb2", other_host), ("vb2", other_host, "va2", "")):
            mac = mac_of(peer, there)
            for address in (B4, B6) if device == "va2" else (A4, A6):
                run("ip", "neigh", "replace", address, "lladdr", mac, "dev", device, "nud", "permanent", where=where)
        yield Wires(other_host)
    finally:
        run("ip", "link", "del", "va2")


@pytest.mark.parametrize("family", ENDS)
@pytest.mark.parametrize("ends", ["one", "both"])
def test_route_moves_to_another_interface_and_back(wires, server, client, ends, family):
    """The other end's route may not: then it hears by its data socket what its raw port cannot."""
    own, peer = ENDS[family]
    s = server(peer)
    c = client(s, to=peer, at=own)
    goes_by(c, PACKETS)
    goes_by(s, PACKETS)
    wires.by(1, wires.a, peer)
    if ends == "both":
        wires.by(1, wires.b, own)
    before = frames("vb2", wires.b[2])
    goes_by(c, ELSEWHERE)
    goes_by(s, ELSEWHERE if ends == "both" else PACKETS)
    moves_data(c)
    assert frames("vb2", wires.b[2]) > before + 100
    wires.back(wires.a, peer)
    if ends == "both":
        wires.back(wires.b, own)
    goes_by(c, PACKETS)
    goes_by(s, PACKETS)
    before = frames("vb2", wires.b[2])
    goes_on(c)
    assert frames("vb2", wires.b[2]) < before + 20
    finish(c)


def test_route_moves_to_a_narrower_wire(wires, server, client):
    """What was cut for the old one is sent in fragments, what is cut later is shorter."""
    for device, where in (("va2", ""), ("vb2", wires.b[2])):
        run("ip", "link", "set", device, "mtu", 1300, where=where)
    s = server()
    c = client(s, "--size", 300000)
    goes_by(c, {PACKETS, LONG})
    wires.by(1, wires.a, B4)
    goes_by(c, ELSEWHERE)
    moves_data(c)
    wires.by(1, wires.b, A4)
    goes_by(s, ELSEWHERE)
    goes_on(c)
    wires.back(wires.a, B4)
    wires.back(wires.b, A4)
    goes_by(c, {PACKETS, LONG})
    goes_by(s, {PACKETS, LONG})
    goes_on(c)
    finish(c)


@pytest.mark.parametrize("family", ENDS)
def test_wire_becomes_narrower(server, client, other_host, family):
    """What is on its way goes in fragments, which the peer's raw port cannot use; then by raw packets again."""
    own, peer = ENDS[family]
    s = server(peer)
    c = client(s, "--size", 1400, to=peer, at=own)
    goes_by(c, PACKETS)
    try:
        for device, where in (("va", ""), ("vb", other_host)):
            run("ip", "link", "set", device, "mtu", 1300, where=where)
        moves_data(c)
        goes_by(c, PACKETS)
        goes_by(s, PACKETS)
    finally:
        for device, where in (("va", ""), ("vb", other_host)):
            run("ip", "link", "set", device, "mtu", 1500, where=where)
    goes_on(c)
    finish(c)


def test_connection_begins_elsewhere(wires, server, client):
    """By the socket, since the route at one end is for nothing else; and by raw packets once it leads there."""
    wires.by(1, wires.a, B4)
    s = server()
    c = client(s)
    goes_by(c, ELSEWHERE)
    goes_by(s, PACKETS)
    wires.back(wires.a, B4)
    goes_by(c, PACKETS)
    goes_on(c)
    finish(c)


def test_route_flaps(wires, server, client):
    """Faster than moves settle, at both ends, with two connections of each of two processes."""
    rng = random.Random(14)
    s = server()
    clients = [client(s, "--connections", 2, *AT_FULL_SPEED) for _ in range(2)]
    for c in clients:
        goes_by(c, PACKETS, PACKETS)
    end = time.monotonic() + 10
    flaps = 0
    while time.monotonic() < end:
        flaps += 1
        wires.by(flaps % 2, wires.a, B4)
        if rng.random() < 0.5:
            wires.by(flaps % 2, wires.b, A4)
        time.sleep(rng.uniform(0.05, 0.3))
    wires.back(wires.a, B4)
    wires.by(0, wires.b, A4)
    wires.back(wires.b, A4)
    for c in clients:
        goes_by(c, PACKETS, PACKETS)
    goes_by(s, *[PACKETS] * 4)
    goes_on(*clients)
    finish(*clients)


def test_link_goes_down_and_up(wires, server, client, other_host):
    """That of the raw port at one end; at the other one the carrier goes. A second wire carries the route meanwhile."""
    s = server()
    c = client(s)
    goes_by(c, PACKETS)
    run("ip", "route", "add", "10.77.0.0/24", "dev", "va2", "src", A4, "metric", "1000")
    run("ip", "route", "add", "10.77.0.0/24", "dev", "vb2", "src", B4, "metric", "1000", where=other_host)
    setting("vb", "ignore_routes_with_linkdown", 1, other_host)
    run("ip", "link", "set", "va", "down")
    try:
        goes_by(c, {ELSEWHERE, DOWN})
        goes_by(s, {ELSEWHERE, DOWN})
        moves_data(c)
    finally:
        run("ip", "link", "set", "va", "up")
        run("ip", "addr", "replace", f"{A6}/64", "dev", "va", "nodad")
        setting("vb", "ignore_routes_with_linkdown", 0, other_host)
    goes_by(c, PACKETS)
    goes_by(s, PACKETS)
    goes_on(c)
    finish(c)


def drop_raw(device):
    """On this host's way out raw packets are dropped, and nothing else: they alone do not pass the output hook, where
    everything gets a mark."""
    stack = contextlib.ExitStack()
    stack.enter_context(nft("inet usiw_mark", "add chain inet usiw_mark out { type filter hook output priority 0 ; }",
                            "add rule inet usiw_mark out meta l4proto udp meta mark set 7"))
    chain = f"add chain netdev usiw_move out {{ type filter hook egress device {device} priority 0 ; }}"
    stack.enter_context(nft("netdev usiw_move", chain,
                            "add rule netdev usiw_move out meta l4proto udp meta mark != 7 counter drop"))
    return stack


def dropped_by(table, where=""):
    """Packets that the one rule with a counter has met."""
    listed = run("nft", "list", "table", *table.split(), where=where)
    return int(re.search(r"counter packets (\d+)", listed)[1])


@pytest.mark.parametrize("family", ENDS)
def test_raw_packets_vanish(server, client, other_host, family):
    """A rule drops those of one end, and nobody says so."""
    own, peer = ENDS[family]
    s = server(peer)
    c = client(s, to=peer, at=own)
    goes_by(c, PACKETS)
    with drop_raw("va"):
        goes_by(c, SILENT)
        moves_data(c)
        goes_by(s, PACKETS)
        assert dropped_by("netdev usiw_move") > 0
    goes_by(c, PACKETS)
    goes_on(c)
    finish(c)


# ---- Long messages ----

def frame_bytes(device, where):
    """The mean length of the frames that a device has received in the last second."""
    before = received(device, where)
    time.sleep(1)
    now = received(device, where)
    return (now[0] - before[0]) / max(now[1] - before[1], 1)


@pytest.mark.parametrize("family", ENDS)
@pytest.mark.parametrize("gro", ["off", "on"])
def test_long_messages_go_by_the_socket_and_come_back(server, client, other_host, family, gro):
    """As frames of many datagrams; and when they cease, by raw packets again. Also where the netdev itself merges what
    comes, raw packets as well."""
    own, peer = ENDS[family]
    for device, where in (("va", ""), ("vb", other_host)):
        run("ethtool", "-K", device, "gro", gro, where=where)
    s = server(peer)
    c = client(s, *MANY, to=peer, at=own)
    goes_by(c, LONG)
    goes_by(s, LONG)
    until(lambda: frame_bytes("vb", other_host) > 1500, "frames that are longer than a packet may be", timeout=30)
    moves_data(c)
    with c.stopped():
        goes_by(s, PACKETS)
    goes_by(s, LONG)
    finish(c)


@pytest.mark.parametrize("which", ["client", "server"])
def test_datagrams_of_long_messages_vanish(server, client, other_host, which):
    """A rule drops what one end sends by sockets, and nobody says so; raw packets pass. The connection lives on by
    those packets, tries its socket seldom, and goes by it again when the rule is gone."""
    s = server()
    c = client(s, *MANY)
    goes_by(c, LONG)
    goes_by(s, LONG)
    where = "" if which == "client" else other_host
    with nft("inet usiw_eat", "add chain inet usiw_eat out { type filter hook output priority 0 ; }",
             "add rule inet usiw_eat out meta l4proto udp counter drop", where=where):
        goes_by(c, {PACKETS, ("packet", "silent")})
        moves_data(c)
        moves_data(c)  # a second time: it has tried its socket in vain meanwhile
        assert dropped_by("inet usiw_eat", where) > 0
    goes_by(c, LONG)
    goes_by(s, LONG)
    finish(c)


@pytest.mark.parametrize("gro", ["off", "on"])
def test_short_messages_beside_long_ones(server, client, other_host, gro):
    """Two connections of one listener, which share its data socket: each goes its own way, with all data right."""
    for device, where in (("va", ""), ("vb", other_host)):
        run("ethtool", "-K", device, "gro", gro, where=where)
    s = server()
    short, many = client(s), client(s, *MANY)
    goes_by(many, LONG)
    goes_by(short, PACKETS)
    goes_by(s, PACKETS, LONG)
    moves_data(short, many)
    goes_by(s, PACKETS, LONG)
    finish(short, many)


def test_offloads_are_switched_under_traffic(server, client, other_host):
    """What merges frames and what takes them apart, at either end, while short and long messages are under way."""
    s = server()
    short, many = client(s), client(s, *MANY)
    goes_by(many, LONG)
    try:
        for value in ("on", "off") * 2:
            for device, where in (("vb", other_host), ("va", "")):
                for offload in ("gro", "tx-udp-segmentation", "gso"):
                    run("ethtool", "-K", device, offload, value, where=where)
                    goes_on(short, many)
        moves_data(short, many)
    finally:
        for device, where in (("vb", other_host), ("va", "")):
            run("ethtool", "-K", device, "gro", "off", "tx-udp-segmentation", "on", "gso", "on", where=where)
    finish(short, many)


def test_many_begin_with_long_messages_at_once(server, client, other_host):
    """All connections of a listener go from raw packets to merged datagrams in the same moment, with all data right."""
    s = server()
    clients = [client(s, *MANY) for _ in range(6)]
    goes_by(s, *[LONG] * len(clients))
    until(lambda: frame_bytes("vb", other_host) > 1500, "frames that are longer than a packet may be", timeout=30)
    goes_on(*clients)
    finish(*clients)


@contextlib.contextmanager
def throttled(proc):
    """It runs for 20 ms of each 100, as in a container whose processor quota is used up."""
    end = threading.Event()

    def stop_and_go():
        while not end.wait(0.02):
            with proc.stopped():
                time.sleep(0.08)
    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.mark.parametrize("which", ["client", "server"])
def test_an_end_is_throttled_while_they_change(server, client, which):
    """It hears late, and is heard late, that the other goes by the socket; both come to the same and stay with it, with
    all data right. That nothing is heard for a while does not mean that this way is closed."""
    s = server()
    c = client(s, *MANY)
    goes_by(c, LONG)
    for _ in range(3):
        with c.stopped():
            goes_by(s, PACKETS)
        with throttled(c if which == "client" else s):
            for end in (c, s):
                goes_by(end, LONG)
            goes_on(c)
    seen = []
    with throttled(c if which == "client" else s):
        for _ in range(20):
            time.sleep(0.1)
            seen += ways_of(c) + ways_of(s)
    assert seen.count(LONG) >= len(seen) // 2, seen
    finish(c)


@pytest.mark.parametrize("without", ["client", "server"])
def test_long_messages_to_an_end_without_the_right(usiw_run, other_host, started, without):
    """It has sockets only, and tells and is told of merged datagrams all the same."""
    no_raw = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"]
    port = next_port()
    server = Proc([*other_host.split(), *(no_raw if without == "server" else []), usiw_run.path, TRAFFIC, "server",
                   "--to", B4, "--port", port, "--events"])
    started.append(server)
    server.wait_for("^listening")
    client = Proc([*(no_raw if without == "client" else []), usiw_run.path, TRAFFIC, "client", "--from", A4, "--to", B4,
                   "--port", port, "--seconds", 300, "--events", *MANY])
    started.append(client)
    client.wait_for("^connected")
    for proc, name in ((server, "server"), (client, "client")):
        goes_by(proc, ("socket", "rights") if name == without else LONG)
    until(lambda: frame_bytes("vb", other_host) > 1500, "frames that are longer than a packet may be", timeout=30)
    moves_data(client)
    finish(client)


@pytest.fixture
def second_address():
    run("ip", "addr", "replace", "10.77.0.9/24", "dev", "va")
    yield "10.77.0.9"
    run("ip", "addr", "del", "10.77.0.9/24", "dev", "va")


def test_one_of_several_moves(wires, server, client, second_address):
    """They share a listener, and so its data socket. The others go on as before, and nothing of theirs comes twice."""
    run("ip", "neigh", "replace", second_address, "lladdr", mac_of("va2", ""), "dev", "vb2", "nud", "permanent",
        where=wires.b[2])
    s = server()
    stays, moves = client(s, "--connections", 2), client(s, at=second_address)
    goes_by(s, PACKETS, PACKETS, PACKETS)
    wires.by(1, wires.b, second_address)
    goes_by(s, PACKETS, PACKETS, ELSEWHERE)
    was = {q["qpn"]: q["counters"] for q in qps_of(s)}
    moves_data(stays, moves)
    for qp in qps_of(s):
        now, before = qp["counters"], was[qp["qpn"]]
        if qp["gauges"]["data_port"] == "packet":
            assert now["rx_dup"] - before["rx_dup"] <= (now["rx_pkts"] - before["rx_pkts"]) // 10, (before, now)
    wires.back(wires.b, second_address)
    goes_by(s, PACKETS, PACKETS, PACKETS)
    goes_by(stays, PACKETS, PACKETS)
    goes_on(stays, moves)
    finish(stays, moves)


def test_listener_for_this_host_and_others(wires, server, client):
    """Shared memory to the one client, raw packets to the other, which moves, by one data socket."""
    s = server("0.0.0.0")
    local = client(s, to="127.0.0.1", at="127.0.0.1", where=wires.b[2])
    remote = client(s)
    goes_by(local, ("shm", "same-host"))
    goes_by(s, PACKETS, ("shm", "same-host"))
    goes_on(local, remote)
    (qp,) = [q for q in qps_of(s) if q["gauges"]["data_port"] == "packet"]
    assert qp["counters"]["rx_dup"] <= qp["counters"]["rx_pkts"] // 10
    wires.by(1, wires.a, B4)
    wires.by(1, wires.b, A4)
    goes_by(s, ("shm", "same-host"), ELSEWHERE)
    goes_by(remote, ELSEWHERE)
    moves_data(local, remote)
    wires.back(wires.a, B4)
    wires.back(wires.b, A4)
    goes_by(s, PACKETS, ("shm", "same-host"))
    finish(local, remote)


@pytest.mark.parametrize("killed", ["moved", "other"])
def test_killed_peer_is_told(wires, usiw_run, killed):
    """kill -9 of an end whose connection has moved, and of its peer: no time-outs (status 12)."""
    port = next_port()
    server = Proc([*wires.b[2].split(), usiw_run.path, "rping", "-s", "-a", B4, "-p", str(port)]).wait_listening(port)
    client = usiw_run(["rping", "-c", "-a", B4, "-p", port, "-v", "-C", 100000000])
    goes_by(client, PACKETS)
    wires.by(1, wires.a, B4)
    try:
        goes_by(client, ELSEWHERE)
        goes_by(server, PACKETS)
        gone, left = (client, server) if killed == "moved" else (server, client)
        gone.signal(9)
        gone.wait()
        left.wait(30)
        assert "DISCONNECT" in left.output and "status 12" not in left.output
    finally:
        wires.back(wires.a, B4)


@pytest.mark.parametrize("way", ["packets", "moved", "sockets"])
def test_killed_peer_with_a_child_is_told(wires, server, client, monkeypatch, way):
    """A child of fork() goes on to hold its parent's data socket. The server would not find out by itself for long."""
    monkeypatch.setenv("USIW_PEER_TIMEOUT", "600")
    if way == "sockets":
        monkeypatch.setenv("USIW_PORT", "socket")
    s = server()
    c = client(s, "--child")
    if way == "moved":
        wires.by(1, wires.a, B4)
        goes_by(c, ELSEWHERE)
    goes_by(s, ("socket", "wish") if way == "sockets" else PACKETS)
    c.signal(signal.SIGKILL)
    c.wait()
    until(lambda: not qps_of(s), "the server's connection ends")
    if way == "moved":
        wires.back(wires.a, B4)


def test_children_of_fork(wires, server, client):
    """They come and go, exec or exit, while the parent's connection goes by either port."""
    s = server()
    c = client(s, "--forks")
    for _ in range(3):
        goes_by(c, PACKETS)
        wires.by(1, wires.a, B4)
        goes_by(c, ELSEWHERE)
        time.sleep(1)
        wires.back(wires.a, B4)
    goes_by(c, PACKETS)
    goes_on(c)
    finish(c)
