// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cq_test.cc
/// The completion ring: its two ends, its options, and resizing.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "engine/engine_impl.h"

namespace usiw {
namespace {

struct Destroy {
  PolledTable* polled;
  void operator()(Cq* cq) const { CqAccess::destroy(cq, *polled); }
};

class CqTest : public testing::Test {
 protected:
  void create(uint32_t capacity, const CqOptions& options = {}) {
    cq_.reset(CqAccess::create(capacity, this, options));
    ASSERT_TRUE(queue_.open(polled_, CqAccess::unused(*cq_), silent_));
  }
  CqAccess::Push push(uint64_t wr_id, uint64_t now = 0) {
    Cqe cqe{};
    cqe.wr_id = wr_id;
    cqe.qpn = 7;
    return CqAccess::push(*cq_, cqe, queue_, false, now);
  }
  void push_all(uint64_t from, uint64_t to) {
    for (; from != to; ++from) ASSERT_EQ(push(from), CqAccess::Push::kPlain);
  }
  void expect(uint64_t from, uint64_t to) {
    for (; from != to; ++from) {
      const Cq::Slot* slot = cq_->front();
      ASSERT_NE(slot, nullptr);
      EXPECT_EQ(slot->cqe.wr_id, from);
      EXPECT_EQ(slot->cqe.qpn, 7u);
      cq_->pop();
    }
  }

  PolledTable polled_;
  Completions queue_;
  std::atomic<uint32_t> silent_{0};
  std::unique_ptr<Cq, Destroy> cq_{nullptr, {&polled_}};
};

TEST_F(CqTest, front__shows_without_taking) {
  create(4);
  EXPECT_EQ(cq_->front(), nullptr);
  EXPECT_TRUE(cq_->empty());
  push_all(1, 5);
  EXPECT_EQ(cq_->front()->cqe.wr_id, 1u);
  EXPECT_EQ(cq_->front()->cqe.wr_id, 1u);
  EXPECT_EQ(push(5), CqAccess::Push::kOverrun);  // what is shown has its place still
  EXPECT_FALSE(cq_->empty());
  expect(1, 5);
  EXPECT_TRUE(cq_->empty());
}

TEST_F(CqTest, push__time_of_who_asks) {
  create(4, {.timed = true});
  EXPECT_TRUE(cq_->timed());
  push(1, 1000);
  push(2, 1001);
  EXPECT_EQ(cq_->front()->pushed_ns, 1000u);
  cq_->pop();
  EXPECT_EQ(cq_->front()->pushed_ns, 1001u);
}

TEST_F(CqTest, push__ignored_overrun_loses_the_newest) {
  create(4, {.ignore_overrun = true});
  push_all(1, 5);
  EXPECT_EQ(push(5), CqAccess::Push::kLost);
  EXPECT_EQ(push(6), CqAccess::Push::kLost);
  EXPECT_FALSE(cq_->dead());
  expect(1, 3);
  push_all(7, 9);
  expect(3, 5);
  expect(7, 9);
}

TEST_F(CqTest, resize__keeps_order_at_any_position) {
  for (const uint32_t before : {1u, 2u, 8u, 64u})
    for (const uint32_t after : {1u, 2u, 3u, 16u, 1000u})
      for (uint32_t offset = 0; offset < 9; ++offset)
        for (uint32_t in = 0; in <= before; ++in) {
          create(before);
          for (uint32_t i = 0; i < offset; ++i) {
            push(0);
            cq_->pop();
          }
          push_all(100, 100 + in);
          if (in > after) {
            ASSERT_EQ(CqAccess::resize(*cq_, after), EINVAL);
            ASSERT_EQ(cq_->capacity(), before);
            expect(100, 100 + in);
            continue;
          }
          ASSERT_EQ(CqAccess::resize(*cq_, after), 0);
          ASSERT_GE(cq_->capacity(), after);
          push_all(100 + in, 100 + cq_->capacity());
          ASSERT_EQ(push(0), CqAccess::Push::kOverrun);
          expect(100, 100 + cq_->capacity());
          ASSERT_EQ(cq_->front(), nullptr);
        }
}

TEST_F(CqTest, resize__limits) {
  create(16);
  EXPECT_EQ(CqAccess::resize(*cq_, 0), EINVAL);
  EXPECT_EQ(CqAccess::resize(*cq_, USIW_MAX_CQE + 1), EINVAL);
  EXPECT_EQ(CqAccess::resize(*cq_, USIW_MAX_CQE), 0);
  EXPECT_EQ(cq_->capacity(), uint32_t{USIW_MAX_CQE});
  EXPECT_EQ(CqAccess::resize(*cq_, 1), 0);
  push_all(0, 1);
  EXPECT_EQ(push(1), CqAccess::Push::kOverrun);
  EXPECT_EQ(CqAccess::resize(*cq_, 16), EINVAL);  // it has lost one
}

TEST_F(CqTest, resize__times_and_arming_stay) {
  create(2, {.timed = true});
  push(1, 77);
  cq_->arm(false);
  ASSERT_EQ(CqAccess::resize(*cq_, 100), 0);
  EXPECT_EQ(cq_->front()->pushed_ns, 77u);
  EXPECT_EQ(push(2), CqAccess::Push::kNotify);
}

TEST_F(CqTest, resize__memory_of_the_caller) {
  ZeroedArray<std::byte> first, second;
  ASSERT_TRUE(first.allocate(Cq::bytes(4)) && second.allocate(Cq::bytes(16)));
  create(4, {.memory = first.data()});
  push_all(1, 5);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(cq_->front()), first.data());
  ASSERT_EQ(CqAccess::resize(*cq_, 10, second.data()), 0);
  first.clear();
  push_all(5, 17);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(cq_->front()), second.data());
  ASSERT_EQ(CqAccess::resize(*cq_, 100), 0);  // of its own from now on
  second.clear();
  expect(1, 17);
}

// The queue's counter grows by one for each completion that is polled, and by none for the resizing itself.
TEST_F(CqTest, resize__counts_each_completion_once) {
  for (const uint32_t after : {8u, 16u, 64u})
    for (const uint32_t offset : {0u, 5u, 13u})  // the ring of 16 wraps from 9 on
      for (uint32_t polled_before = 0; polled_before <= 2; ++polled_before) {
        create(16);
        const auto polled = [&] { return queue_.polled->load() - queue_.source.base; };
        push_all(0, offset);
        expect(0, offset);
        push_all(100, 108 + polled_before);
        expect(100, 100 + polled_before);
        ASSERT_EQ(polled(), offset + polled_before);
        ASSERT_EQ(CqAccess::resize(*cq_, after), 0);
        EXPECT_EQ(polled(), offset + polled_before) << "unpolled completions have been counted";
        for (uint32_t i = 0; i < 8; ++i) {
          expect(100 + polled_before + i, 101 + polled_before + i);
          EXPECT_EQ(polled(), offset + polled_before + i + 1);
        }
        EXPECT_TRUE(cq_->empty());
      }
}

/// Completions of one QP vanish, wherever in the ring they are.
TEST_F(CqTest, forget__those_of_one_qp) {
  for (const uint32_t polled : {0u, 5u}) {
    create(8);
    push_all(100, 100 + polled);
    expect(100, 100 + polled);
    for (uint64_t id = 0; id < 8; id++) {
      Cqe cqe{};
      cqe.wr_id = id;
      cqe.qpn = id % 3 == 0 ? 9 : 7;
      ASSERT_EQ(CqAccess::push(*cq_, cqe, queue_, false, 0), CqAccess::Push::kPlain);
    }
    CqAccess::forget(*cq_, 9);
    for (const uint64_t id : {1, 2, 4, 5, 7}) expect(id, id + 1);
    EXPECT_TRUE(cq_->empty());
    EXPECT_EQ(cq_->front(), nullptr);
    push_all(200, 208);
    CqAccess::forget(*cq_, 7);
    EXPECT_TRUE(cq_->empty());
    EXPECT_EQ(queue_.polled->load(), queue_.pushed.count) << "each counts as polled";
  }
}

/// empty() may be asked by any thread, also of a CQ that is being resized and filled.
TEST_F(CqTest, empty__beside_resizing) {
  create(64);
  std::atomic<bool> stop{false};
  std::atomic<unsigned> asked{0};
  std::thread other([&] {
    while (!stop.load()) asked += cq_->empty() ? 1 : 2;
  });
  for (uint32_t i = 0; i < 300 || asked.load() == 0; ++i) {
    push_all(0, 10);
    ASSERT_EQ(CqAccess::resize(*cq_, 16u << i % 8), 0);
    expect(0, 10);
  }
  stop.store(true);
  other.join();
}

}  // namespace
}  // namespace usiw
