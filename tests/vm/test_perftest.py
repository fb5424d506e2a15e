# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The programs of perftest, unmodified (-R): they end with status 0 and print numbers. No number is judged."""

import pytest

from support.net import WORLD
from support.pairs import perftest


def first_of(*tools):
    """The first with every kernel; what its other operations add is the provider's."""
    return [tools[0], *(pytest.param(tool, marks=pytest.mark.provider) for tool in tools[1:])]


LATENCY = ["ib_send_lat", "ib_write_lat", "ib_read_lat"]
BANDWIDTH = ["ib_send_bw", "ib_write_bw", "ib_read_bw"]


@pytest.mark.core
@pytest.mark.parametrize("tool", first_of(*LATENCY))
@pytest.mark.parametrize("size", [2, pytest.param(4096, marks=pytest.mark.provider),
                                  pytest.param(65536, marks=pytest.mark.provider)])
def test_latency(tool, size):
    rows = perftest(tool, "-s", size, "-n", 100)
    assert rows[-1][0] == size and all(number > 0 for number in rows[-1][2:5])


@pytest.mark.core
@pytest.mark.parametrize("tool", first_of(*reversed(BANDWIDTH)))
@pytest.mark.parametrize("size", [pytest.param(64, marks=pytest.mark.provider), 65536])
def test_bandwidth(tool, size):
    rows = perftest(tool, "-s", size, "-n", 200)
    assert rows[-1][0] == size and rows[-1][3] > 0


# A guest's processor is ten times slower than this machine's: one tool there.
@pytest.mark.parametrize("tool", ["ib_read_bw"] + ([] if WORLD == "module" else ["ib_send_lat", "ib_write_bw"]))
def test_all_sizes(tool):
    """-a: 2 B to 8 MB, as few rounds as perftest allows."""
    rows = perftest(tool, "-a", "-n", 5, timeout=300)
    assert [row[0] for row in rows] == [2.0 ** i for i in range(1, 24)]


# ib_send_bw -e sleeps until an event when it lacks a credit, which comes by RDMA WRITE and makes none: it hangs when
# its server is more than some 340 messages behind the wire, which shared memory makes easy (681 posted, 681 complete,
# credit for 511 more in its memory). With more rounds than its receive queue holds this does not happen at a netdev's
# speed.
EVENT_MODE = ["ib_send_lat", "ib_read_lat", "ib_read_bw"] + (["ib_send_bw"] if WORLD == "module" else [])


@pytest.mark.parametrize("tool", EVENT_MODE)
def test_event_mode(tool):
    perftest(tool, "-e", "-s", 4096, "-n", 1000)


@pytest.mark.parametrize("tool", BANDWIDTH)
def test_both_directions(tool):
    perftest(tool, "-b", "-s", 16384, "-n", 100)


@pytest.mark.parametrize("tool", BANDWIDTH)
def test_several_qps(tool):
    perftest(tool, "-q", 16, "-s", 4096, "-n", 100)


@pytest.mark.core
@pytest.mark.parametrize("tool", first_of("ib_send_lat", "ib_send_bw"))
def test_shared_receive_queue(tool):
    perftest(tool, "--use-srq", "-s", 4096, "-n", 200)


@pytest.mark.parametrize("tool", ["ib_send_lat", "ib_write_lat", "ib_send_bw", "ib_write_bw"])
def test_inline(tool):
    perftest(tool, "-I", 128, "-s", 64, "-n", 200)


@pytest.mark.parametrize("tool", ["ib_send_bw", "ib_write_bw"])
def test_queue_depths(tool):
    options = ["-t", 512] + (["-r", 1024] if "send" in tool else [])
    perftest(tool, *options, "-s", 1024, "-n", 1000)


def test_cq_moderation():
    perftest("ib_write_bw", "-Q", 50, "-s", 512, "-n", 1000)


@pytest.mark.parametrize("tool", BANDWIDTH)
def test_post_lists(tool):
    perftest(tool, "-l", 8, *(["--recv_post_list", 8] if "send" in tool else []), "-s", 512, "-n", 1000)


@pytest.mark.parametrize("tool", ["ib_send_bw", "ib_read_lat"])
def test_duration(tool):
    """-D: it ends by a signal in its own time, with work under way."""
    perftest(tool, "-D", 1, "-s", 4096)


@pytest.mark.parametrize("tool,options", [
    ("ib_write_bw", ["-N", "-t", 64, "-x", 0, "-T", 32, "-m", 1024, "--use_old_post_send"]),
    ("ib_write_bw", ["-b", "--report-both", "--mr_per_qp", "-q", 2]),
    ("ib_read_bw", ["--perform_warm_up", "-Q", 1]),
    ("ib_send_bw", ["--inline_recv", 64, "--rate_limit_type", "SW", "--rate_limit", 1]),
    ("ib_send_lat", ["-C", "-H", "-U"])], ids=["write", "both-directions", "warm-up", "rate-limit", "histogram"])
def test_further_options(tool, options):
    """Those that change what it asks of the verbs, or how it posts."""
    perftest(tool, *options, "-s", 64, "-n", 500)


def test_reads_in_flight():
    perftest("ib_read_bw", "-o", 16, "-s", 8192, "-n", 200)


@pytest.mark.core
@pytest.mark.parametrize("tool", first_of("ib_atomic_lat", "ib_atomic_bw"))
@pytest.mark.parametrize("operation", first_of("FETCH_AND_ADD", "CMP_AND_SWAP"))
def test_atomics(tool, operation):
    rows = perftest(tool, "-A", operation, "-n", 100)
    assert rows[-1][0] == 8 and rows[-1][-1] > 0  # ib_atomic_bw: messages per second; MB/s round to 0


def test_atomics_of_several_qps():
    """Several in flight on each, in both directions."""
    perftest("ib_atomic_bw", "-A", "FETCH_AND_ADD", "-b", "-q", 4, "-o", 16, "-n", 100)
