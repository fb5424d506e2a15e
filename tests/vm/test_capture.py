# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What is on the wire is what docs/protocol.md says: captures judged by the independent decoder."""

import pathlib
import sys
import time

import pytest

from support import cases
from support.net import B, PEER, netem
from support.pairs import rping
from support.procs import Proc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "protocol"))

pytestmark = pytest.mark.skipif(bool(PEER), reason="usiw's protocol")


@pytest.fixture(autouse=True)
def raw_packets(monkeypatch):
    """By raw packets alone: while its messages are long a connection goes by its socket, whose checksums tcpdump sees
    before they are there, so that none of them could be judged."""
    monkeypatch.setenv("USIW_PORT", "packet")


class Capture:
    """tcpdump on B's netdev."""

    def __init__(self, path):
        self.path = str(path)
        self.proc = Proc(["tcpdump", "-i", B.netdev, "-U", "-s", "0", "-B", "16384", "-w", self.path, "udp"])
        self.proc.wait_for("listening on", 20)

    def datagrams(self):
        """Stops the capture and returns the decoded datagrams."""
        import usiw_decode
        time.sleep(0.5)
        self.proc.signal(2)
        out = self.proc.expect(0, 20)
        assert "0 packets dropped by kernel" in out, out
        return usiw_decode.decode_pcap(self.path)


def judge(datagrams):
    """No problem in any datagram or in any of the connections. In the order of their time stamps: the device's own
    socket may hear of a datagram, and have it answered, ahead of tcpdump's."""
    import usiw_decode
    assert datagrams
    problems = usiw_decode.check_stream(sorted(datagrams, key=lambda datagram: datagram.time))
    assert not problems, problems[:20]


@pytest.mark.core
@pytest.mark.provider
def test_rping(tmp_path):
    capture = Capture(tmp_path / "rping.pcap")
    rping(size=5000, count=5)
    judge(capture.datagrams())


def test_every_operation(tmp_path):
    wanted = ("sge/send", "sge/write", "sge/read", "order/fenced-send-of-read-data", "recv/posted-late",
              "flow/64-reads-with-ord-2", "inline/copied-at-post", "send/right-after-established")
    capture = Capture(tmp_path / "data.pcap")
    results = cases.run_cases("verbs_data", [c for c in cases.list_cases("verbs_data") if c.name in wanted])
    assert len(results) == len(wanted) and all(r.passed for r in results.values()), results
    judge(capture.datagrams())


def test_refusals_and_errors(tmp_path):
    """Terminate, REJECT, RESET."""
    capture = Capture(tmp_path / "errors.pcap")
    chosen = [
        c for c in cases.list_cases("verbs_errors") if c.name in ("remote/unknown-rkey", "remote/receive-too-short")
    ]
    chosen_cm = [
        c for c in cases.list_cases("cm_cases")
        if c.name in ("private-data/reject", "connect/closed-port-is-REJECTED", "private-data/connect-and-accept")
    ]
    for program, some in (("verbs_errors", chosen), ("cm_cases", chosen_cm)):
        results = cases.run_cases(program, some)
        assert all(r.passed for r in results.values()), results
    judge(capture.datagrams())


def test_bad_wire(tmp_path):
    """Loss and reordering behind the capture point: retransmissions and SACKs are as described."""
    capture = Capture(tmp_path / "loss.pcap")
    with netem("loss 3% delay 100us reorder 5%"):
        rping(size=20000, count=20, timeout=90)
    judge(capture.datagrams())
