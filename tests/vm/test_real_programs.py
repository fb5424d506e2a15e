# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Programs as Debian has them, unchanged, with the module: server at B, client at A. (Under usiw-run:
tests/kernel-less.)"""

import glob
import re

import pytest

from support import mpi
from support.net import A, B
from support.pairs import next_port, pair
from support.procs import Proc, run, sockets_bound, until

RSPRELOAD = "".join(glob.glob("/usr/lib/*/rsocket/librspreload.so"))


def test_rdma_xclient():
    """Posts 16 bytes inline to a QP for which it has asked for none."""
    port = next_port()
    pair(["rdma_xserver", "-p", port, "-c", "r"], ["rdma_xclient", "-s", B.ip, "-p", port, "-c", "r"], port)


def test_qperf():
    """Registers memory for atomics; and its server takes one client after another."""
    port = next_port()
    server = Proc(["qperf", "-lp", port], where=B.where)
    until(lambda: sockets_bound(port, server.pid), "the server listens")
    for test in ("rc_lat", "rc_bw", "rc_rdma_read_bw"):
        out = run("qperf", B.ip, "-lp", port, "-cm", 1, "-t", 1, test, where=A.where)
        assert re.search(r"(latency|bw) *= *[1-9]", out), out
    server.kill()


@pytest.mark.parametrize("options", [["-p", "verbs", "-e", "msg"], ["-p", "verbs;ofi_rxm", "-e", "rdm"]],
                         ids=["msg", "rxm"])
def test_libfabric(options):
    port = next_port()
    common = ["fi_pingpong", *options, "-I", 20, "-S", 4096]
    server = Proc([*common, "-B", port], where=B.where)
    until(lambda: sockets_bound(port, server.pid), "the server listens")
    run(*common, "-P", port, B.ip, where=A.where)
    server.expect(0)


def test_iperf_by_rsockets():
    port = next_port()
    preload = {"LD_PRELOAD": RSPRELOAD}
    server = Proc(["iperf", "-s", "-p", port], where=B.where, env=preload).wait_listening(port)
    assert "bits/sec" in run("iperf", "-c", B.ip, "-p", port, "-n", "5M", where=A.where, env=preload)
    server.kill()


@pytest.mark.parametrize("ranks", [2, 4])
def test_open_mpi(tmp_path, ranks):
    """Half of the ranks at each end."""
    out = run("mpirun", "--oversubscribe", "-np", ranks, "--host", f"{A.ip}:{ranks // 2},{B.ip}:{ranks // 2}",
              "--mca", "plm_rsh_agent", mpi.agent(tmp_path, B.where), "--mca", "oob_tcp_if_include", f"{A.ip}/24",
              *mpi.BY_VERBS, mpi.build(tmp_path), where=A.where, env=mpi.ENVIRONMENT, timeout=120)
    assert mpi.expected(ranks) in out
