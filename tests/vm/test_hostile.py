# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Forged and malformed datagrams: live traffic goes on, listeners listen, memory stays what it was."""

import re
import time

import pytest

from support.cases import path_of
from support.net import A, B, PEER, statistics
from support.pairs import Server, rping
from support.procs import Proc
from support.watch import KEPT_KB, meminfo_kb

pytestmark = pytest.mark.skipif(bool(PEER), reason="speaks usiw's protocol")


def hostile(*args, timeout=120):
    """Runs the forger and returns how many datagrams it sent of each kind."""
    output = Proc([path_of("hostile"), *args]).expect(0, timeout)
    counts = {name.strip(): int(n) for name, n in re.findall(r"^(\S.*?)\s{2,}(\d+)$", output, re.M)}
    assert counts and all(counts.values()), output
    return counts


@pytest.mark.core
@pytest.mark.provider
def test_handshakes_at_a_listener():
    """Also under the flood a real client gets its connection, at the latest when the flood is over."""
    server = Server()
    witness = server.client("--seconds", 60)
    witness.wait_for("^connected")
    sent = hostile("listener", "--to", B.ip, "--port", server.port, "--from", A.ip, "--count", 100)
    assert sent["flood of right requests"] == 1000
    server.client("--rounds", 5).expect(0, 60)
    server.end_client(witness)
    server.stop()
    rping(count=3)


def test_handshake_flood_needs_bounded_memory():
    server = Server()
    hostile("listener", "--to", B.ip, "--port", server.port, "--from", A.ip, "--count", 50)
    before = meminfo_kb("Slab")
    for seed in range(3):
        hostile("listener", "--to", B.ip, "--port", server.port, "--from", A.ip, "--count", 300, "--seed", seed)
    grown = meminfo_kb("Slab") - before
    server.stop()
    assert grown < 20000 + KEPT_KB, f"{grown} kB of slab more than before"


@pytest.mark.core
def test_off_path():
    """The right 4-tuple, wrong sequence numbers, exact replays: the connection does not care."""
    server = Server()
    client = server.client("--seconds", 60, "--connections", 2)
    client.wait_for("^connected")
    before = statistics(B.dev)
    hostile("offpath", "--netdev", B.netdev, "--count", 150)
    server.end_client(client)
    server.stop()
    after = statistics(B.dev)
    for counter in ("drop_malformed", "drop_window", "drop_reset", "drop_checksum"):
        assert after[counter] > before[counter], (counter, before[counter], after[counter])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_on_path(seed):
    """The right sequence numbers too: the connection may end, with verified guards and nothing else harmed."""
    victim, other = Server(), Server()
    client = victim.client("--seconds", 8, "--connections", 3)
    client.wait_for("^connected")
    time.sleep(0.2)
    Proc([path_of("hostile"), "onpath", "--netdev", B.netdev, "--count", 200, "--seed", seed]).expect(0, 60)
    bystander = other.client("--rounds", 20)
    bystander.expect(0, 60)
    # 3 would be corruption; a connection that was injected into with right numbers may break (2).
    assert client.wait(60) in (0, 2), client.output
    assert "CORRUPT" not in client.output or "answer" in client.output
    victim.proc.signal(15)
    assert victim.proc.wait(30) in (0, 3)
    assert "was overwritten" not in victim.proc.output, victim.proc.output
    other.stop()
    rping(count=3)


def test_closed_port_answers_with_refusal():
    """Datagrams for a port nobody listens on harm nobody."""
    Proc([path_of("hostile"), "listener", "--to", B.ip, "--port", 9, "--from", A.ip, "--count", 50]).expect(0, 60)
    rping(count=3)
