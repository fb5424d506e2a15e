// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file engine_rings.cc
/// The rings as an engine that serves another process would meet them: the fuzzer writes every byte
/// of the SQ's, RQ's and CQ's slots, between runs and in their midst (between a check and
/// a use). The peer is an engine that behaves. Nothing is read or written beyond the slots and the
/// memory registered in the QP's protection domain, and every run ends.
#include "mutate.h"

namespace {

using namespace usiw;
using namespace usiw::fuzz;

// The consumer's slots of a CQ are private: an explicit instantiation may name them.
template <auto kSlots, auto kMask>
struct CqSlots {
  friend std::span<uint8_t> slots_of(Cq& cq) {
    return {reinterpret_cast<uint8_t*>(cq.*kSlots), (size_t{cq.*kMask} + 1) * kSlotBytes};
  }
};
std::span<uint8_t> slots_of(Cq& cq);  // found by name
template struct CqSlots<&Cq::slots_, &Cq::mask_>;

struct Rings : Qp {
  using Qp::rq_;
  using Qp::sq_;
};
struct SharedRings : Srq {
  using Srq::free_;
  using Srq::posted_;
  using Srq::slots_;
};

class Hostile {
 public:
  explicit Hostile(Input& in) : in_(in), host_(clock_, 0, limits(in)), peer_(clock_, 1) {
    host_.hostile_ring = true;
    host_.connect();
    peer_.connect();
    // What another thread does meanwhile: a byte or two, where the input says so.
    host_.port.hook = clock_.hook = [this] {
      if (racing_ == 0) return;
      --racing_;
      scribble();
    };
  }

  void run() {
    for (unsigned n = 0; !in_.done() && n < 300; ++n) op();
    racing_ = 0;
    for (unsigned n = 0; n < 50; ++n) turn();
    if (in_.flag()) host_.engine().qp_shutdown(host_.qp);
    for (unsigned n = 0; n < 50; ++n) turn();
    host_.engine().qp_abort(host_.qp);
    peer_.engine().qp_abort(peer_.qp);
    peer_.poll();
    FUZZ_CHECK(peer_.outstanding() == 0, "the peer's work request never completes");
    racing_ = 0;
  }

 private:
  static HostLimits limits(const Input& in) {
    return {.wr = 4, .sge = 3, .max_inline = 64, .cqe = 16, .srq = in.last() >= 0xc0, .on_demand = in.last() % 4 == 3};
  }

  SendWqe& send_slot(uint32_t i) { return (host_.qp->*(&Rings::sq_)).at(i); }
  WqeRing<RecvWqe>& recv_ring() {
    return host_.srq != nullptr ? host_.srq->*(&SharedRings::slots_) : host_.qp->*(&Rings::rq_);
  }
  RecvWqe& recv_slot(uint32_t i) { return recv_ring().at(i); }
  /// An entry of the SRQ's rings of numbers.
  void write_number(uint8_t what) {
    auto& ring = host_.srq->*((what & 1) != 0 ? &SharedRings::posted_ : &SharedRings::free_);
    static constexpr uint32_t kNumbers[] = {0, 1, 2, 3, 4, 5, 0x10000, UINT32_MAX};
    ring[(what >> 1) % host_.srq->capacity()].store(in_.pick(kNumbers));
  }

  void op() {
    const uint8_t what = in_.get();
    switch (what % 16) {
      case 0:
      case 1:
      case 2: turn(); break;
      case 3:
      case 4: write_send(what >> 4); break;
      case 5: write_recv(what >> 4); break;
      case 6: host_.qp->ring_send(); break;
      case 7: host_.srq != nullptr ? host_.srq->ring_recv() : host_.qp->ring_recv(); break;
      case 8: scribble(); break;
      case 9: racing_ = in_.get() % 32; break;
      case 10: {  // the honest producer's side, on slots that may be anything
        const Sge s = sge_from(in_);
        if (in_.flag())
          host_.srq != nullptr ? host_.srq->post_recv(1, {&s, 1}) : host_.qp->post_recv(1, {&s, 1});
        else
          host_.qp->post_send({2, WrOpcode::kSend, kWrSignaled, 0, 0}, {&s, 1});
        host_.qp->ring_send();
        break;
      }
      case 11: peer_work(); break;
      case 12: poll(); break;
      case 13: host_.send_cq->arm(in_.flag()); break;
      case 14:
        switch (in_.get() % 8) {
          case 0: host_.remove(in_.get() % kRegions); break;
          case 1: host_.engine().qp_shutdown(host_.qp); break;
          case 2: host_.engine().qp_abort(host_.qp); break;
          case 3:
            host_.engine().qp_reset(host_.qp);
            host_.told.last_wqe = 0;
            break;
          case 4:
            if (host_.srq != nullptr) {
              const uint8_t n = in_.get();
              if ((n & 0xc0) == 0xc0)
                host_.engine().srq_resize(host_.srq, n & 0x1f);
              else if ((n & 0x80) != 0)
                write_number(n);
              else if (host_.engine().srq_limit(host_.srq) == 0 || (n & 0x40) != 0)
                host_.told.armed = true, host_.engine().srq_arm(host_.srq, n % 8);
              break;
            }
            [[fallthrough]];
          default: clock_.now += in_.get<uint16_t>() * 1'000u; break;
        }
        break;
      case 15: clock_.now += 25'000'000; break;
    }
  }

  /// A send slot as a producer might write it, with one thing or another out of bounds.
  void write_send(uint32_t index) {
    SendWqe& w = send_slot(index);
    const size_t tail = (host_.qp->*(&Rings::sq_)).tail_bytes();
    static constexpr uint8_t kOpcodes[] = {0, 2, 4, 3, 2, 4, 1, 0xff, 5, 6, 7, 8, 9, 15, 16, 0};
    w.opcode = in_.pick(kOpcodes);
    w.flags = in_.get();
    if (in_.flag()) w.flags &= static_cast<uint8_t>(~kWrInline);
    const uint16_t sges = in_.get() % 8 != 7 ? in_.get() % 4 : in_.get<uint16_t>();
    w.wr_id = in_.get();
    const Sge remote = sge_from(in_);
    w.remote_addr = remote.addr;
    w.rkey = remote.lkey;
    const uint16_t bytes = in_.get() % 8 != 7 ? in_.get() % 65u : in_.get<uint16_t>();
    w.count = (w.flags & kWrInline) != 0 ? bytes : sges;
    w.imm = in_.get();
    for (size_t i = 0; i < tail / sizeof(Sge) && i < (sges & 3u); ++i) w.sges()[i] = sge_from(in_);
    if ((w.imm & 0xe0) == 0xe0) {  // a window: to bind, or to invalidate
      w.rkey = w.imm = window_of((w.imm & 1) != 0, w.imm >> 1 & 3);
      if (static_cast<WrOpcode>(w.opcode) == WrOpcode::kBindMw && tail >= sizeof(BindDetails)) {
        const Sge to = sge_from(in_);
        w.imm = in_.flag() ? 1 : 0;
        w.remote_addr = to.addr;
        *w.bind() = {.length = to.length, .access = in_.get(), .region = to.lkey};
      }
    }
    w.valid.store(1);
  }
  void write_recv(uint32_t index) {
    RecvWqe& w = recv_slot(index);
    w.num_sge = in_.get() % 8 != 7 ? in_.get() % 4 : in_.get();
    w.wr_id = in_.get();
    for (size_t i = 0; i < 3; ++i) w.sges()[i] = sge_from(in_);
    w.valid.store(1);
  }

  void scribble() {
    const uint8_t what = in_.get();
    std::span<uint8_t> bytes;
    switch (what % 4) {
      case 0:
      case 1: {
        auto& ring = host_.qp->*(&Rings::sq_);
        bytes = {reinterpret_cast<uint8_t*>(&ring.at(what >> 4)), sizeof(SendWqe) + ring.tail_bytes()};
        break;
      }
      case 2: {
        auto& ring = recv_ring();
        bytes = {reinterpret_cast<uint8_t*>(&ring.at(what >> 4)), sizeof(RecvWqe) + ring.tail_bytes()};
        break;
      }
      default: bytes = slots_of((what & 0x10) != 0 ? *host_.send_cq : *host_.recv_cq); break;
    }
    const size_t at = in_.get<uint16_t>() % bytes.size();
    const auto with = in_.take(std::min<size_t>(1 + in_.get() % 8, bytes.size() - at));
    std::copy(with.begin(), with.end(), bytes.begin() + static_cast<ptrdiff_t>(at));
  }

  void poll() {
    std::array<Cqe, 4> out;
    // The hostile program counts its polled CQEs in its own memory, or it would crash itself at a scribbled address.
    for (Cq* cq : {host_.send_cq, host_.recv_cq}) {
      const auto bytes = slots_of(*cq);
      for (Cq::Slot& slot : std::span(reinterpret_cast<Cq::Slot*>(bytes.data()), bytes.size() / sizeof(Cq::Slot)))
        slot.polled = &polled_;
    }
    host_.send_cq->poll(out);
    host_.recv_cq->poll(out);
  }

  void peer_work() {
    static constexpr WrOpcode kOps[] = {WrOpcode::kSend,    WrOpcode::kRdmaWrite,    WrOpcode::kRdmaRead,
                                        WrOpcode::kSend,
                                        WrOpcode::kSendImm, WrOpcode::kRdmaWriteImm, WrOpcode::kFetchAdd,
                                        WrOpcode::kCompareSwap};
    const uint8_t what = in_.get();
    if ((what & 0x80) != 0) {
      peer_.post_recv({{to_of(kSink), 1024, stag_of(kSink)}});
      return;
    }
    const Sge local{to_of(kOpen), in_.get() * 16u, stag_of(kOpen)};
    const Sge remote = sge_from(in_);
    if ((what & 0x60) == 0x60) {
      const uint32_t stag = window_of(what % 4 != 0, what / 4 % 4);
      Qp::SendWr wr{.wr_id = 0, .opcode = WrOpcode::kSendInv, .flags = 0, .remote_addr = 0, .rkey = 0};
      wr.imm = stag;
      if ((what & 0x10) != 0)
        peer_.post_window(wr, {local});
      else
        peer_.post_send(kOps[what % 8], 0, {local}, remote.addr, stag);
      return;
    }
    peer_.post_send((what & 0x40) != 0 ? kOps[what % 8] : kOps[what % 4], 0, {local}, remote.addr, remote.lkey);
  }

  void turn() {
    for (Host* h : {&host_, &peer_}) {
      Host& other = h == &host_ ? peer_ : host_;
      auto& sent = other.port.sent;
      for (; !sent.empty(); sent.pop_front())
        h->port.arrived.emplace_back(flow_of(h == &host_ ? 0 : 1), std::move(sent.front()));
      h->progress();
    }
    peer_.poll();
    clock_.now += 2'000;
  }

  Input& in_;
  unsigned racing_ = 0;  ///< scribbles to come in the midst of runs
  std::atomic<uint32_t> polled_{0};
  VirtualClock clock_;
  Host host_, peer_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Hostile(in).run();
  return 0;
}
