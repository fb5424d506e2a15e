# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Ceph by its messenger async+rdma on the RoCE face: a monitor and its status, then an OSD and `rados bench`. With this
messenger Ceph has no other way to move data. It connects its QPs by itself, and takes GID 0."""

import re
import uuid

import pytest

from hosts import B4, wait_for_link_local
from support import procs
from support.pairs import next_port
from support.procs import Proc, until

#: A client that sends a command before it has the monitor's map is refused with EPERM. That happens by TCP as well, so
#: such a client is tried again.
TRIES, TOO_EARLY = 10, re.compile("EPERM|wrong fsid")
#: Buffers for a memlock limit of 8 MiB, which is Debian's; Ceph's own defaults need gigabytes. The OSD keeps its
#: objects in memory, and a write waits for ever when they fill it.
CONFIGURATION = """
[global]
fsid = 8a1a3a0e-4f4e-4e55-9a1c-5d4a1f6b7c01
mon_host = [v1:{address}:{port}]
mon_initial_members = a
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_type = async+rdma
ms_async_rdma_device_name = usiw0
ms_async_rdma_buffer_size = 4096
ms_async_rdma_send_buffers = 256
ms_async_rdma_receive_buffers = 512
ms_async_rdma_receive_queue_len = 128
run_dir = {folder}
log_file = {folder}/log
admin_socket = {folder}/$name.asok
mon_data = {folder}/mon
mon_allow_pool_size_one = true
mon_data_avail_crit = 0
osd_data = {folder}/osd
osd_objectstore = memstore
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
memstore_device_bytes = 1073741824

[osd]
public_addr = {address}
cluster_addr = {address}
"""


class Cluster:
    """Daemons at `where`, and clients here. All of them use the option --port `kind`."""

    def __init__(self, usiw_run, folder, where, address, kind):
        self._where, self._run = where, [usiw_run.path, "--face", "roce", "--port", kind]
        self._configuration = folder / "ceph.conf"
        self._configuration.write_text(CONFIGURATION.format(address=address, port=next_port(), folder=folder),
                                       encoding="ascii")
        for name in ("mon", "osd"):
            (folder / name).mkdir()
        self._at_server("ceph-mon", "-i", "a", "--mkfs").expect(0)
        self._at_server("ceph-mon", "-i", "a", "-f", "-d").wait_for("is new leader")

    def _at_server(self, program, *arguments):
        return Proc([*self._run, program, "-c", self._configuration, *arguments], where=self._where)

    def client(self, program, *arguments, timeout=60):
        """Runs a client to its end and returns its output."""
        return Proc([*self._run, program, "-c", self._configuration, *arguments]).expect(0, timeout)

    def ceph(self, *words):
        """Runs the program ceph to its end and returns its output."""
        for _ in range(TRIES):
            proc = Proc([*self._run, "ceph", "-c", self._configuration, "--connect-timeout", 30, *words])
            if proc.wait() == 0 or not TOO_EARLY.search(proc.output):
                break
        return proc.expect(0)

    def start_osd(self):
        """Starts an OSD, and makes the pool `data`."""
        identity = str(uuid.uuid4())
        self.ceph("osd", "new", identity)
        self._at_server("ceph-osd", "-i", 0, "--mkfs", "--osd-uuid", identity).expect(0)
        for _ in range(TRIES):
            osd = self._at_server("ceph-osd", "-i", 0, "-f", "-d")
            until(lambda proc=osd: proc.status is not None or "1 up" in self.ceph("osd", "stat"), "the OSD is up",
                  timeout=60, every=1)
            if osd.status is None or not TOO_EARLY.search(osd.output):
                break
        assert osd.status is None, osd.output[-4000:]
        self.ceph("osd", "pool", "create", "data", 8, 8)


@pytest.fixture(params=["memory", "sockets", "packets-to-host", "sockets-to-host"])
def cluster(request, usiw_run, tmp_path):
    """Its daemons end with the test."""
    kind, _, other = request.param.partition("-to-")
    option = {"memory": "auto", "sockets": "socket", "packets": "packet"}[kind]
    where = request.getfixturevalue("other_host") if other else ""
    if other:
        wait_for_link_local(where)
    yield Cluster(usiw_run, tmp_path, where, B4 if other else "127.0.0.1", option)
    procs.kill_all()


def test_status(cluster):
    assert "mon: 1 daemons, quorum a" in cluster.ceph("-s")


def test_rados_bench(cluster):
    """Four operations at a time. The reading half compares the data with those that the writing half has sent."""
    cluster.start_osd()
    for half in (["write", "-b", 65536, "--max-objects", 2000, "--no-cleanup"], ["seq"]):
        out = cluster.client("rados", "-p", "data", "bench", 5, *half, "-t", 4)
        assert int(re.search(r"^Total (?:writes|reads) made: +(\d+)", out, re.M)[1]) > 0, out
        assert "error" not in out.lower(), out
