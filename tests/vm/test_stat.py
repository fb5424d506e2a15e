# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""`usiw stat` and `usiw trace` on live and dead processes; counters of QPs by rdma(8)."""

import json
import re
import time

import pytest

from support.net import A, B, PEER, netem, statistics
from support.pairs import Server, rping
from support.procs import PATIENCE, run
from support.traces import USIW

pytestmark = pytest.mark.skipif(bool(PEER), reason="usiw's own")


def stat(*words, site=A):
    """The entry of the site's device."""
    (entry,) = json.loads(run(USIW, "stat", site.dev, "-j", *words, where=site.where))
    return entry


def busy(client):
    """The client's QPs, once work is done on one."""
    return until(lambda: [q for q in stat()["qps"] if q["pid"] == client.pid and q["counters"]["comp_ok"] > 100])


def until(condition):
    """Waits for what comes by itself."""
    deadline = time.monotonic() + 30 * PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.1)
    return found


@pytest.mark.core
@pytest.mark.provider
def test_qp_counters_and_totals():
    """A QP's own counters name its process, and are part of the device's totals, before and after its end."""
    before = statistics(A.dev)
    server = Server()
    client = server.client("--seconds", 30)
    try:
        qp = busy(client)[0]
        assert qp["comm"] == "traffic" and qp["state"] == "RTS", qp
        assert qp["gauges"]["srtt_ns"] >= qp["gauges"]["min_rtt_ns"] > 0, qp
        assert qp["gauges"]["cwnd"] > 0 and qp["gauges"]["credit"] > 0, qp
        total = statistics(A.dev)
        assert total["tx_pkts"] >= before["tx_pkts"] + qp["counters"]["tx_pkts"]

        shown = [
            e for e in json.loads(run("rdma", "-j", "-dd", "resource", "show", "qp")) if e.get("pid") == client.pid
        ]
        assert shown and shown[0]["drv_tx_pkts"] >= qp["counters"]["tx_pkts"], shown
        text = run(USIW, "stat", A.dev, "qp", qp["qpn"])
        assert f"pid {client.pid} comm traffic" in text, text
    finally:
        client.kill()
        server.proc.kill()
    until(lambda: all(q["pid"] != client.pid for q in stat()["qps"]))
    after = statistics(A.dev)
    assert all(after[key] >= total[key] for key in total), (total, after)


@pytest.mark.core
@pytest.mark.provider
def test_interval_shows_differences():
    server = Server()
    client = server.client("--seconds", 30)
    busy(client)
    lines = run(USIW, "stat", A.dev, "-i", "0.5", "-c", 2, "-j").splitlines()
    assert len(lines) == 2
    now = stat()["counters"]
    for line in lines:
        (entry,) = json.loads(line)
        assert 0 < entry["counters"]["tx_pkts"] < now["tx_pkts"], entry
    client.kill()
    server.proc.kill()


def test_causes_of_retransmission():
    with netem("loss 5%"):
        before = statistics(A.dev), statistics(B.dev)
        rping(size=60000, count=20, timeout=120)
        after = statistics(A.dev), statistics(B.dev)
    change = {key: sum(x[key] - y[key] for x, y in zip(after, before)) for key in after[0]}
    assert change["retrans_fast"] + change["retrans_rto"] > 0, change
    assert change["rx_ooo"] > 0 and change["retrans_unsent"] == 0, change


@pytest.mark.core
@pytest.mark.provider
def test_trace_of_a_running_process(tmp_path):
    """Off at first; switched on and off from outside; opened by tshark."""
    server = Server()
    client = server.client("--seconds", 60)
    busy(client)
    assert "recording off, 0 events" in run(USIW, "trace", client.pid)
    run(USIW, "trace", "on", client.pid)
    until(lambda: "completion: " in run(USIW, "trace", client.pid))
    assert f"pid {client.pid} device {A.dev} recording on" in run(USIW, "trace", "list")
    run(USIW, "trace", "off", client.pid)
    text = run(USIW, "trace", client.pid)
    assert re.search(r"qp \d+ TX DATA", text) and re.search(r"qp \d+ RX SACK", text), text[-2000:]
    capture = tmp_path / "out.pcapng"
    run(USIW, "trace", client.pid, "-w", capture)
    assert capture.read_bytes()[:4] == b"\x0a\x0d\x0d\x0a"
    client.kill()
    server.proc.kill()


@pytest.mark.core
@pytest.mark.provider
def test_trace_outlives_kill_9(tmp_path, monkeypatch):
    monkeypatch.setenv("USIW_TRACE", f"{tmp_path},events=4096")
    server = Server()
    client = server.client("--seconds", 60)
    path = tmp_path / f"usiw-trace.{A.dev}.{client.pid}"
    until(lambda: path.exists() and "completion: " in run(USIW, "trace", path))
    client.signal(9)
    client.wait()
    text = run(USIW, "trace", path)
    assert re.match(rf"# device {A.dev} pid {client.pid} recording on, \d+ events\n", text), text[:500]
    assert " connected: " in text or "4096 events" in text, text[:500]
    assert path.stat().st_mode & 0o777 == 0o600
    server.proc.kill()


def test_trace_stops_at_an_error(tmp_path, monkeypatch):
    """The peer is killed: what led to the end of the connection stays in the file."""
    server = Server()
    monkeypatch.setenv("USIW_TRACE", f"{tmp_path},stop-on-error")
    client = server.client("--seconds", 60)
    path = tmp_path / f"usiw-trace.{A.dev}.{client.pid}"
    until(lambda: path.exists() and "completion: " in run(USIW, "trace", path))
    server.proc.signal(9)
    client.wait()
    text = run(USIW, "trace", path)
    assert "QP failed: " in text or "ended from outside" in text or "peer closed" in text, text[-2000:]


@pytest.mark.core
def test_report():
    """`usiw report` names the module, the devices with their interfaces, the counters, and what the kernel logged."""
    out = run(USIW, "report", where=A.where)
    version = re.search(r"^usiw +(\S+) ", out, re.M)[1]
    assert re.search(rf"^module +{re.escape(version)}$", out, re.M)
    assert re.search(r"^parameter +netdevs=", out, re.M)
    assert f"link {A.dev}/1 state ACTIVE netdev {A.netdev}\n" in out
    assert f"link {A.dev}/1\n" in out.partition("== counters")[2]
    assert re.search(r"^\[ *\d+\.\d+\] .*usiw", out.partition("== kernel log")[2], re.M)
    assert "did not end in time" not in out
