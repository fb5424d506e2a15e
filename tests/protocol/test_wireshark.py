# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""tools/wireshark/usiw.lua beside the independent decoder: tshark's fields are those of usiw_decode, for a capture of a
guest, for captures that the unit tests make (real engines on a simulated wire), and for every kind of bad datagram."""

import os
import subprocess

import pytest

import usiw_decode as u
import wire as w
from wire import A, B

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LUA = os.path.join(ROOT, "tools/wireshark/usiw.lua")
BUILD = os.environ.get("USIW_BUILD", os.path.join(ROOT, "build"))

FIELDS = [
    "frame.number", "psn", "ack_psn", "opcode", "flags", "credit", "echo", "cm.version", "cm.ird", "cm.ord", "cm.mtu",
    "cm.window", "cm.features", "cm.reason", "cm.private_data", "sack.have", "ddp.tagged", "ddp.last", "rdmap.opcode",
    "ddp.stag", "ddp.to", "ddp.inv_stag", "ddp.qn", "ddp.msn", "ddp.mo", "ddp.length", "ddp.payload", "read.sink_stag",
    "read.sink_to", "read.size", "read.src_stag", "read.src_to", "term.layer", "term.etype", "term.ecode",
    "term.seg_len", "term.ddp", "term.read", "imm.data", "imm.length", "atomic.op", "atomic.id", "atomic.stag",
    "atomic.to", "atomic.add_swap", "atomic.add_swap_mask", "atomic.compare", "atomic.compare_mask", "found.id",
    "found.value", "ce", "flags.ack_req", "flags.not_ready", "flags.retrans", "flags.pending", "flags.stray",
    "flags.tells_ce", "flags.merged", "flags.skip", "flags.skipped"
]


def tshark(*words):
    """Its output. Complaints other than that about root are failures; so is a Lua error."""
    done = subprocess.run(["tshark", "-X", f"lua_script:{LUA}", "-o", "udp.try_heuristic_first:TRUE", *words],
                          capture_output=True, text=True, timeout=120, check=True)
    noise = [line for line in done.stderr.splitlines() if "Running as user" not in line]
    assert not noise and "Lua Error" not in done.stdout, (noise, done.stdout[:2000])
    return done.stdout


def seen_by_tshark(path, extra=()):
    """{frame: {field: text}} of what it takes for usiw."""
    names = [name if "." in name and name.startswith("frame") else "usiw." + name for name in FIELDS]
    out = tshark("-r", str(path), "-T", "fields", "-E", "separator=;", "-E", "occurrence=f", "-Y", "usiw",
                 *[word for name in names for word in ("-e", name)], *extra)
    rows = [dict(zip(FIELDS, line.split(";"))) for line in out.splitlines()]
    return {int(row["frame.number"]): row for row in rows}


def expected(d):
    """{field: value} that the decoder finds; what it does not find is not compared."""
    found = {
        "psn": d.psn,
        "ack_psn": d.ack_psn,
        "opcode": d.opcode,
        "flags": d.flags,
        "credit": d.credit,
        "echo": d.echo
    }
    found |= {"flags." + name.lower(): int(bool(d.flags & bit)) for bit, name in u.FLAG_NAMES}
    found["flags.tells_ce"] = int(bool(d.flags & u.F_TELLS_CE))
    if d.flags & u.F_TELLS_CE:
        found["ce"] = (d.flags & u.F_CE_COUNT) >> u.CE_SHIFT
    b = d.body
    if isinstance(b, u.Params):
        found |= {"cm.version": b.version, "cm.ird": b.ird, "cm.ord": b.ord, "cm.mtu": b.mtu, "cm.window": b.window,
                  "cm.features": b.features, "cm.private_data": b.private_data}
    elif isinstance(b, u.Reject):
        found |= {"cm.version": b.version, "cm.reason": b.reason, "cm.private_data": b.private_data}
    elif isinstance(b, list):
        found["sack.have"] = "".join(str(bit) for bit in b)
    elif isinstance(b, u.Segment):
        found |= {"ddp.tagged": int(b.tagged), "ddp.last": int(b.last), "rdmap.opcode": b.opcode, "ddp.stag": b.stag,
                  "ddp.to": b.to, "ddp.inv_stag": b.inv_stag, "ddp.qn": b.qn, "ddp.msn": b.msn, "ddp.mo": b.mo,
                  "ddp.length": len(b.payload), "ddp.payload": b.payload}
        if b.read:
            found |= dict(zip(("read.sink_stag", "read.sink_to", "read.size", "read.src_stag", "read.src_to"), b.read))
        if b.imm_length is not None:
            found |= {"imm.data": b.imm, "imm.length": b.imm_length}
        if b.atomic:
            found |= dict(zip(("atomic.op", "atomic.id", "atomic.stag", "atomic.to", "atomic.add_swap",
                               "atomic.add_swap_mask", "atomic.compare", "atomic.compare_mask"), b.atomic))
        if b.found:
            found |= dict(zip(("found.id", "found.value"), b.found))
        if b.term:
            found |= dict(
                zip(("term.layer", "term.etype", "term.ecode", "term.seg_len", "term.ddp", "term.read"), b.term))
    return found


def same(text, value):
    """Does tshark's text say what the decoder found?"""
    if value is None or value == b"":
        return text == ""
    if isinstance(value, bytes):
        return text.replace(":", "") == value.hex()
    if isinstance(value, str):
        return text == value
    if text in ("True", "False"):
        return (text == "True") == bool(value)
    return text != "" and int(text, 0) == value


def compare(path, datagrams):
    """Every datagram is seen, and every field is the same."""
    rows = seen_by_tshark(path)
    assert set(rows) == {d.number for d in datagrams}
    for d in datagrams:
        for field, value in expected(d).items():
            assert same(rows[d.number][field], value), (d.number, d.text(), field, rows[d.number][field], value)


def conversation(tmp_path, *payloads):
    """A file with a handshake and then `payloads`, pairs (sender, UDP payload)."""
    path = tmp_path / "wire.pcap"
    start = [(A, w.req(pd=b"hi")), (B, w.pending()), (B, w.accept(pd=b"x" * 512)), (A, w.confirm())]
    path.write_bytes(w.pcap([w.frame(who, w.other(who), p) for who, p in start + list(payloads)]))
    return path


def test_capture_of_a_guest():
    path = os.path.join(HERE, "rping.pcap")
    compare(path, u.decode_pcap(path, 7174))


@pytest.fixture(scope="module")
def unit_captures(tmp_path_factory):
    """Captures that the unit tests make of real engines and connection machines."""
    program = os.path.join(BUILD, "tests/unit/protocol/protocol_test")
    assert os.path.exists(program), f"{program} is not built: make unit"
    folder = tmp_path_factory.mktemp("captures")
    subprocess.run([program, "--gtest_brief=1"], env=dict(os.environ, USIW_KEEP_CAPTURES=str(folder)), check=True,
                   stdout=subprocess.DEVNULL, timeout=120)
    paths = sorted(folder.glob("*.pcap"))
    assert len(paths) > 5
    return paths


def test_captures_of_the_unit_tests(unit_captures):
    opcodes = set()
    for path in unit_captures:
        datagrams = u.decode_pcap(str(path))
        compare(path, datagrams)
        opcodes |= {d.opcode for d in datagrams}
    assert {u.DATA, u.SACK, u.SHUTDOWN, u.REQ, u.ACCEPT, u.CONFIRM, u.RESET} <= opcodes


def test_every_kind_of_datagram(tmp_path):
    ddp = w.write(0x1000, b"")
    read = w.read_req()[18:]
    path = conversation(
        tmp_path,
        (A, w.data(A, 0, 0, w.send(1, 0, b"a" * 9, last=False), flags=u.F_ACK_REQ, echo=77)),
        (A, w.data(A, 1, 0, w.write(0xfedcba9876543210, b"c" * 64, stag=0xffffff01))),
        (A, w.data(A, 2, 0, w.read_req(3, 96), flags=u.F_RETRANS)),
        (B, w.data(B, 0, 3, w.read_resp(b"d" * 64, last=False))),
        (A, w.data(A, 3, 0, w.untagged(5, 0, 2, payload=b"z"))),
        (B, w.sack(B, 1, (0, 1, 0, 0, 1, 1, 0, 0, 0, 1))),
        (B, w.sack(B, 1, flags=u.F_NOT_READY)),
        (B, w.sack(B, 1, flags=u.F_TELLS_CE | 5 << u.CE_SHIFT)),
        (B, w.sack(B, 1, flags=u.F_TELLS_CE | u.F_MERGED)),
        (A, w.data(A, 0, 0, w.send(1, 0, b"a" * 9, last=False), flags=u.F_RETRANS | u.F_SKIP)),
        (B, w.sack(B, 1, flags=u.F_TELLS_CE | u.F_SKIPPED)),
        (B, w.data(B, 1, 4, w.terminate(1, 1, 2, ddp, b"", 14))),
        (B, w.data(B, 2, 4, w.terminate(0, 1, 1, w.untagged(1, 1, 3), read, 46))),
        (B, w.data(B, 3, 4, w.terminate(2, 0, 0))),
        (A, w.shutdown(A, 4, 1)),
        (A, w.reject(1, b"go away")),
        (A, w.reset()))
    compare(path, u.decode_pcap(str(path)))
    text = tshark("-r", str(path))
    assert "Terminate" not in text or "TERMINATE" in text
    assert "READ_REQ" in text and "REJECT" in text and "no listener" in text
    shown = tshark("-r", str(path), "-Y", "usiw.expert.terminate || usiw.expert.not_ready || usiw.expert.retrans")
    assert len(shown.splitlines()) == 6
    assert len(tshark("-r", str(path), "-Y", "usiw.flags.skip == 1").splitlines()) == 1
    assert len(tshark("-r", str(path), "-Y", "usiw.flags.skipped == 1").splitlines()) == 1
    assert "DATA[RETRANS|SKIP]" in text and "SACK[SKIPPED]" in text


BAD = [
    b"",
    b"\0" * 13,
    w.trp(1, 2, 0, credit=9),
    w.trp(1, 2, 0, credit=9, payload=b"\xc1\x40" + b"\0" * 11),
    w.trp(1, 2, 0, credit=9, payload=b"\x41\x43" + b"\0" * 15),
    w.trp(1, 2, 9),
    w.trp(1, 2, 15, 0xfff),
    w.trp(2000, 2, 5, credit=9),
    w.trp(900, 2, 5, credit=9, payload=b"\0"),
    w.trp(20, 2, 5, credit=9, payload=b"\xff" * 40),
    w.trp(1, 2, 1, payload=b"\1"),
    w.trp(1, 2, 3, payload=b"\1"),
    w.trp(1, 2, 2, payload=b"\2" * 40),
    w.trp(1, 2, 0, credit=9, payload=w.untagged(7, 2, 1, payload=b"\0\0\xe0")),
    w.trp(1, 2, 0, credit=9, payload=w.untagged(7, 2, 1, payload=b"\0\0\xe0\0")),
    w.trp(1, 2, 0, credit=9, payload=w.untagged(7, 2, 1, payload=b"\xff" * 30)),
    w.trp(1, 2, 0, credit=9, payload=w.untagged(1, 1, 1, payload=b"\xff" * 27)),
]


def test_bad_datagrams_do_no_harm(tmp_path):
    path = conversation(tmp_path, *[(A, payload) for payload in BAD], (A, w.data(A, 0, 0, w.send())))
    rows = seen_by_tshark(path)
    assert {1, 2, 3, 4, 5 + len(BAD)} <= set(rows)
    tshark("-r", str(path), "-V")


def test_other_traffic_is_left_alone(tmp_path):
    path = tmp_path / "other.pcap"
    noise = [os.urandom(n) for n in range(0, 400, 7)] + [b"\0" * n for n in range(60)] + [b"\xff" * 40]
    path.write_bytes(w.pcap([w.frame(("10.9.0.1", 5353), ("10.9.0.2", 40001), p) for p in noise]))
    assert len(seen_by_tshark(path)) <= 1  # of random bytes one may look the part


def test_capture_without_its_beginning(tmp_path):
    """A capture that starts in the middle of a connection is recognised by the shape of its datagrams."""
    path = tmp_path / "late.pcap"
    later = [(A, w.data(A, 5, 9, w.write())), (B, w.sack(B, 6)), (B, w.data(B, 9, 6, w.send(4)))]
    path.write_bytes(w.pcap([w.frame(who, w.other(who), p) for who, p in later]))
    assert set(seen_by_tshark(path)) == {1, 2, 3}


@pytest.mark.parametrize("first", [
    (A, w.data(A, 5, 9, w.send(), flags=u.FLAGS_OF[u.DATA])),
    (A, w.shutdown(A, 5, 9, u.FLAGS_OF[u.SHUTDOWN])),
    (A, w.sack(A, 5, flags=u.FLAGS_OF[u.SACK])),
])
def test_capture_that_begins_with_every_flag(tmp_path, first):
    """No flag that an opcode has keeps the dissector from recognising the datagram."""
    path = tmp_path / "late.pcap"
    path.write_bytes(w.pcap([w.frame(A, B, first[1])]))
    assert set(seen_by_tshark(path)) == {1}
