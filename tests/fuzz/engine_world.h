// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file engine_world.h
/// Engines for the fuzzers: virtual time, a port whose datagrams the fuzzer holds in its hands,
/// and memory of every kind of rights, watched byte by byte. Every datagram and buffer is an
/// allocation of its own, of exactly its size, so that AddressSanitizer sees each step beyond.
#ifndef USIW_TESTS_FUZZ_ENGINE_WORLD_H
#define USIW_TESTS_FUZZ_ENGINE_WORLD_H

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/psn.h"
#include "engine/qp_context.h"
#include "engine/srq_context.h"
#include "base/wire.h"
#include "input.h"
#include "engine/port.h"
#include "uapi/usiw_abi.h"

namespace usiw::fuzz {

using Datagram = std::vector<std::byte>;

class VirtualClock final : public Clock {
 public:
  uint64_t now_ns() override {
    if (hook) hook();
    return now;
  }
  uint64_t now = 1'000'000'000;
  std::function<void()> hook;  ///< called in the midst of a run
};

/// What every datagram of an engine must be, whatever it has been sent.
inline void check_sent(std::span<const std::byte> d) {
  TrpHeader h{};
  FUZZ_CHECK(decode_trp(d, h), "sent a fragment of a header");
  const auto rest = d.subspan(kTrpBytes);
  switch (h.opcode) {
    case USIW_TRP_DATA: {
      DdpSegment s{};
      FUZZ_CHECK(decode_ddp(rest, s) == DdpDecode::kOk, "sent a segment that does not decode");
      TermInfo t;
      if (!s.tagged && s.qn == USIW_DDP_QN_TERMINATE)
        FUZZ_CHECK(decode_terminate({s.payload, s.len}, t), "sent a Terminate that does not decode");
      if (!s.tagged && s.qn == USIW_DDP_QN_READ_REQ)
        FUZZ_CHECK(s.len == (s.rdmap_opcode == USIW_RDMAP_ATOMIC_REQ ? kAtomicReqBytes : kReadReqBytes),
                   "sent a request of another length");
      if (!s.tagged && s.qn == USIW_DDP_QN_ATOMIC_RESP)
        FUZZ_CHECK(s.len == kAtomicRespBytes, "sent an Atomic Response of another length");
      if (!s.tagged && s.qn == USIW_DDP_QN_SEND && is_immediate(s.rdmap_opcode))
        FUZZ_CHECK(s.len == kImmediateBytes, "sent immediate data of another length");
      break;
    }
    case USIW_TRP_SHUTDOWN:
      FUZZ_CHECK(rest.empty(), "sent a SHUTDOWN with a payload");
      break;
    case USIW_TRP_SACK: {
      const uint32_t bits = h.psn - h.ack_psn;
      FUZZ_CHECK(bits <= kWindow && rest.size() == (bits + 7) / 8, "sent a SACK of another length");
      if (bits == 0) break;
      FUZZ_CHECK((rest.front() & std::byte{1}) == std::byte{0} &&
                     std::to_integer<unsigned>(rest.back()) >> ((bits - 1) % 8) == 1,
                 "sent a SACK that its receiver must drop");
      break;
    }
    default:
      FUZZ_CHECK(false, "sent an opcode that is not the engine's");
  }
}

class FuzzPort final : public Port {
 public:
  static constexpr uint32_t kMaxPayload = 1472;

  ~FuzzPort() override { FUZZ_CHECK(live_ == 0, "buffers leaked"); }
  uint32_t max_payload() const override { return kMaxPayload; }
  bool takes_references() const override { return true; }
  size_t tx_alloc(std::span<TxBuf> bufs) override {
    if (hook) hook();
    const size_t n = std::min<size_t>(bufs.size(), buffers);
    for (TxBuf& b : bufs.first(n)) b = {new std::byte[kMaxPayload], 0, nullptr, nullptr};
    live_ += n;
    return n;
  }
  size_t tx(std::span<TxBuf> bufs) override {
    const size_t taken = std::min<size_t>(bufs.size(), tx_limit);
    for (size_t i = 0; i < bufs.size(); ++i) {
      FUZZ_CHECK(bufs[i].total() <= kMaxPayload, "longer than the port takes");
      if (bufs[i].more_len != 0) std::memcpy(bufs[i].data + bufs[i].len, bufs[i].more, bufs[i].more_len);
      bufs[i].len = bufs[i].total();
      check_sent({bufs[i].data, bufs[i].len});
      FUZZ_CHECK(bufs[i].path != nullptr, "sent nowhere");
      if (on_tx) on_tx({bufs[i].data, bufs[i].len});
      if (i < taken) sent.emplace_back(bufs[i].data, bufs[i].data + bufs[i].len);
    }
    tx_free(bufs);
    if (hook) hook();
    return taken;
  }
  void tx_free(std::span<TxBuf> bufs) override {
    for (TxBuf& b : bufs) delete[] b.data;
    live_ -= bufs.size();
  }
  size_t rx(std::span<RxBuf> bufs) override {
    size_t n = 0;
    for (; n < bufs.size() && !arrived.empty(); ++n) {
      auto& [flow, d] = arrived.front();
      auto* p = new std::byte[d.size()];
      if (!d.empty()) std::memcpy(p, d.data(), d.size());
      bufs[n] = {p, static_cast<uint32_t>(d.size()), flow, nullptr, d.size() % 4 == 3};
      arrived.pop_front();
    }
    live_ += n;
    return n;
  }
  void rx_free(std::span<RxBuf> bufs) override {
    for (RxBuf& b : bufs) delete[] b.data;
    live_ -= bufs.size();
  }
  Drops drops() const override { return {}; }

  std::deque<Datagram> sent;
  std::deque<std::pair<FlowKey, Datagram>> arrived;
  size_t tx_limit = SIZE_MAX;  ///< datagrams that one tx() takes
  size_t buffers = SIZE_MAX;   ///< that one tx_alloc() gives
  std::function<void()> hook;  ///< called in the midst of a run
  std::function<void(std::span<const std::byte>)> on_tx;  ///< sees what tx() is given, taken or not

 private:
  size_t live_ = 0;
};

/// The kinds of registered memory. Their TOs are fixed, so that inputs can name them.
enum RegionKind : uint8_t {
  kOpen,     ///< all rights
  kSource,   ///< remote read, nobody writes
  kSink,     ///< local write: receives and READs end here
  kForeign,  ///< all rights, in another protection domain
  kRegions,
};
inline constexpr uint32_t kPd = 7, kForeignPd = 8;
inline constexpr size_t kRegionBytes = 4096;

constexpr uint32_t stag_of(uint32_t kind) { return (17 + kind) << 8 | 0x5a; }
constexpr uint64_t to_of(uint32_t kind) { return 0x100000u * (1 + kind); }
/// Windows, one of each type, with their keys. They may be bound to what peers may reach anyway.
constexpr uint32_t window_of(bool type2, uint32_t key) { return (USIW_MAX_MR + (type2 ? 1u : 0u)) << 8 | key; }

class Memory {
 public:
  Memory() = default;
  ~Memory() {
    if (hole_ != nullptr) munmap(hole_, 2 * kRegionBytes);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// @p on_demand: all regions are, and behind its first kOpenBytes nothing of kOpen is mapped.
  void add_to(Engine& engine, bool on_demand) {
    static constexpr uint32_t kAll =
        kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
    static constexpr uint32_t kAccess[kRegions] = {kAll | kAccessMwBind, kAccessRemoteRead | kAccessMwBind,
                                                    kAccessLocalWrite, kAll | kAccessMwBind};
    for (const bool type2 : {false, true}) FUZZ_CHECK(engine.mw_add({window_of(type2, 0), kPd, type2}) == 0, "mw_add");
    for (uint32_t kind = 0; kind < kRegions; ++kind) {
      if (on_demand && kind == kOpen) {
        bytes_[kind] = before_a_hole();
      } else {
        owned_[kind].reset(new uint8_t[kRegionBytes]);
        bytes_[kind] = {owned_[kind].get(), kRegionBytes};
      }
      std::ranges::fill(bytes_[kind], static_cast<uint8_t>(0x40 + kind));
      FUZZ_CHECK(engine.mr_add({stag_of(kind), kind == kForeign ? kForeignPd : kPd,
                                kAccess[kind] | (on_demand ? kAccessOnDemand : 0u),
                                reinterpret_cast<uint64_t>(bytes_[kind].data()), kRegionBytes,
                                to_of(kind)}) == 0, "mr_add");
      shadow_[kind].assign(bytes_[kind].begin(), bytes_[kind].end());
    }
    covered_.assign(kRegionBytes, 0);
  }

  /// A work request that may write to kSink is posted, or is complete.
  void cover(const Sge& sge, int by) {
    if (sink_removed_ || sge.lkey != stag_of(kSink) || sge.addr < to_of(kSink)) return;
    for (uint64_t at = sge.addr - to_of(kSink), n = sge.length; n != 0 && at < kRegionBytes; ++at, --n) {
      covered_[at] = static_cast<uint16_t>(covered_[at] + by);
      shadow_[kSink][at] = bytes_[kSink][at];
    }
  }
  /// Registered no more: from now on nothing there may change.
  void removed(uint32_t kind) {
    std::ranges::copy(bytes_[kind], shadow_[kind].begin());
    if (kind == kOpen) open_removed_ = true;
    if (kind == kSink) covered_.assign(kRegionBytes, 0), sink_removed_ = true;
  }

  /// @p hostile_ring: its work requests are not known, and may name every byte that this end
  /// may write.
  void check(bool hostile_ring = false) const {
    for (const uint32_t kind : {uint32_t{kSource}, uint32_t{kForeign}})
      FUZZ_CHECK(std::ranges::equal(bytes_[kind], shadow_[kind]),
                 "memory without the right to write it has changed");
    if (open_removed_)
      FUZZ_CHECK(std::ranges::equal(bytes_[kOpen], shadow_[kOpen]),
                 "memory has changed behind its deregistration");
    if (hostile_ring && !sink_removed_) return;
    constexpr size_t kStep = 64;
    for (size_t i = 0; i < kRegionBytes; ++i) {
      if (i % kStep == 0 && std::memcmp(&bytes_[kSink][i], &shadow_[kSink][i], kStep) == 0) {
        i += kStep - 1;
        continue;
      }
      FUZZ_CHECK(covered_[i] != 0 || bytes_[kSink][i] == shadow_[kSink][i],
                 "memory that no posted work request names has changed");
    }
  }

 private:
  static constexpr size_t kOpenBytes = 3072;
  static_assert(kRegionBytes == 4096, "a page");
  std::span<uint8_t> before_a_hole() {
    void* at = mmap(nullptr, 2 * kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FUZZ_CHECK(at != MAP_FAILED, "mmap");
    hole_ = static_cast<uint8_t*>(at);
    FUZZ_CHECK(mprotect(hole_ + kRegionBytes, kRegionBytes, PROT_NONE) == 0, "mprotect");
    return {hole_ + kRegionBytes - kOpenBytes, kOpenBytes};
  }

  uint8_t* hole_ = nullptr;  ///< two pages, of which the second is none
  std::array<std::unique_ptr<uint8_t[]>, kRegions> owned_;
  std::array<std::span<uint8_t>, kRegions> bytes_;
  std::array<std::vector<uint8_t>, kRegions> shadow_;
  std::vector<uint16_t> covered_;  ///< of kSink: posted work requests that name the byte
  bool open_removed_ = false, sink_removed_ = false;
};

/// Notes only; each end must be told at most once.
struct Told final : EngineEvents {
  void cq_ready(Cq&) override { ++ready; }
  void cq_overrun(Cq&) override { ++overrun; }
  void qp_peer_closed(Qp&) override { ++ended; }
  void qp_closed(Qp&) override { ++closed; }
  void qp_failed(Qp&, int error, AsyncEvent) override {
    FUZZ_CHECK(error <= 0 && error >= -4095, "not an error");
    ++ended;
  }
  void qp_last_wqe(Qp&) override { FUZZ_CHECK(++last_wqe == 1, "the last receive of a QP is told twice"); }
  void srq_limit(Srq&) override { FUZZ_CHECK(std::exchange(armed, false), "the limit of an SRQ that is not armed"); }
  bool armed = false;  ///< srq_limit() may come, once
  unsigned last_wqe = 0;
  unsigned ready = 0, overrun = 0, ended = 0, closed = 0;
};

inline FlowKey flow_of(int side) {
  FlowKey f{};
  f.local_addr = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1};
  f.remote_addr = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 2};
  f.local_port = 1000;
  f.remote_port = 4791;
  if (side == 0) return f;
  return {f.remote_addr, f.local_addr, f.remote_port, f.local_port};
}

struct HostLimits {
  uint32_t wr = 8, sge = 3, max_inline = 64, cqe = 64;
  uint16_t ird = 4, ord = 4, mtu = 1500;
  uint32_t window = 1024;
  bool srq = false;  ///< receives are taken from an SRQ
  bool on_demand = false;  ///< memory is registered on demand
};

/// The books of a connection agree.
inline void check_books(Qp& ibqp) {
  auto& qp = static_cast<QpContext&>(ibqp);
  FUZZ_CHECK(qp.sq.consistent(), "send queue");
  if (!qp.connected()) return;
  FUZZ_CHECK(qp.snd.consistent(), "what is outstanding");
  FUZZ_CHECK(qp.rcv.consistent(), "what has arrived early");
  FUZZ_CHECK(qp.responder.consistent(), "READs served");
}

/// One end: engine, port, memory, a QP, and an account of its work requests.
class Host {
 public:
  Host(VirtualClock& clock, int side, const HostLimits& limits = {})
      : side_(side), limits_(limits), owned_(std::make_unique<Engine>(clock, told, counters.data())) {
    owned_->add_port(port);
    memory.add_to(*owned_, limits.on_demand);
    send_cq = owned_->cq_create(limits.cqe, nullptr);
    recv_cq = owned_->cq_create(limits.cqe, nullptr);
    QpAttr attr{};
    attr.qpn = 1;
    attr.pd = kPd;
    attr.send_cq = send_cq;
    attr.recv_cq = recv_cq;
    attr.max_send_wr = attr.max_recv_wr = limits.wr;
    attr.max_send_sge = attr.max_recv_sge = limits.sge;
    attr.max_inline = limits.max_inline;
    attr.sq_sig_all = true;
    if (limits.srq)
      attr.srq = srq = owned_->srq_create({.pd = kPd, .max_wr = limits.wr, .max_sge = limits.sge, .owner = nullptr});
    qp = owned_->qp_create(attr);
  }
  ~Host() {
    owned_.reset();
    memory.check(hostile_ring);
  }

  static constexpr uint32_t kIsn[2] = {0x1000, 0xfffffff0};  ///< one wraps soon
  void connect() {
    const ConnAttr conn{kIsn[side_],  kIsn[1 - side_], limits_.window, limits_.ird,
                        limits_.ord, limits_.mtu,     side_ == 0};
    FUZZ_CHECK(owned_->qp_connect(qp, 0, {flow_of(side_), {}, {}, 64, 0}, conn) == 0, "connect");
  }
  Engine& engine() { return *owned_; }
  unsigned progress() {
    const unsigned work = owned_->progress();
    check_books(*qp);
    return work;
  }

  bool post_send(WrOpcode op, uint8_t flags, std::vector<Sge> sges, uint64_t remote, uint32_t rkey) {
    static constexpr uint8_t kInline[128] = {'i', 'n'};
    if ((flags & kWrInline) != 0) {  // the poster itself copies: from true addresses
      const uint32_t length = sges.empty() ? 0 : static_cast<uint32_t>(sges[0].length % sizeof kInline);
      sges = {{reinterpret_cast<uint64_t>(kInline), length, 0}};
    }
    if (qp->post_send({next_id_, op, flags, remote, rkey}, sges) != 0) return false;
    sends_.push_back({next_id_++, is_answered(op) ? sges : std::vector<Sge>{}, op});
    for (const Sge& s : sends_.back().sinks) memory.cover(s, 1);
    qp->ring_send();
    return true;
  }
  bool post_recv(std::vector<Sge> sges) {
    if ((srq != nullptr ? srq->post_recv(next_id_, sges) : qp->post_recv(next_id_, sges)) != 0) return false;
    recvs_.push_back({next_id_++, std::move(sges), {}});
    for (const Sge& s : recvs_.back().sinks) memory.cover(s, 1);
    srq != nullptr ? srq->ring_recv() : qp->ring_recv();
    return true;
  }

  /// What is of this end alone, or invalidates by a SEND: nothing is read but @p sges.
  bool post_window(Qp::SendWr wr, std::vector<Sge> sges) {
    wr.wr_id = next_id_;
    if (qp->post_send(wr, sges) != 0) return false;
    sends_.push_back({next_id_++, {}, wr.opcode});
    qp->ring_send();
    return true;
  }
  void arm(uint32_t limit) {
    if (srq == nullptr) return;
    told.armed = limit != 0;
    owned_->srq_arm(srq, limit);
    FUZZ_CHECK((owned_->srq_limit(srq) != 0) == told.armed, "armed, or told");
  }

  /// Takes completions: each work request once, in the order of posting. Those of a dead CQ
  /// are lost, as verbs has it.
  void poll() {
    if (send_cq->empty() && recv_cq->empty()) return;
    memory.check(hostile_ring);
    take(*send_cq, sends_);
    take(*recv_cq, recvs_);
  }
  /// Work requests that have not completed; those that are in the SRQ need not.
  size_t outstanding() const { return sends_.size() + recvs_.size() - in_srq(); }
  size_t sends_outstanding() const { return sends_.size(); }
  uint64_t count(usiw_counter c) const { return counters[c]; }

  void remove(uint32_t kind) {
    if (owned_->mr_remove(stag_of(kind)) == 0) memory.removed(kind);
  }

  std::array<uint64_t, USIW_CNT_MAX> counters{};
  Told told;
  FuzzPort port;
  Memory memory;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Qp* qp = nullptr;
  Srq* srq = nullptr;
  bool hostile_ring = false;
  std::function<void(size_t sent_index, const Cqe&)> on_send_done;

 private:
  struct Posted {
    uint64_t wr_id;
    std::vector<Sge> sinks;
    WrOpcode op;
  };
  size_t in_srq() const {
    if (srq == nullptr) return 0;
    uint32_t n = 0;
    while (n < srq->capacity() && static_cast<const SrqContext*>(srq)->has(n + 1)) ++n;
    FUZZ_CHECK(n <= recvs_.size(), "more is in the SRQ than was posted");
    return n;
  }
  void take(Cq& cq, std::deque<Posted>& posted) {
    std::array<Cqe, 16> got;
    for (size_t n; (n = cq.poll(got)) != 0;) {
      for (const Cqe& c : std::span(got).first(n)) {
        FUZZ_CHECK(!posted.empty(), "a completion of nothing");
        // Those of an SRQ complete in the order of their messages, which may have taken them in another.
        const auto of = std::find_if(posted.begin(), posted.end(), [&](const Posted& p) { return p.wr_id == c.wr_id; });
        if (srq != nullptr && &cq == recv_cq && of != posted.end()) std::iter_swap(of, posted.begin());
        FUZZ_CHECK(c.wr_id == posted.front().wr_id, "completions out of order, or twice");
        uint64_t room = 0;
        for (const Sge& s : posted.front().sinks) room += s.length;
        if (c.opcode == WcOpcode::kRecv && c.status == WcStatus::kSuccess)
          FUZZ_CHECK(c.byte_len <= room, "received more than there was room for");
        for (const Sge& s : posted.front().sinks) memory.cover(s, -1);
        if (&cq == send_cq && on_send_done) on_send_done(sends_done_, c);
        sends_done_ += &cq == send_cq;
        posted.pop_front();
      }
    }
  }

  int side_;
  HostLimits limits_;
  std::deque<Posted> sends_, recvs_;
  size_t sends_done_ = 0;
  uint64_t next_id_ = 1;
  std::unique_ptr<Engine> owned_;
};

/// An SGE that fits as a rule, and sometimes does not.
inline Sge sge_from(Input& in) {
  const uint8_t what = in.get();
  const uint32_t kind = what % kRegions;
  const uint32_t offset = in.get<uint16_t>() % (kRegionBytes + 64);
  static constexpr uint32_t kLengths[] = {0, 1, 7, 8, 64, 1400, 1432, 1440, 3000, 4096, 0x7fffffff, 0xffffffff};
  const uint32_t length = (what & 0x80) != 0 ? in.pick(kLengths) : in.get() * 4u;
  return {to_of(kind) + offset, length, stag_of(kind) ^ ((what & 0x70) == 0x70 ? 1u : 0u)};
}

}  // namespace usiw::fuzz

#endif  // USIW_TESTS_FUZZ_ENGINE_WORLD_H
