# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Checks of whole connections, on what usiw_decode.py has decoded: handshake, PSNs,
windows, acknowledgements, and the DDP messages in PSN order.

The capture should show what arrives at both ends (on one host: the interface "any").
Datagrams that the network lost on the way are then simply not there, and whatever was
acknowledged must be.

A message of queue 0 can be skipped (docs/protocol.md, "Receiver not ready"). Its sender asks by SKIP, and
the first header that acknowledges the message shows by SKIPPED whether the receiver did so. A Skip is one
such message. In PSN order all requests from the message on are void until the message comes again.
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


def is_request(body):
    """True if a receiver that has skipped a message throws `body` away."""
    return isinstance(body, u.Segment) and body.opcode not in (u.READ_RESP, u.ATOMIC_RESP, u.TERMINATE)


@dataclasses.dataclass
class Skip:
    """A message that counts as arrived, and comes again."""
    at: int                    # offset of the PSN that was acknowledged without its message
    segment: u.Segment         # the first one of the message
    edge: int                  # first offset that the sender may not use before it knows of the skip
    again: int = None          # offset where the message comes again

    def covers(self, at):
        """True if a request at offset `at` is void."""
        return self.at <= at and (self.again is None or at < self.again)


@dataclasses.dataclass
class Direction:
    """What one end has sent."""
    isn: int = None
    psns: dict = dataclasses.field(default_factory=dict)  # offset from ISN -> first Datagram
    end: int = None            # offset of SHUTDOWN or Terminate
    acked: int = 0             # offset that the peer has acknowledged
    edge: int = None           # offset of the first PSN that the peer does not accept
    reads: dict = dataclasses.field(default_factory=dict)  # MSN -> [(offset, READ or atomic request), ...]
    responses: int = 0         # READ responses whose last segment has been seen
    ord: int = None            # READs that it may have outstanding
    asked: tuple = None        # (offset, Segment) of a SKIP that the peer has not answered yet
    skips: list = dataclasses.field(default_factory=list)    # Skips in PSN order
    emptied: list = dataclasses.field(default_factory=list)  # (offset, Datagram before, another Datagram)

    def is_void(self, at):
        return any(skip.covers(at) for skip in self.skips)

    def valid_reads(self):
        """[(offset, Segment)] in order of MSNs, without those that the peer has thrown away."""
        valid = []
        for msn in sorted(self.reads):
            valid += [copy for copy in self.reads[msn] if not self.is_void(copy[0])][:1]
        return valid


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
            self.check_emptied(who)
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
        if d.flags & u.F_SKIP and not d.problems:
            self.on_skip(d, me, at)
        if before is not None and not replaced:
            return self.check_repetition(before, d, me, at)
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
        if me.skips and u.begins_queue_0(segment) and at > me.skips[-1].at:
            skip = me.skips[-1]
            if segment.msn == skip.segment.msn:
                skip.again = at if skip.again is None else min(skip.again, at)
        if segment and (segment.read or segment.atomic):
            self.on_read(d, me, at)
        if segment and segment.opcode in (u.READ_RESP, u.ATOMIC_RESP) and segment.last:
            me.responses += 1
        return None

    def on_read(self, d, me, at):
        """A READ or atomic with a PSN that has not been seen. Behind a skip those of old MSNs come again."""
        copies = me.reads.setdefault(d.body.msn, [])
        copies.append((at, d.body))
        if len(copies) > 1:
            if (copies[0][1].read, copies[0][1].atomic) != (d.body.read, d.body.atomic):
                self.bad(d, f"{u.name_of(d.body.opcode)} {d.body.msn} comes again, and asks for something else")
            return
        outstanding = len(me.reads) - self.sent[d.dst].responses
        if me.ord is not None and outstanding > me.ord:
            self.bad(d, f"{outstanding} READs and atomics outstanding, ORD is {me.ord}")

    def on_skip(self, d, me, at):
        """`d` asks the peer to skip its message."""
        if at > me.acked:
            self.bad(d, f"SKIP at +{at}, and only what is before +{me.acked} is acknowledged")
        elif at == me.acked:  # else the answer is on its way
            me.asked = at, d.body

    def on_skipped(self, d, acked):
        """`d` acknowledges all before `acked`, and its flags show whether a message was skipped."""
        peer = self.sent[d.dst]
        said = bool(d.flags & u.F_SKIPPED)
        if peer.asked is not None and acked > peer.asked[0]:
            if said:
                peer.skips.append(Skip(*peer.asked, peer.edge))
            peer.asked = None
        skip = next((skip for skip in reversed(peer.skips) if skip.at < acked), None)
        due = skip is not None and (skip.again is None or acked <= skip.again)
        if said and not due:
            self.bad(d, "says SKIPPED, and no message is skipped")
        if due and not said:
            self.bad(d, f"does not say SKIPPED, and the message that was skipped at +{skip.at} has not come again")

    def check_repetition(self, before, d, me, at):
        if before.udp == d.udp:
            return  # repeated by the network
        if not (before.flags | d.flags) & u.F_RETRANS:
            self.bad(d, f"same PSN as frame {before.number}, neither is marked RETRANS")
        if before.opcode == d.opcode and before.payload == d.payload:
            return
        emptied = any(u.is_empty_write(one.body) and one.flags & u.F_RETRANS for one in (before, d))
        if emptied and is_request(before.body) and is_request(d.body) and any(skip.at < at for skip in me.skips):
            me.emptied.append((at, before, d))  # where the skip ends is not known yet
        else:
            self.other_segment(before, d)

    def other_segment(self, before, d):
        self.bad(d, f"same PSN as frame {before.number}, but another segment")

    def check_emptied(self, who):
        for at, before, d in self.sent[who].emptied:
            if not self.sent[who].is_void(at):
                self.other_segment(before, d)

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
        self.on_skipped(d, acked)
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
        seen = sorted(at for at in me.psns if at < me.acked)  # a damaged header may acknowledge 2^31 of them
        count = me.acked - len(seen)
        if count:
            first = next((i for i, at in enumerate(seen) if i != at), len(seen))
            self.problems.append(f"{u.endpoint(who)}: {count} PSNs acknowledged but never seen, "
                                 f"the first is +{first}")

    # ---- Messages, in PSN order, up to the first gap ----

    def check_messages(self, who):
        me, peer = self.sent[who], self.sent[self.other(who)]
        msn = {0: 1, 1: 1, 2: 1, 3: 1}
        written = None                  # bytes of the WRITE that was the message before, or is open
        send = write = response = None  # what comes next of an open message
        served = 0                      # responses complete
        reads = peer.valid_reads()
        skips = {skip.at: skip for skip in me.skips}
        void = None                     # the Skip whose message has not come again
        after = 0
        while after in me.psns and (me.end is None or after <= me.end):
            at, after = after, after + 1
            d = me.psns[at]
            s = d.body
            if not isinstance(s, u.Segment) or d.problems:
                continue
            if void is not None and is_request(s):
                if at != void.again and at < void.edge:
                    continue
                if at != void.again or s.opcode != void.segment.opcode:
                    return self.bad(d, f"{u.name_of(s.opcode)} where the message that was skipped at +{void.at} is due")
                void = None
            before = (dict(msn), written) if at in skips else None
            if is_request(s):
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
            if at in skips:
                void, (msn, written), send, write = skips[at], before, None, None
        return None

    def next_atomic(self, d, s, reads, response, served):
        """Responses complete behind this one, which is one segment."""
        if response is not None:
            self.bad(d, "Atomic Response inside a READ response")
        if served >= len(reads) or not reads[served][1].atomic:
            self.bad(d, "Atomic Response where none is due")
            return served
        due = reads[served][1].atomic[1]
        if s.found[0] != due:
            self.bad(d, f"Atomic Response to {s.found[0]} where {due} is due")
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
        if not reads[served][1].read:
            self.bad(d, "READ response to an atomic")
            return None, served + 1
        sink_stag, sink_to, size = reads[served][1].read[:3]
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
