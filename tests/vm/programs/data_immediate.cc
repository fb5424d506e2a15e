// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Immediate data with SEND and WRITE: what the completions at both ends say, and that the data is there by then.
#include <arpa/inet.h>

#include "rig.h"

namespace {

const std::vector<size_t> kWithImmediate = {0, 1, 8, 100, 1430, 1440, 9000, 65536};

ibv_wc expect_immediate(ibv_cq* cq, uint64_t wr_id, ibv_wc_opcode opcode, size_t length, uint32_t imm) {
  const ibv_wc wc = expect_wc(cq, wr_id);
  CHECK_EQ(wc.opcode, opcode);
  CHECK_EQ(wc.byte_len, length);
  CHECK_EQ(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
  CHECK_EQ(wc.imm_data, imm);
  return wc;
}

}  // namespace

CASE(imm_send, "immediate/send", .core = true) {
  Pair p;
  Region source(p.a.pd, 65536), sink(p.b.pd, 65536);
  uint64_t seed = 1;
  for (size_t size : kWithImmediate) {
    source.fill(++seed);
    sink.clear();
    p.b.recv(seed, {sink.sge()});
    p.a.send({.wr_id = seed, .opcode = IBV_WR_SEND_WITH_IMM, .sges = {source.sge(0, size)},
              .imm_data = htonl(0x12345600 + static_cast<uint32_t>(seed))});
    expect_immediate(p.b.recv_cq, seed, IBV_WC_RECV, size, htonl(0x12345600 + static_cast<uint32_t>(seed)));
    const ibv_wc sent = expect_wc(p.a.send_cq, seed);
    CHECK_EQ(sent.opcode, IBV_WC_SEND);
    CHECK_EQ(sent.wc_flags & IBV_WC_WITH_IMM, 0);
    CHECK_EQ(pattern_mismatch(sink.data(), size, seed), size);
    sink.check_clear(size, sink.size() - size);
  }
  // One without is one without.
  p.b.recv(1, {sink.sge()});
  p.a.send({.wr_id = 1, .sges = {source.sge(0, 8)}, .imm_data = 77});
  CHECK_EQ(expect_wc(p.b.recv_cq, 1).wc_flags & IBV_WC_WITH_IMM, 0);
  p.close();
}

CASE(imm_write, "immediate/write", .core = true) {
  Pair p;
  Region source(p.a.pd, 65536), sink(p.b.pd, 65536), receive(p.b.pd, 64);
  uint64_t seed = 1;
  for (size_t size : kWithImmediate) {
    source.fill(++seed);
    sink.clear();
    p.b.recv(seed, {receive.sge()});
    p.a.send({.wr_id = seed, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sges = {source.sge(0, size)},
              .remote_addr = sink.addr(), .rkey = sink.rkey(), .imm_data = htonl(static_cast<uint32_t>(seed))});
    expect_immediate(p.b.recv_cq, seed, IBV_WC_RECV_RDMA_WITH_IMM, size, htonl(static_cast<uint32_t>(seed)));
    CHECK_EQ(pattern_mismatch(sink.data(), size, seed), size);
    sink.check_clear(size, sink.size() - size);
    CHECK_EQ(expect_wc(p.a.send_cq, seed).opcode, IBV_WC_RDMA_WRITE);
  }
  receive.check_clear(0, receive.size());
  // A receive without any memory is enough, and no memory has to be named for no bytes.
  p.b.recv(2, {});
  p.a.send({.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = 5});
  expect_immediate(p.b.recv_cq, 2, IBV_WC_RECV_RDMA_WITH_IMM, 0, 5);
  p.close();
}

CASE(imm_inline, "immediate/inline", .core = true) {
  Pair p;
  Region sink(p.b.pd, 64);
  for (ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    uint8_t bytes[64];
    fill_pattern(bytes, sizeof bytes, opcode);
    sink.clear();
    p.b.recv(1, {sink.sge()});
    p.a.send({.wr_id = 1, .opcode = opcode, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
              .sges = {{reinterpret_cast<uint64_t>(bytes), sizeof bytes, 0}}, .remote_addr = sink.addr(),
              .rkey = sink.rkey(), .imm_data = 9});
    std::memset(bytes, 0, sizeof bytes);
    expect_immediate(p.b.recv_cq, 1,
                     opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM, 64, 9);
    sink.check(opcode, 0, 64);
    expect_wc(p.a.send_cq, 1);
  }
  p.close();
}

// Of both kinds and plain ones in any order: each takes one receive, in order, with its own data.
CASE(imm_order, "immediate/in-order-among-others", .core = true) {
  Options options;
  options.send_wr = options.recv_wr = 256;
  Pair p(options);
  constexpr uint32_t kCount = 240, kSize = 3000;
  Region source(p.a.pd, kSize), written(p.b.pd, kCount * kSize), received(p.b.pd, kSize);
  source.fill(3);
  for (uint32_t i = 0; i < kCount; ++i) p.b.recv(i, {received.sge()});
  for (uint32_t i = 0; i < kCount; ++i) {
    const uint64_t to = written.addr() + i * kSize;
    const ibv_wr_opcode opcode = i % 3 == 0   ? IBV_WR_SEND_WITH_IMM
                                 : i % 3 == 1 ? IBV_WR_RDMA_WRITE_WITH_IMM
                                              : IBV_WR_SEND;
    p.a.send({.wr_id = i, .opcode = opcode, .sges = {source.sge(0, i % 2 != 0 ? kSize : 16)}, .remote_addr = to,
              .rkey = written.rkey(), .imm_data = htonl(i)});
  }
  for (uint32_t i = 0; i < kCount; ++i) {
    const size_t size = i % 2 != 0 ? kSize : 16;
    const ibv_wc wc = expect_wc(p.b.recv_cq, i);
    CHECK_EQ(wc.byte_len, size);
    CHECK_EQ(wc.opcode, i % 3 == 1 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
    CHECK_EQ(wc.wc_flags & IBV_WC_WITH_IMM, i % 3 == 2 ? 0 : IBV_WC_WITH_IMM);
    if (i % 3 != 2) CHECK_EQ(wc.imm_data, htonl(i));
    if (i % 3 == 1) CHECK_EQ(pattern_mismatch(written.data() + i * kSize, size, 3), size);
  }
  for (uint32_t i = 0; i < kCount; ++i) expect_wc(p.a.send_cq, i);
  p.close();
}

CASE(imm_solicited, "immediate/solicited-wakes", .core = true) {
  Options options;
  options.with_channel = true;
  Pair p(options);
  Region sink(p.b.pd, 64);
  for (ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    for (uint64_t i = 0; i < 2; ++i) p.b.recv(i, {sink.sge()});
    CHECK_EQ(ibv_req_notify_cq(p.b.recv_cq, 1), 0);
    p.a.send({.wr_id = 0, .opcode = opcode, .imm_data = 1});
    expect_wc(p.a.send_cq, 0);
    expect_wc(p.b.recv_cq, 0);
    CHECK(!wait_cq_event(p.b.recv_channel, 100));
    p.a.send({.wr_id = 1, .opcode = opcode, .flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, .imm_data = 1});
    CHECK(wait_cq_event(p.b.recv_channel, kWaitMs));
    expect_wc(p.b.recv_cq, 1);
    expect_wc(p.a.send_cq, 1);
  }
  p.close();
}

CASE(imm_late, "immediate/receive-posted-late", .core = true) {
  Pair p;
  Region source(p.a.pd, 4096), sink(p.b.pd, 4096);
  source.fill(8);
  for (ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    sink.clear();
    p.a.send({.wr_id = 1, .opcode = opcode, .sges = {source.sge()}, .remote_addr = sink.addr(), .rkey = sink.rkey(),
              .imm_data = 3});
    expect_no_wc(p.a.send_cq, 100);
    p.b.recv(1, {sink.sge()});
    expect_wc(p.b.recv_cq, 1);
    sink.check(8, 0, 4096);
    expect_wc(p.a.send_cq, 1);
  }
  p.close();
}

CASE(imm_refused, "immediate/refused-write-takes-no-receive", .core = true) {
  Pair p;
  Region source(p.a.pd, 64), sink(p.b.pd, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  p.b.recv(1, {});
  p.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sges = {source.sge()}, .remote_addr = sink.addr(),
            .rkey = sink.rkey(), .imm_data = 3});
  expect_wc(p.a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
  expect_wc(p.b.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
  sink.check_clear(0, 64);
  drain_async(p.b.id->verbs);
}
