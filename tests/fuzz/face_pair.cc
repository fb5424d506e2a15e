// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file face_pair.cc
/// Two QPs of the RoCE face and the wire between them (cm/usiw_face.h). The fuzzer is the programs and the wire: it
/// moves the QPs in any order, names peers that are right or wrong, lets time pass, and delivers, loses, repeats,
/// reorders, changes and forges datagrams. A QP may only accept a REQ that brings back the ISN of a PENDING which the
/// QP has sent since it came to RTR. At the end both QPs are reset and name each other, and have to connect, whatever
/// has happened before.
#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "cm/usiw_face.h"
#include "input.h"
#include "tests/support/cm_end_host.h"
#include "uapi/usiw_abi.h"

namespace {

using usiw::fuzz::Exact;
using usiw::fuzz::Input;
using Datagram = std::vector<uint8_t>;

constexpr __u64 kKey[2] = {11, 22};
constexpr uint8_t kAddress[3][16] = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1},
                                     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2},
                                     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 3}};
constexpr uint32_t kQpn[3] = {0x129c40, 0x059c41, 0x7f9c42};  ///< the last one is a stranger

uint32_t get32(const Datagram& d, size_t at) {
  uint32_t v = 0;
  for (size_t i = 0; i < 4; ++i) v = v << 8 | d[at + i];
  return v;
}
void put32(Datagram& d, size_t at, uint32_t v) {
  for (size_t i = 0; i < 4; ++i) d[at + i] = static_cast<uint8_t>(v >> (24 - 8 * i));
}

/// The 4-tuple of datagrams that the QP @p to receives from @p from.
usiw_cm_tuple tuple_of(unsigned to, unsigned from) {
  usiw_face face;
  usiw_face_init(&face, kQpn[to], 0);
  usiw_face_set_peer(&face, kAddress[to], kAddress[from], 0, kQpn[from], 0);
  return face.peer.tuple;
}

/// Sends datagrams of one QP, or of the stranger.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual void send(unsigned from, const usiw_cm_tuple& tuple, const Datagram& d) = 0;
};

/// A QP with its host, as the class Face of usiw-run.
class FaceQp {
 public:
  FaceQp(Wire& wire, unsigned number) : wire_(wire), number_(number) { usiw_face_init(&face_, kQpn[number], 7); }

  void rtr(unsigned peer, uint32_t rq_psn) {
    if (in_rtr_) return;
    in_rtr_ = true;
    pendings_.clear();
    usiw_face_set_peer(&face_, kAddress[number_], kAddress[peer], 0, kQpn[peer], rq_psn);
    peer_ = peer;
    const usiw_face_part part = usiw_face_role(&face_);
    if (part == USIW_FACE_ANSWERS) return challenge();
    usiw_face_ask ask;
    usiw_face_build_ask(&face_, &ask);
    make();
    FUZZ_CHECK(usiw_cm_init_active(&end_->cm, next_isn_++, 4, 4, 9000, 64, &ask, sizeof ask) == 0, "init_active");
    usiw_cm_set_silent(&end_->cm);
    usiw_cm_offer(&end_->cm, USIW_FEATURE_FACE);
    end_->contract.connected();
    end_->attach(USIW_CM_SOCKET);
    if (part == USIW_FACE_ITSELF)
      usiw_cm_end_connect_itself(end_.get(), now_);
    else
      usiw_cm_end_connect(end_.get(), now_);
    after();
  }
  void rts(uint32_t sq_psn) {
    if (in_rtr_) usiw_face_set_sq_psn(&face_, sq_psn);
  }
  void reset() {
    usiw_face_forget_peer(&face_);
    in_rtr_ = false;
    if (end_ && end_->cm.state != USIW_CM_DEAD) usiw_cm_end_abort(end_.get(), USIW_ABORT_LOCAL, now_);
    after();
    end_.reset();
  }
  void report(uint32_t kind, int error) {
    if (!end_) return;
    usiw_qp_report r{};
    r.kind = kind;
    r.error = error;
    r.conn_id = end_->id;
    usiw_cm_end_report(end_.get(), &r, now_);
    after();
  }
  void icmp(unsigned answer) {
    if (end_) usiw_cm_end_icmp(end_.get(), static_cast<usiw_cm_answer>(answer), now_);
    after();
  }
  void at(uint64_t now) {
    now_ = now;
    if (end_) usiw_cm_end_tick(end_.get(), now_);
    after();
  }
  void receive(const usiw_cm_tuple& tuple, const Datagram& d);

  uint8_t state() const { return end_ ? end_->cm.state : uint8_t{USIW_CM_IDLE}; }
  const usiw_cm_conn& cm() const { return end_->cm; }

 private:
  void make() {
    end_ = std::make_unique<TestEnd>();
    end_->tuple = face_.peer.tuple;
  }
  /// Takes over what the end has sent, and checks what holds between any two calls.
  void after() {
    if (!end_) return;
    FUZZ_CHECK(end_->broken.empty(), end_->broken.c_str());
    FUZZ_CHECK(end_->cm.state == USIW_CM_DEAD || in_rtr_, "a connection of a QP without a peer");
    FUZZ_CHECK(end_->cm.expire_us == 0, "a silent connection has a limit");
    for (const Datagram& d : std::exchange(end_->wire, {})) {
      const uint8_t opcode = d[8] >> 4;
      FUZZ_CHECK(opcode != USIW_TRP_RESET && opcode != USIW_TRP_REJECT, "a silent end reports its end");
      wire_.send(number_, end_->tuple, d);
    }
  }
  void note_pending(const Datagram& d) {
    if (d[8] >> 4 == USIW_TRP_ACCEPT && (d[9] & USIW_TRP_F_PENDING) != 0) pendings_.insert(get32(d, 0));
  }
  void challenge() {
    Exact buf(std::span<const uint8_t>(Datagram(USIW_CM_MAX_DATAGRAM)));
    const uint32_t len = usiw_face_challenge(&face_, kKey, now_, buf.data());
    if (len == 0) return;
    const Datagram d(buf.data(), buf.data() + len);
    note_pending(d);
    wire_.send(number_, face_.peer.tuple, d);
  }
  void take() {
    const usiw_face_req* req = usiw_face_take(&face_);
    FUZZ_CHECK(req != nullptr, "TAKE, and there is nothing");
    FUZZ_CHECK(in_rtr_ && !end_, "a REQ is accepted by a QP that cannot connect");
    FUZZ_CHECK(std::memcmp(&req->tuple, &face_.peer.tuple, sizeof req->tuple) == 0 && req->src_qpn == kQpn[peer_],
               "the REQ of a stranger is accepted");
    FUZZ_CHECK(pendings_.contains(req->isn), "a REQ is accepted that is not proven since RTR");
    pendings_.clear();
    make();
    if (usiw_cm_init_passive(&end_->cm, &req->pkt, req->isn, 9000, 64, now_) != 0) return end_.reset();
    usiw_cm_set_silent(&end_->cm);
    end_->contract.handed_up();
    end_->attach(USIW_CM_SOCKET);
    end_->contract.accepted();
    FUZZ_CHECK(usiw_cm_end_accept(end_.get(), 4, 4, nullptr, 0, now_) == 0, "accept");
    after();
  }

  Wire& wire_;
  const unsigned number_;
  usiw_face face_{};
  std::unique_ptr<TestEnd> end_;  ///< stays until RESET, also if the connection is over
  std::set<uint32_t> pendings_;   ///< ISNs of the PENDINGs since RTR
  bool in_rtr_ = false;
  unsigned peer_ = 0;
  uint64_t now_ = 5'000'000;
  uint32_t next_isn_ = 0x1000;
};

void FaceQp::receive(const usiw_cm_tuple& tuple, const Datagram& datagram) {
  Exact d(datagram), buf(std::span<const uint8_t>(Datagram(USIW_CM_MAX_DATAGRAM)));
  const bool known = end_ && end_->cm.state != USIW_CM_DEAD && std::memcmp(&tuple, &end_->tuple, sizeof tuple) == 0;
  usiw_face_verdict v;
  usiw_face_input(&v, &face_, known ? end_.get() : nullptr, &tuple, kKey, d.data(), static_cast<uint32_t>(d.size()),
                  now_, buf.data());
  FUZZ_CHECK(v.kind <= USIW_FACE_V_DROP, "a verdict of no kind");
  FUZZ_CHECK(!face_.req.kept || face_.req.pkt.pd == nullptr, "a kept REQ points into its datagram");
  if (v.kind == USIW_FACE_V_ANSWER) {
    FUZZ_CHECK(v.len != 0 && v.len <= std::max<size_t>(d.size(), 18), "amplification");
    const Datagram answer(buf.data(), buf.data() + v.len);
    note_pending(answer);
    wire_.send(number_, tuple, answer);
  }
  after();
  if (v.kind != USIW_FACE_V_TAKE) return;
  FUZZ_CHECK(!known, "a QP that has a connection takes another");
  if (!end_) take();
}

class Fuzz : Wire {
 public:
  explicit Fuzz(Input& in) : in_(in) {}

  void run() {
    for (unsigned n = 0; !in_.done() && n < 1000; ++n) op();
    rest();
  }

 private:
  struct Sent {
    unsigned from, to;
    Datagram data;
  };

  void op() {
    const uint8_t what = in_.get();
    const unsigned side = what >> 7;
    FaceQp& qp = qps_[side];
    switch (what % 18) {
      case 0:
      case 1:
      case 2:
      case 3: deliver(take()); return;
      case 4: take(); return;
      case 5: deliver(copy()); return;
      case 6: {
        Sent s = copy();
        for (unsigned n = 1 + in_.get() % 3; n != 0 && !s.data.empty(); --n)
          s.data[in_.get() % s.data.size()] ^= in_.get();
        if (in_.get() % 8 == 0) s.data.resize(in_.get() % (s.data.size() + 1));
        deliver(s);
        return;
      }
      case 7: forge(side); return;
      case 8: pass(in_.get<uint16_t>() * 100u); return;
      case 9: pass(in_.get() * 1'000'000u); return;
      case 10:
      case 11: qp.rtr(1 - side, psn()); return;
      case 12: qp.rtr(in_.get() % 3, psn()); return;
      case 13: qp.rts(psn()); return;
      case 14: qp.reset(); return;
      case 15: qp.report(USIW_REPORT_READY, 0); return;
      case 16:
        if (in_.flag())
          qp.report(USIW_REPORT_FAILED, -ETIMEDOUT);
        else
          qp.icmp(in_.get() % 9);
        return;
      case 17: {  // a datagram as it was, to another QP or from another address
        Sent s = copy();
        s.to = in_.get() % 2;
        s.from = in_.get() % 3;
        deliver(s);
        return;
      }
    }
  }

  uint32_t psn() { return in_.pick({0u, 0u, 5u, 0xffffffu}); }

  /// A REQ to @p to with all that the programs have exchanged, or nearly so.
  void forge(unsigned to) {
    const unsigned from = in_.get() % 3;
    usiw_face face;
    usiw_face_init(&face, kQpn[from] ^ (in_.get() % 8 == 0 ? 0x10000u : 0u), 0);
    usiw_face_set_peer(&face, kAddress[from], kAddress[to], 0, kQpn[to], psn());
    usiw_face_ask ask;
    usiw_face_build_ask(&face, &ask);
    usiw_cm_conn c;
    if (usiw_cm_init_active(&c, in_.get(), 4, 4, 9000, 64, &ask, sizeof ask) != 0) return;
    usiw_cm_set_silent(&c);
    if (in_.get() % 8 != 0) usiw_cm_offer(&c, USIW_FEATURE_FACE);
    usiw_cm_connect(&c, now_);
    Datagram d(USIW_CM_MAX_DATAGRAM);
    d.resize(usiw_cm_build(&c, d.data()));
    if (in_.flag() && !wire_.empty()) put32(d, 4, get32(wire_[in_.get() % wire_.size()].data, 0));
    deliver({from, to, d});
  }

  // ---- The wire ----

  void send(unsigned from, const usiw_cm_tuple& tuple, const Datagram& d) override {
    FUZZ_CHECK(d.size() >= 14, "a datagram without a header");
    unsigned to = 0;
    while (to < 3 && std::memcmp(tuple.remote, kAddress[to], 16) != 0) ++to;
    FUZZ_CHECK(to < 3, "a datagram to nobody");
    // The wire must not grow without bound, so it loses a datagram if too many wait.
    if (to < 2 && wire_.size() < 64) wire_.push_back({from, to, d});
  }
  Sent take() {
    if (wire_.empty()) return {};
    const size_t i = in_.get() % wire_.size();
    Sent s = wire_[i];
    wire_.erase(wire_.begin() + static_cast<ptrdiff_t>(i));
    return s;
  }
  Sent copy() { return wire_.empty() ? Sent{} : wire_[in_.get() % wire_.size()]; }
  void deliver(const Sent& s) { qps_[s.to].receive(tuple_of(s.to, s.from), s.data); }

  void pass(uint64_t us) {
    now_ += us;
    for (FaceQp& qp : qps_) qp.at(now_);
  }

  bool connected() const {
    for (const FaceQp& qp : qps_)
      if (qp.state() != USIW_CM_ESTABLISHED) return false;
    return qps_[0].cm().local_isn == qps_[1].cm().peer_isn && qps_[1].cm().local_isn == qps_[0].cm().peer_isn;
  }

  /// Both programs begin anew, and nobody forges or loses anything from here on. The datagrams on the wire still
  /// arrive.
  void rest() {
    const unsigned first = in_.last() & 1;
    for (FaceQp& qp : qps_) qp.reset();
    qps_[first].rtr(1 - first, 5);
    qps_[1 - first].rtr(first, 5);
    for (unsigned n = 0; !connected(); ++n) {
      FUZZ_CHECK(n < 400, "two QPs that name each other do not connect");
      if (wire_.empty()) {
        pass(1'000'000);
      } else {
        const Sent s = std::move(wire_.front());
        wire_.pop_front();
        deliver(s);
      }
      for (FaceQp& qp : qps_)
        if (qp.state() == USIW_CM_INSTALLING) qp.report(USIW_REPORT_READY, 0);
    }
    for (FaceQp& qp : qps_) qp.reset();
  }

  Input& in_;
  uint64_t now_ = 5'000'000;
  std::deque<Sent> wire_;
  FaceQp qps_[2] = {{*this, 0}, {*this, 1}};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Fuzz(in).run();
  return 0;
}
