// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// What a program may rely on about order: polling on memory, READ after WRITE, fence, SEND after WRITE.
#include <atomic>

#include "rig.h"

namespace {

/// A byte that the peer writes, seen as a program that polls memory sees it.
uint8_t load(const uint8_t* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

void wait_byte(const uint8_t* at, uint8_t wanted) {
  wait_until("the flag in memory", [&] { return load(at) == wanted; });
}

}  // namespace

// The last byte of a WRITE appears last: all in front of it is in place then.
CASE(order_last_byte, "order/last-byte-last", .core = true) {
  Pair p;
  constexpr uint32_t kMost = 100000;
  Region at_a(p.a.pd, kMost), at_b(p.b.pd, kMost);
  for (uint32_t i = 0; i < 60; ++i) {
    const uint32_t length = 2 + (i * 7919) % (i % 4 ? 5000 : kMost - 2);
    fill_pattern(at_a.data(), length - 1, i);
    at_a.data()[length - 1] = static_cast<uint8_t>(i + 1);
    at_b.data()[length - 1] = 0;
    p.a.send({.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge(0, length)},
              .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
    wait_byte(at_b.data() + length - 1, static_cast<uint8_t>(i + 1));
    at_b.check(i, 0, length - 1);
    expect_wc(p.a.send_cq, i);
  }
  p.close();
}

// The trailing word of a WRITE, as long as the end address allows, appears by one store after all bytes in front of it:
// a sequence number there is never seen in part, nor before the data.
template <typename Word>
void poll_trailing_word(Pair& p, Region& at_a, Region& at_b, uint32_t round, uint32_t length) {
  // The word ends at the end of the region, which is a multiple of 8.
  const uint32_t to = static_cast<uint32_t>(at_b.size()) - length - (sizeof(Word) == 8 ? 0 : sizeof(Word));
  const Word before = static_cast<Word>(~Word{0} / 3 * (round % 2 + 1)), after = static_cast<Word>(~before);
  fill_pattern(at_a.data(), length, round);
  std::memcpy(at_a.data() + length - sizeof after, &after, sizeof after);
  auto* const word = reinterpret_cast<Word*>(at_b.data() + to + length - sizeof(Word));
  __atomic_store_n(word, before, __ATOMIC_RELEASE);
  p.a.send({.wr_id = round, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge(0, length)},
            .remote_addr = at_b.addr() + to, .rkey = at_b.rkey()});
  Word seen = before;
  wait_until("the word in memory", [&] { return (seen = __atomic_load_n(word, __ATOMIC_ACQUIRE)) != before; });
  if (seen != after) FAIL("round %u: a part of the trailing word of %zu bytes", round, sizeof(Word));
  at_b.check(round, to, length - sizeof(Word));
  expect_wc(p.a.send_cq, round);
}

CASE(order_last_word, "order/last-word-last", .core = true) {
  Pair p;
  constexpr uint32_t kMost = 40000;
  Region at_a(p.a.pd, kMost), at_b(p.b.pd, kMost);
  for (uint32_t i = 0; i < 120; ++i) {
    // One datagram, a few that leave a piece of the word to the last one, and many.
    const uint32_t short_ones = 9 + i * 7, few = 1440 * (1 + i % 5) + i % 9, many = 9 + i * 7919 % (kMost - 16);
    const uint32_t length = i % 4 == 0 ? short_ones : i % 4 == 1 ? few : many;
    switch (i % 3) {
      case 0: poll_trailing_word<uint64_t>(p, at_a, at_b, i, length); break;
      case 1: poll_trailing_word<uint32_t>(p, at_a, at_b, i, length); break;
      default: poll_trailing_word<uint16_t>(p, at_a, at_b, i, length); break;
    }
  }
  p.close();
}

// A flag by a second WRITE appears only after all of the first.
CASE(order_flag, "order/flag-by-second-write", .core = true) {
  Pair p;
  constexpr uint32_t kLength = 60000;
  Region at_a(p.a.pd, kLength), at_b(p.b.pd, kLength), flag_a(p.a.pd, 8), flag_b(p.b.pd, 8);
  flag_b.data()[0] = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    const uint32_t length = 1 + (i * 104729) % kLength;
    fill_pattern(at_a.data(), length, i);
    flag_a.data()[0] = static_cast<uint8_t>(i + 1);
    p.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .flags = 0, .sges = {at_a.sge(0, length)},
              .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
    p.a.send({.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .sges = {flag_a.sge()},
              .remote_addr = flag_b.addr(), .rkey = flag_b.rkey()});
    wait_byte(flag_b.data(), static_cast<uint8_t>(i + 1));
    at_b.check(i, 0, length);
    expect_wc(p.a.send_cq, 2);
  }
  p.close();
}

// An end that has no receive posted for its peer's SEND goes on reading from the peer.
CASE(order_read_beside, "order/reads-beside-a-send-without-a-receive", .core = true) {
  Pair p;
  constexpr uint32_t kLength = 100000;
  Region at_a(p.a.pd, kLength), at_b(p.b.pd, kLength);
  p.a.send({.wr_id = 1, .sges = {at_a.sge(0, 100)}});
  usleep(20000);
  for (uint32_t i = 0; i < 20; ++i) {
    const uint32_t length = i % 2 ? 8 : kLength;
    fill_pattern(at_a.data(), length, i);
    p.b.send({.wr_id = i, .opcode = IBV_WR_RDMA_READ, .sges = {at_b.sge(0, length)},
              .remote_addr = at_a.addr(), .rkey = at_a.rkey()});
    const ibv_wc wc = wait_wc(p.b.send_cq, 3000 * static_cast<int>(tap::patience()));
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    at_b.check(i, 0, length);
  }
  expect_no_wc(p.a.send_cq, 0);
  p.b.recv(2, {at_b.sge(0, 100)});
  expect_wc(p.b.recv_cq, 2);
  expect_wc(p.a.send_cq, 1);
  p.close();
}

// Small WRITEs in a row, posted one by one, all leave without a further call: a program that has polled until now looks
// at memory only. (Those behind others wait for the run of the engine that completes these.)
CASE(order_stream, "order/last-of-a-stream-without-a-call", .core = true) {
  Options options;
  options.send_wr = 64;
  Pair p(options);
  Region at_a(p.a.pd, 256), at_b(p.b.pd, 256);
  for (uint32_t i = 0; i < 256; ++i) at_a.data()[i] = static_cast<uint8_t>(i);
  const auto write = [&](uint32_t value) {
    p.a.send({.wr_id = value, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge(value, 1)},
              .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
  };
  for (uint32_t round = 0; round < 100; ++round) {
    at_b.data()[0] = 0;
    const uint32_t polled = round % 3 * 40, in_a_row = 1 + round * 7 % 64;
    for (uint32_t i = 1; i <= polled; ++i) {
      write(i);
      if (i > 32) expect_wc(p.a.send_cq, i - 32);
    }
    for (uint32_t i = polled > 32 ? polled - 31 : 1; i <= polled; ++i) expect_wc(p.a.send_cq, i);
    for (uint32_t i = 1; i <= in_a_row; ++i) write(100 + i);
    wait_byte(at_b.data(), static_cast<uint8_t>(100 + in_a_row));
    for (uint32_t i = 1; i <= in_a_row; ++i) expect_wc(p.a.send_cq, 100 + i);
  }
  p.close();
}

// A receive completion says that every WRITE in front of the SEND is in place.
CASE(order_send, "order/send-after-writes", .core = true) {
  Pair p;
  constexpr uint32_t kEach = 10000;
  Region at_a(p.a.pd, 8 * kEach), at_b(p.b.pd, 8 * kEach), message(p.b.pd, 8);
  for (uint32_t i = 0; i < 10; ++i) {
    at_a.fill(i);
    p.b.recv(i, {message.sge()});
    for (uint32_t k = 0; k < 8; ++k)
      p.a.send({.wr_id = k, .opcode = IBV_WR_RDMA_WRITE, .flags = 0, .sges = {at_a.sge(k * kEach, kEach)},
                .remote_addr = at_b.addr() + k * kEach, .rkey = at_b.rkey()});
    p.a.send({.wr_id = 100, .sges = {at_a.sge(0, 8)}});
    expect_wc(p.b.recv_cq, i);
    at_b.check(i, 0, at_b.size());
    expect_wc(p.a.send_cq, 100);
  }
  p.close();
}

// A READ sees what the WRITE in front of it wrote.
CASE(order_read_after_write, "order/read-after-write", .core = true) {
  Pair p;
  constexpr uint32_t kLength = 30000;
  Region source(p.a.pd, kLength), back(p.a.pd, kLength), at_b(p.b.pd, kLength);
  for (uint32_t i = 0; i < 30; ++i) {
    const uint32_t length = 1 + (i * 7907) % kLength;
    fill_pattern(source.data(), length, i);
    p.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .flags = 0, .sges = {source.sge(0, length)},
              .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
    p.a.send({.wr_id = 2, .opcode = IBV_WR_RDMA_READ, .sges = {back.sge(0, length)},
              .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
    expect_wc(p.a.send_cq, 2);
    back.check(i, 0, length);
  }
  p.close();
}

// A fenced SEND waits for the READs in front of it: it may send what they bring.
CASE(order_fence, "order/fenced-send-of-read-data", .core = true) {
  Pair p;
  constexpr uint32_t kLength = 40000;
  Region relay(p.a.pd, kLength), source(p.b.pd, kLength), echoed(p.b.pd, kLength);
  for (uint32_t i = 0; i < 20; ++i) {
    const uint32_t length = 1 + (i * 7907) % kLength;
    source.fill(i);
    relay.clear();
    p.b.recv(i, {echoed.sge()});
    p.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .flags = 0, .sges = {relay.sge(0, length)},
              .remote_addr = source.addr(), .rkey = source.rkey()});
    p.a.send({.wr_id = 2, .flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE, .sges = {relay.sge(0, length)}});
    CHECK_EQ(expect_wc(p.b.recv_cq, i).byte_len, length);
    echoed.check(i, 0, length);
    expect_wc(p.a.send_cq, 2);
  }
  p.close();
}

// When a READ is complete all of its data is there.
CASE(order_read_complete, "order/read-complete-means-placed", .core = true) {
  Pair p;
  constexpr uint32_t kLength = 20000;
  Region sink(p.a.pd, 16 * kLength), at_b(p.b.pd, 16 * kLength);
  for (uint32_t round = 0; round < 5; ++round) {
    at_b.fill(round);
    sink.clear();
    for (uint32_t i = 0; i < 16; ++i)
      p.a.send({.wr_id = i, .opcode = IBV_WR_RDMA_READ, .sges = {sink.sge(i * kLength, kLength)},
                .remote_addr = at_b.addr() + i * kLength, .rkey = at_b.rkey()});
    for (uint32_t i = 0; i < 16; ++i) {
      expect_wc(p.a.send_cq, i);
      CHECK(std::memcmp(sink.data() + i * kLength, at_b.data() + i * kLength, kLength) == 0);
    }
  }
  p.close();
}
