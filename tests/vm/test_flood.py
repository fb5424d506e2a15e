# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Forged datagrams at full speed, from a host beside the peer: live traffic goes on, memory stays bounded, real clients
get through where docs/security.md says so. The rate is printed."""

import re
import subprocess
import time

import pytest

from support import watch
from support.cases import path_of
from support.net import A, B, PEER, container, mac_of, statistics
from support.pairs import Server, next_port, rping
from support.procs import PATIENCE, Proc, run, until
from support.storm import Persist, ip

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(bool(PEER), reason="speaks usiw's protocol")]

BACKLOG = 16


class Flood:
    """`hostile flood` out of one host's netdev, at a port of the other's, or at its live connections."""

    def __init__(self, what, port, victim=B):
        self.what = what
        attacker = A if victim is B else B
        self.proc = Proc([
            path_of("hostile"), "flood", "--netdev", attacker.netdev, "--mac",
            mac_of(victim.netdev), "--to", victim.ip, "--port", port, "--what", what, "--watch", victim.netdev
        ])
        self.proc.wait_for("^flooding")

    def running(self):
        """True while it floods."""
        return self.proc.status is None

    def stop(self):
        """Ends it and returns how many datagrams it has sent."""
        self.proc.signal(15)
        output = self.proc.expect(0, 30)
        print(f"flood of {self.what}: " + ", ".join(output.splitlines()[1:]))
        return int(re.search(rf"^{self.what}\s+(\d+)$", output, re.M)[1])


@pytest.fixture(autouse=True)
def way_back():
    """B sends what is for the forged addresses to A's Ethernet address, as to a router."""
    router = "10.9.0.254"
    objects = [
        f"neigh {{}} {router} lladdr {mac_of(A.netdev)} dev {B.netdev}",
        f"route {{}} 198.18.0.0/15 via {router} dev {B.netdev} onlink table 102",
        f"rule {{}} from {B.ip} to 198.18.0.0/15 pref 1102 lookup 102",
        "rule {} from 0.0.0.0/32 to 198.18.0.0/15 pref 1103 lookup 102"
    ]
    ip(B, *(line.format("add") for line in objects))
    yield
    ip(B, *(line.format("del") for line in reversed(objects)))


def persist(server, tmp_path, *options):
    """Verified traffic to the server that must not lose a connection."""
    client = Persist(A, B, server.port, str(tmp_path / "progress"), "--size", 5000, "--pause-ms", 10, *options)
    until(lambda: all(n > 2 for n in client.counters()[0]), "traffic before the flood", timeout=30)
    return client


def stop_unharmed(client):
    """Ends it; returns the rounds. Not one connection was lost."""
    client.proc.signal(15)
    output = client.proc.expect(0, 60)
    rounds, connects, failures = client.counters()
    assert not any(failures) and connects == [1] * len(connects), (connects, failures, output)
    return sum(rounds)


def connects_during(flood, server, limit):
    """Seconds until a real client was served while the flood went on, and how often it had to try."""
    start = time.monotonic()
    for tries in range(1, 100):
        status = server.client("--rounds", 3).wait(60)
        assert flood.running(), "the flood has ended by itself"
        if status == 0:
            return time.monotonic() - start, tries
        assert status == 2 and time.monotonic() < start + limit * PATIENCE, f"no connection in {limit} s"
    raise AssertionError("not reached")


def queue_pairs():
    """How many there are."""
    return sum(counts.get("qp", 0) for counts in watch.rdma_resources().values())


def test_requests_at_a_listener(tmp_path):
    """The backlog is full of forged requests, and a real client gets in all the same; what they cost is bounded."""
    server = Server(B, "--events", "--strict", "--backlog", BACKLOG)
    client = persist(server, tmp_path, "--events")
    before, counters, pairs = watch.kernel_memory_kb()[0], statistics(B.dev), queue_pairs()
    flood = Flood("requests", server.port)
    until(lambda: statistics(B.dev)["cm_backlog_full"] > counters["cm_backlog_full"] + 1000,
          "a full backlog",
          timeout=60)
    rounds = sum(client.counters()[0])
    seconds, tries = connects_during(flood, server, 120)
    print(f"connected after {seconds:.1f} s at try {tries}")
    assert queue_pairs() <= pairs + BACKLOG + 2
    grown = watch.kernel_memory_kb()[0] - before
    assert grown < 30000, f"{grown} kB of slab more than before"
    until(lambda: sum(client.counters()[0]) > rounds, "traffic during the flood", timeout=60)
    flood.stop()
    server.client("--rounds", 3).expect(0, 60)
    print(f"{stop_unharmed(client)} rounds beside the flood")
    # What is half open ends by itself.
    until(lambda: watch.kernel_memory_kb()[0] < before + 10000, f"slab as before: {before} kB", timeout=60, every=1)
    server.stop()
    rping(count=3)


def test_requests_at_a_listener_in_a_full_container():
    """Who listens pays for connections that nobody has accepted, until the container's memory is used up. Nothing is
    killed for them, and another listener at the same port is served all the time."""

    def user(site, *commands):
        return Proc([path_of("cm_user"), *commands], where=site.where, stdin=subprocess.PIPE)

    def read(name):
        return run("cat", f"{group}/{name}", where=B.host)

    port = next_port()
    with container(B, "memory") as (inside, group):
        full = user(inside, "bind", B.ip, port, "listen", "wait")
        full.wait_for("^listen 0")
        before = int(read("memory.current"))
        run("sh", "-c", f"echo {before + (512 << 10)} >{group}/memory.max", where=B.host)
        other = user(B, "bind", B.ip6, port, "listen", "serve", 3)
        other.wait_for("^listen 0")
        flood = Flood("requests", port)
        until(lambda: int(read("memory.current")) > before + (400 << 10), "a full container", timeout=60)
        for _ in range(3):
            assert "connect 0" in user(A, "connect", B.ip6, port).expect(0)
        other.expect(0)
        assert flood.running()
        assert int(read("memory.current")) > before + (300 << 10)
        assert re.search("^oom_kill 0$", read("memory.events"), re.M)
        flood.stop()
        full.line()
        full.expect(0)


def test_repeated_requests_at_a_listener(tmp_path):
    """The same 500 requests again and again look like clients that wait; but none of them can say what it was told to
    bring back."""
    server = Server(B, "--events", "--strict", "--backlog", BACKLOG)
    client = persist(server, tmp_path)
    before, counters, pairs = watch.kernel_memory_kb()[0], statistics(B.dev), queue_pairs()
    flood = Flood("repeated", server.port)
    until(lambda: statistics(B.dev)["cm_rx"] > counters["cm_rx"] + 5000, "many requests", timeout=60)
    rounds = sum(client.counters()[0])
    seconds, tries = connects_during(flood, server, 120)
    print(f"connected after {seconds:.1f} s at try {tries}")
    assert queue_pairs() <= pairs + BACKLOG + 2
    grown = watch.kernel_memory_kb()[0] - before
    assert grown < 30000, f"{grown} kB of slab more than before"
    until(lambda: sum(client.counters()[0]) > rounds, "traffic during the flood", timeout=60)
    flood.stop()
    until(lambda: server.client("--rounds", 3).wait(60) == 0, "a connection behind the flood", timeout=90)
    stop_unharmed(client)
    server.stop()
    rping(count=3)


GUESSED = ["drop_window", "drop_reset", "drop_malformed"]


@pytest.mark.parametrize("what,counters,victim", [
    pytest.param("garbage", [], B, id="garbage"), pytest.param("strangers", [], B, id="strangers"),
    pytest.param("guesses", GUESSED, B, id="guesses"), pytest.param("guesses", GUESSED, A, id="guesses-at-the-client")])
def test_at_live_connections(tmp_path, what, counters, victim):
    """Without the numbers of a connection nothing harms it, however much there is of it."""
    server = Server(B, "--events", "--strict", "--backlog", BACKLOG)
    client = persist(server, tmp_path)
    before, memory = statistics(victim.dev), watch.kernel_memory_kb()[0]
    flood = Flood(what, server.port, victim)
    dropped = lambda: {
        key: value - before[key]
        for key, value in statistics(victim.dev).items() if key.startswith("drop_") and value > before[key]
    }  # noqa: E731
    until(lambda: sum(dropped().values()) > 1000 and all(counter in dropped() for counter in counters),
          f"drops being counted, {counters} among them", timeout=60)
    for _ in range(3):  # it goes on and on
        rounds = client.counters()[0]
        until(lambda: all(now > then for now, then in zip(client.counters()[0], rounds)),
              "every connection moving data",
              timeout=60)
        time.sleep(1)
    seconds, tries = connects_during(flood, server, 120)
    grown = watch.kernel_memory_kb()[0] - memory
    assert flood.stop() > 1000
    print(f"dropped: {dropped()}; connected after {seconds:.1f} s at try {tries}; {stop_unharmed(client)} rounds")
    assert grown < 30000, f"{grown} kB of slab more than before"
    server.stop()
    rping(count=3)


def test_at_a_closed_port(tmp_path):
    """Nobody listens there: the kernel answers as it does for any port, and traffic elsewhere goes on."""
    server = Server(B, "--events", "--strict")
    client = persist(server, tmp_path)
    flood = Flood("garbage", 9)
    rounds = sum(client.counters()[0])
    until(lambda: sum(client.counters()[0]) > rounds + 10, "traffic during the flood", timeout=60)
    flood.stop()
    stop_unharmed(client)
    server.stop()
