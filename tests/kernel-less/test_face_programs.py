# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Programs as Debian has them on the RoCE face (docs/face.md), and two of ours that connect as NCCL and Mooncake do.
Most exchange GIDs and QP numbers by TCP and connect their QPs by themselves. Each runs on one host by memory and by
sockets, and to another host by raw packets and by sockets."""

import errno
import re
from typing import NamedTuple

import pytest

from compiling import compiled
from hosts import B4, wait_for_link_local
from programs import commands
from stats import devices
from support.pairs import next_port
from support.procs import Proc, sockets_bound, until

FACE = ("--face", "roce")


class Way(NamedTuple):
    """Where the server runs, its address, the option --port of both programs, and the port that carries short messages.
    """
    where: str
    address: str
    kind: str
    port: str

    def start(self, usiw_run, argv, where=""):
        """Starts a program under usiw-run."""
        return Proc([usiw_run.path, *FACE, "--port", self.kind, *argv], where=where)


@pytest.fixture(scope="module", params=["memory", "sockets", "packets-to-host", "sockets-to-host"])
def way(request):
    kind, _, other = request.param.partition("-to-")
    port = {"memory": "shm", "sockets": "socket", "packets": "packet"}[kind]
    option = {"memory": "auto"}.get(kind, port)
    if not other:
        return Way("", "127.0.0.1", option, port)
    where = request.getfixturevalue("other_host")
    wait_for_link_local(where)
    return Way(where, B4, option, port)


def pair(usiw_run, way, argv, port, client_argv=None):
    """Runs a server and its client to their ends, and returns what the client prints."""
    server = way.start(usiw_run, argv, way.where).wait_listening(port)
    client = way.start(usiw_run, client_argv or [*argv, way.address])
    try:
        output = client.expect(0)
        server.expect(0)
    except AssertionError as error:
        raise AssertionError(f"{error}\n--- the server printed:\n{server.output[-2000:]}") from error
    return output


#: Prints the indices of the GIDs that the table has, and the errno for the last entry.
GIDS = """
from pyverbs.device import Context
from pyverbs.pyverbs_error import PyverbsRDMAError
device = Context(name="usiw0")
entries = device.query_port(1).gid_tbl_len
print(*(gid.gid_index for gid in device.query_gid_table(entries)))
try:
    device.query_gid_ex(1, entries - 1)
except PyverbsRDMAError as error:
    print(error.error_code)
"""


def test_gid_table(usiw_run):
    """It has empty entries, which ibv_query_gid_table() leaves out."""
    indices, error = usiw_run(["/usr/bin/python3", "-c", GIDS], FACE).expect(0).splitlines()
    assert indices.startswith("0 1") and int(error) == errno.ENODATA


def test_ibstat(usiw_run):
    """It knows CAs only, and reads all the files of sysfs that a port of InfiniBand has."""
    shown = usiw_run(["ibstat"], FACE).expect(0)
    assert "CA 'usiw0'" in shown and "State: Active" in shown and "Link layer: Ethernet" in shown, shown


@pytest.mark.parametrize("command", ["ibv_rc_pingpong -g 0", "ibv_rc_pingpong -g 1 -e", "ibv_srq_pingpong -g 0 -e",
                                     "ibv_srq_pingpong -g 1"])
def test_pingpong(usiw_run, way, command):
    """Both programs compare the data that they receive (-c)."""
    port = next_port()
    out = pair(usiw_run, way, [*command.split(), "-p", port, "-n", 200, "-c"], port)
    assert "200 iters in" in out and "invalid data" not in out, out


@pytest.mark.parametrize("options", [
    "send_lat -e", "send_lat --use-srq", "send_bw -b -x 0", "send_bw -q 8 --use-srq", "write_lat", "write_bw -b -q 8",
    "read_lat -e", "read_bw -b", "atomic_lat", "atomic_bw -q 8 -e"
])
def test_perftest(usiw_run, way, options):
    """Without -R."""
    tool, *words = options.split()
    port = next_port()
    out = pair(usiw_run, way, [f"ib_{tool}", "-F", "-d", "usiw0", "-p", port, "-n", 200, *words], port)
    row = re.search(r"^ *\d+ +(\d+) +\d+\.\d+ ", out, re.M)
    queues = 8 if "-q" in words else 1
    assert row and int(row[1]) == 200 * queues, out


def test_data_goes_that_way(usiw_run, way):
    """`usiw stat` shows which port carries the data of a QP that the program has connected."""
    port = next_port()
    argv = ["ib_write_lat", "-F", "-d", "usiw0", "-p", port, "-n", 100000000]
    server = way.start(usiw_run, argv, way.where).wait_listening(port)
    client = way.start(usiw_run, [*argv, way.address])

    def ports():
        return [q["gauges"]["data_port"] for d in devices().values() for q in d["qps"] if q["pid"] == client.pid]
    try:
        until(lambda: client.status is not None or way.port in ports(), "")
    except AssertionError:
        client.fail(f"uses {ports()}, not {way.port}")
    assert client.status is None, client.output
    client.kill()
    server.kill()


def test_rping(usiw_run, way):
    """rdma_cm connects on this face as well."""
    port = next_port()
    options = ["-a", way.address, "-p", port, "-C", 10, "-V"]
    pair(usiw_run, way, ["rping", "-s", *options], port, ["rping", "-c", *options])


@pytest.mark.parametrize("provider", ["verbs, msg", "verbs;ofi_rxm, rdm"])
def test_libfabric(usiw_run, way, provider):
    port = next_port()
    server_argv, client_argv, _ = commands(f"libfabric: fi_pingpong, {provider}", server=way.address, port=port)
    server = way.start(usiw_run, server_argv, way.where)
    until(lambda: sockets_bound(port, server.pid), "the server listens")
    assert "64k" in way.start(usiw_run, client_argv).expect(0)
    server.expect(0)


def test_qperf(usiw_run, way):
    """With -cm 1. Without this option qperf passes no GRH, so it cannot connect on any RoCE adapter."""
    port = next_port()
    server = way.start(usiw_run, ["qperf", "-lp", port], way.where)
    until(lambda: sockets_bound(port, server.pid), "the server listens")
    tests = ["rc_lat", "rc_rdma_write_bw"]
    out = way.start(usiw_run, ["qperf", way.address, "-lp", port, "-cm", 1, "-t", 1, *tests]).expect(0)
    assert len(re.findall(r"(latency|bw) *= *[1-9]", out)) == len(tests), out
    server.kill()


@pytest.mark.parametrize("name", ["as_nccl", "as_mooncake"])
def test_as_others_connect(usiw_run, way, name, tmp_path):
    """By the calls of libraries that a test cannot have, because they need a GPU or are not in Debian."""
    program, port = compiled(name, tmp_path), next_port()
    pair(usiw_run, way, [program, port], port, [program, port, way.address])
