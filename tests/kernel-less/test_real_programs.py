# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Programs as Debian has them, unchanged, under usiw-run: those that once were turned away, and why they are not
now. Commands that `make compat` uses as well are in its table (tests/compat/programs.py)."""

import re
from typing import NamedTuple

import pytest

from hosts import A4, B4
from programs import commands
from support import mpi
from support.pairs import next_port
from support.procs import Proc, run, sockets_bound, until

SERVER_IP = "127.0.0.3"


class Place(NamedTuple):
    """Where a server runs, and its address."""
    where: str
    address: str

    def start(self, usiw_run, argv, **kwargs):
        """A program under usiw-run there."""
        return Proc([usiw_run.path, *argv], where=self.where, **kwargs)


@pytest.fixture(params=["this-host", "other-host"])
def place(request, other_host):
    return Place("", "127.0.0.1") if request.param == "this-host" else Place(other_host, B4)


@pytest.mark.parametrize("provider", ["verbs, msg", "verbs;ofi_rxm, rdm"])
def test_libfabric(usiw_run, place, provider):
    """It asks for all rights to memory; and, by a bind to 127.0.0.1, for the address that it offers to other hosts."""
    port = next_port()
    server_argv, client_argv, _ = commands(f"libfabric: fi_pingpong, {provider}", server=place.address, port=port)
    server = place.start(usiw_run, server_argv)
    until(lambda: sockets_bound(port, server.pid), "the server listens")
    usiw_run(client_argv).expect(0)
    server.expect(0)


def test_rping_with_a_qp_of_its_own(usiw_run):
    """It leads its QP through INIT, RTR and RTS itself, at the client when rdma_cm has connected it, and then calls
    rdma_establish()."""
    port = next_port()
    options = ["-a", SERVER_IP, "-p", port, "-C", 5, "-V", "-q"]
    server = usiw_run(["rping", "-s", *options]).wait_listening(port)
    usiw_run(["rping", "-c", *options]).expect(0)
    server.expect(0)


def test_rdma_xclient(usiw_run, place):
    """Posts 16 bytes inline to a QP for which it has asked for none."""
    port = next_port()
    server_argv, client_argv, _ = commands("rdma_xclient", server=place.address, port=port)
    server = place.start(usiw_run, server_argv).wait_listening(port)
    usiw_run(client_argv).expect(0)
    server.expect(0)


def test_rstream_as_it_comes(usiw_run, place):
    """Sizes from 64 bytes to 4 MB, by rsockets, which post 4 bytes inline."""
    port = next_port()
    port_kind = {"USIW_RUN_PORT": "shm"}  # which streams several times as fast to the other host
    server = place.start(usiw_run, ["rstream", "-p", port], env=port_kind).wait_listening(port, spins=True)
    usiw_run(["rstream", "-s", place.address, "-p", port], env=port_kind).expect(0, 120)
    server.expect(0)


def test_qperf(usiw_run, place):
    """Registers memory for atomics; and its server takes one client after another."""
    port = next_port()
    server_argv, client_argv, _ = commands("qperf", server=place.address, port=port)
    server = place.start(usiw_run, server_argv)
    until(lambda: sockets_bound(port, server.pid), "the server listens")
    for _ in range(2):
        out = usiw_run(client_argv).expect(0)
        assert len(re.findall(r"(latency|bw) *= *[1-9]", out)) == 4, out
    server.kill()


@pytest.mark.parametrize("ranks", [2, 4])
def test_open_mpi(usiw_run, tmp_path, other_host, ranks):
    """All ranks on this host; usiw-run in front of mpirun reaches all that it starts."""
    out = usiw_run(["mpirun", "--oversubscribe", "-np", ranks, *mpi.BY_VERBS,
                    mpi.build(tmp_path)], env=mpi.ENVIRONMENT).expect(0, 90)
    assert mpi.expected(ranks) in out


@pytest.mark.parametrize("ranks", [2, 4])
def test_open_mpi_on_two_hosts(usiw_run, tmp_path, other_host, ranks):
    """Half of the ranks on each."""
    out = run("mpirun", "--oversubscribe", "-np", ranks, "--host", f"{A4}:{ranks // 2},{B4}:{ranks // 2}",
              "--mca", "plm_rsh_agent", mpi.agent(tmp_path, other_host), "--mca", "oob_tcp_if_include", f"{A4}/24",
              *mpi.BY_VERBS, usiw_run.path, mpi.build(tmp_path), env=mpi.ENVIRONMENT, timeout=90)
    assert mpi.expected(ranks) in out


def bound_udp_sockets(port, pid):
    """How many there are where that process is: rsockets listen by rdma_cm."""
    with open(f"/proc/{pid}/net/udp", encoding="ascii") as f:
        return sum(line.split()[1].endswith(f":{port:04X}") for line in f)


def test_iperf_by_rsockets(usiw_run, place):
    """Another preloaded library, whose table of descriptors the making of usiw-run's watcher once tore. It makes
    rsockets of TCP sockets; what cannot be one stays one, so look at what listens. To the other host by raw packets:
    DPDK's own sockets are none of the program's."""
    port = next_port()
    server_argv, client_argv, preload = commands("iperf over rsockets", server=place.address, port=port)
    server = place.start(usiw_run, server_argv, env=preload).wait_listening(port)
    assert bound_udp_sockets(port, server.pid) > 0
    for _ in range(2):
        assert "bits/sec" in usiw_run(client_argv, env=preload).expect(0, 30)
    server.kill()
    assert "bits/sec" in server.output
