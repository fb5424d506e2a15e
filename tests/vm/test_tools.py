# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Further unmodified programs of rdma-core, and what the administrator's tools show."""

import json
import re

import pytest

from support import nldev
from support.net import A, B, FACE, PEER, rdma_links, statistics
from support.pairs import Server, next_port, pair, rping
from support.procs import Proc, run


@pytest.mark.core
@pytest.mark.parametrize("connections", [1, pytest.param(100, marks=[])])
def test_ucmatose(connections):
    port = next_port()
    options = ["-p", port, "-c", connections, "-C", 10, "-S", 1000]
    _, client = pair(["ucmatose", "-b", B.ip, *options], ["ucmatose", "-b", A.ip, "-s", B.ip, *options], port,
                     timeout=120)
    assert "test complete" in client and "return status 0" in client


def test_ucmatose_100_at_once():
    """The text of the requirement: ucmatose -C 100."""
    port = next_port()
    options = ["-p", port, "-c", 100, "-C", 100]
    _, client = pair(["ucmatose", "-b", B.ip, *options], ["ucmatose", "-b", A.ip, "-s", B.ip, *options], port,
                     timeout=180, server_timeout=60)
    assert "return status 0" in client


def test_cmtime_1000_connections():
    port = next_port()
    server = Proc(["cmtime", "-b", B.ip, "-p", port, "-c", 1000], where=B.where).wait_listening(port)
    client = Proc(["cmtime", "-b", A.ip, "-s", B.ip, "-p", port, "-c", 1000])
    out = client.expect(0, 240)
    assert re.search(r"^\s*connect", out, re.M), out
    server.kill()


@pytest.mark.core
@pytest.mark.provider
def test_rdma_server_and_client():
    port = next_port()
    _, client = pair(["rdma_server", "-s", B.ip, "-p", port], ["rdma_client", "-s", B.ip, "-p", port], port)
    assert "end 0" in client


@pytest.mark.core
@pytest.mark.parametrize("options", [pytest.param(["-S", 4096, "-C", 50], marks=pytest.mark.provider),
                                     pytest.param(["-S", 65536, "-C", 20, "-T", "v"], marks=pytest.mark.provider),
                                     pytest.param(["-S", 4096, "-C", 50, "-T", "b"], marks=pytest.mark.provider),
                                     ["-S", 100000, "-C", 20, "-T", "r"]],
                         ids=["nonblocking", "validated", "blocking", "resolved-by-rdma_cm"])
def test_rstream(options):
    """rsockets: a program's sockets over RDMA. A server that does not block spins in raccept(3)."""
    port = next_port()
    _, client = pair(["rstream", "-b", B.ip, "-p", port, *options],
                     ["rstream", "-b", A.ip, "-s", B.ip, "-p", port, *options], port, timeout=120, spins=True)
    assert re.search(rf"^custom\s.*\s{options[3]}\s", client, re.M), client


@pytest.mark.parametrize("options", [["-S", 4096, "-C", 50], ["-S", 65536, "-C", 20, "-T", "v"]],
                         ids=["nonblocking", "validated"])
def test_riostream(options):
    """rstream by riomap(3) and riowrite(3): RDMA WRITE into what the other end has mapped."""
    port = next_port()
    _, client = pair(["riostream", "-b", B.ip, "-p", port, *options],
                     ["riostream", "-b", A.ip, "-s", B.ip, "-p", port, *options], port, timeout=120, spins=True)
    assert re.search(rf"^custom\s.*\s{options[3]}\s", client, re.M), client


@pytest.mark.one_kernel("both copies lie in one file system")
def test_rcopy(tmp_path):
    """A file over rsockets."""
    port = next_port()
    content = bytes(range(256)) * 8000 + b"end"
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(content)
    server = Proc(["rcopy", "-p", port], where=B.where).wait_listening(port)
    run("rcopy", source, f"{B.ip}:{copy}", "-p", port, where=A.where)
    server.kill()
    assert copy.read_bytes() == content


def test_udaddy_is_refused():
    """Datagram ids are not supported: an error, not a hang."""
    client = Proc(["udaddy", "-b", A.ip, "-s", B.ip, "-p", next_port()])
    assert client.wait(30) != 0


@pytest.mark.core
def test_devinfo_tells_the_truth():
    out = run("ibv_devinfo", "-v", "-d", A.dev)

    def number(key):
        return int(re.search(rf"^\s*{key}:\s+(\S+)", out, re.M)[1], 0)
    assert re.search(r"transport:\s+InfiniBand" if PEER == "rxe" or FACE == "roce" else r"transport:\s+iWARP", out)
    assert re.search(r"link_layer:\s+Ethernet", out)
    assert re.search(r"state:\s+PORT_ACTIVE", out)
    assert number("phys_port_cnt") == 1
    assert number("max_mr_size") >= 1 << 30
    assert number("max_msg_sz") >= 1 << 30
    assert number("max_qp_rd_atom") >= 1
    if PEER:
        return
    gids = re.findall(r"GID\[\s*(\d+)\]:\s+([^\s,]+)(?:, (RoCE v\d))?", out)
    if FACE == "roce":
        assert number("gid_tbl_len") == 32
        assert [int(index) for index, _, _ in gids] == list(range(len(gids))) and {kind for *_, kind in gids} == {"RoCE v2"}
        assert gids[0][1].startswith("fe80:") and gids[1][1].startswith("::ffff:")
    else:
        assert number("gid_tbl_len") == 1 and len(gids) <= 1  # that of lo is zero, so it is not printed
    assert number("max_sge") == 32 and number("max_sge_rd") == 32
    assert number("max_qp_wr") == 32768 and number("max_qp_rd_atom") == 128 and number("max_qp_init_rd_atom") == 128
    assert number("max_srq") == 16384 and number("max_srq_wr") == 65536 and number("max_mw") == 1 << 20
    assert number("max_ah") == (1 << 16 if FACE == "roce" else 0)
    for absent in ("max_fmr", "max_ee", "max_mcast_grp"):
        match = re.search(rf"^\s*{absent}:\s+(\d+)", out, re.M)
        assert match is None or int(match[1]) == 0, f"{absent} is announced but not supported"
    assert re.search(r"atomic_cap:\s+ATOMIC_GLOB", out)


@pytest.mark.kernel
@pytest.mark.core
def test_rdma_link_show():
    links = rdma_links()
    for site in (A, B):
        assert links[site.dev]["state"] == "ACTIVE"
        assert links[site.dev]["netdev"] == site.netdev


@pytest.mark.kernel
@pytest.mark.core
def test_rdma_resource_show():
    """The objects of a program are seen with its process, and its connection with its state."""
    server = Server()
    client = server.client("--seconds", 120, "--pause-ms", 300)
    client.wait_for("^connected")
    qps = json.loads(run("rdma", "-j", "resource", "show", "qp"))
    mine = [qp for qp in qps if qp.get("pid") == client.pid]
    assert len(mine) == 1 and mine[0]["ifname"] == A.dev and mine[0]["state"] == "RTS", qps
    ids = json.loads(run("rdma", "-j", "resource", "show", "cm_id"))
    assert any(i.get("pid") == client.pid and i.get("state") == "CONNECT" for i in ids), ids
    theirs = json.loads(run("rdma", "-j", "resource", "show", "cm_id", where=server.proc.where))
    assert any(i.get("pid") == server.proc.pid_there and i.get("state") == "LISTEN" for i in theirs), theirs
    shown = {entry["ifname"]: entry for entry in json.loads(run("rdma", "-j", "resource", "show"))}
    counted = nldev.resources()
    assert {device: {key: shown[device][key] for key in counts} for device, counts in counted.items()} == counted
    assert counted[A.dev]["qp"] >= 1
    for kind in ("pd", "cq", "mr"):
        listed = json.loads(run("rdma", "-j", "resource", "show", kind))
        assert any(entry.get("comm") == "traffic" and entry["ifname"] == A.dev for entry in listed), (kind, listed)
    assert client.status is None
    client.kill()
    server.stop()


@pytest.mark.kernel
@pytest.mark.core
@pytest.mark.skipif(bool(PEER), reason="usiw's own counters")
def test_rdma_statistic_show():
    """The counters exist and follow the traffic."""
    before = {site.dev: statistics(site.dev) for site in (A, B)}
    rping(size=30000, count=20)
    after = {site.dev: statistics(site.dev) for site in (A, B)}
    for site in (A, B):
        change = {key: after[site.dev][key] - before[site.dev][key] for key in after[site.dev]}
        # 20 rounds move 30000 bytes by READ and by WRITE: all of it leaves B once and A once.
        assert change["tx_pkts"] > 20 and change["rx_pkts"] > 20, change
        assert change["tx_bytes"] > 20 * 30000 or change["rx_bytes"] > 20 * 30000, change
        # What is still on its way when an end has closed finds a dead QP, or none any more.
        late = ("drop_no_conn", "drop_state")
        for drop in [key for key in change if key.startswith("drop") and key not in late]:
            assert change[drop] == 0, (site.dev, drop, change)


@pytest.mark.kernel
def test_counters_survive_the_process():
    if PEER:
        pytest.skip("usiw's own counters")
    rping(size=64, count=5)
    first = statistics(A.dev)
    assert first["tx_pkts"] > 0
    rping(size=64, count=5)
    second = statistics(A.dev)
    assert all(second[key] >= first[key] for key in first), (first, second)
