# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Checks of whole connections, on what usiw_decode.py has decoded: handshake, PSNs,
windows, acknowledgements, and the DDP messages in PSN order.

The capture should show what arrives at both ends (on one host: the interface "any").
Datagrams that the network lost on the way are then simply not there, and whatever was
acknowledged must be.
"""

import dataclasses

import usiw_decode as u

PSN_MASK = 0xffffffff


def check_stream(datagrams):
    """Everything wrong with `datagrams` (of any number of connections), as strings."""
    problems = [f"frame {d.number}: {p}" for d in datagrams for p in d.problems]
    for conn in connections(datagrams):
        problems += conn.check()
    return problems


def connections(datagrams):
    """Splits by pair of endpoints and by the initiator's ISN."""
    current, known = {}, {}
    all_conns = []
    for d in datagrams:
        if d.opcode is None:
            continue
        flow = u.flow_of(d)
        if d.opcode == u.REQ and (d.src, flow, d.psn) not in known:
            current[flow] = known[d.src, flow, d.psn] = Connection(d)
            all_conns.append(current[flow])
        elif flow not in current:
            current[flow] = Connection(None, d)
            all_conns.append(current[flow])
        current[flow].datagrams.append(d)
    return all_conns


def is_terminate(d):
    return isinstance(d.body, u.Segment) and d.body.opcode == u.TERMINATE


@dataclasses.dataclass
class Direction:
    """What one end has sent."""
    isn: int = None
    psns: dict = dataclasses.field(default_factory=dict)  # offset from ISN -> first Datagram
    end: int = None            # offset of SHUTDOWN or Terminate
    acked: int = 0             # offset that the peer has acknowledged
    edge: int = None           # offset of the first PSN that the peer does not accept
    reads: list = dataclasses.field(default_factory=list)  # READ requests in order of arrival
    responses: int = 0         # READ responses whose last segment has been seen
    ord: int = None            # READs that it may have outstanding


class Connection:
    def __init__(self, req, first=None):
        self.req, self.accept, self.confirmed = req, None, False
        self.initiator = req.src if req else None
        self.flow = u.flow_of(req or first)
        self.datagrams, self.problems = [], []
        self.told = set()          # ISNs that PENDING has told
        self.sent = {who: Direction() for who in self.flow}
        self.mtu = None
        self.merges = False
        if req:
            self.sent[req.src].isn = req.psn

    def bad(self, d, what):
        self.problems.append(f"frame {d.number}: {what}")

    def check(self):
        if self.req is None:
            first = self.datagrams[0]
            return [f"frame {first.number}: {len(self.datagrams)} datagrams without a REQ before"] \
                if any(d.opcode not in (u.RESET, u.REJECT) for d in self.datagrams) else []
        for d in self.datagrams:
            handler = {u.REQ: self.on_req, u.ACCEPT: self.on_accept, u.REJECT: self.on_reject,
                       u.CONFIRM: self.on_confirm, u.RESET: self.on_reset}.get(d.opcode)
            if handler:
                handler(d)
            elif d.opcode in (u.DATA, u.SHUTDOWN):
                self.on_data(d)
            elif d.opcode == u.SACK:
                self.on_sack(d)
        for who in self.flow:
            self.check_psns(who)
            self.check_messages(who)
        return self.problems

    # ---- Handshake ----

    def on_req(self, d):
        if d.src != self.initiator or d.psn != self.req.psn:
            return  # of another connection; answered elsewhere
        if d.udp[:4] + d.udp[8:] != self.req.udp[:4] + self.req.udp[8:]:
            self.bad(d, "repeated REQ differs from the first")
        if d.ack_psn not in (0, *self.told):
            self.bad(d, "REQ with an ISN that no PENDING has told")

    def on_accept(self, d):
        if d.src == self.initiator:
            return self.bad(d, "ACCEPT from the initiator")
        if d.ack_psn != self.req.psn:
            return self.bad(d, "ACCEPT with a wrong ack_psn")
        if d.flags & u.F_PENDING:
            self.told.add(d.psn)
            known = self.sent[d.src].isn
            if known is not None and known != d.psn:
                self.bad(d, "PENDING with another ISN")
            return None
        if self.accept is not None:
            if d.udp != self.accept.udp:
                self.bad(d, "repeated ACCEPT differs from the first")
            return None
        self.accept = d
        self.sent[d.src].isn = d.psn
        mine, offer = d.body, self.req.body
        if not isinstance(mine, u.Params) or not isinstance(offer, u.Params):
            return None
        if mine.features & ~offer.features:
            self.bad(d, "ACCEPT with features that were not offered")
        if mine.ord > offer.ird:
            self.bad(d, "ACCEPT's ORD is above the REQ's IRD")
        self.mtu = min(mine.mtu, offer.mtu)
        self.sent[self.initiator].edge = mine.window
        self.sent[d.src].edge = offer.window
        self.merges = bool(mine.features & u.FEATURE_MERGES)
        self.sent[self.initiator].ord = min(offer.ord, mine.ird)
        self.sent[d.src].ord = mine.ord
        return None

    def on_reject(self, d):
        if d.src == self.initiator or d.ack_psn != self.req.psn:
            self.bad(d, "REJECT that answers no REQ")
        if self.accept is not None:
            self.bad(d, "REJECT after ACCEPT")

    def on_confirm(self, d):
        if d.src != self.initiator:
            self.bad(d, "CONFIRM from the responder")
        elif self.accept is None:
            self.bad(d, "CONFIRM before ACCEPT")
        elif (d.psn, d.ack_psn) != (self.req.psn, self.accept.psn):
            self.bad(d, "CONFIRM with wrong ISNs")
        self.confirmed = True

    def on_reset(self, d):
        if d.flags & u.F_STRAY:
            return
        mine, peer = self.sent[d.src].isn, self.sent[d.dst].isn
        if mine not in (None, d.psn) or peer not in (None, d.ack_psn):
            self.bad(d, "RESET with wrong ISNs")

    # ---- Data ----

    def on_data(self, d):
        if self.accept is None:
            return self.bad(d, f"{d.name} before ACCEPT")
        me = self.sent[d.src]
        at = self.offset(d.psn, d.src)
        self.on_ack(d)
        if self.mtu and d.ip_len > self.mtu:
            self.bad(d, f"IP packet of {d.ip_len} bytes over the MTU {self.mtu}")
        if at < 0:
            return self.bad(d, f"{d.name} before the ISN")
        if me.edge is not None and at >= me.edge:
            self.bad(d, f"{d.name} at +{at}, beyond the peer's window (+{me.edge})")
        before = me.psns.get(at)
        replaced = before is not None and is_terminate(d) and not is_terminate(before)
        if before is not None and not replaced:
            return self.check_repetition(before, d)
        # A Terminate may take the PSNs of READ responses that cannot be sent again; then what
        # was sent behind it before is still repeated.
        again = d.flags & u.F_RETRANS
        if me.end is not None and at > me.end and not again:
            self.bad(d, f"{d.name} at +{at}, behind the end of the stream")
        if replaced and not (again and isinstance(before.body, u.Segment)
                             and before.body.opcode == u.READ_RESP):
            self.bad(d, f"a Terminate with the PSN of frame {before.number}")
        me.psns[at] = d
        segment = d.body if isinstance(d.body, u.Segment) else None
        if d.opcode == u.SHUTDOWN or is_terminate(d):
            me.end = at if me.end is None else min(me.end, at)
            if not again and any(other > at for other in me.psns):
                self.bad(d, f"the end of the stream at +{at}, before PSNs already sent")
        if segment and (segment.read or segment.atomic):
            me.reads.append(d)
            outstanding = len(me.reads) - self.sent[d.dst].responses
            if me.ord is not None and outstanding > me.ord:
                self.bad(d, f"{outstanding} READs and atomics outstanding, ORD is {me.ord}")
        if segment and segment.opcode in (u.READ_RESP, u.ATOMIC_RESP) and segment.last:
            me.responses += 1
        return None

    def check_repetition(self, before, d):
        if before.udp == d.udp:
            return  # repeated by the network
        if not (before.flags | d.flags) & u.F_RETRANS:
            self.bad(d, f"same PSN as frame {before.number}, neither is marked RETRANS")
        if before.opcode != d.opcode or before.payload != d.payload:
            self.bad(d, f"same PSN as frame {before.number}, but another segment")

    def on_sack(self, d):
        if self.accept is None:
            return self.bad(d, "SACK before ACCEPT")
        self.on_ack(d)
        base = self.offset(d.ack_psn, d.dst)
        for i, bit in enumerate(d.body or []):
            if bit and base + i not in self.sent[d.dst].psns:
                self.bad(d, f"SACK of +{base + i}, which has not been seen")
        if d.flags & u.F_NOT_READY:
            waiting = self.sent[d.dst].psns.get(base)
            if waiting is None or not isinstance(waiting.body, u.Segment) \
                    or waiting.body.opcode not in u.SENDS + (u.IMM, u.IMM_SE):
                self.bad(d, f"NOT_READY for +{base}, which takes no receive")
        return None

    def on_ack(self, d):
        peer = self.sent[d.dst]
        acked = self.offset(d.ack_psn, d.dst)
        if acked < 0:
            return self.bad(d, "acknowledges what is before the ISN")
        if d.flags & u.F_MERGED and self.accept is not None and not self.merges:
            self.bad(d, "takes merged datagrams, and has not agreed to")
        peer.acked = max(peer.acked, acked)
        if d.credit and peer.edge is not None:
            peer.edge = max(peer.edge, acked + d.credit)
        return None

    def offset(self, psn, who):
        """Signed distance of `psn` from the ISN of `who`. Good for 2^31 datagrams."""
        diff = psn - self.sent[who].isn & PSN_MASK
        return diff - (1 << 32) if diff >> 31 else diff

    def check_psns(self, who):
        me = self.sent[who]
        behind = max(me.psns, default=-1) + 1
        missing = [at for at in range(min(me.acked, behind)) if at not in me.psns]
        first, count = missing[0] if missing else behind, len(missing) + max(0, me.acked - behind)
        if count:
            self.problems.append(f"{u.endpoint(who)}: {count} PSNs acknowledged but never seen, "
                                 f"the first is +{first}")

    # ---- Messages, in PSN order, up to the first gap ----

    def check_messages(self, who):
        me, peer = self.sent[who], self.sent[self.other(who)]
        msn = {0: 1, 1: 1, 2: 1, 3: 1}
        written = None                  # bytes of the WRITE that was the message before, or is open
        send = write = response = None  # what comes next of an open message
        served = 0                      # responses complete
        reads = sorted(peer.reads, key=lambda d: d.body.msn)
        at = 0
        while at in me.psns and (me.end is None or at <= me.end):
            d = me.psns[at]
            at += 1
            s = d.body
            if not isinstance(s, u.Segment) or d.problems:
                continue
            if s.opcode not in (u.READ_RESP, u.ATOMIC_RESP, u.TERMINATE):
                if write is not None and s.opcode != u.WRITE:
                    self.bad(d, "inside a WRITE")
                if send is not None and s.opcode not in u.SENDS:
                    self.bad(d, "inside a SEND")
            if s.opcode in u.SENDS:
                send = self.next_untagged(d, s, msn, send)
            elif s.opcode in (u.READ_REQ, u.ATOMIC_REQ, u.TERMINATE):
                self.next_untagged(d, s, msn, None)
            elif s.opcode in (u.IMM, u.IMM_SE):
                self.next_untagged(d, s, msn, None)
                if s.imm_length not in (0, written):
                    self.bad(d, f"immediate data of a WRITE of {s.imm_length} bytes, which is not before it")
            elif s.opcode == u.ATOMIC_RESP:
                self.next_untagged(d, s, msn, None)
                served = self.next_atomic(d, s, reads, response, served)
            elif s.opcode == u.WRITE:
                if write is not None and (s.stag, s.to) != write:
                    self.bad(d, "WRITE does not go on where its segment before ended")
                written = (written if write else 0) + len(s.payload)
                write = None if s.last else (s.stag, s.to + len(s.payload))
            elif s.opcode == u.READ_RESP:
                response, served = self.next_response(d, s, reads, response, served)
            if s.opcode not in (u.WRITE, u.READ_RESP, u.ATOMIC_RESP):
                written = None

    def next_atomic(self, d, s, reads, response, served):
        """Responses complete behind this one, which is one segment."""
        if response is not None:
            self.bad(d, "Atomic Response inside a READ response")
        if served >= len(reads) or not reads[served].body.atomic:
            self.bad(d, "Atomic Response where none is due")
            return served
        if s.found[0] != reads[served].body.atomic[1]:
            self.bad(d, f"Atomic Response to {s.found[0]} where {reads[served].body.atomic[1]} is due")
        return served + 1

    def next_untagged(self, d, s, msn, open_message):
        """State behind this segment: None, or (opcode, MO expected)."""
        if s.msn != msn[s.qn]:
            self.bad(d, f"MSN {s.msn} in queue {s.qn} where {msn[s.qn]} is due")
            msn[s.qn] = s.msn
        opcode, mo = open_message or (s.opcode, 0)
        if s.opcode != opcode:
            self.bad(d, "the opcode changes within a message")
        if s.mo != mo:
            self.bad(d, f"MO {s.mo} where {mo} is due")
        if not s.payload and not (s.last and s.mo == 0):
            self.bad(d, "empty segment in a message that is not empty")
        if s.last:
            msn[s.qn] += 1
            return None
        return s.opcode, s.mo + len(s.payload)

    def next_response(self, d, s, reads, placed, served):
        """(bytes of the open response or None, responses complete) behind this segment."""
        if served >= len(reads):
            self.bad(d, "READ response without a READ request")
            return None, served
        if not reads[served].body.read:
            self.bad(d, "READ response to an atomic")
            return None, served + 1
        sink_stag, sink_to, size = reads[served].body.read[:3]
        placed = placed or 0
        if s.stag != sink_stag or s.to != sink_to + placed & (1 << 64) - 1:
            self.bad(d, "READ response does not go to the sink of its request")
        placed += len(s.payload)
        if s.last != (placed == size) or placed > size:
            self.bad(d, f"READ response: {placed} of {size} bytes and "
                        f"{'the' if s.last else 'no'} last flag")
        return (None, served + 1) if s.last else (placed, served)

    def other(self, who):
        return self.flow[1] if who == self.flow[0] else self.flow[0]
