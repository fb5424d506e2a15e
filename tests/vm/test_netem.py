# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A wire that loses, reorders, repeats and delays; and a peer that is gone."""

import re
import time

import pytest

from support import cases
from support.net import A, B, PEER, TOPOLOGY, netem, qdisc, statistics
from support.pairs import Server, perftest, rping
from support.procs import PATIENCE, run, until

BAD_WIRE = "loss 1% reorder 5% duplicate 1% delay 100us"

#: Cases of verbs_data that move much or check order: they run over the bad wire as well.
CASES = ["send/sizes", "write/sizes", "read/sizes", "write/1MiB", "read/1MiB", "flow/128-of-each-kind",
         "order/last-byte-last", "order/flag-by-second-write", "order/read-after-write",
         "order/fenced-send-of-read-data", "recv/posted-late", "threads/one-qp-one-cq", "sge/read"]


@pytest.mark.core
@pytest.mark.provider
def test_rping():
    with netem(BAD_WIRE):
        rping(size=4096, count=100, timeout=90)
        rping(size=60000, count=20, timeout=90)


@pytest.mark.parametrize("tool", ["ib_send_lat", "ib_write_bw", "ib_read_bw", "ib_send_bw"])
def test_perftest(tool):
    with netem(BAD_WIRE):
        perftest(tool, "-s", 16384, "-n", 100, timeout=120)


@pytest.mark.one_kernel("the ends are threads of one process")
def test_verified_data():
    chosen = [case for case in cases.list_cases("verbs_data") if case.name in CASES]
    assert len(chosen) == len(CASES)
    with netem(BAD_WIRE):
        results = cases.run_cases("verbs_data", chosen)
    failed = [f"{name}: {result.text}" for name, result in results.items() if not result.passed]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("wire", ["loss 10%", "delay 5ms 4ms", "duplicate 30%", "reorder 30% 50% delay 1ms gap 3",
                                  "corrupt 2%"])
def test_worse_wires(wire):
    server = Server()
    before = None if PEER else retransmissions()
    with netem(wire):
        server.client("--rounds", 30, "--size", 30000).expect(0, 120)
    server.stop()
    # netem corrupts the linear part of a packet only, of ours the Ethernet header: the datagram
    # does not arrive. (Corrupted payload is the business of the unit tests and of test_hostile.)
    if wire.startswith("corrupt") and not PEER:
        assert retransmissions() > before


def retransmissions():
    """Datagrams that both ends have sent again so far."""
    return sum(c["retrans_fast"] + c["retrans_rto"] for c in (statistics(A.dev), statistics(B.dev)))


def test_retransmissions_are_counted():
    if PEER:
        pytest.skip("usiw's own counters")
    before = retransmissions()
    server = Server()
    with netem("loss 5%"):
        server.client("--rounds", 50).expect(0, 90)
    server.stop()
    assert retransmissions() > before


def test_short_cut_of_the_wire():
    """Nothing passes for a second: the connection goes on afterwards."""
    server = Server()
    client = server.client("--seconds", 60)
    client.wait_for("^connected")
    with netem("loss 100%", sites=[A]):
        time.sleep(1)
    server.end_client(client)
    server.stop()


#: How a program sees that its peer is gone: by a send that is not acknowledged, or, when it waits for
#: the peer's message with nothing of its own under way, by a flushed receive (keepalive).
GONE = "transport retry counter exceeded|Work Request Flushed Error"


def lost_in(client, seconds):
    """Waits for a `traffic client` that loses its peer; returns the line that says how."""
    assert client.wait(seconds) == 2, client.output
    return re.search(r"^lost: .*", client.output, re.M)[0]


@pytest.mark.core
@pytest.mark.parametrize("events", [pytest.param(False, marks=pytest.mark.provider), True],
                         ids=["polling", "events"])
def test_peer_gone(events):
    """All datagrams get lost: both ends end in bounded time, and all is cleaned up. (Which completion has which status
    is the business of verbs_errors peer-gone/*; a client that only waits for an answer has nothing but a receive to
    flush.)"""
    server = Server()
    client = server.client("--seconds", 120, *(["--events"] if events else []))
    client.wait_for("^connected")
    time.sleep(0.5)
    with netem("loss 100%"):
        line = lost_in(client, 60)
        if not PEER:
            assert re.search(GONE, line), line
    server.stop()


def test_peer_killed_silently():
    """The peer dies and its RESET gets lost."""
    server = Server()
    client = server.client("--seconds", 120)
    client.wait_for("^connected")
    time.sleep(0.3)
    with netem("loss 100%", sites=[B]):
        server.proc.kill()
        lost_in(client, 60)


@pytest.mark.core
def test_peer_killed():
    """The peer dies: its kernel tells the other end, which does not wait for any time-out."""
    server = Server()
    client = server.client("--seconds", 120)
    client.wait_for("^connected")
    time.sleep(0.3)
    start = time.monotonic()
    server.proc.kill()
    lost_in(client, 20)
    assert time.monotonic() - start < 8 * PATIENCE


def test_link_down():
    """The link goes down for good under traffic: the same bounded end; up again: all works again."""
    server = Server()
    client = server.client("--seconds", 120)
    client.wait_for("^connected")
    time.sleep(0.3)
    run("ip", "link", "set", A.netdev, "down")
    try:
        lost_in(client, 60)
    finally:
        restore_link()
    server.stop()
    rping(count=5)


def test_link_down_and_up():
    """A short interruption of the link is like loss."""
    server = Server()
    client = server.client("--seconds", 60)
    client.wait_for("^connected")
    time.sleep(0.3)
    run("ip", "link", "set", A.netdev, "down")
    restore_link()
    server.end_client(client)
    server.stop()


def restore_link():
    """Sets A's netdev up again with what the kernel dropped when it went down."""
    run("ip", "link", "set", A.netdev, "up")
    if TOPOLOGY == "hosts":     # the kernel makes the routes of the prefixes again by itself
        run("ip", "-6", "addr", "replace", f"{A.ip6}/64", "dev", A.netdev, "nodad")
        until(lambda: "UP" in run("ip", "-br", "link", "show", "dev", A.netdev).split()[1], "the link being up")
        return
    run("ip", "route", "replace", B.ip, "dev", A.netdev, "src", A.ip, "table", "101")
    run("ip", "-6", "addr", "replace", f"{A.ip6}/128", "dev", A.netdev, "nodad")
    run("ip", "-6", "route", "replace", B.ip6, "dev", A.netdev, "src", A.ip6, "table", "101")
    until(lambda: "UP" in run("ip", "-br", "link", "show", "dev", A.netdev).split()[1], "the link being up")


def test_slow_wire():
    """20 Mbit/s with a short queue: the sender adapts, nothing is lost for good."""
    server = Server()
    with qdisc("tbf rate 20mbit burst 16kb latency 20ms"):
        server.client("--rounds", 20, "--size", 100000).expect(0, 120)
    server.stop()
