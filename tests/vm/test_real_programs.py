# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Programs as Debian has them, unchanged, with the module: server at B, client at A. (Under usiw-run:
tests/kernel-less.) Commands that `make compat` uses as well are in its table (tests/compat/programs.py)."""

import pathlib
import re
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "compat"))
from programs import commands  # noqa: E402
from support import mpi  # noqa: E402
from support.net import A, B  # noqa: E402
from support.pairs import next_port, pair  # noqa: E402
from support.procs import Proc, run, sockets_bound, until  # noqa: E402


def test_rdma_xclient():
    """Posts 16 bytes inline to a QP for which it has asked for none."""
    port = next_port()
    server_argv, client_argv, _ = commands("rdma_xclient", server=B.ip, port=port)
    pair(server_argv, client_argv, port)


def test_qperf():
    """Registers memory for atomics; and its server takes one client after another."""
    port = next_port()
    server_argv, client_argv, _ = commands("qperf", server=B.ip, port=port)
    server = Proc(server_argv, where=B.where)
    until(lambda: sockets_bound(port, server.pid), "the server listens")
    for argv, tests in ((client_argv, 4), (client_argv[:-3], 1)):
        out = run(*argv, where=A.where)
        assert len(re.findall(r"(latency|bw) *= *[1-9]", out)) == tests, out
    server.kill()


@pytest.mark.parametrize("provider", ["verbs, msg", "verbs;ofi_rxm, rdm"])
def test_libfabric(provider):
    port = next_port()
    server_argv, client_argv, _ = commands(f"libfabric: fi_pingpong, {provider}", server=B.ip, port=port)
    server = Proc(server_argv, where=B.where)
    until(lambda: sockets_bound(port, server.pid), "the server listens")
    run(*client_argv, where=A.where)
    server.expect(0)


def test_iperf_by_rsockets():
    port = next_port()
    server_argv, client_argv, preload = commands("iperf over rsockets", server=B.ip, port=port)
    server = Proc(server_argv, where=B.where, env=preload).wait_listening(port)
    assert "bits/sec" in run(*client_argv, where=A.where, env=preload)
    server.kill()


@pytest.mark.parametrize("ranks", [2, 4])
def test_open_mpi(tmp_path, ranks):
    """Half of the ranks at each end."""
    out = run("mpirun", "--oversubscribe", "-np", ranks, "--host", f"{A.ip}:{ranks // 2},{B.ip}:{ranks // 2}",
              "--mca", "plm_rsh_agent", mpi.agent(tmp_path, B.where), "--mca", "oob_tcp_if_include", f"{A.ip}/24",
              *mpi.BY_VERBS, mpi.build(tmp_path), where=A.where, env=mpi.ENVIRONMENT, timeout=120)
    assert mpi.expected(ranks) in out
