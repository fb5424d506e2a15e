# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Hand-made datagrams and captures for the decoder's own tests, byte by byte from
docs/protocol.md."""

import ipaddress
import struct

from usiw_decode import ones_sum

A, B = ("10.9.0.1", 40000), ("10.9.0.2", 7174)
ISN = {A: 0x1000, B: 0xfffffffe}    # B's PSNs wrap


def other(who):
    return B if who == A else A


def trp(psn, ack, opcode, flags=0, credit=0, echo=0, payload=b""):
    return struct.pack(">IIHHH", psn & 0xffffffff, ack & 0xffffffff, opcode << 12 | flags,
                       credit, echo) + payload


def params(version=1, reserved=0, features=0, ird=16, ord_=8, mtu=1500, window=1024, pd=b"",
           pd_len=None):
    return struct.pack(">BBHIHHHH", version, reserved, len(pd) if pd_len is None else pd_len,
                       features, ird, ord_, mtu, window) + pd


def req(**kw):
    return trp(ISN[A], 0, 1, payload=params(**kw))


def accept(**kw):
    return trp(ISN[B], ISN[A], 2, payload=params(**kw))


def pending():
    return trp(ISN[B], ISN[A], 2, 8)


def reject(reason=0, pd=b""):
    return trp(ISN[B], ISN[A], 3, payload=struct.pack(">BBH", 1, reason, len(pd)) + pd)


def confirm():
    return trp(ISN[A], ISN[B], 6)


def reset(who=A):
    return trp(ISN[who], ISN[other(who)], 7)


def data(who, at, ack, segment, flags=0, credit=1024, echo=0):
    """DATA number `at` of `who`, which has received `ack` datagrams."""
    return trp(ISN[who] + at, ISN[other(who)] + ack, 0, flags, credit, echo, segment)


def shutdown(who, at, ack, flags=1):
    return trp(ISN[who] + at, ISN[other(who)] + ack, 4, flags, 1024)


def sack(who, ack, bits=(), flags=0, credit=1024):
    """SACK of `who`: `ack` received in order, then `bits`."""
    bitmap = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        bitmap[i // 8] |= bit << i % 8
    base = ISN[other(who)] + ack
    return trp(base + len(bits), base, 5, flags, credit, payload=bytes(bitmap))


def untagged(opcode, qn, msn, mo=0, payload=b"", last=True, inv=0):
    return struct.pack(">BBIIII", last << 6 | 1, 0x40 | opcode, inv, qn, msn, mo) + payload


def tagged(opcode, stag, to, payload=b"", last=True):
    return struct.pack(">BBIQ", 0x80 | last << 6 | 1, 0x40 | opcode, stag, to) + payload


def send(msn=1, mo=0, payload=b"x" * 8, last=True):
    return untagged(3, 0, msn, mo, payload, last)


def write(to=0x1000, payload=b"y" * 8, last=True, stag=0x100):
    return tagged(0, stag, to, payload, last)


def read_req(msn=1, size=8, sink=(1, 0)):
    return untagged(1, 1, msn, payload=struct.pack(">IQIIQ", *sink, size, 0x200, 0x2000))


def read_resp(payload=b"z" * 8, last=True, sink=(1, 0)):
    return tagged(2, *sink, payload, last)


def imm(msn=1, data=7, length=0, mo=0, payload=None):
    return untagged(8, 0, msn, mo, struct.pack(">II", data, length) if payload is None else payload)


def atomic_req(msn=1, op=0, ident=1, add_swap=5, mask=0, compare=0, compare_mask=0):
    return untagged(10, 1, msn, payload=struct.pack(">IIIQQQQQ", op, ident, 0x200, 0x2000, add_swap, mask, compare,
                                                    compare_mask))


def atomic_resp(msn=1, ident=1, found=0):
    return untagged(11, 3, msn, payload=struct.pack(">IQ", ident, found))


def terminate(layer=0, etype=1, ecode=0, ddp=b"", rdmap=b"", length=0):
    ctrl = layer << 28 | etype << 24 | ecode << 16
    body = b""
    if ddp:
        ctrl |= 0xc000
        body = struct.pack(">H", length) + ddp
    if rdmap:
        ctrl |= 0x2000
        body += rdmap
    return untagged(7, 2, 1, payload=struct.pack(">I", ctrl) + body)


def frame(src, dst, udp_payload, checksum=None, link=1, vlan=False, frag=0x4000):
    """A whole frame. `checksum`: None for the right one, "offloaded", or a number."""
    v6 = ":" in src[0]
    address = [ipaddress.ip_address(e[0]).packed for e in (src, dst)]
    length = 8 + len(udp_payload)
    pseudo = b"".join(address) + b"\0\x11" + struct.pack(">H", length)
    udp = struct.pack(">HHHH", src[1], dst[1], length, 0) + udp_payload
    if checksum is None:
        checksum = 0xffff - ones_sum(pseudo + udp) or 0xffff
    elif checksum == "offloaded":
        checksum = ones_sum(pseudo)
    udp = udp[:6] + struct.pack(">H", checksum) + udp[8:]
    if v6:
        ip = struct.pack(">IHBB", 6 << 28, length, 17, 64) + b"".join(address)
    else:
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, 0, frag, 64, 17, 0) + b"".join(address)
        ip = ip[:10] + struct.pack(">H", 0xffff - ones_sum(ip)) + ip[12:]
    kind = 0x86dd if v6 else 0x0800
    if link == 1:
        tag = b"\x81\0\0\x05" if vlan else b""
        return b"\2" * 12 + tag + struct.pack(">H", kind) + ip + udp
    if link == 113:
        return struct.pack(">HHH8sH", 0, 1, 6, b"", kind) + ip + udp
    if link == 276:
        return struct.pack(">HHIHBB8s", kind, 0, 2, 1, 0, 6, b"") + ip + udp
    return ip + udp


def pcap(frames, link=1, order="<", nano=False):
    out = struct.pack(order + "IHHiIII", 0xa1b23c4d if nano else 0xa1b2c3d4, 2, 4, 0, 0, 65535,
                      link)
    for i, f in enumerate(frames):
        out += struct.pack(order + "IIII", 1, i, len(f), len(f)) + f
    return out
