// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file memory_test.cc
/// Out of memory: the engine does not make the object, says so, and serves its connections as before.
#include "fixture.h"
#include "tests/support/failing_new.h"

namespace usiw::sim {
namespace {

/// A port that only counts how often it is asked.
class QuietPort final : public Port {
 public:
  uint32_t max_payload() const override { return 1000; }
  size_t tx_alloc(std::span<TxBuf>) override { return 0; }
  size_t tx(std::span<TxBuf>) override { return 0; }
  void tx_free(std::span<TxBuf>) override {}
  size_t rx(std::span<RxBuf>) override { return ++asked, 0; }
  void rx_free(std::span<RxBuf>) override {}
  Drops drops() const override { return {}; }

  unsigned asked = 0;
};

class OutOfMemory : public EngineTest {
 protected:
  OutOfMemory() {
    std::tie(qa, qb) = w.connect();
    at_a = w.a.region(2000), at_b = w.b.region(2000);
  }
  void goes_on() {
    write(qa, at_a->sge(0, 2000), at_b->addr(), at_b->stag);
    EXPECT_EQ(kSuccess, wait(w.a, w.a.send_cq, 1)[0].status);
  }
  /// Calls @p make with each of its allocations failing, then without; returns what it returns. It failed @p at_least
  /// so many times.
  template <typename Make, typename Failed>
  auto until_made(unsigned at_least, Make make, Failed failed) {
    for (uint32_t n = 0;; ++n) {
      bool enough;
      const auto made = [&] {
        const FailingNew failing(n);
        const auto result = make();
        enough = !FailingNew::has_failed();
        return result;
      }();
      EXPECT_EQ(!enough, failed(made)) << "allocation " << n;
      goes_on();
      if (!enough) continue;
      EXPECT_GE(n, at_least);
      return made;
    }
  }

  Qp *qa, *qb;
  Region *at_a, *at_b;
};

TEST_F(OutOfMemory, port) {
  std::vector<std::unique_ptr<QuietPort>> ports;
  unsigned failures = 0;
  for (int i = 1; i <= 5; ++i) {
    ports.push_back(std::make_unique<QuietPort>());
    const int number = until_made(0, [&] { return w.a.engine.add_port(*ports.back()); }, [&](int made) {
      if (made >= 0) return false;
      ++failures;
      ports.back() = std::make_unique<QuietPort>();  // a port that was refused is gone at once
      return true;
    });
    EXPECT_EQ(w.a.port_no + i, number) << "a number is lost";
    EXPECT_NE(0u, ports.back()->asked);
  }
  EXPECT_GE(failures, 2u);
  w.a.owned.reset();  // ahead of its ports
}

TEST_F(OutOfMemory, cq_and_srq) {
  const auto is_null = [](const auto* made) { return made == nullptr; };
  Cq* const cq = until_made(1, [&] { return w.a.engine.cq_create(16, nullptr); }, is_null);
  Srq* const srq = until_made(1, [&] { return w.a.srq(16); }, is_null);
  w.a.engine.srq_destroy(srq);
  w.a.engine.cq_destroy(cq);
}

TEST_F(OutOfMemory, qp) {
  Srq* const srq = w.a.srq(16);
  Cq* const cq = w.a.engine.cq_create(16, nullptr);
  for (Srq* const from : {static_cast<Srq*>(nullptr), srq}) {
    QpAttr attr{};
    attr.qpn = 77;
    attr.pd = Host::kPd;
    attr.max_send_wr = attr.max_recv_wr = 16;
    attr.max_send_sge = attr.max_recv_sge = 1;
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = from;
    Qp* const qp = until_made(1, [&] { return w.a.engine.qp_create(attr); },
                              [](const Qp* made) { return made == nullptr; });
    w.a.engine.qp_destroy(qp);
  }
  w.a.engine.srq_destroy(srq);
  w.a.engine.cq_destroy(cq);
}

}  // namespace
}  // namespace usiw::sim
