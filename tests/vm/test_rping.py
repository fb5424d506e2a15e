# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""rping, unmodified, with data validation."""

import re

import pytest

from support.net import A, B
from support.pairs import next_port, rping
from support.procs import Proc, run


@pytest.mark.core
@pytest.mark.parametrize("size", [
    pytest.param(64, marks=pytest.mark.provider),
    pytest.param(1472, marks=pytest.mark.provider),
    pytest.param(4096, marks=pytest.mark.provider), 65535
])
def test_sizes(size):
    rping(size=size, count=20)


@pytest.mark.core
@pytest.mark.provider
def test_data_is_printed():
    server, client = rping("-v", count=5)
    assert len(re.findall(r"^ping data: rdma-ping-\d", client, re.M)) == 5
    assert len(re.findall(r"^server ping data: rdma-ping-\d", server, re.M)) == 5


@pytest.mark.core
def test_listening_on_any_address():
    rping(bind="0.0.0.0")


@pytest.mark.core
@pytest.mark.kernel
@pytest.mark.parametrize("large", [A, pytest.param(B, marks=pytest.mark.provider)], ids=["client", "server"])
def test_ends_of_different_mtu(large):
    """One end may send jumbo frames, which the other end's netdev would not take."""
    run("ip", "link", "set", large.netdev, "mtu", 9000, where=large.where)
    try:
        rping(size=65535)
        rping(size=65535, server=A, client=B)
    finally:
        run("ip", "link", "set", large.netdev, "mtu", 1500, where=large.where)
    rping(size=65535)


def test_many_rounds():
    rping(count=1000, timeout=60)


def test_to_the_own_address():
    rping(server=B, client=B)


@pytest.mark.core
def test_ipv6():
    port = next_port()
    server = Proc(["rping", "-s", "-a", B.ip6, "-p", port, "-C", 5, "-V"], where=B.where).wait_listening(port)
    Proc(["rping", "-c", "-a", B.ip6, "-p", port, "-C", 5, "-V"], where=A.where).expect(0)
    server.expect(0, 20)


def test_persistent_server():
    """rping -P takes one client after another, each in a thread, while an earlier one goes on. (It keeps one request in
    one variable: of two that come before its main thread has looked, it forgets the first, whose client then waits for
    ever. So no client starts here before the one before it is served.)"""
    port = next_port()
    server = Proc(["rping", "-s", "-P", "-a", B.ip, "-p", port], where=B.where).wait_listening(port)
    client = ["rping", "-c", "-a", B.ip, "-I", A.ip, "-p", port, "-V"]
    first = Proc([*client, "-v", "-C", 100_000_000])
    first.wait_for("ping data")
    for _ in range(5):
        Proc([*client, "-C", 10]).expect()
    assert first.status is None
    first.kill()
    Proc([*client, "-C", 10]).expect()
    assert server.status is None
    server.kill()


@pytest.mark.core
def test_no_server():
    """Nobody listens: an error message and an exit status at once."""
    client = Proc(["rping", "-c", "-a", B.ip, "-I", A.ip, "-p", next_port(), "-C", 1])
    assert client.wait(20) != 0
    assert re.search(r"REJECTED|connect error|refused", client.output, re.I), client.output
