#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Independent decoder of usiw's wire protocol: pcap, Ethernet, IPv4/IPv6, UDP, TRP,
handshake, DDP (RFC 5041), RDMAP (RFC 5040).

Written from docs/protocol.md and the RFCs, not from the C headers, so that the two can
be held against each other. Pure standard library.

    usiw_decode.py FILE.pcap [--port N] [--annotate N]

prints one line per datagram, then what is wrong; exit status 1 when something is.

    from usiw_decode import decode_pcap, check_stream
    datagrams = decode_pcap("wire.pcap", port=7174)
    problems = check_stream(datagrams)      # list of str, empty when all is well
"""

import argparse
import dataclasses
import ipaddress
import struct
import sys

# TRP opcodes (docs/protocol.md, section "TRP header").
DATA, REQ, ACCEPT, REJECT, SHUTDOWN, SACK, CONFIRM, RESET = range(8)
OPCODES = ("DATA", "REQ", "ACCEPT", "REJECT", "SHUTDOWN", "SACK", "CONFIRM", "RESET")
F_ACK_REQ, F_NOT_READY, F_RETRANS, F_PENDING, F_STRAY = 0x001, 0x002, 0x004, 0x008, 0x010
F_TELLS_CE, F_CE_COUNT, CE_SHIFT = 0x020, 0x1c0, 6
F_MERGED, F_SKIP, F_SKIPPED = 0x200, 0x400, 0x800
F_TOLD = F_TELLS_CE | F_CE_COUNT | F_MERGED | F_SKIPPED
FEATURE_MERGES = 2
FLAG_NAMES = ((F_ACK_REQ, "ACK_REQ"), (F_NOT_READY, "NOT_READY"), (F_RETRANS, "RETRANS"),
              (F_PENDING, "PENDING"), (F_STRAY, "STRAY"), (F_MERGED, "MERGED"), (F_SKIP, "SKIP"),
              (F_SKIPPED, "SKIPPED"))
FLAGS_OF = {DATA: F_ACK_REQ | F_RETRANS | F_SKIP | F_TOLD, SHUTDOWN: F_ACK_REQ | F_RETRANS | F_TOLD,
            SACK: F_ACK_REQ | F_NOT_READY | F_RETRANS | F_TOLD, ACCEPT: F_PENDING, RESET: F_STRAY}
HANDSHAKE = (REQ, ACCEPT, REJECT, CONFIRM, RESET)

TRP_BYTES = 14
PARAMS_BYTES = 16
MAX_PRIVATE_DATA = 512
MAX_WINDOW = 1024
WIRE_VERSION = 1
MIN_MTU, MAX_MTU = 576, 9216
MAX_IRD = MAX_ORD = 128
REJECT_REASONS = ("user", "no listener", "version", "features", "malformed", "no resource", "MTU")

# RDMAP opcodes (RFC 5040 section 4.3, RFC 7306 section 4; the last two are usiw's own).
(WRITE, READ_REQ, READ_RESP, SEND, SEND_INV, SEND_SE, SEND_SE_INV, TERMINATE, IMM, IMM_SE, ATOMIC_REQ, ATOMIC_RESP,
 SEND_IMM, SEND_SE_IMM) = range(14)
RDMAP_OPCODES = ("WRITE", "READ_REQ", "READ_RESP", "SEND", "SEND_INV", "SEND_SE", "SEND_SE_INV",
                 "TERMINATE", "IMM", "IMM_SE", "ATOMIC_REQ", "ATOMIC_RESP", "SEND_IMM", "SEND_SE_IMM")
TAGGED_OPCODES = (WRITE, READ_RESP)
SENDS = (SEND, SEND_INV, SEND_SE, SEND_SE_INV, SEND_IMM, SEND_SE_IMM)
WITH_IMM = (SEND_IMM, SEND_SE_IMM)
QN_OF = dict.fromkeys(SENDS + (IMM, IMM_SE), 0) | {READ_REQ: 1, ATOMIC_REQ: 1, TERMINATE: 2, ATOMIC_RESP: 3}
FETCH_ADD, CMP_SWAP = 0, 2
ALL_ONES = (1 << 64) - 1


@dataclasses.dataclass
class Params:
    """Payload of REQ and ACCEPT."""
    version: int
    features: int
    ird: int
    ord: int
    mtu: int
    window: int
    private_data: bytes


@dataclasses.dataclass
class Reject:
    version: int
    reason: int
    private_data: bytes


@dataclasses.dataclass
class Segment:
    """A DDP segment with its RDMAP opcode. Fields of the other kind are None."""
    tagged: bool
    last: bool
    opcode: int
    payload: bytes
    stag: int = None        # tagged
    to: int = None          # tagged
    inv_stag: int = None    # untagged
    qn: int = None
    msn: int = None
    mo: int = None
    read: tuple = None      # READ_REQ: (sink STag, sink TO, size, source STag, source TO)
    term: tuple = None      # TERMINATE: (layer, etype, ecode, DDP segment length or None,
                            #             DDP header, RDMAP header)
    imm: int = None         # with immediate data: the number that its bytes are
    imm_length: int = None  # IMM: bytes of the WRITE
    atomic: tuple = None    # ATOMIC_REQ: (operation, id, STag, TO, add or swap, mask, compare, mask)
    found: tuple = None     # ATOMIC_RESP: (id, value)


@dataclasses.dataclass
class Datagram:
    """One UDP datagram; `problems` says what is wrong with it by itself."""
    number: int             # frame in the capture, from 1
    time: float             # seconds
    src: tuple              # (address, port)
    dst: tuple
    ip_len: int             # bytes of the IP packet
    udp: bytes              # UDP payload
    checksum: str           # "good", "bad", "offloaded" (left to the NIC), "none"
    psn: int = None
    ack_psn: int = None
    opcode: int = None
    flags: int = 0
    credit: int = 0
    echo: int = 0
    payload: bytes = b""    # behind the TRP header
    body: object = None     # Params, Reject, Segment, or the list of bits of a SACK
    problems: list = dataclasses.field(default_factory=list)

    @property
    def name(self):
        return OPCODES[self.opcode] if self.opcode is not None and self.opcode < 8 else "?"

    def text(self, isns=None, start=0.0):
        """One line. `isns`: {source: ISN} to print PSNs as differences; `start`: time 0."""
        isns = isns or {}

        def rel(psn, who):
            return f"+{psn - isns[who] & 0xffffffff}" if who in isns else f"0x{psn:08x}"

        head = f"{self.time - start:.6f} {endpoint(self.src)} > {endpoint(self.dst)} "
        if self.opcode is None:
            return head + f"{len(self.udp)} bytes" + self._trouble()
        flags = "|".join(n for bit, n in FLAG_NAMES if self.flags & bit)
        line = head + self.name + (f"[{flags}]" if flags else "")
        if self.opcode in (DATA, SHUTDOWN, SACK):
            who = self.dst if self.opcode == SACK else self.src
            line += f" psn={rel(self.psn, who)} ack={rel(self.ack_psn, self.dst)}"
            line += f" credit={self.credit} echo={self.echo}"
            if self.flags & F_TELLS_CE:
                line += f" ce={(self.flags & F_CE_COUNT) >> CE_SHIFT}"
        else:
            line += f" psn=0x{self.psn:08x} ack=0x{self.ack_psn:08x}"
        return line + self._body_text() + self._trouble()

    def _body_text(self):
        b = self.body
        if isinstance(b, Params):
            return (f" v{b.version} features=0x{b.features:x} ird={b.ird} ord={b.ord} mtu={b.mtu} "
                    f"window={b.window} pd={len(b.private_data)}")
        if isinstance(b, Reject):
            why = REJECT_REASONS[b.reason] if b.reason < len(REJECT_REASONS) else str(b.reason)
            return f" v{b.version} reason={why!r} pd={len(b.private_data)}"
        if isinstance(b, list):
            return f" have={''.join(str(bit) for bit in b)}" if b else ""
        if not isinstance(b, Segment):
            return ""
        line = " | " + name_of(b.opcode)
        if b.tagged:
            line += f" stag=0x{b.stag:08x} to=0x{b.to:x}"
        else:
            line += f" qn={b.qn} msn={b.msn} mo={b.mo}"
        if b.read:
            line += " sink=0x%08x:0x%x size=%d source=0x%08x:0x%x" % b.read
        elif b.imm is not None:
            line += f" imm=0x{b.imm:08x}"
        elif b.atomic:
            line += " op=%d id=%d stag=0x%08x to=0x%x add_swap=0x%x mask=0x%x compare=0x%x mask=0x%x" % b.atomic
        elif b.found:
            line += " id=%d found=0x%x" % b.found
        elif b.term:
            line += " layer=%d etype=%d ecode=0x%02x" % b.term[:3]
        return line + f" len={len(b.payload)}" + (" L" if b.last else "")

    def _trouble(self):
        return "".join(f"  !! {p}" for p in self.problems)


def endpoint(who):
    address, port = who
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# ---- Capture files -------------------------------------------------------------


def read_pcap(path):
    """Yields (number, seconds, link type, frame) of a pcap file (not pcapng)."""
    with open(path, "rb") as f:
        data = f.read()
    if len(data) < 24:
        raise ValueError(f"{path}: too short for a pcap file")
    magics = {b"\xd4\xc3\xb2\xa1": ("<", 1e6), b"\xa1\xb2\xc3\xd4": (">", 1e6),
              b"\x4d\x3c\xb2\xa1": ("<", 1e9), b"\xa1\xb2\x3c\x4d": (">", 1e9)}
    if data[:4] not in magics:
        raise ValueError(f"{path}: not a pcap file (magic {data[:4].hex()})")
    order, unit = magics[data[:4]]
    link = struct.unpack_from(order + "I", data, 20)[0] & 0xffff
    at, number = 24, 0
    while at + 16 <= len(data):
        sec, sub, kept, whole = struct.unpack_from(order + "IIII", data, at)
        frame = data[at + 16:at + 16 + kept]
        if len(frame) < kept:
            return  # the capture was stopped in the middle of a frame
        at += 16 + kept
        number += 1
        if kept < whole:
            raise ValueError(f"{path}: frame {number} is cut to {kept} bytes: capture with -s 0")
        yield number, sec + sub / unit, link, frame


def network_layer(link, frame):
    """(ethertype, packet, outgoing) of a frame; ethertype None when it is not known."""
    if link == 1:       # Ethernet
        at, outgoing = 12, False
    elif link == 113:   # Linux cooked
        at, outgoing = 14, frame[:2] == b"\0\4"
    elif link == 276:   # Linux cooked v2
        return struct.unpack_from(">H", frame)[0], frame[20:], frame[10:11] == b"\4"
    elif link == 101:   # raw IP
        return (0x0800 if frame[0] >> 4 == 4 else 0x86dd), frame, False
    else:
        raise ValueError(f"link type {link} is not known")
    if len(frame) < at + 2:
        return None, b"", outgoing
    kind = struct.unpack_from(">H", frame, at)[0]
    while kind in (0x8100, 0x88a8) and len(frame) >= at + 6:
        at += 4
        kind = struct.unpack_from(">H", frame, at)[0]
    return kind, frame[at + 2:], outgoing


def ones_sum(data):
    """Ones' complement sum of 16-bit words (RFC 1071), folded, not complemented."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def udp_of(kind, packet):
    """(source address, destination address, IP length, UDP datagram, problems) or None."""
    problems = []
    if kind == 0x0800:
        if len(packet) < 20 or packet[0] >> 4 != 4 or packet[9] != 17:
            return None
        header = (packet[0] & 15) * 4
        total, frag = struct.unpack_from(">HxxH", packet, 2)
        if frag & 0x3fff:
            problems.append("IP fragment")
        if header != 20:
            problems.append("IP options")
        if ones_sum(packet[:header]) != 0xffff:
            problems.append("IP header checksum")
        src, dst = (str(ipaddress.IPv4Address(packet[i:i + 4])) for i in (12, 16))
        pseudo = packet[12:20] + b"\0\x11"
    elif kind == 0x86dd:
        if len(packet) < 40 or packet[0] >> 4 != 6 or packet[6] != 17:
            return None
        header, total = 40, 40 + struct.unpack_from(">H", packet, 4)[0]
        src, dst = (str(ipaddress.IPv6Address(packet[i:i + 16])) for i in (8, 24))
        pseudo = packet[8:40] + b"\0\x11"
    else:
        return None
    if total > len(packet) or total < header + 8:
        return src, dst, total, packet[header:], problems + ["IP length does not fit the frame"]
    return src, dst, total, packet[header:total], problems, pseudo


def udp_checksum(pseudo, udp, ipv6):
    """State of the checksum; a packet that a NIC, or nobody on a virtual wire, is to
    complete holds the sum of the pseudo header."""
    field = struct.unpack_from(">H", udp, 6)[0]
    if field == 0:
        return "bad" if ipv6 else "none"
    pseudo += struct.pack(">H", len(udp))
    if ones_sum(pseudo + udp) == 0xffff:
        return "good"
    return "offloaded" if field == ones_sum(pseudo) else "bad"


def decode_pcap(path, port=None):
    """Datagrams of usiw in a pcap file, in the order of the capture.

    With `port` those from or to that UDP port; else those of every pair of endpoints
    between which a REQ is seen. A capture of "any" holds what crosses a wire between two
    interfaces of one host twice, and what a port sends past the kernel's taps once: only
    the arrival is taken.
    """
    found = []
    for number, time, link, frame in read_pcap(path):
        kind, packet, outgoing = network_layer(link, frame)
        if outgoing:
            continue
        parsed = udp_of(kind, packet)
        if parsed is None:
            continue
        src, dst, ip_len, udp, problems = parsed[:5]
        if len(udp) < 8:
            continue
        sport, dport, udp_len = struct.unpack_from(">HHH", udp)
        if port is not None and port not in (sport, dport):
            continue
        checksum = "bad"
        if len(parsed) == 6:
            if udp_len != len(udp):
                problems.append("UDP length is not that of the IP packet")
            checksum = udp_checksum(parsed[5], udp, kind == 0x86dd)
            if checksum == "bad":
                problems.append("UDP checksum")
        d = Datagram(number, time, (src, sport), (dst, dport), ip_len, udp[8:], checksum,
                     problems=problems)
        decode_trp(d)
        if checksum == "none":
            d.problems.append("no UDP checksum")
        elif checksum == "offloaded" and d.opcode not in HANDSHAKE:
            d.problems.append("UDP checksum missing")
        found.append(d)
    if port is None:
        flows = {flow_of(d) for d in found if d.opcode == REQ and isinstance(d.body, Params)}
        found = [d for d in found if flow_of(d) in flows]
    return found


def flow_of(d):
    return tuple(sorted((d.src, d.dst)))


# ---- TRP -------------------------------------------------------------------------


def decode_trp(d):
    """Fills in everything behind the UDP header of `d`."""
    if len(d.udp) < TRP_BYTES:
        d.problems.append("shorter than a TRP header")
        return d
    d.psn, d.ack_psn, opflags, d.credit, d.echo = struct.unpack_from(">IIHHH", d.udp)
    d.opcode, d.flags, d.payload = opflags >> 12, opflags & 0xfff, d.udp[TRP_BYTES:]
    if d.opcode > RESET:
        d.problems.append(f"unknown opcode {d.opcode}")
        return d
    if d.flags & ~FLAGS_OF.get(d.opcode, 0):
        d.problems.append(f"flags 0x{d.flags:03x} that {d.name} does not have")
    if d.flags & F_CE_COUNT and not d.flags & F_TELLS_CE:
        d.problems.append("counts congestion marks, and does not say so")
    if d.opcode in HANDSHAKE and (d.credit or d.echo):
        d.problems.append("credit or echo set in a handshake datagram")
    if d.opcode == DATA:
        d.body = decode_segment(d.payload, d.problems)
        if d.flags & F_SKIP and not (d.flags & F_RETRANS and begins_queue_0(d.body)):
            d.problems.append("SKIP in something else than a repetition of a segment that begins a message of queue 0")
    elif d.opcode == SACK:
        d.body = decode_sack(d)
    elif d.opcode == REJECT:
        d.body = decode_reject(d)
    elif d.opcode in (REQ, ACCEPT) and not d.flags & F_PENDING:
        d.body = decode_params(d)
    elif d.payload:
        d.problems.append(f"{d.name} with a payload of {len(d.payload)} bytes")
    if d.opcode in (DATA, SHUTDOWN, SACK) and d.credit > MAX_WINDOW:
        d.problems.append(f"credit {d.credit} above the largest window")
    return d


def decode_params(d):
    if len(d.payload) < PARAMS_BYTES:
        d.problems.append("parameters cut short")
        return None
    version, reserved, pd_len, features, ird, ord_, mtu, window = struct.unpack_from(
        ">BBHIHHHH", d.payload)
    if version != WIRE_VERSION:
        d.problems.append(f"version {version}")
    if reserved:
        d.problems.append("reserved byte of the parameters")
    if ird > MAX_IRD or ord_ > MAX_ORD:
        d.problems.append("IRD or ORD above the limit")
    if not MIN_MTU <= mtu <= MAX_MTU:
        d.problems.append(f"MTU {mtu}")
    if not window:
        d.problems.append("window 0")
    return Params(version, features, ird, ord_, mtu, window,
                  private_data(d, PARAMS_BYTES, pd_len))


def decode_reject(d):
    if len(d.payload) < 4:
        d.problems.append("REJECT cut short")
        return None
    version, reason, pd_len = struct.unpack_from(">BBH", d.payload)
    if version != WIRE_VERSION:
        return Reject(version, reason, b"")
    if reason >= len(REJECT_REASONS):
        d.problems.append(f"reason {reason}")
    return Reject(version, reason, private_data(d, 4, pd_len))


def private_data(d, at, length):
    if length > MAX_PRIVATE_DATA:
        d.problems.append(f"private data of {length} bytes")
    if at + length != len(d.payload):
        d.problems.append(f"private data of {length} bytes in a payload with "
                          f"{len(d.payload) - at} left")
    return d.payload[at:at + length]


def decode_sack(d):
    """Bits from ack_psn on, as a list of 0 and 1."""
    span = d.psn - d.ack_psn & 0xffffffff
    if span > MAX_WINDOW:
        d.problems.append(f"SACK over {span} PSNs")
        return []
    if len(d.payload) != (span + 7) // 8:
        d.problems.append(f"SACK over {span} PSNs with a bitmap of {len(d.payload)} bytes")
        return []
    bits = [d.payload[i // 8] >> i % 8 & 1 for i in range(len(d.payload) * 8)]
    if span:
        if bits[0]:
            d.problems.append("SACK bitmap: the PSN expected is marked as arrived")
        if not bits[span - 1]:
            d.problems.append("SACK bitmap: the last bit is 0")
        if any(bits[span:]):
            d.problems.append("SACK bitmap: bits behind the last one")
    return bits[:span]


# ---- DDP and RDMAP ---------------------------------------------------------------


def decode_segment(data, problems):
    if len(data) < 14:
        problems.append("shorter than a DDP header")
        return None
    ddp, rdmap = data[0], data[1]
    tagged, last, opcode = bool(ddp & 0x80), bool(ddp & 0x40), rdmap & 15
    if ddp & 0x3c:
        problems.append("reserved DDP bits")
    if ddp & 3 != 1:
        problems.append(f"DDP version {ddp & 3}")
    if rdmap >> 6 != 1:
        problems.append(f"RDMAP version {rdmap >> 6}")
    if rdmap & 0x30:
        problems.append("reserved RDMAP bits")
    if opcode > SEND_SE_IMM:
        problems.append(f"RDMAP opcode {opcode}")
    elif tagged != (opcode in TAGGED_OPCODES):
        problems.append(f"{RDMAP_OPCODES[opcode]} in a{' ' if tagged else 'n un'}tagged segment")
    if tagged:
        stag, to = struct.unpack_from(">IQ", data, 2)
        payload = data[14:]
        if to + len(payload) > 1 << 64:
            problems.append("TO wraps")
        return Segment(True, last, opcode, payload, stag=stag, to=to)
    if len(data) < 18:
        problems.append("shorter than an untagged DDP header")
        return None
    inv_stag, qn, msn, mo = struct.unpack_from(">IIII", data, 2)
    s = Segment(False, last, opcode, data[18:], inv_stag=inv_stag, qn=qn, msn=msn, mo=mo)
    if opcode in QN_OF and qn != QN_OF[opcode]:
        problems.append(f"{RDMAP_OPCODES[opcode]} in queue {qn}")
    if opcode in WITH_IMM:
        s.imm = inv_stag
    elif inv_stag and opcode not in (SEND_INV, SEND_SE_INV):
        problems.append("reserved STag field is set")
    if msn == 0:
        problems.append("MSN 0")
    if opcode in QN_OF and opcode not in SENDS and (mo or not last):
        problems.append(f"{RDMAP_OPCODES[opcode]} in more than one segment")
    if opcode == READ_REQ:
        if len(s.payload) != 28:
            problems.append(f"READ_REQ of {len(s.payload)} bytes")
        else:
            s.read = struct.unpack(">IQIIQ", s.payload)
    elif opcode in (IMM, IMM_SE):
        if len(s.payload) != 8:
            problems.append(f"immediate data of {len(s.payload)} bytes")
        else:
            s.imm, s.imm_length = struct.unpack(">II", s.payload)
    elif opcode == ATOMIC_REQ:
        decode_atomic(s, problems)
    elif opcode == ATOMIC_RESP:
        if len(s.payload) != 12:
            problems.append(f"ATOMIC_RESP of {len(s.payload)} bytes")
        else:
            s.found = struct.unpack(">IQ", s.payload)
    elif opcode == TERMINATE:
        if msn != 1:
            problems.append(f"Terminate with MSN {msn}")
        s.term = decode_terminate(s.payload, problems)
    return s


def begins_queue_0(body):
    """True if `body` is the first segment of a message that takes a receive."""
    return isinstance(body, Segment) and not body.tagged and body.qn == 0 and body.mo == 0


def is_empty_write(body):
    """True if `body` is a middle segment of a WRITE, without bytes: it changes nothing at the receiver."""
    return isinstance(body, Segment) and body.opcode == WRITE and body.tagged and not body.last and not body.payload


def name_of(opcode):
    return RDMAP_OPCODES[opcode] if opcode < len(RDMAP_OPCODES) else "?"


def decode_atomic(s, problems):
    """RFC 7306 section 5.2.1; usiw sends no masks but these."""
    if len(s.payload) != 52:
        problems.append(f"ATOMIC_REQ of {len(s.payload)} bytes")
        return
    s.atomic = struct.unpack(">IIIQQQQQ", s.payload)
    op, _, _, _, _, mask, compare, compare_mask = s.atomic
    if op == FETCH_ADD:
        if mask or compare or compare_mask:
            problems.append("FetchAdd with a mask or something to compare with")
    elif op == CMP_SWAP:
        if mask != ALL_ONES or compare_mask != ALL_ONES:
            problems.append("CmpSwap of a part of the word")
    else:
        problems.append(f"atomic operation {op}")


def decode_terminate(data, problems):
    """RFC 5040 section 4.8."""
    if len(data) < 4:
        problems.append("Terminate cut short")
        return None
    ctrl = struct.unpack_from(">I", data)[0]
    layer, etype, ecode = ctrl >> 28, ctrl >> 24 & 15, ctrl >> 16 & 255
    has_len, has_ddp, has_rdmap = ctrl & 0x8000, ctrl & 0x4000, ctrl & 0x2000
    if ctrl & 0x1fff:
        problems.append("reserved bits of Terminate")
    if layer > 2:
        problems.append(f"Terminate of layer {layer}")
    at, length, ddp, rdmap = 4, None, b"", b""
    if has_len:
        if len(data) < at + 2:
            problems.append("Terminate without the segment length that it announces")
            return layer, etype, ecode, length, ddp, rdmap
        length = struct.unpack_from(">H", data, at)[0]
        at += 2
    if has_ddp:
        size = 14 if len(data) > at and data[at] & 0x80 else 18
        ddp = data[at:at + size]
        at += size
    if has_rdmap:
        rdmap = data[at:at + 28]
        at += 28
    if at != len(data):
        problems.append(f"Terminate of {len(data)} bytes where {at} are announced")
    return layer, etype, ecode, length, ddp, rdmap


# ---- Annotated bytes -------------------------------------------------------------


def annotate(d):
    """Lines "offset  hex  meaning" for every field of the UDP payload of `d`."""
    fields = [(0, 4, f"PSN {d.psn}"), (4, 4, f"ACK PSN {d.ack_psn}"),
              (8, 2, f"opcode {d.opcode} {d.name}, flags 0x{d.flags:03x}"),
              (10, 2, f"credit {d.credit}"), (12, 2, f"echo {d.echo}")]
    b = d.body
    if isinstance(b, Params):
        fields += [(14, 1, f"version {b.version}"), (15, 1, "reserved"),
                   (16, 2, f"{len(b.private_data)} bytes of private data"),
                   (18, 4, f"features 0x{b.features:x}"), (22, 2, f"IRD {b.ird}"),
                   (24, 2, f"ORD {b.ord}"), (26, 2, f"MTU {b.mtu}"),
                   (28, 2, f"window {b.window}"), (30, len(b.private_data), "private data")]
    elif isinstance(b, Reject):
        fields += [(14, 1, f"version {b.version}"), (15, 1, f"reason {b.reason}"),
                   (16, 2, f"{len(b.private_data)} bytes of private data"),
                   (18, len(b.private_data), "private data")]
    elif isinstance(b, Segment):
        name = name_of(b.opcode)
        kind = ("tagged" if b.tagged else "untagged") + (", last" if b.last else "")
        fields += [(14, 1, f"DDP: {kind}, version 1"), (15, 1, f"RDMAP: version 1, {name}")]
        if b.tagged:
            fields += [(16, 4, f"STag 0x{b.stag:08x}"), (20, 8, f"TO 0x{b.to:x}")]
            at = 28
        else:
            what = "immediate data" if b.opcode in WITH_IMM else "reserved, or STag to invalidate"
            fields += [(16, 4, what), (20, 4, f"QN {b.qn}"),
                       (24, 4, f"MSN {b.msn}"), (28, 4, f"MO {b.mo}")]
            at = 32
        if b.read:
            fields += [(at, 4, "sink STag"), (at + 4, 8, "sink TO"),
                       (at + 12, 4, f"size {b.read[2]}"), (at + 16, 4, "source STag"),
                       (at + 20, 8, "source TO")]
        else:
            fields.append((at, len(b.payload), f"{len(b.payload)} bytes of payload"))
    elif d.payload:
        fields.append((14, len(d.payload), "bitmap" if d.opcode == SACK else "payload"))
    lines = []
    for at, size, meaning in fields:
        raw = d.udp[at:at + size]
        shown = raw[:12].hex(" ") + (" ..." if size > 12 else "")
        if size:
            lines.append(f"{at:4}  {shown:<39}  {meaning}")
    return lines


def isns_of(datagrams):
    """{(flow, source): ISN} as far as REQ and ACCEPT tell."""
    isns = {}
    for d in datagrams:
        if d.opcode in (REQ, ACCEPT) and d.psn is not None:
            isns[flow_of(d), d.src] = d.psn
    return isns


def main():
    parser = argparse.ArgumentParser(description="decode and check usiw's wire protocol")
    parser.add_argument("file")
    parser.add_argument("--port", type=int, help="UDP port of one end")
    parser.add_argument("--annotate", type=int, metavar="N", action="append", default=[],
                        help="explain every byte of frame N")
    args = parser.parse_args()
    datagrams = decode_pcap(args.file, args.port)
    isns = isns_of(datagrams)
    for d in datagrams:
        if args.annotate and d.number not in args.annotate:
            continue
        flow = flow_of(d)
        known = {who: isns[flow, who] for who in flow if (flow, who) in isns}
        print(d.number, d.text(known, datagrams[0].time))
        if args.annotate:
            print("\n".join(annotate(d)))
    problems = check_stream(datagrams)
    for p in problems:
        print("PROBLEM", p)
    print(f"{len(datagrams)} datagrams, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    # Names that usiw_stream takes from here must be those of this very module.
    sys.modules["usiw_decode"] = sys.modules[__name__]

from usiw_stream import check_stream  # noqa: E402  (the stream checks build on the names above)

if __name__ == "__main__":
    sys.exit(main())
