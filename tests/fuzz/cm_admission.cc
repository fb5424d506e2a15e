// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_admission.cc
/// Makes requests, returns slots, and has listeners join and leave in any order, with two ports and three listeners of
/// one namespace. The counts of cm/usiw_cm_admission.h must agree with its lists, no limit may be exceeded, no entry
/// may be lost, and everything can be freed at the end.
#include "cm/usiw_cm_admission.h"

#include <cstddef>
#include <set>

#include "cm/usiw_cm_cookie.h"
#include "input.h"

namespace {

using usiw::fuzz::Input;

constexpr int kListeners = 3;
constexpr int kPorts = 2;

/// Returns the entry that has a link or a node at @p offset.
usiw_cm_req* entry_of(void* member, size_t offset) {
  return reinterpret_cast<usiw_cm_req*>(static_cast<char*>(member) - offset);
}

class Net {
 public:
  explicit Net(Input& in) : in_(in) {
    const __u64 key[2] = {1, 2};
    usiw_cm_admission_net_init(&net_, key);
    net_.half_open.limit = 1 + in_.below(8);
    net_.queued.limit = 1 + in_.below(8);
    for (auto& g : admissions_) g.net = &net_;
  }

  void run() {
    while (!in_.done()) {
      op();
      check();
    }
    end();
  }

 private:
  usiw_cm_admission& admission_of(int l) { return admissions_[l % kPorts]; }

  void op() {
    const uint32_t what = in_.below(16);
    const int l = static_cast<int>(in_.below(kListeners));
    switch (what) {
      case 0:
        if (listeners_[l].admission == nullptr) usiw_cm_admission_join(&admission_of(l), &listeners_[l], in_.below(64));
        break;
      case 1: free_chain(usiw_cm_admission_leave(&listeners_[l], now_)); break;
      case 2:
      case 3:
        if (admitted_[l] != 0) {
          admitted_[l]--;
          usiw_cm_admission_return(&listeners_[l], now_);
        }
        break;
      case 4: free_chain(usiw_cm_admission_expire(&admission_of(l), now_)); break;
      case 5:
        take_due(l);
        break;
      case 6:
        now_ += in_.get<uint16_t>() * 200u;
        break;
      case 7:
        withdraw(l);
        break;
      case 8:
        work_off(l);
        break;
      case 9:  // a burst
        for (uint32_t n = in_.below(256), peer = in_.get(); n != 0; n--) request(l, ++peer, (what & 1) != 0);
        break;
      default:
        request(l, in_.get(), in_.flag());
    }
  }

  static usiw_cm_tuple tuple_of(uint32_t peer) {
    usiw_cm_tuple t{};
    t.remote[0] = static_cast<uint8_t>(peer);
    t.remote[1] = static_cast<uint8_t>(peer >> 8);
    return t;
  }

  void request(int l, uint32_t peer, bool proven) {
    auto* e = new usiw_cm_req{};
    e->tuple = tuple_of(peer);
    all_.insert(e);
    usiw_cm_packet pkt{};
    pkt.opcode = USIW_TRP_REQ;
    pkt.psn = peer % 3;
    if (proven) pkt.ack_psn = usiw_cm_cookie(net_.key, &e->tuple, pkt.psn, static_cast<uint32_t>(now_ >> 26));
    decide(l, e, pkt);
  }

  void decide(int l, usiw_cm_req* e, const usiw_cm_packet& pkt) {
    usiw_cm_listener* to = listeners_[l].admission != nullptr ? &listeners_[l] : nullptr;
    usiw_cm_admission_verdict v;
    usiw_cm_admission_request(&v, &admission_of(l), to, e, &pkt, now_);
    FUZZ_CHECK(v.kind != USIW_CM_ADM_ADMIT || to != nullptr, "admitted by nobody");
    FUZZ_CHECK(v.kind != USIW_CM_ADM_REFUSE || to == nullptr, "refused although somebody listens");
    FUZZ_CHECK(!v.pending || v.isn != 0, "PENDING without an ISN");
    if (v.kind == USIW_CM_ADM_ADMIT) admitted_[l]++;
    if (v.kind != USIW_CM_ADM_KEPT) drop(e);
    free_chain(v.out);
  }

  void take_due(int l) {
    usiw_cm_req* e = usiw_cm_admission_next(&admission_of(l), now_);
    if (e != nullptr) in_hand_[l % kPorts].insert(e);
  }

  /// Handles an entry that the host has, for any listener of the port.
  void work_off(int l) {
    auto& hand = in_hand_[l % kPorts];
    if (hand.empty()) return;
    usiw_cm_req* e = *hand.begin();
    hand.erase(hand.begin());
    if (in_.flag()) {
      usiw_cm_admission_discard(&admission_of(l), e, now_);
      return drop(e);
    }
    usiw_cm_packet pkt{};
    pkt.opcode = USIW_TRP_REQ;
    pkt.psn = e->peer_isn;
    decide(l, e, pkt);
  }

  void withdraw(int l) {
    const usiw_cm_tuple t = tuple_of(in_.get());
    usiw_cm_packet pkt{};
    pkt.opcode = USIW_TRP_RESET;
    pkt.psn = in_.below(3);
    pkt.ack_psn = usiw_cm_cookie(net_.key, &t, pkt.psn, static_cast<uint32_t>(now_ >> 26));
    if (usiw_cm_req* e = usiw_cm_admission_withdraw(&admission_of(l), &t, &pkt); e != nullptr) drop(e);
  }

  void drop(usiw_cm_req* e) {
    FUZZ_CHECK(all_.erase(e) == 1, "an entry twice");
    for (auto& g : admissions_)
      for (const usiw_cm_link* at = g.all.first; at != nullptr; at = at->next)
        FUZZ_CHECK(at != &e->all, "freed and still in the list");
    delete e;
  }
  void free_chain(usiw_cm_req* e) {
    while (e != nullptr) {
      usiw_cm_req* next = e->next;
      drop(e);
      e = next;
    }
  }

  static size_t length(const usiw_cm_list& list) {
    size_t n = 0;
    for (const usiw_cm_link* at = list.first; at != nullptr; at = at->next) {
      FUZZ_CHECK((at->next ? at->next->prev : list.last) == at, "a broken list");
      n++;
    }
    FUZZ_CHECK(n == list.count, "a wrong count");
    return n;
  }

  void check() {
    uint32_t queued[kListeners] = {}, offered[kListeners] = {};
    size_t listed = 0;
    for (auto& g : admissions_) {
      uint32_t held = 0, due = 0, retry = 0;
      size_t waiting = 0, in_lists = length(g.held) + length(g.due);
      for (const auto& l : listeners_)
        if (l.admission == &g) in_lists += length(l.waiting[0]) + length(l.waiting[1]);
      listed += length(g.all);
      for (usiw_cm_link* at = g.all.first; at != nullptr; at = at->next) {
        auto* e = entry_of(at, offsetof(usiw_cm_req, all));
        FUZZ_CHECK(all_.contains(e), "a foreign entry");
        FUZZ_CHECK(e->next == nullptr, "in a chain and in the list");
        const usiw_cm_node* node = &e->node;
        const usiw_cm_node* parent = node->parent;
        FUZZ_CHECK(parent == nullptr ? g.tree.root == node : parent->child[0] == node || parent->child[1] == node,
                   "a broken tree");
        for (usiw_cm_node* child : node->child)
          FUZZ_CHECK(child == nullptr ||
                         (child->parent == node && all_.contains(entry_of(child, offsetof(usiw_cm_req, node)))),
                     "a foreign entry in the tree");
        retry += e->state == USIW_CM_R_RETRY && !e->busy;
        waiting += e->state != USIW_CM_R_NEW && !e->busy;
        held += e->state == USIW_CM_R_HELD;
        due += (e->state == USIW_CM_R_OFFERED || e->state == USIW_CM_R_RETRY) && !e->busy;
        for (int l = 0; l < kListeners; l++) {
          if (e->listener != &listeners_[l]) continue;
          FUZZ_CHECK(listeners_[l].admission == &g, "waits for one that has left");
          queued[l] += e->state == USIW_CM_R_QUEUED;
          offered[l] += e->state == USIW_CM_R_OFFERED;
          const usiw_cm_listener& x = listeners_[l];
          FUZZ_CHECK(e->state != USIW_CM_R_QUEUED || e->proven == 0 || e->busy != 0 ||
                         now_ - e->seen_us >= USIW_CM_STALE_US || x.open >= x.backlog || x.open >= USIW_CM_RESERVED,
                     "a proven one waits beside a free place");
        }
      }
      FUZZ_CHECK(due == g.due.count, "due");
      FUZZ_CHECK(retry == g.retry, "retry");
      FUZZ_CHECK(waiting == in_lists, "an entry in no list, or in two");
      FUZZ_CHECK(held == g.held.count && held <= USIW_CM_MAX_HELD, "held");
    }
    FUZZ_CHECK(listed == all_.size(), "an entry is lost");
    uint32_t shared_open = 0, shared_queued = 0;
    for (int l = 0; l < kListeners; l++) {
      const usiw_cm_listener& x = listeners_[l];
      FUZZ_CHECK(x.queued == queued[l] && x.queued <= USIW_CM_MAX_QUEUED, "queued");
      FUZZ_CHECK(x.open == offered[l] + admitted_[l], "open");
      FUZZ_CHECK(length(x.waiting[0]) + length(x.waiting[1]) == x.queued &&
                     length(x.seen[0]) == length(x.waiting[0]) && length(x.seen[1]) == length(x.waiting[1]),
                 "lists of a listener");
      if (x.open > USIW_CM_RESERVED) shared_open += x.open - USIW_CM_RESERVED;
      if (x.queued > USIW_CM_RESERVED) shared_queued += x.queued - USIW_CM_RESERVED;
    }
    FUZZ_CHECK(net_.half_open.used == shared_open && shared_open <= net_.half_open.limit, "shared places");
    FUZZ_CHECK(net_.queued.used == shared_queued && shared_queued <= net_.queued.limit, "shared room");
  }

  void end() {
    for (auto& l : listeners_) free_chain(usiw_cm_admission_leave(&l, now_));
    for (int l = 0; l < kListeners; l++)
      for (; admitted_[l] != 0; admitted_[l]--) usiw_cm_admission_return(&listeners_[l], now_);
    for (auto& g : admissions_) free_chain(usiw_cm_admission_purge(&g));
    check();
    FUZZ_CHECK(net_.half_open.used == 0 && net_.queued.used == 0, "room that nobody has");
  }

  Input& in_;
  usiw_cm_admission_net net_;
  usiw_cm_admission admissions_[kPorts] = {};
  usiw_cm_listener listeners_[kListeners] = {};
  uint32_t admitted_[kListeners] = {};
  std::set<usiw_cm_req*> all_, in_hand_[kPorts];
  uint64_t now_ = 5'000'000;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Net(in).run();
  return 0;
}
