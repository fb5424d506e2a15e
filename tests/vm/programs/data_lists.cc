// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Scatter/gather lists on every operation: all lengths of the list, uneven and empty elements.
#include <algorithm>

#include "rig.h"

namespace {

constexpr size_t kSpace = 200000;

/// Small deterministic generator (xorshift).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  uint64_t below(uint64_t limit) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (state_ >> 11) % limit;
  }

 private:
  uint64_t state_;
};

/// @p count pieces of @p region that do not overlap, in a random order, some of them empty.
std::vector<ibv_sge> pieces(const Region& region, size_t count, size_t total, Random& random) {
  std::vector<size_t> cuts = {0, total};
  for (size_t i = 1; i < count; ++i)
    cuts.push_back(random.below(4) ? random.below(total + 1) : cuts.back() % (total + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<ibv_sge> list;
  size_t at = 0;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const size_t length = cuts[i + 1] - cuts[i];
    list.push_back(region.sge(at, length));
    at += length + random.below(17);  // gaps: alignment differs, and bytes between must stay
  }
  for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random.below(i)]);
  return list;
}

void scatter(const std::vector<ibv_sge>& list, const std::vector<uint8_t>& bytes) {
  size_t at = 0;
  for (const ibv_sge& s : list) {
    std::memcpy(reinterpret_cast<void*>(s.addr), bytes.data() + at, s.length);
    at += s.length;
  }
}

std::vector<uint8_t> gather(const std::vector<ibv_sge>& list) {
  std::vector<uint8_t> bytes;
  for (const ibv_sge& s : list) {
    const auto* from = reinterpret_cast<const uint8_t*>(s.addr);
    bytes.insert(bytes.end(), from, from + s.length);
  }
  return bytes;
}

/// Fails the case if a byte of @p region outside of the pieces has changed since clear().
void check_gaps(const Region& region, std::vector<ibv_sge> list) {
  std::sort(list.begin(), list.end(), [](auto& x, auto& y) { return x.addr < y.addr; });
  uint64_t at = region.addr();
  for (const ibv_sge& s : list) {
    if (s.addr > at) region.check_clear(at - region.addr(), s.addr - at);
    at = std::max(at, s.addr + s.length);
  }
  region.check_clear(at - region.addr(), std::min<size_t>(64, region.addr() + region.size() - at));
}

struct Lists {
  uint32_t any, read;  ///< largest lists that the device announces
};

Lists announced() {
  ibv_device_attr attr;
  CHECK_EQ(ibv_query_device(context_of(site_a().device), &attr), 0);
  CHECK(attr.max_sge >= 1 && attr.max_sge_rd >= 1);
  return {static_cast<uint32_t>(attr.max_sge), static_cast<uint32_t>(attr.max_sge_rd)};
}

void run_lists(ibv_wr_opcode opcode) {
  const Lists lists = announced();
  const uint32_t most = opcode == IBV_WR_RDMA_READ ? std::min(lists.read, lists.any) : lists.any;
  Options options;
  options.send_sge = options.recv_sge = lists.any;
  Pair p(options);
  Region at_a(p.a.pd, kSpace), at_b(p.b.pd, kSpace);
  const bool read = opcode == IBV_WR_RDMA_READ;
  for (uint32_t count = 1; count <= most; ++count) {
    Random random(count * 7 + opcode);
    const size_t total = count % 5 == 0 ? count * 31 : 1 + random.below(count % 3 ? 4000 : 90000);
    std::vector<uint8_t> bytes(total);
    fill_pattern(bytes.data(), total, count);
    at_a.clear();
    at_b.clear();
    const auto local = pieces(at_a, count, total, random);
    if (opcode == IBV_WR_SEND) {
      const auto remote = pieces(at_b, 1 + random.below(lists.any), total, random);
      scatter(local, bytes);
      p.b.recv(count, remote);
      p.a.send({.wr_id = count, .sges = local});
      CHECK_EQ(expect_wc(p.b.recv_cq, count).byte_len, total);
      expect_wc(p.a.send_cq, count);
      if (gather(remote) != bytes) FAIL("a list of %u elements (%zu bytes) arrived wrong", count, total);
      check_gaps(at_b, remote);
    } else {
      const std::vector<ibv_sge> remote = {at_b.sge(random.below(64), total)};
      scatter(read ? remote : local, bytes);
      p.a.send({.wr_id = count, .opcode = opcode, .sges = local,
                .remote_addr = remote[0].addr, .rkey = at_b.rkey()});
      expect_wc(p.a.send_cq, count);
      const auto& sink = read ? local : remote;
      wait_until("data of the list in place", [&] { return gather(sink) == bytes; });
      check_gaps(read ? at_a : at_b, sink);
    }
  }
  p.close();
}

}  // namespace

CASE(sge_send, "sge/send", .core = true) { run_lists(IBV_WR_SEND); }
CASE(sge_write, "sge/write", .core = true) { run_lists(IBV_WR_RDMA_WRITE); }
CASE(sge_read, "sge/read", .core = true) { run_lists(IBV_WR_RDMA_READ); }

// Work requests without any element, and with nothing but empty ones.
CASE(sge_none, "sge/none-and-empty", .core = true) {
  Pair p;
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  p.b.recv(1, {});
  p.a.send({.wr_id = 1, .sges = {}});
  CHECK_EQ(expect_wc(p.b.recv_cq, 1).byte_len, 0);
  expect_wc(p.a.send_cq, 1);
  p.b.recv(2, {at_b.sge(0, 0), at_b.sge(5, 0)});
  p.a.send({.wr_id = 2, .sges = {at_a.sge(0, 0), at_a.sge(64, 0), at_a.sge(1, 0)}});
  CHECK_EQ(expect_wc(p.b.recv_cq, 2).byte_len, 0);
  expect_wc(p.a.send_cq, 2);
  // A receive larger than the message: the rest of it stays as it was.
  p.b.recv(3, {at_b.sge(0, 4), at_b.sge(8, 0), at_b.sge(16, 40)});
  at_a.fill(3);
  p.a.send({.wr_id = 3, .sges = {at_a.sge(0, 10)}});
  CHECK_EQ(expect_wc(p.b.recv_cq, 3).byte_len, 10);
  expect_wc(p.a.send_cq, 3);
  CHECK(std::memcmp(at_b.data(), at_a.data(), 4) == 0);
  CHECK(std::memcmp(at_b.data() + 16, at_a.data() + 4, 6) == 0);
  at_b.check_clear(4, 12);
  at_b.check_clear(22, 42);
  p.a.send({.wr_id = 4, .opcode = IBV_WR_RDMA_WRITE, .sges = {}, .remote_addr = at_b.addr(),
            .rkey = at_b.rkey()});
  expect_wc(p.a.send_cq, 4);
  p.a.send({.wr_id = 5, .opcode = IBV_WR_RDMA_READ, .sges = {at_a.sge(0, 0)}, .remote_addr = at_b.addr(),
            .rkey = at_b.rkey()});
  CHECK_EQ(expect_wc(p.a.send_cq, 5).byte_len, 0);
  exercise(p);
  p.close();
}

// Elements of one list may lie in different regions.
CASE(sge_regions, "sge/several-regions", .core = true) {
  Options options;
  options.send_sge = options.recv_sge = 4;
  Pair p(options);
  Region a1(p.a.pd, 1000), a2(p.a.pd, 3000), b1(p.b.pd, 2500), b2(p.b.pd, 1500);
  a1.fill(1);
  a2.fill(2);
  p.b.recv(1, {b2.sge(), b1.sge()});
  p.a.send({.wr_id = 1, .sges = {a2.sge(), a1.sge()}});
  CHECK_EQ(expect_wc(p.b.recv_cq, 1).byte_len, 4000);
  expect_wc(p.a.send_cq, 1);
  CHECK(std::memcmp(b2.data(), a2.data(), 1500) == 0);
  CHECK(std::memcmp(b1.data(), a2.data() + 1500, 1500) == 0);
  CHECK(std::memcmp(b1.data() + 1500, a1.data(), 1000) == 0);
  for (Region* r : {&a1, &a2, &b1, &b2}) r->check_guards();
  p.close();
}
