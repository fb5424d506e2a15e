# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Programs as Debian has them, unchanged, under usiw-run: those that once were turned away, and why they are not now."""

import pytest

from support.pairs import next_port

SERVER_IP = "127.0.0.3"


def test_rping_with_a_qp_of_its_own(usiw_run):
    """It leads its QP through INIT, RTR and RTS itself, at the client when rdma_cm has connected it, and then calls rdma_establish()."""
    port = next_port()
    options = ["-a", SERVER_IP, "-p", port, "-C", 5, "-V", "-q"]
    server = usiw_run(["rping", "-s", *options]).wait_listening(port)
    usiw_run(["rping", "-c", *options]).expect(0)
    server.expect(0)


@pytest.mark.parametrize("mode", ["r"])
def test_rdma_xclient(usiw_run, mode):
    """Posts 16 bytes inline to a QP for which it has asked for none."""
    port = next_port()
    server = usiw_run(["rdma_xserver", "-p", port, "-c", mode]).wait_listening(port)
    usiw_run(["rdma_xclient", "-s", SERVER_IP, "-p", port, "-c", mode]).expect(0)
    server.expect(0)


def test_rstream_as_it_comes(usiw_run):
    """Sizes from 64 bytes to 4 MB, by rsockets, which post 4 bytes inline."""
    port = next_port()
    server = usiw_run(["rstream", "-b", SERVER_IP, "-p", port]).wait_listening(port, spins=True)
    usiw_run(["rstream", "-s", SERVER_IP, "-p", port]).expect(0, 120)
    server.expect(0)
