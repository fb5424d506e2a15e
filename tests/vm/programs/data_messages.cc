// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// SEND, WRITE and READ of every kind of size, and inline data.
#include <algorithm>

#include "rig.h"

namespace {

/// 0, small ones, around powers of two and around where a datagram is full at MTU 1500, 9000 and 9216.
const std::vector<size_t> kSizes = {
    0,    1,    2,    3,    7,    8,    63,   64,    65,    255,   256,   1023,  1024,  1395,  1400,
    1408, 1416, 1424, 1425, 1426, 1427, 1428, 1429,  1430,  1431,  1432,  1433,  1434,  1435,  1436,
    1437, 1438, 1439, 1440, 1441, 1442, 1443, 1444,  1445,  1446,  1447,  1448,  1458,  1472,  1500,
    2047, 2048, 2865, 2880, 2881, 4095, 4096, 4097,  8191,  8192,  8930,  8950,  8972,  9000,  9146,
    9160, 9174, 9188, 9216, 16384, 65535, 65536, 65537};

void send_one(Pair& p, const Region& source, Region& sink, size_t length, uint64_t seed) {
  p.b.recv(seed, {sink.sge(0, length)});
  p.a.send({.wr_id = seed, .sges = {source.sge(0, length)}});
  const ibv_wc sent = expect_wc(p.a.send_cq, seed);
  CHECK_EQ(sent.opcode, IBV_WC_SEND);
  CHECK_EQ(sent.qp_num, p.a.qp->qp_num);
  const ibv_wc received = expect_wc(p.b.recv_cq, seed);
  CHECK_EQ(received.opcode, IBV_WC_RECV);
  CHECK_EQ(received.byte_len, length);
  CHECK_EQ(received.qp_num, p.b.qp->qp_num);
  CHECK_EQ(received.wc_flags & IBV_WC_WITH_IMM, 0);
}

/// Transfers @p length bytes by @p opcode from one region to the other and verifies them.
void transfer(Pair& p, Region& at_a, Region& at_b, ibv_wr_opcode opcode, size_t length, uint64_t seed) {
  const bool read = opcode == IBV_WR_RDMA_READ;
  Region& source = read ? at_b : at_a;
  Region& sink = read ? at_a : at_b;
  fill_pattern(source.data(), length, seed);
  fill_pattern(sink.data(), length + 1 <= sink.size() ? length + 1 : length, ~seed);
  const uint8_t behind = length < sink.size() ? sink.data()[length] : 0;
  if (opcode == IBV_WR_SEND) {
    send_one(p, source, sink, length, seed);
  } else {
    p.a.send({.wr_id = seed, .opcode = opcode, .sges = {at_a.sge(0, length)},
              .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
    const ibv_wc wc = wait_wc(p.a.send_cq, 8 * kWaitMs);
    if (wc.status) FAIL("%zu bytes: %s", length, ibv_wc_status_str(wc.status));
    CHECK_EQ(wc.wr_id, seed);
    CHECK_EQ(wc.opcode, read ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
    if (read) CHECK_EQ(wc.byte_len, length);
    else  // a WRITE that is complete has left; the READ behind it shows that it is in place
      wait_until("the last byte in place",
                 [&] { return !length || pattern_mismatch(sink.data(), length, seed) == length; });
  }
  const size_t at = pattern_mismatch(sink.data(), length, seed);
  if (at != length) FAIL("%zu bytes: byte %zu is wrong", length, at);
  if (length < sink.size()) CHECK_EQ(sink.data()[length], behind);
}

void sizes(ibv_wr_opcode opcode) {
  Pair p;
  const size_t largest = *std::max_element(kSizes.begin(), kSizes.end());
  Region at_a(p.a.pd, largest), at_b(p.b.pd, largest);
  uint64_t seed = 1;
  for (size_t size : kSizes) transfer(p, at_a, at_b, opcode, size, seed++);
  at_a.check_guards();
  at_b.check_guards();
  expect_no_wc(p.a.send_cq, 0);
  expect_no_wc(p.b.recv_cq, 0);
  p.close();
}

void large(ibv_wr_opcode opcode, size_t length) {
  Pair p;
  Region at_a(p.a.pd, length + 1), at_b(p.b.pd, length + 1);
  if (opcode == IBV_WR_SEND) {
    // Completion may take longer than usual: wait here with more patience than send_one().
    at_a.fill(5);
    p.b.recv(1, {at_b.sge(0, length)});
    p.a.send({.wr_id = 1, .sges = {at_a.sge(0, length)}});
    const ibv_wc received = wait_wc(p.b.recv_cq, 8 * kWaitMs);
    CHECK_EQ(received.status, IBV_WC_SUCCESS);
    CHECK_EQ(received.byte_len, length);
    CHECK_EQ(wait_wc(p.a.send_cq, 8 * kWaitMs).status, IBV_WC_SUCCESS);
    at_b.check(5, 0, length);
    at_b.check_clear(length, 1);
  } else {
    transfer(p, at_a, at_b, opcode, length, 5);
  }
  at_a.check_guards();
  at_b.check_guards();
  p.close();
}

constexpr size_t kMiB = 1 << 20;

}  // namespace

CASE(send_sizes, "send/sizes", .core = true) { sizes(IBV_WR_SEND); }
CASE(write_sizes, "write/sizes", .core = true) { sizes(IBV_WR_RDMA_WRITE); }
CASE(read_sizes, "read/sizes", .core = true) { sizes(IBV_WR_RDMA_READ); }
CASE(send_1m, "send/1MiB", .core = true) { large(IBV_WR_SEND, kMiB); }
CASE(write_1m, "write/1MiB", .core = true) { large(IBV_WR_RDMA_WRITE, kMiB); }
CASE(read_1m, "read/1MiB", .core = true) { large(IBV_WR_RDMA_READ, kMiB); }
CASE(send_64m, "send/64MiB", .seconds = 150) { large(IBV_WR_SEND, 64 * kMiB); }
CASE(write_64m, "write/64MiB", .seconds = 150) { large(IBV_WR_RDMA_WRITE, 64 * kMiB); }
CASE(read_64m, "read/64MiB", .seconds = 150) { large(IBV_WR_RDMA_READ, 64 * kMiB); }

// Inline data is copied when it is posted: the source need not be registered and may change at once.
CASE(inline_data, "inline/copied-at-post", .core = true) {
  Options options;
  options.inline_data = 64;
  Pair p(options);
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  CHECK_EQ(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init), 0);
  CHECK(init.cap.max_inline_data >= 64);
  const size_t limit = init.cap.max_inline_data;
  Region sink(p.b.pd, limit);
  std::vector<uint8_t> source(limit);
  const std::vector<size_t> lengths = {0, 1, 8, 31, 32, 33, 63, 64, limit - 1, limit};
  for (size_t length : lengths) {
    for (ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE}) {
      const uint64_t seed = length * 2 + (opcode == IBV_WR_SEND);
      fill_pattern(source.data(), length, seed);
      sink.clear();
      if (opcode == IBV_WR_SEND) p.b.recv(seed, {sink.sge()});
      // Two elements, without a valid lkey.
      const uint32_t first = static_cast<uint32_t>(length / 3);
      const uint64_t at = reinterpret_cast<uint64_t>(source.data());
      p.a.send({.wr_id = seed, .opcode = opcode, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                .sges = {{at, first, 0}, {at + first, static_cast<uint32_t>(length) - first, 0}},
                .remote_addr = sink.addr(), .rkey = sink.rkey()});
      std::memset(source.data(), 0xee, source.size());
      expect_wc(p.a.send_cq, seed);
      if (opcode == IBV_WR_SEND) CHECK_EQ(expect_wc(p.b.recv_cq, seed).byte_len, length);
      wait_until("inline data in place",
                 [&] { return pattern_mismatch(sink.data(), length, seed) == length; });
      sink.check_clear(length, limit - length);
    }
  }
  p.close();
}

// The limits that are announced hold for a message of that kind.
CASE(max_message, "port/max_msg_sz") {
  ibv_port_attr port;
  CHECK_EQ(ibv_query_port(context_of(site_a().device), 1, &port), 0);
  CHECK(port.max_msg_sz >= 1u << 30);
  CHECK_EQ(port.state, IBV_PORT_ACTIVE);
}

// Data sent by a peer at once after it is told that it is connected is not lost.
CASE(early_data, "send/right-after-established", .core = true) {
  for (int i = 0; i < 10; ++i) {
    Endpoint a, b;
    Options options;
    a.resolve(site_a().ip, site_b().ip, shared_listener().port());
    a.create_qp(options);
    Region source(a.pd, 100), sink(pd_b(), 100);
    rdma_conn_param param = conn_param(options);
    CHECK_CALL(rdma_connect(a.id, &param));
    b.adopt(shared_listener().wait_request().id);
    b.create_qp(options);
    b.recv(1, {sink.sge()});
    param = conn_param(options);
    CHECK_CALL(rdma_accept(b.id, &param));
    source.fill(i);
    a.events.expect(RDMA_CM_EVENT_ESTABLISHED);
    a.send({.wr_id = 2, .sges = {source.sge()}});
    expect_wc(b.recv_cq, 1);
    sink.check(i, 0, 100);
    b.events.expect(RDMA_CM_EVENT_ESTABLISHED);
    expect_wc(a.send_cq, 2);
  }
}
