# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Tests of the independent decoder: one good connection, then everything that can be
wrong with a datagram, a handshake, a stream of PSNs and a DDP message, one at a time."""

import os
import random
import re
import struct

import pytest

import usiw_decode as u
import wire as w
from wire import A, B


def load(tmp_path, frames, port=None, **kw):
    path = tmp_path / "wire.pcap"
    path.write_bytes(w.pcap(frames, **kw))
    return u.decode_pcap(str(path), port)


def capture(tmp_path, conversation, port=None):
    """`conversation`: pairs (sender, UDP payload)."""
    return load(tmp_path, [w.frame(who, w.other(who), p) for who, p in conversation], port)


HANDSHAKE = [(A, w.req(pd=b"hi")), (B, w.accept()), (A, w.confirm())]
GOOD = HANDSHAKE + [
    (A, w.data(A, 0, 0, w.send(1, 0, b"a" * 100, last=False))),
    (A, w.data(A, 1, 0, w.send(1, 100, b"b" * 20))),
    (B, w.sack(B, 2)),
    (A, w.data(A, 2, 0, w.write(0x1000, b"c" * 64, last=False))),
    (A, w.data(A, 3, 0, w.write(0x1040, b"c" * 64))),
    (A, w.data(A, 4, 0, w.read_req(1, 96))),
    (B, w.data(B, 0, 5, w.read_resp(b"d" * 64, last=False))),
    (B, w.data(B, 1, 5, w.read_resp(b"d" * 32, sink=(1, 64)))),
    (B, w.data(B, 2, 5, w.send(1, 0, b""))),
    (A, w.sack(A, 3)),
    (A, w.shutdown(A, 5, 3)),
    (B, w.sack(B, 6)),
    (B, w.shutdown(B, 3, 6)),
    (A, w.sack(A, 4)),
]


def expect(tmp_path, conversation, *needles):
    """Exactly the problems that contain `needles`, one each, in any order."""
    problems = u.check_stream(capture(tmp_path, conversation))
    assert len(problems) == len(needles), problems
    for needle in needles:
        assert any(needle in p for p in problems), (needle, problems)


# ---- Good traffic ------------------------------------------------------------------


def test_good_connection(tmp_path):
    datagrams = capture(tmp_path, GOOD)
    assert len(datagrams) == len(GOOD)
    assert u.check_stream(datagrams) == []
    assert [d.name for d in datagrams[:3]] == ["REQ", "ACCEPT", "CONFIRM"]
    assert datagrams[0].body == u.Params(1, 0, 16, 8, 1500, 1024, b"hi")
    assert datagrams[8].body.read == (1, 0, 96, 0x200, 0x2000)


@pytest.mark.parametrize("link", [1, 113, 276, 101])
def test_link_types(tmp_path, link):
    frames = [w.frame(who, w.other(who), p, link=link) for who, p in GOOD]
    datagrams = load(tmp_path, frames, link=link)
    assert len(datagrams) == len(GOOD) and u.check_stream(datagrams) == []


@pytest.mark.parametrize("kw", [{"order": ">"}, {"nano": True}, {"order": ">", "nano": True}])
def test_pcap_variants(tmp_path, kw):
    frames = [w.frame(who, w.other(who), p) for who, p in GOOD]
    assert u.check_stream(load(tmp_path, frames, **kw)) == []


def test_vlan_and_ipv6(tmp_path):
    a, b = ("fd00::1", 40000), ("fd00::2", 7174)
    frames = [w.frame(a if who == A else b, b if who == A else a, p, vlan=True)
              for who, p in GOOD]
    datagrams = load(tmp_path, frames)
    assert datagrams[0].src == a and u.check_stream(datagrams) == []


def test_outgoing_copies_of_any_are_dropped(tmp_path):
    frames = []
    for who, p in GOOD:
        f = w.frame(who, w.other(who), p, link=113)
        frames += [b"\0\4" + f[2:], f]
    assert len(load(tmp_path, frames, link=113)) == len(GOOD)


def test_port_filter(tmp_path):
    noise = w.frame(("10.9.0.1", 53), ("10.9.0.2", 5353), b"\0" * 40)
    tcp = bytearray(w.frame(A, B, b""))
    tcp[23] = 6
    frames = [noise, bytes(tcp)] + [w.frame(who, w.other(who), p) for who, p in GOOD]
    assert len(load(tmp_path, frames)) == len(GOOD)
    assert len(load(tmp_path, frames, port=7174)) == len(GOOD)
    assert len(load(tmp_path, frames, port=5353)) == 1
    assert load(tmp_path, frames, port=1) == []


def test_loss_reorder_and_duplicates_are_not_problems(tmp_path):
    first = w.data(A, 0, 0, w.send(1))
    conversation = HANDSHAKE + [
        (A, w.data(A, 2, 0, w.send(3))),
        (B, w.sack(B, 0, (0, 0, 1))),
        (A, first), (A, first),
        (A, w.data(A, 1, 0, w.send(2), flags=u.F_RETRANS)),
        (A, w.data(A, 1, 0, w.send(2), flags=u.F_RETRANS, echo=7)),
        (B, w.sack(B, 3)),
    ]
    assert u.check_stream(capture(tmp_path, conversation)) == []


def test_repeated_handshake_and_pending(tmp_path):
    conversation = [(A, w.req()), (B, w.pending()), (A, w.req()), (B, w.accept()),
                    (B, w.accept()), (A, w.confirm()), (A, w.confirm())]
    assert u.check_stream(capture(tmp_path, conversation)) == []


def test_reject_and_reset(tmp_path):
    assert u.check_stream(capture(tmp_path, [(A, w.req()), (B, w.reject(0, b"no"))])) == []
    assert u.check_stream(capture(tmp_path, HANDSHAKE + [(A, w.reset(A)), (B, w.reset(B))])) == []


def test_two_connections_of_one_pair_of_endpoints(tmp_path):
    again = w.trp(0x5000, 0, 1, payload=w.params())
    answer = w.trp(0x6000, 0x5000, 2, payload=w.params())
    conversation = GOOD + [(A, again), (B, answer), (A, w.trp(0x5000, 0x6000, 6))]
    assert u.check_stream(capture(tmp_path, conversation)) == []


def test_not_ready(tmp_path):
    conversation = HANDSHAKE + [(A, w.data(A, 0, 0, w.send(1))),
                                (B, w.sack(B, 0, flags=u.F_NOT_READY)),
                                (A, w.data(A, 0, 0, w.send(1), flags=u.F_RETRANS)),
                                (B, w.sack(B, 1))]
    assert u.check_stream(capture(tmp_path, conversation)) == []


def test_terminate(tmp_path):
    segment = w.write(0x1000, b"y" * 8)
    conversation = HANDSHAKE + [
        (A, w.data(A, 0, 0, segment)),
        (B, w.data(B, 0, 0, w.terminate(1, 1, 1, ddp=segment[:14], length=22))),
        (A, w.sack(A, 1))]
    datagrams = capture(tmp_path, conversation)
    assert u.check_stream(datagrams) == []
    assert datagrams[4].body.term == (1, 1, 1, 22, segment[:14], b"")


def test_terminate_in_the_psn_of_a_read_response(tmp_path):
    asked = HANDSHAKE + [(A, w.data(A, 0, 0, w.read_req(1, 24))),
                         (B, w.data(B, 0, 1, w.read_resp(b"d" * 8, last=False))),
                         (B, w.data(B, 1, 1, w.read_resp(b"d" * 8, last=False, sink=(1, 8))))]
    end = w.terminate(0, 1, 0)
    assert u.check_stream(capture(tmp_path, asked + [
        (B, w.data(B, 0, 1, end, flags=u.F_RETRANS)), (A, w.sack(A, 1))])) == []
    assert u.check_stream(capture(tmp_path, asked + [
        (B, w.data(B, 1, 1, end, flags=u.F_RETRANS)), (B, w.data(B, 0, 1, end, flags=u.F_RETRANS)),
        (A, w.sack(A, 1))])) == []
    expect(tmp_path, asked + [(B, w.data(B, 0, 1, end))], "a Terminate with the PSN of",
           "before PSNs already sent")
    expect(tmp_path, HANDSHAKE + [(A, w.data(A, 0, 0, w.send())),
                                  (A, w.data(A, 0, 0, end, flags=u.F_RETRANS))],
           "a Terminate with the PSN of")


def test_text_and_annotation(tmp_path):
    datagrams = capture(tmp_path, GOOD)
    isns = {A: w.ISN[A], B: w.ISN[B]}
    lines = [d.text(isns) for d in datagrams]
    assert "REQ psn=0x00001000 ack=0x00000000 v1" in lines[0]
    assert "DATA psn=+1 ack=+0" in lines[4] and "SEND qn=0 msn=1 mo=100 len=20 L" in lines[4]
    assert "SACK psn=+2 ack=+2" in lines[5]
    for d in datagrams:
        total = 0
        for line in u.annotate(d):
            at = int(line.split()[0])
            assert at == total if total else at == 0
            shown = line[6:45].split()
            total = at + (len(shown) if "..." not in shown else len(d.udp) - at)
        assert total == len(d.udp)


def test_command_line(tmp_path, monkeypatch, capsys):
    path = tmp_path / "x.pcap"
    path.write_bytes(w.pcap([w.frame(who, w.other(who), p) for who, p in GOOD]))
    monkeypatch.setattr("sys.argv", ["usiw_decode.py", str(path), "--annotate", "1"])
    assert u.main() == 0
    out = capsys.readouterr().out
    assert "version 1" in out and f"{len(GOOD)} datagrams, 0 problems" in out


def test_real_capture_and_its_page():
    """rping.pcap is what one guest's veth carried (rping -C 2 -S 64, kernel 6.1). The hex of
    docs/protocol.md is that capture's, field by field."""
    here = os.path.dirname(os.path.abspath(__file__))
    datagrams = u.decode_pcap(os.path.join(here, "rping.pcap"), 7174)
    assert u.check_stream(datagrams) == []
    assert {"REQ", "ACCEPT", "CONFIRM", "DATA", "SACK", "SHUTDOWN"} == {d.name for d in datagrams}
    with open(os.path.join(here, "../../docs/protocol.md"), encoding="utf-8") as f:
        page = f.read().split("## 12 ")[1]
    shown = [int(n) for n in re.findall(r"^\*\*Frame (\d+)", page, re.M)]
    assert len(shown) >= 8
    for number in shown:
        for line in u.annotate(datagrams[number - 1]):
            assert line.rstrip() in page, (number, line)


# ---- Bad files ---------------------------------------------------------------------


def test_not_a_pcap_file(tmp_path):
    path = tmp_path / "x"
    for content in (b"", b"\x0a\x0d\x0d\x0a" + b"\0" * 40):
        path.write_bytes(content)
        with pytest.raises(ValueError):
            u.decode_pcap(str(path))


def test_capture_cut_in_the_middle_of_a_frame(tmp_path):
    path = tmp_path / "x.pcap"
    whole = w.pcap([w.frame(who, w.other(who), p) for who, p in GOOD])
    path.write_bytes(whole[:-5])
    assert len(u.decode_pcap(str(path))) == len(GOOD) - 1


# ---- One datagram ------------------------------------------------------------------


def one(udp_payload, **kw):
    """Problems of a single datagram from A."""
    kind, packet, _ = u.network_layer(1, w.frame(A, B, udp_payload, **kw))
    parsed = u.udp_of(kind, packet)
    d = u.Datagram(1, 0.0, A, B, parsed[2], parsed[3][8:], "good")
    return u.decode_trp(d).problems


@pytest.mark.parametrize("payload, needle", [
    (w.req()[:13], "shorter than a TRP header"),
    (w.trp(1, 2, 9), "unknown opcode 9"),
    (w.trp(1, 2, 0, u.F_PENDING, payload=w.send()), "flags 0x008"),
    (w.trp(2, 2, 5, u.F_SKIP), "flags 0x400"),
    (w.trp(1, 2, 4, u.F_SKIP), "flags 0x400"),
    (w.trp(1, 2, 7, u.F_SKIPPED), "flags 0x800"),
    (w.trp(1, 2, 0, u.F_SKIP, payload=w.send()), "SKIP in something else"),
    (w.trp(1, 2, 0, u.F_SKIP | u.F_RETRANS, payload=w.send(1, 8)), "SKIP in something else"),
    (w.trp(1, 2, 0, u.F_SKIP | u.F_RETRANS, payload=w.write()), "SKIP in something else"),
    (w.trp(1, 2, 0, u.F_SKIP | u.F_RETRANS, payload=w.read_req()), "SKIP in something else"),
    (w.trp(1, 2, 0, u.F_NOT_READY, payload=w.send()), "flags 0x002"),
    (w.trp(1, 2, 6, payload=b"x"), "CONFIRM with a payload"),
    (w.trp(1, 2, 7, payload=b"x"), "RESET with a payload"),
    (w.trp(1, 2, 4, payload=b"x"), "SHUTDOWN with a payload"),
    (w.trp(1, 2, 2, 8, payload=w.params()), "ACCEPT with a payload"),
    (w.trp(1, 2, 6, credit=1), "credit or echo"),
    (w.trp(1, 2, 0, credit=1025, payload=w.send()), "credit 1025"),
    (w.req(version=2), "version 2"),
    (w.req(reserved=1), "reserved byte"),
    (w.req(ird=129), "IRD or ORD"),
    (w.req(ord_=200), "IRD or ORD"),
    (w.req(mtu=575), "MTU 575"),
    (w.req(window=0), "window 0"),
    (w.req(pd=b"abc", pd_len=2), "private data"),
    (w.req(pd=b"abc", pd_len=4), "private data"),
    (w.req(pd=b"x" * 513), "513 bytes"),
    (w.reject(7), "reason 7"),
    (w.trp(1, 2, 3, payload=b"\1\0\0"), "REJECT cut short"),
    (w.trp(2000, 2, 5), "SACK over 1998 PSNs"),
    (w.trp(5, 2, 5), "bitmap of 0 bytes"),
    (w.trp(5, 2, 5, payload=b"\4\0"), "bitmap of 2 bytes"),
    (w.trp(5, 2, 5, payload=b"\5"), "the PSN expected"),
    (w.trp(5, 2, 5, payload=b"\2"), "the last bit is 0"),
    (w.trp(5, 2, 5, payload=b"\x14"), "bits behind"),
])
def test_trp_problems(payload, needle):
    problems = one(payload)
    assert len(problems) == 1 and needle in problems[0], problems


def patched(segment, at, value):
    return w.data(A, 0, 0, segment[:at] + bytes([value]) + segment[at + 1:])


@pytest.mark.parametrize("payload, needle", [
    (w.data(A, 0, 0, b"\x41" * 13), "shorter than a DDP header"),
    (w.data(A, 0, 0, w.send()[:17]), "shorter than an untagged"),
    (patched(w.send(), 0, 0x45), "reserved DDP bits"),
    (patched(w.send(), 0, 0x42), "DDP version 2"),
    (patched(w.send(), 1, 0x83), "RDMAP version 2"),
    (patched(w.send(), 1, 0x53), "reserved RDMAP bits"),
    (patched(w.send(), 1, 0x4e), "RDMAP opcode 14"),
    (w.data(A, 0, 0, w.imm(payload=b"x" * 7)), "immediate data of 7"),
    (w.data(A, 0, 0, w.imm(mo=8)), "IMM in more than one segment"),
    (w.data(A, 0, 0, w.untagged(8, 1, 1, payload=b"x" * 8)), "IMM in queue 1"),
    (w.data(A, 0, 0, w.untagged(10, 1, 1, payload=b"x" * 51)), "ATOMIC_REQ of 51"),
    (w.data(A, 0, 0, w.untagged(10, 0, 1, payload=b"x" * 52)), "ATOMIC_REQ in queue 0"),
    (w.data(A, 0, 0, w.atomic_req(op=1)), "atomic operation 1"),
    (w.data(A, 0, 0, w.atomic_req(mask=1)), "FetchAdd with a mask"),
    (w.data(A, 0, 0, w.atomic_req(op=2, mask=7)), "CmpSwap of a part"),
    (w.data(A, 0, 0, w.untagged(11, 3, 1, payload=b"x" * 13)), "ATOMIC_RESP of 13"),
    (w.data(A, 0, 0, w.untagged(11, 2, 1, payload=b"x" * 12)), "ATOMIC_RESP in queue 2"),
    (patched(w.write(), 1, 0x43), "SEND in a tagged"),
    (w.data(A, 0, 0, w.untagged(0, 0, 1)), "WRITE in an untagged"),
    (w.data(A, 0, 0, w.untagged(3, 1, 1)), "SEND in queue 1"),
    (w.data(A, 0, 0, w.untagged(3, 0, 1, inv=5)), "reserved STag"),
    (w.data(A, 0, 0, w.untagged(3, 0, 0)), "MSN 0"),
    (w.data(A, 0, 0, w.untagged(1, 1, 1, payload=b"x" * 27)), "READ_REQ of 27"),
    (w.data(A, 0, 0, w.untagged(7, 2, 1)), "Terminate cut short"),
    (w.data(A, 0, 0, w.untagged(7, 2, 1, payload=b"\0\0\x80\0")), "segment length"),
    (w.data(A, 0, 0, w.untagged(7, 2, 1, payload=b"\0\0\0\1")), "reserved bits of Terminate"),
    (w.data(A, 0, 0, w.untagged(7, 2, 1, payload=b"\x30\0\0\0")), "layer 3"),
    (w.data(A, 0, 0, w.untagged(7, 2, 1, payload=b"\0\0\x40\0" + b"\x41" * 17)), "announced"),
    (w.data(A, 0, 0, w.untagged(7, 2, 2, payload=b"\0\0\0\0")), "MSN 2"),
    (w.data(A, 0, 0, w.write((1 << 64) - 4)), "TO wraps"),
])
def test_ddp_problems(payload, needle):
    problems = one(payload)
    assert any(needle in p for p in problems) and len(problems) <= 2, problems


def test_split_read_request_and_terminate():
    assert any("more than one segment" in p for p in
               one(w.data(A, 0, 0, w.untagged(1, 1, 1, 28, b"x" * 28))))
    assert any("more than one segment" in p for p in
               one(w.data(A, 0, 0, w.untagged(7, 2, 1, 0, b"\0" * 4, last=False))))


def test_send_with_invalidate_may_set_the_stag():
    assert one(w.data(A, 0, 0, w.untagged(4, 0, 1, inv=5))) == []


@pytest.mark.parametrize("ends", [True, False])
def test_random_bytes_never_raise(tmp_path, ends):
    rng = random.Random(1)
    good = GOOD if ends else TAKEN
    conversation = list(good)
    for _ in range(3000):
        payload = bytearray(rng.choice(good)[1])
        for _ in range(rng.randrange(4)):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        payload = bytes(payload[:rng.randrange(len(payload) + 1)] if rng.random() < .3 else payload)
        conversation.append((rng.choice((A, B)), payload))
    datagrams = capture(tmp_path, conversation)
    assert u.check_stream(datagrams)
    for d in datagrams:
        d.text()
        if d.opcode is not None:
            u.annotate(d)


# ---- IP and UDP --------------------------------------------------------------------


def ip_problems(tmp_path, frame):
    return u.check_stream(load(tmp_path, [w.frame(A, B, w.req()), frame], port=B[1]))


def test_checksums(tmp_path):
    assert ip_problems(tmp_path, w.frame(B, A, w.accept(), checksum="offloaded")) == []
    for checksum, needle in ((0x1234, "UDP checksum"), (0, "no UDP checksum")):
        problems = ip_problems(tmp_path, w.frame(B, A, w.accept(), checksum=checksum))
        assert len(problems) == 1 and needle in problems[0]
    frames = [w.frame(who, w.other(who), p) for who, p in HANDSHAKE]
    frames.append(w.frame(A, B, w.data(A, 0, 0, w.send()), checksum="offloaded"))
    problems = u.check_stream(load(tmp_path, frames))
    assert len(problems) == 1 and "UDP checksum missing" in problems[0]


def test_ip_header(tmp_path):
    assert any("fragment" in p for p in ip_problems(tmp_path, w.frame(B, A, w.accept(),
                                                                      frag=0x2000)))
    broken = bytearray(w.frame(B, A, w.accept()))
    broken[24] ^= 1
    assert any("IP header checksum" in p for p in ip_problems(tmp_path, bytes(broken)))
    assert any("does not fit" in p for p in ip_problems(tmp_path, w.frame(B, A, w.accept())[:-1]))


# ---- Handshake ---------------------------------------------------------------------


def test_handshake_problems(tmp_path):
    req, accept, confirm = HANDSHAKE
    expect(tmp_path, [req, (A, w.req(pd=b"other")), accept, confirm], "repeated REQ")
    again = (A, req[1][:4] + accept[1][:4] + req[1][8:])  # brings back what PENDING has told
    expect(tmp_path, [req, again, accept, confirm], "no PENDING has told")
    assert u.check_stream(load(tmp_path, [w.frame(who, w.other(who), p)
                                          for who, p in (req, (B, w.pending()), again, accept, confirm)])) == []
    expect(tmp_path, [req, accept, (B, w.accept(ord_=1)), confirm], "repeated ACCEPT")
    expect(tmp_path, [req, (B, w.trp(5, 6, 2, payload=w.params()))], "wrong ack_psn")
    expect(tmp_path, [req, (B, w.accept(features=1)), confirm], "not offered")
    expect(tmp_path, [req, (B, w.accept(ord_=17)), confirm], "above the REQ's IRD")
    expect(tmp_path, [req, (A, w.trp(1, w.ISN[A], 2, payload=w.params()))], "from the initiator")
    expect(tmp_path, [req, confirm], "CONFIRM before ACCEPT")
    expect(tmp_path, [req, accept, (A, w.trp(w.ISN[A], 7, 6))], "wrong ISNs")
    expect(tmp_path, [req, accept, (B, w.trp(w.ISN[A], w.ISN[B], 6))], "from the responder")
    expect(tmp_path, [req, accept, confirm, (B, w.reject())], "REJECT after ACCEPT")
    expect(tmp_path, [req, accept, confirm, (B, w.trp(1, 2, 7))], "RESET with wrong ISNs")
    expect(tmp_path, [req, (A, w.data(A, 0, 0, w.send()))], "before ACCEPT")


def test_merged_is_said_where_it_was_agreed_on(tmp_path):
    req, accept, confirm = HANDSHAKE
    told = (B, w.sack(B, 0, flags=u.F_MERGED))
    expect(tmp_path, [req, accept, confirm, told], "has not agreed to")
    agreed = [(A, w.req(features=u.FEATURE_MERGES)), (B, w.accept(features=u.FEATURE_MERGES)), confirm, told]
    assert u.check_stream(load(tmp_path, [w.frame(who, w.other(who), p) for who, p in agreed])) == []


def test_without_a_request(tmp_path):
    frames = [w.frame(A, B, w.data(A, 0, 0, w.send()))]
    problems = u.check_stream(load(tmp_path, frames, port=B[1]))
    assert len(problems) == 1 and "without a REQ" in problems[0]


# ---- PSNs --------------------------------------------------------------------------


def test_psn_problems(tmp_path):
    d0 = (A, w.data(A, 0, 0, w.send(1)))
    expect(tmp_path, HANDSHAKE + [d0, (B, w.sack(B, 2))], "acknowledged but never seen")
    expect(tmp_path, HANDSHAKE + [(A, w.data(A, -1, 0, w.send(1)))], "before the ISN")
    expect(tmp_path, HANDSHAKE + [(A, w.data(A, 1024, 0, w.send(1)))], "beyond the peer's window")
    expect(tmp_path, HANDSHAKE + [d0, (A, w.data(A, 0, 0, w.send(1), echo=1))],
           "neither is marked")
    expect(tmp_path, HANDSHAKE + [d0, (A, w.data(A, 0, 0, w.send(1, 0, b"q" * 8),
                                                 flags=u.F_RETRANS))], "another segment")
    expect(tmp_path, HANDSHAKE + [d0, (B, w.sack(B, 1, (0, 1)))], "has not been seen")
    expect(tmp_path, HANDSHAKE + [(B, w.sack(B, -1))], "before the ISN")
    expect(tmp_path, HANDSHAKE + [(A, w.shutdown(A, 0, 0)), (A, w.data(A, 1, 0, w.send(1)))],
           "behind the end of the stream")
    expect(tmp_path, HANDSHAKE + [d0, (B, w.data(B, 0, 1, w.write())),
                                  (A, w.sack(A, 0, flags=u.F_NOT_READY))], "which takes no receive")


def test_window_moves_with_the_credit(tmp_path):
    closed = HANDSHAKE + [(A, w.data(A, at, 0, w.send(at + 1))) for at in range(1024)]
    assert u.check_stream(capture(tmp_path, closed)) == []
    opened = closed + [(B, w.sack(B, 1, credit=1024)), (A, w.data(A, 1024, 0, w.send(1025)))]
    assert u.check_stream(capture(tmp_path, opened)) == []
    expect(tmp_path, closed + [(B, w.sack(B, 1, credit=4)),
                               (A, w.data(A, 1024, 0, w.send(1025)))], "beyond the peer's window")


def test_mtu(tmp_path):
    fits = 1500 - 20 - 8 - 14 - 14
    ok = HANDSHAKE + [(A, w.data(A, 0, 0, w.write(0, b"x" * fits)))]
    assert u.check_stream(capture(tmp_path, ok)) == []
    expect(tmp_path, HANDSHAKE + [(A, w.data(A, 0, 0, w.write(0, b"x" * (fits + 1))))],
           "over the MTU 1500")


# ---- Messages ----------------------------------------------------------------------


def stream(*segments, who=A):
    return HANDSHAKE + [(who, w.data(who, i, 0, s)) for i, s in enumerate(segments)]


@pytest.mark.parametrize("segments, needle", [
    ((w.send(2),), "MSN 2 in queue 0 where 1 is due"),
    ((w.send(1), w.send(1)), "MSN 1 in queue 0 where 2 is due"),
    ((w.send(1, 0, b"x" * 8, last=False), w.send(1, 9)), "MO 9 where 8 is due"),
    ((w.send(1, 4),), "MO 4 where 0 is due"),
    ((w.send(1, 0, b"", last=False), w.send(1, 0)), "empty segment"),
    ((w.send(1, last=False), w.untagged(5, 0, 1, 8, b"x")), "opcode changes"),
    ((w.send(1, last=False), w.write()), "inside a SEND"),
    ((w.write(last=False), w.send(1)), "inside a WRITE"),
    ((w.write(0, last=False), w.write(9)), "does not go on"),
    ((w.write(0, last=False), w.write(8, stag=0x101)), "does not go on"),
    ((w.read_req(2),), "MSN 2 in queue 1"),
    ((w.read_resp(),), "without a READ request"),
    ((w.write(0, b"x" * 8), w.imm(length=7)), "of a WRITE of 7 bytes"),
    ((w.imm(length=8),), "of a WRITE of 8 bytes"),
    ((w.write(0, b"x" * 8), w.send(), w.imm(2, length=8)), "of a WRITE of 8 bytes"),
    ((w.imm(2),), "MSN 2 in queue 0"),
    ((w.write(last=False), w.imm(1)), "inside a WRITE"),
    ((w.atomic_resp(),), "where none is due"),
])
def test_message_problems(tmp_path, segments, needle):
    expect(tmp_path, stream(*segments), needle)


def test_immediate_data_and_atomics(tmp_path):
    good = stream(w.write(0, b"x" * 8, last=False), w.write(8), w.imm(1, length=16), w.imm(2),
                  w.untagged(12, 0, 3, inv=9),
                  w.atomic_req(1), w.read_req(2),
                  w.atomic_req(3, op=2, ident=3, mask=u.ALL_ONES, compare_mask=u.ALL_ONES))
    answers = [w.atomic_resp(1, 1), w.read_resp(b"x" * 8), w.atomic_resp(2, 3)]
    good += [(B, w.data(B, i, 8, s)) for i, s in enumerate(answers)]
    assert u.check_stream(capture(tmp_path, good)) == []
    expect(tmp_path, good[:-3] + [(B, w.data(B, 0, 8, w.atomic_resp(1, 2)))], "Atomic Response to 2 where 1 is due")
    expect(tmp_path, good[:-3] + [(B, w.data(B, 0, 8, w.read_resp()))], "READ response to an atomic")
    expect(tmp_path, good[:-2] + [(B, w.data(B, 1, 8, w.atomic_resp(2, 2)))], "where none is due")


def test_read_response_problems(tmp_path):
    asked = HANDSHAKE + [(A, w.data(A, 0, 0, w.read_req(1, 16)))]
    expect(tmp_path, asked + [(B, w.data(B, 0, 1, w.read_resp(b"x" * 16, sink=(2, 0))))],
           "the sink")
    expect(tmp_path, asked + [(B, w.data(B, 0, 1, w.read_resp(b"x" * 8)))], "8 of 16")
    expect(tmp_path, asked + [(B, w.data(B, 0, 1, w.read_resp(b"x" * 17)))], "17 of 16")
    expect(tmp_path, asked + [(B, w.data(B, 0, 1, w.read_resp(b"x" * 16, last=False)))],
           "no last flag")
    good = asked + [(B, w.data(B, 0, 1, w.read_resp(b"x" * 8, last=False))),
                    (B, w.data(B, 1, 1, w.send(1))),
                    (B, w.data(B, 2, 1, w.read_resp(b"x" * 8, sink=(1, 8))))]
    assert u.check_stream(capture(tmp_path, good)) == []


def test_read_response_between_segments_of_a_write(tmp_path):
    conversation = HANDSHAKE + [
        (A, w.data(A, 0, 0, w.read_req(1, 8))),
        (B, w.data(B, 0, 1, w.write(0, last=False))),
        (B, w.data(B, 1, 1, w.read_resp())),
        (B, w.data(B, 2, 1, w.write(8)))]
    assert u.check_stream(capture(tmp_path, conversation)) == []


def test_ord(tmp_path):
    conversation = [(A, w.req(ord_=8)), (B, w.accept(ird=2)), (A, w.confirm())]
    conversation += [(A, w.data(A, i, 0, w.read_req(i + 1))) for i in range(3)]
    expect(tmp_path, conversation, "3 READs and atomics outstanding, ORD is 2")


# ---- Messages that are skipped -----------------------------------------------------------


RETRANS, SKIP, SKIPPED, NOT_READY = u.F_RETRANS, u.F_SKIP, u.F_SKIPPED, u.F_NOT_READY
EMPTY = w.write(0, b"", last=False, stag=0)
ASKS = RETRANS | SKIP

# B READs 24 bytes and has no receive. A's window ends at +6, and the responses fill it.
ASKED = [(A, w.req(ord_=1)), (B, w.accept(ird=1, window=6)), (A, w.confirm()),
         (A, w.data(A, 0, 0, w.send(1, 0, b"a" * 8, last=False))),
         (A, w.data(A, 1, 0, w.send(1, 8))),
         (A, w.data(A, 3, 0, w.read_req(1))),  # +2 is lost
         (B, w.sack(B, 0, flags=NOT_READY, credit=6)),
         (B, w.data(B, 0, 0, w.read_req(1, 24), credit=6)),
         (A, w.data(A, 4, 1, w.read_resp(last=False))),
         (A, w.data(A, 5, 1, w.read_resp(last=False, sink=(1, 8)))),
         (A, w.data(A, 0, 1, w.send(1, 0, b"a" * 8, last=False), flags=ASKS))]
ANSWERED = ASKED + [(B, w.sack(B, 2, (0, 0, 1, 1), flags=SKIPPED, credit=6)),
                    (A, w.data(A, 2, 1, EMPTY, flags=RETRANS)),
                    (A, w.data(A, 3, 1, EMPTY, flags=RETRANS))]
AGAIN = ANSWERED + [(A, w.data(A, 6, 1, w.send(1, 0, b"a" * 16))),
                    (A, w.data(A, 7, 1, w.read_resp(sink=(1, 16)))),
                    (B, w.sack(B, 6, (0, 1), flags=SKIPPED | NOT_READY, credit=6))]
TAKEN = AGAIN + [(A, w.data(A, 6, 1, w.send(1, 0, b"a" * 16), flags=RETRANS)),
                 (B, w.sack(B, 8))]


def test_skip(tmp_path):
    rest = [(A, w.data(A, 8, 1, w.write())), (A, w.data(A, 9, 1, w.read_req(1))), (A, w.data(A, 10, 1, w.send(2))),
            (B, w.data(B, 1, 11, w.read_resp())), (A, w.data(A, 11, 2, w.read_req(2))), (B, w.sack(B, 12))]
    expect(tmp_path, TAKEN + rest)
    for cut in range(len(ASKED), len(TAKEN)):
        expect(tmp_path, TAKEN[:cut])
    line = capture(tmp_path, TAKEN)[len(ASKED) - 1].text()
    assert "DATA[RETRANS|SKIP]" in line
    assert "SACK[SKIPPED]" in capture(tmp_path, ANSWERED)[len(ASKED)].text()


def test_skip_that_the_receiver_did_not_need(tmp_path):
    expect(tmp_path, ASKED + [(B, w.sack(B, 2)), (A, w.data(A, 2, 1, w.write(), flags=RETRANS)), (B, w.sack(B, 6)),
                              (A, w.data(A, 6, 1, w.send(2)))])
    expect(tmp_path, ASKED + [(B, w.sack(B, 2)), (A, w.data(A, 2, 1, EMPTY, flags=RETRANS)),
                              (A, w.data(A, 6, 1, w.send(2)))], "inside a WRITE", "inside a WRITE")


def test_skip_again_and_again(tmp_path):
    message = w.send(1, 0, b"a" * 16)
    more = AGAIN + [(A, w.data(A, 6, 1, message, flags=ASKS)), (B, w.sack(B, 8, flags=SKIPPED)),
                    (A, w.data(A, 8, 1, message)), (A, w.data(A, 8, 1, message, flags=ASKS)),
                    (B, w.sack(B, 9, flags=SKIPPED)),
                    (A, w.data(A, 9, 1, message)), (B, w.sack(B, 10)), (A, w.data(A, 10, 1, w.write())),
                    (A, w.data(A, 11, 1, w.read_req(1))), (A, w.data(A, 12, 1, w.send(2)))]
    expect(tmp_path, more)
    expect(tmp_path, more[:-1] + [(A, w.data(A, 12, 1, w.send(1)))], "MSN 1 in queue 0 where 2 is due")


def test_skip_seen_late(tmp_path):
    """Copies that are under way, headers that others have overtaken, and the first copy behind its repetition."""
    late = [(A, ASKED[-1][1]), (B, w.sack(B, 6, (0, 1), flags=SKIPPED | NOT_READY, credit=6)),
            (A, w.data(A, 2, 0, w.write())), (B, w.sack(B, 0, flags=NOT_READY, credit=6))]
    expect(tmp_path, TAKEN + late)


def test_skip_of_immediate_data(tmp_path):
    conversation = HANDSHAKE + [
        (A, w.data(A, 0, 0, w.write())), (A, w.data(A, 1, 0, w.imm(1, length=8))), (A, w.data(A, 2, 0, w.send(2))),
        (B, w.sack(B, 1, flags=NOT_READY)), (A, w.data(A, 1, 0, w.imm(1, length=8), flags=ASKS)),
        (B, w.sack(B, 3, flags=SKIPPED)), (A, w.data(A, 3, 0, w.imm(1, length=8))), (B, w.sack(B, 4)),
        (A, w.data(A, 4, 0, w.send(2))), (A, w.data(A, 5, 0, w.imm(3)))]
    expect(tmp_path, conversation)


def test_terminate_behind_a_skip(tmp_path):
    expect(tmp_path, ANSWERED + [(A, w.data(A, 6, 1, w.terminate(0, 1, 0)))])
    expect(tmp_path, ANSWERED + [(A, w.data(A, 5, 1, w.terminate(0, 1, 0), flags=RETRANS))])


@pytest.mark.parametrize("conversation, needles", [
    (HANDSHAKE + [(A, w.data(A, 0, 0, w.send())), (B, w.sack(B, 1, flags=SKIPPED))], ["no message is skipped"]),
    (ASKED[:-1] + [(B, w.sack(B, 0, flags=NOT_READY | SKIPPED, credit=6))], ["no message is skipped"]),
    (ASKED + [(B, w.sack(B, 0, flags=NOT_READY | SKIPPED, credit=6))], ["no message is skipped"]),
    (ASKED + [(B, w.sack(B, 2)), (B, w.sack(B, 2, flags=SKIPPED))], ["no message is skipped"]),
    (TAKEN + [(B, w.sack(B, 8, flags=SKIPPED))], ["no message is skipped"]),
    (ANSWERED + [(B, w.sack(B, 6))], ["does not say SKIPPED"]),
    (AGAIN + [(B, w.data(B, 1, 6, w.send()))], ["does not say SKIPPED"]),
    (HANDSHAKE + [(A, w.data(A, 0, 0, w.send(1))), (A, w.data(A, 1, 0, w.send(2))),
                  (A, w.data(A, 1, 0, w.send(2), flags=ASKS))], ["SKIP at +1, and only what is before +0"]),
    (ANSWERED + [(A, w.data(A, 6, 1, w.write()))], ["WRITE where the message that was skipped at +0 is due"]),
    (ANSWERED + [(A, w.data(A, 6, 1, w.send(2)))], ["SEND where the message that was skipped at +0 is due"]),
    (ANSWERED + [(A, w.data(A, 6, 1, w.untagged(5, 0, 1)))], ["SEND_SE where the message"]),
    (TAKEN + [(A, w.data(A, 8, 1, w.send(3)))], ["MSN 3 in queue 0 where 2 is due"]),
    (TAKEN + [(A, w.data(A, 8, 1, w.read_req(2)))], ["MSN 2 in queue 1 where 1 is due", "2 READs and atomics"]),
    (TAKEN + [(A, w.data(A, 8, 1, w.read_req(1, 16)))], ["READ_REQ 1 comes again, and asks for something else"]),
    (TAKEN + [(A, w.data(A, 8, 1, w.read_req(1))), (A, w.data(A, 9, 1, w.read_req(2)))], ["2 READs and atomics"]),
    (TAKEN + [(B, w.data(B, 1, 8, w.read_resp()))], ["READ response without a READ request"]),
    (TAKEN + [(B, w.data(B, 1, 8, w.read_resp())), (A, w.data(A, 8, 1, w.read_req(1))),
              (B, w.data(B, 2, 9, w.read_resp()))], ["READ response without a READ request"]),
    (ASKED + [(A, w.data(A, 1, 1, EMPTY, flags=RETRANS))], ["another segment"]),
    (ANSWERED + [(A, w.data(A, 1, 1, EMPTY))], ["neither is marked RETRANS", "another segment"]),
    (ANSWERED + [(A, w.data(A, 1, 1, w.write(0, b"", stag=0), flags=RETRANS))], ["another segment"]),
    (ANSWERED + [(A, w.data(A, 4, 1, EMPTY, flags=RETRANS))], ["another segment"]),
    (TAKEN + [(A, w.data(A, 6, 1, EMPTY, flags=RETRANS))], ["another segment"]),
    (TAKEN + [(A, w.data(A, 8, 1, w.send(2))), (A, w.data(A, 8, 1, EMPTY, flags=RETRANS))], ["another segment"]),
])
def test_skip_problems(tmp_path, conversation, needles):
    expect(tmp_path, conversation, *needles)


def test_a_gap_ends_the_check_of_messages_not_the_run(tmp_path):
    conversation = HANDSHAKE + [(A, w.data(A, 1, 0, w.send(9)))]
    assert u.check_stream(capture(tmp_path, conversation)) == []


def test_struct_sizes_of_the_document():
    assert len(w.trp(0, 0, 0)) == 14 and len(w.params()) == 16
    assert len(w.tagged(0, 0, 0)) == 14 and len(w.untagged(3, 0, 1)) == 18
    assert struct.calcsize(">IQIIQ") == 28
