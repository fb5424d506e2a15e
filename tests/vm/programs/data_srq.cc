// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Shared receive queues: each receive is completed once, whichever QP takes it, and whatever becomes of that QP.
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

#include "rig.h"

namespace {

/// An SRQ on device B with a buffer for each work request, and one CQ for all.
class Shared {
 public:
  explicit Shared(uint32_t max_wr, uint32_t length = 4096, int cqe = 1024)
      : length_(length), memory_(pd_b(), size_t{max_wr} * length) {
    ibv_srq_init_attr attr = {};
    attr.srq_context = this;
    attr.attr.max_wr = max_wr;
    attr.attr.max_sge = 1;
    srq = ibv_create_srq(pd_b(), &attr);
    if (!srq) FAIL("ibv_create_srq: %s", std::strerror(errno));
    cq = ibv_create_cq(pd_b()->context, cqe, nullptr, nullptr, 0);
    if (!cq) FAIL("ibv_create_cq: %s", std::strerror(errno));
    max_wr_ = attr.attr.max_wr;
  }
  ~Shared() {
    if (srq && ibv_destroy_srq(srq)) tap::note("ibv_destroy_srq failed");
    if (ibv_destroy_cq(cq)) tap::note("ibv_destroy_cq failed");
  }
  Shared(const Shared&) = delete;

  /// The errno value of ibv_post_srq_recv() with the buffer @p slot, which is the wr_id, too.
  int try_post(uint64_t slot) {
    ibv_sge sge = memory_.sge(slot * length_, length_);
    ibv_recv_wr wr = {}, *bad = nullptr;
    wr.wr_id = slot;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    const int error = ibv_post_srq_recv(srq, &wr, &bad);
    if (error && bad != &wr) FAIL("ibv_post_srq_recv failed (%d) without naming the work request", error);
    return error;
  }
  void post(uint64_t slot) { CHECK_EQ(try_post(slot), 0); }
  void post(uint64_t from, uint64_t to) {
    for (; from < to; ++from) post(from);
  }
  const uint8_t* at(uint64_t slot) const { return memory_.data() + slot * length_; }
  int modify(int mask, uint32_t max_wr, uint32_t limit) {
    ibv_srq_attr attr = {};
    attr.max_wr = max_wr;
    attr.srq_limit = limit;
    return ibv_modify_srq(srq, &attr, mask);
  }
  void arm(uint32_t limit) { CHECK_EQ(modify(IBV_SRQ_LIMIT, 0, limit), 0); }
  ibv_srq_attr query() {
    ibv_srq_attr attr = {};
    CHECK_EQ(ibv_query_srq(srq, &attr), 0);
    return attr;
  }
  Options of_b() const {
    Options o;
    o.srq = srq;
    o.cq = cq;
    return o;
  }

  ibv_srq* srq = nullptr;
  ibv_cq* cq = nullptr;
  uint32_t max_wr_;

 private:
  const uint32_t length_;
  Region memory_;
};

/// A pair of QPs whose end B has the SRQ. A's buffers hold the number of the pair and of the message.
struct Sharing {
  explicit Sharing(const Shared& shared, uint32_t of_pair, uint32_t at_most = 4096)
      : slots(at_most > 65536 ? 8 : 64),
        number(of_pair),
        length(at_most),
        pair(Options{.send_wr = 128}, shared.of_b()),
        at_a(pair.a.pd, size_t{slots} * length) {}

  /// Message @p n, of @p bytes (8 at least).
  void send(uint32_t n, uint32_t bytes) {
    uint8_t* at = at_a.data() + size_t{n % slots} * length;
    const uint32_t head[2] = {number, n};
    std::memcpy(at, head, sizeof head);
    fill_pattern(at + 8, bytes - 8, number * 1000 + n);
    pair.a.send({.wr_id = n, .sges = {at_a.sge(size_t{n % slots} * length, bytes)}});
  }
  const uint32_t slots, number, length;
  Pair pair;
  Region at_a;
};

uint32_t bytes_of(uint32_t n) { return 8 + n * 397 % 4089; }

/// What a completed receive holds: the pair's number and the message's.
std::pair<uint32_t, uint32_t> received(const Shared& shared, const ibv_wc& wc) {
  uint32_t head[2];
  CHECK_EQ(wc.status, IBV_WC_SUCCESS);
  CHECK(wc.byte_len >= sizeof head);
  std::memcpy(head, shared.at(wc.wr_id), sizeof head);
  CHECK_EQ(pattern_mismatch(shared.at(wc.wr_id) + 8, wc.byte_len - 8, head[0] * 1000 + head[1]), wc.byte_len - 8);
  return {head[0], head[1]};
}

void to_error(ibv_qp* qp) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

/// Fails the case if an async event comes within @p ms.
void expect_no_async(ibv_context* context, int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  const int flags = fcntl(context->async_fd, F_GETFL);
  fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK);
  ibv_async_event event;
  const int got = ibv_get_async_event(context, &event);
  fcntl(context->async_fd, F_SETFL, flags);
  if (got == 0) {
    ibv_ack_async_event(&event);
    FAIL("%s", ibv_event_type_str(event.event_type));
  }
}

}  // namespace

CASE(srq_limits, "srq/create-query-modify-destroy", .core = true) {
  ibv_device_attr device;
  CHECK_EQ(ibv_query_device(pd_b()->context, &device), 0);
  CHECK(device.max_srq >= 1000 && device.max_srq_wr >= 4096 && device.max_srq_sge >= 4);
  const auto create = [&](uint32_t wr, uint32_t sge, ibv_srq_attr* got = nullptr) {
    ibv_srq_init_attr attr = {};
    attr.attr.max_wr = wr;
    attr.attr.max_sge = sge;
    attr.attr.srq_limit = 99999;  // has no meaning here
    ibv_srq* srq = ibv_create_srq(pd_b(), &attr);
    if (!srq) return errno;
    if (got) *got = attr.attr;
    ibv_srq_attr told = {};
    CHECK_EQ(ibv_query_srq(srq, &told), 0);
    CHECK_EQ(told.max_wr, attr.attr.max_wr);
    CHECK_EQ(told.max_sge, attr.attr.max_sge);
    CHECK_EQ(told.srq_limit, 0);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    return 0;
  };
  const auto wr = static_cast<uint32_t>(device.max_srq_wr), sge = static_cast<uint32_t>(device.max_srq_sge);
  ibv_srq_attr got;
  CHECK_EQ(create(wr, sge, &got), 0);
  CHECK_EQ(got.max_wr, wr);
  CHECK_EQ(got.max_sge, sge);
  CHECK_EQ(create(100, 3, &got), 0);
  CHECK(got.max_wr >= 100 && got.max_sge >= 3);
  CHECK_EQ(create(wr + 1, 1), EINVAL);
  CHECK_EQ(create(1, sge + 1), EINVAL);
  CHECK_EQ(create(0, 1), EINVAL);

  Shared s(16);
  CHECK_EQ(s.modify(IBV_SRQ_LIMIT, 0, s.max_wr_ + 1), EINVAL);
  s.post(0, 16);
  s.arm(7);
  CHECK_EQ(s.query().srq_limit, 7);
  s.arm(0);
  CHECK_EQ(s.query().srq_limit, 0);

  Pair p(Options{}, s.of_b());
  CHECK_EQ(ibv_destroy_srq(s.srq), EBUSY);
  CHECK_EQ(s.query().max_wr, s.max_wr_);
}

CASE(srq_types, "srq/basic-only", .core = true) {
  ibv_srq_init_attr_ex attr = {};
  attr.attr.max_wr = 8;
  attr.attr.max_sge = 1;
  attr.pd = pd_b();
  attr.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
  attr.srq_type = IBV_SRQT_BASIC;
  ibv_srq* srq = ibv_create_srq_ex(pd_b()->context, &attr);
  CHECK(srq);
  uint32_t number;
  CHECK_EQ(ibv_get_srq_num(srq, &number), EOPNOTSUPP);
  CHECK_EQ(ibv_destroy_srq(srq), 0);
  // With more than ibv_create_srq() can say, which means nothing for this type.
  attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
  srq = ibv_create_srq_ex(pd_b()->context, &attr);
  CHECK(srq);
  CHECK_EQ(ibv_destroy_srq(srq), 0);
  for (const ibv_srq_type type : {IBV_SRQT_XRC, IBV_SRQT_TM}) {
    attr.srq_type = type;
    CHECK(!ibv_create_srq_ex(pd_b()->context, &attr));
    CHECK_EQ(errno, EOPNOTSUPP);
  }
}

CASE(srq_qp, "srq/qp-has-no-receive-queue", .core = true) {
  Shared s(8);
  Options odd = s.of_b();
  odd.recv_wr = 10'000'000;  // verbs: ignored
  odd.recv_sge = 10'000;
  Pair p(Options{}, odd);
  CHECK_EQ(p.b.try_recv(1, {}), EINVAL);
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  CHECK_EQ(ibv_query_qp(p.b.qp, &attr, IBV_QP_CAP, &init), 0);
  CHECK(init.srq == s.srq);
  CHECK_EQ(attr.cap.max_recv_wr, 0);
  CHECK_EQ(attr.cap.max_recv_sge, 0);
}

CASE(srq_full, "srq/posting", .core = true) {
  Shared s(16);
  for (uint64_t i = 0; i < s.max_wr_; ++i) s.post(i % 16);
  CHECK_EQ(s.try_post(0), ENOMEM);
  ibv_sge sges[3] = {};
  ibv_recv_wr wr = {}, *bad = nullptr;
  wr.sg_list = sges;
  wr.num_sge = 3;
  ibv_srq_attr attr = s.query();
  if (attr.max_sge < 3) {
    CHECK_EQ(ibv_post_srq_recv(s.srq, &wr, &bad), EINVAL);
    CHECK(bad == &wr);
  }
  // A slot is free again with its completion, in whatever order they come.
  Sharing one(s, 1);
  one.send(0, 100);
  const ibv_wc wc = wait_wc(s.cq);
  CHECK_EQ(received(s, wc).second, 0);
  CHECK_EQ(wc.wr_id, 0);
  s.post(0);
  CHECK_EQ(s.try_post(1), ENOMEM);
}

// Receives count against the SRQ's depth until their CQEs are polled. Until then a receive beyond the depth is ENOMEM.
// The CQEs go to two CQs, which the program polls late and in parts.
CASE(srq_unpolled, "srq/unpolled-count-against-the-depth", .core = true) {
  constexpr uint32_t kDepth = 16;
  Shared s(kDepth);
  ibv_cq* const other_cq = ibv_create_cq(pd_b()->context, 64, nullptr, nullptr, 0);
  CHECK(other_cq != nullptr);
  {
    Sharing one(s, 1);
    Options of_other = s.of_b();
    of_other.cq = other_cq;
    Pair two(Options{.send_wr = 128}, of_other);
    Region at_a(two.a.pd, 64);
    uint32_t posted = 0, sent = 0;
    const auto expect_places = [&](uint32_t places) {
      for (uint32_t i = 0; i < places; ++i) s.post(posted++ % kDepth);
      CHECK_EQ(s.try_post(posted % kDepth), ENOMEM);
    };
    // Their CQEs are in the CQs once the sender has its own.
    const auto use = [&](uint32_t by_one, uint32_t by_two) {
      for (uint32_t i = 0; i < by_one; ++i) {
        one.send(sent, 16);
        expect_wc(one.pair.a.send_cq, sent++);
      }
      for (uint32_t i = 0; i < by_two; ++i) {
        two.a.send({.wr_id = i, .sges = {at_a.sge()}});
        expect_wc(two.a.send_cq, i);
      }
    };
    expect_places(kDepth);
    for (int round = 0; round < 5; ++round) {
      use(10, 6);
      expect_places(0);  // all receives are used, no CQE is polled
      for (const ibv_wc& wc : wait_wcs(s.cq, 3)) CHECK_EQ(wc.status, IBV_WC_SUCCESS);
      expect_places(3);
      for (const ibv_wc& wc : wait_wcs(other_cq, 6)) CHECK_EQ(wc.status, IBV_WC_SUCCESS);
      expect_places(6);
      use(2, 0);
      expect_places(0);
      for (const ibv_wc& wc : wait_wcs(s.cq, 9)) CHECK_EQ(wc.status, IBV_WC_SUCCESS);
      expect_places(9);
      expect_no_wc(s.cq, 0);
    }
    // An SRQ that has grown takes the difference at once.
    use(4, 4);
    CHECK_EQ(s.modify(IBV_SRQ_MAX_WR, 2 * kDepth, 0), 0);
    expect_places(kDepth);
    wait_wcs(s.cq, 4);
    expect_places(4);
    // The QP goes and its CQEs stay, until they are polled.
    two.b.destroy_qp();
    expect_places(0);
    wait_wcs(other_cq, 4);
    expect_places(4);
  }
  drain_async(pd_b()->context);
  CHECK_EQ(ibv_destroy_cq(other_cq), 0);
}

// Four QPs take what they need; each message arrives once, in order of its QP.
CASE(srq_many, "srq/many-qps-one-queue", .seconds = 60, .core = true) {
  constexpr uint32_t kPairs = 4, kMessages = 150, kReceives = 32;
  Shared s(kReceives);
  s.post(0, kReceives);
  std::deque<Sharing> all;
  for (uint32_t i = 0; i < kPairs; ++i) all.emplace_back(s, i);
  std::vector<uint32_t> sent(kPairs), done(kPairs), next(kPairs);
  for (uint32_t got = 0; got < kPairs * kMessages;) {
    for (Sharing& one : all) {
      uint32_t& n = sent[one.number];
      for (ibv_wc wc; ibv_poll_cq(one.pair.a.send_cq, 1, &wc) > 0; ++done[one.number]) {
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.wr_id, done[one.number]);
      }
      for (; n < kMessages && n - done[one.number] < 20; ++n) one.send(n, bytes_of(n));
    }
    ibv_wc wc;
    if (ibv_poll_cq(s.cq, 1, &wc) <= 0) continue;
    const auto [pair, message] = received(s, wc);
    CHECK(pair < kPairs);
    CHECK_EQ(wc.qp_num, all[pair].pair.b.qp->qp_num);
    CHECK_EQ(message, next[pair]++);
    CHECK_EQ(wc.byte_len, bytes_of(message));
    s.post(wc.wr_id);
    ++got;
  }
  expect_no_wc(s.cq, 20);
}

// Who waits for a receive gets one in turn.
CASE(srq_late, "srq/posted-late", .core = true) {
  constexpr uint32_t kPairs = 4;
  Shared s(8);
  std::deque<Sharing> all;
  for (uint32_t i = 0; i < kPairs; ++i) all.emplace_back(s, i);
  for (Sharing& one : all)
    for (uint32_t n = 0; n < 2; ++n) one.send(n, 64);
  expect_no_wc(s.cq, 100);
  std::vector<uint32_t> first;
  for (uint32_t i = 0; i < kPairs; ++i) {
    s.post(i);
    const auto [pair, message] = received(s, wait_wc(s.cq));
    CHECK_EQ(message, 0);
    first.push_back(pair);
    expect_no_wc(s.cq, 20);
  }
  std::sort(first.begin(), first.end());
  for (uint32_t i = 0; i < kPairs; ++i) CHECK_EQ(first[i], i);
  s.post(0, kPairs);
  for (uint32_t i = 0; i < kPairs; ++i) CHECK_EQ(received(s, wait_wc(s.cq)).second, 1);
  for (Sharing& one : all)
    for (uint64_t n = 0; n < 2; ++n) expect_wc(one.pair.a.send_cq, n);
}

// One that sends without a pause takes no more than its turn.
CASE(srq_flood, "srq/flood-starves-nobody", .seconds = 60, .core = true) {
  Shared s(4);
  Sharing flood(s, 0), other(s, 1);
  uint32_t sent = 0, done = 0;
  const auto flood_on = [&] {
    for (ibv_wc wc; ibv_poll_cq(flood.pair.a.send_cq, 1, &wc) > 0; ++done) CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    for (; sent - done < 60; ++sent) flood.send(sent, 16);
  };
  flood_on();
  uint32_t posted = 0;
  for (uint32_t n = 0; n < 20; ++n) {
    other.send(n, 16);
    expect_no_wc(s.cq, 5);
    for (uint32_t turns = 0;; ++turns) {
      if (turns == 8) FAIL("message %u waits while the flood takes %u receives", n, turns);
      flood_on();
      s.post(posted++ % 4);
      const auto [pair, message] = received(s, wait_wc(s.cq));
      if (pair == 1) {
        CHECK_EQ(message, n);
        break;
      }
    }
    expect_wc(other.pair.a.send_cq, n);
  }
}

CASE(srq_limit, "srq/limit-event", .core = true) {
  Shared s(16);
  ibv_context* context = pd_b()->context;
  drain_async(context);
  Sharing one(s, 1);
  s.post(0, 8);
  s.arm(6);
  expect_no_async(context, 50);
  uint32_t n = 0;
  const auto receive = [&] {
    one.send(n, 32);
    CHECK_EQ(received(s, wait_wc(s.cq)).second, n);
    expect_wc(one.pair.a.send_cq, n++);
  };
  receive();
  receive();  // 6 are left
  expect_no_async(context, 50);
  CHECK_EQ(s.query().srq_limit, 6);
  receive();
  expect_async(context, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
  CHECK_EQ(s.query().srq_limit, 0);
  receive();  // once
  expect_no_async(context, 50);
  s.arm(5);  // 4 are left: at once
  expect_async(context, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
  s.arm(1);
  receive();
  receive();
  receive();
  expect_no_async(context, 50);
  receive();
  expect_async(context, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
  // Nobody reads the next one.
  s.arm(1);
}

// What a QP that fails has not taken stays for the others.
CASE(srq_last, "srq/last-wqe-reached", .core = true) {
  Shared s(16);
  ibv_context* context = pd_b()->context;
  drain_async(context);
  {
    Sharing one(s, 1), two(s, 2);
    s.post(0, 16);
    one.send(0, 500);
    CHECK_EQ(received(s, wait_wc(s.cq)).first, 1);
    to_error(one.pair.b.qp);
    expect_async(context, IBV_EVENT_QP_LAST_WQE_REACHED, one.pair.b.qp);
    expect_no_wc(s.cq, 50);
    expect_no_async(context, 0);
    for (uint32_t n = 0; n < 15; ++n) {
      two.send(n, 300);
      CHECK_EQ(received(s, wait_wc(s.cq)).second, n);
    }
    // The peer's end, too.
    CHECK_CALL(rdma_disconnect(two.pair.a.id));
    expect_async(context, IBV_EVENT_QP_LAST_WQE_REACHED, two.pair.b.qp);
  }
  drain_async(context);
}

// A QP is destroyed in the middle of messages: what it has taken is for the others again.
CASE(srq_destroyed, "srq/qp-destroyed-under-way", .seconds = 60, .core = true) {
  constexpr uint32_t kReceives = 8, kLength = 200'000;
  Shared s(kReceives, kLength);
  Sharing stays(s, 1, kLength);
  for (uint32_t round = 0; round < 6; ++round) {
    s.post(0, kReceives);
    uint32_t left = kReceives;
    {
      Sharing goes(s, 2, kLength);
      for (uint32_t n = 0; n < 4; ++n) goes.send(n, kLength);
      for (uint32_t n = 0; n < round % 3; ++n, --left) CHECK_EQ(received(s, wait_wc(s.cq)).first, 2);
      goes.pair.b.destroy_qp();
      for (ibv_wc wc; ibv_poll_cq(s.cq, 1, &wc) > 0; --left) received(s, wc);
    }
    for (uint32_t n = 0; n < left; ++n) {
      stays.send(n, 1000);
      CHECK_EQ(received(s, wait_wc(s.cq)).second, n);
      expect_wc(stays.pair.a.send_cq, n);
    }
    stays.send(left, 1000);
    expect_no_wc(s.cq, 20);
    s.post(0);
    CHECK_EQ(received(s, wait_wc(s.cq)).second, left);
    expect_wc(stays.pair.a.send_cq, left);
  }
}

// A QP goes to ERROR in the middle of a message: the receive that it has taken is flushed, no other.
CASE(srq_flushed, "srq/qp-fails-under-way", .seconds = 60, .core = true) {
  constexpr uint32_t kReceives = 8, kLength = 1'000'000;
  Shared s(kReceives, kLength);
  for (uint32_t round = 0; round < 5; ++round) {
    Sharing goes(s, 2, kLength), stays(s, 1, kLength);
    s.post(0, kReceives);
    for (uint32_t n = 0; n < 4; ++n) goes.send(n, kLength);
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    to_error(goes.pair.b.qp);
    std::vector<bool> seen(kReceives);
    uint32_t got = 0;
    bool failed = false;
    ibv_wc wc;
    const auto take = [&] {
      CHECK(wc.wr_id < kReceives && !seen[wc.wr_id]);
      seen[wc.wr_id] = true;
      ++got;
    };
    for (; ibv_poll_cq(s.cq, 1, &wc) > 0; take()) {
      CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
      CHECK(!failed || wc.status != IBV_WC_SUCCESS);
      failed |= wc.status != IBV_WC_SUCCESS;
    }
    for (uint32_t n = 0; got < kReceives; ++n) {
      stays.send(n, 1000);
      wc = wait_wc(s.cq);
      CHECK_EQ(received(s, wc).second, n);
      take();
    }
    drain_async(pd_b()->context);
  }
}

/// Both send messages 0 to @p each, and what comes is taken and its slot freed, until all have come and @p enough is
/// so.
template <size_t kSlots, class Enough>
void exchange(const Shared& s, Sharing& one, Sharing& two, uint32_t each, std::atomic<uint64_t> (&free_slots)[kSlots],
              Enough enough) {
  uint32_t sent[2] = {}, done[2] = {}, next[2] = {};
  const uint64_t end = tap::now_ms() + 2 * static_cast<uint64_t>(kWaitMs);
  while (next[0] + next[1] < 2 * each || !enough()) {
    if (tap::now_ms() > end) FAIL("%u and %u of %u messages, enough: %d", next[0], next[1], each, enough());
    for (Sharing* s1 : {&one, &two}) {
      const uint32_t i = s1->number;
      for (ibv_wc wc; ibv_poll_cq(s1->pair.a.send_cq, 1, &wc) > 0; ++done[i]) CHECK_EQ(wc.status, IBV_WC_SUCCESS);
      for (; sent[i] < each && sent[i] - done[i] < 20; ++sent[i]) s1->send(sent[i], bytes_of(sent[i]));
    }
    ibv_wc wc;
    if (ibv_poll_cq(s.cq, 1, &wc) <= 0) {
      std::this_thread::yield();
      continue;
    }
    const auto [pair, message] = received(s, wc);
    CHECK_EQ(message, next[pair]++);
    free_slots[wc.wr_id] = 1;
  }
}

// Two threads post to one SRQ, two QPs take from it.
CASE(srq_threads, "srq/two-threads-post", .seconds = 60, .core = true) {
  constexpr uint32_t kEach = 400, kReceives = 32;
  Shared s(kReceives);
  Sharing one(s, 0), two(s, 1);
  std::atomic<uint64_t> free_slots[kReceives] = {};
  for (auto& f : free_slots) f = 1;
  std::atomic<uint32_t> to_post{2 * kEach};
  std::atomic<bool> stop{false};
  const auto poster = [&] {
    while (!stop) {
      for (uint64_t i = 0; i < kReceives; ++i) {
        if (free_slots[i].exchange(0) == 0) continue;
        if (to_post.load() == 0 || s.try_post(i) != 0) {
          free_slots[i] = 1;
          continue;
        }
        --to_post;
      }
      std::this_thread::yield();
    }
  };
  std::thread first(poster), second(poster);
  std::string why;
  try {
    exchange(s, one, two, kEach, free_slots, [&] { return true; });
  } catch (const tap::Failure& failure) {
    why = failure.what();
  }
  stop = true;
  first.join();
  second.join();
  if (!why.empty()) throw tap::Failure(why);
}

CASE(srq_resize, "srq/resize", .core = true) {
  ibv_device_attr device;
  CHECK_EQ(ibv_query_device(pd_b()->context, &device), 0);
  CHECK((device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) != 0);
  Shared s(64);
  Sharing one(s, 0);
  const auto resize = [&](uint32_t to) { return s.modify(IBV_SRQ_MAX_WR, to, 0); };
  CHECK_EQ(resize(0), EINVAL);
  CHECK_EQ(resize(static_cast<uint32_t>(device.max_srq_wr) + 1), EINVAL);
  CHECK_EQ(s.modify(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 16, 17), EINVAL);
  CHECK_EQ(s.query().max_wr, 64);
  s.post(0, 12);
  CHECK_EQ(resize(8), EINVAL);  // 12 are in it
  CHECK_EQ(s.query().max_wr, 64);
  CHECK_EQ(resize(16), 0);
  CHECK_EQ(s.query().max_wr, 16);
  s.post(12, 16);
  CHECK_EQ(s.try_post(16), ENOMEM);  // the room is real
  s.arm(10);
  CHECK_EQ(resize(8), EINVAL);
  CHECK_EQ(resize(32), 0);
  CHECK_EQ(s.query().max_wr, 32);
  CHECK_EQ(s.query().srq_limit, 10);  // it stays
  s.arm(0);
  s.post(16, 32);
  CHECK_EQ(s.try_post(32), ENOMEM);
  for (uint32_t i = 0; i < 32; ++i) {  // all there, in the order in which they were posted
    one.send(i, bytes_of(i));
    const ibv_wc wc = wait_wc(s.cq);
    CHECK_EQ(wc.wr_id, i);
    CHECK_EQ(received(s, wc).second, i);
    expect_wc(one.pair.a.send_cq, i);
  }
  CHECK_EQ(resize(1), 0);
  CHECK_EQ(resize(static_cast<uint32_t>(device.max_srq_wr)), 0);
  CHECK_EQ(s.modify(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 64, 64), 0);
}

// One thread posts, one resizes, two QPs receive: each receive once, each message in order.
CASE(srq_resize_traffic, "srq/resize-under-traffic", .seconds = 60, .core = true) {
  constexpr uint32_t kEach = 400, kReceives = 32;
  Shared s(kReceives);
  Sharing one(s, 0), two(s, 1);
  std::atomic<uint64_t> free_slots[kReceives] = {};
  for (auto& f : free_slots) f = 1;
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> resized{0}, wrong{0};
  std::thread poster([&] {
    for (; !stop; std::this_thread::yield())
      for (uint64_t i = 0; i < kReceives; ++i)
        if (free_slots[i].exchange(0) != 0 && s.try_post(i) != 0) free_slots[i] = 1;
  });
  std::thread resizer([&] {
    for (uint32_t i = 0; !stop; ++i, std::this_thread::sleep_for(std::chrono::microseconds(200))) {
      const int error = s.modify(IBV_SRQ_MAX_WR, 2u << i % 8, 0);
      if (error == 0) ++resized;
      if (error != 0 && error != EINVAL) wrong = static_cast<uint32_t>(error);
    }
  });
  std::string why;
  try {
    exchange(s, one, two, kEach, free_slots, [&] { return resized >= 20; });
    CHECK_EQ(wrong.load(), 0);
  } catch (const tap::Failure& failure) {
    why = failure.what();
  }
  stop = true;
  poster.join();
  resizer.join();
  if (!why.empty()) throw tap::Failure(why);
}

// A receive that is too short fails its QP with the error; the others go on.
CASE(srq_short, "srq/receive-too-short", .core = true) {
  Shared s(8, 100);
  Sharing bad(s, 1), good(s, 2);
  s.post(0, 8);
  bad.send(0, 101);
  expect_wc(s.cq, 0, IBV_WC_LOC_LEN_ERR);
  CHECK(wait_wc(bad.pair.a.send_cq).status != IBV_WC_SUCCESS);
  for (uint32_t n = 0; n < 7; ++n) {
    good.send(n, 100);
    CHECK_EQ(received(s, wait_wc(s.cq)).second, n);
  }
  drain_async(pd_b()->context);
}

// Nobody posts: the wait is bounded, as for a receive queue of one QP.
CASE(srq_never, "srq/no-receive-ever", .seconds = 60) {
  Shared s(8);
  Sharing one(s, 1);
  one.send(0, 64);
  const ibv_wc wc = wait_wc(one.pair.a.send_cq, 40000);
  CHECK_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
  expect_no_wc(s.cq, 0);
  s.post(0);
  Sharing two(s, 2);
  two.send(0, 64);
  CHECK_EQ(received(s, wait_wc(s.cq)).first, 2);
  drain_async(pd_b()->context);
}

// The memory of a receive is looked up in the PD of the SRQ, not of the QP that takes it.
CASE(srq_pd, "srq/memory-of-its-own-pd", .core = true) {
  ibv_pd* other = ibv_alloc_pd(pd_b()->context);
  CHECK(other);
  {
    Shared s(8);
    Options of_b = s.of_b();
    of_b.pd = other;  // the QP's; the SRQ and its memory have another
    Pair p(Options{}, of_b);
    Region at_a(p.a.pd, 64);
    at_a.fill(9);
    s.post(0);
    p.a.send({.wr_id = 1, .sges = {at_a.sge()}});
    const ibv_wc wc = wait_wc(s.cq);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(std::memcmp(s.at(0), at_a.data(), 64), 0);
  }
  CHECK_EQ(ibv_dealloc_pd(other), 0);
}
