// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file engine_bench.cc
/// Cost of the engine alone: two engines in one thread over a port that hands buffers
/// across by pointer. Prints one line per case: messages per second and bytes per second
/// through both engines together, datagrams, SACKs.
///
///     engine_bench [MESSAGES]                  all cases
///     engine_bench MESSAGES CASE               one, e.g. under callgrind for exact counts
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "uapi/usiw_abi.h"

namespace {

using namespace usiw;

class SteadyClock final : public Clock {
 public:
  uint64_t now_ns() override {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
};

/// For counts, and for cases with many QPs: what is due by time is then the same however fast the machine is.
class StepClock final : public Clock {
 public:
  uint64_t now_ns() override { return now_ += 500; }

 private:
  uint64_t now_ = 1'000'000'000;
};

/// One end of a wire whose datagrams are passed as pointers.
class PipePort final : public Port {
 public:
  static constexpr uint32_t kBufBytes = 9216;
  static constexpr size_t kBufs = 4096;

  PipePort() : storage_(new std::byte[kBufs * kBufBytes]) {
    for (size_t i = 0; i < kBufs; ++i) free_.push_back(storage_.get() + i * kBufBytes);
    queue_.resize(kBufs);
  }
  void join(PipePort& peer) { peer_ = &peer; }
  uint32_t max_payload() const override { return kBufBytes; }
  size_t tx_alloc(std::span<TxBuf> bufs) override {
    size_t n = 0;
    for (; n < bufs.size() && !free_.empty(); ++n) {
      bufs[n].data = free_.back();
      bufs[n].handle = this;
      free_.pop_back();
    }
    return n;
  }
  size_t tx(std::span<TxBuf> bufs) override {
    for (TxBuf& b : bufs) {
      FlowKey flow = b.path->flow;
      std::swap(flow.local_addr, flow.remote_addr);
      std::swap(flow.local_port, flow.remote_port);
      peer_->queue_[peer_->tail_++ % kBufs] = {b.data, b.len, flow, b.handle, false};
    }
    return bufs.size();
  }
  void tx_free(std::span<TxBuf> bufs) override {
    for (TxBuf& b : bufs) free_.push_back(b.data);
  }
  size_t rx(std::span<RxBuf> bufs) override {
    size_t n = 0;
    for (; n < bufs.size() && head_ != tail_; ++n) bufs[n] = queue_[head_++ % kBufs];
    return n;
  }
  void rx_free(std::span<RxBuf> bufs) override {
    for (RxBuf& b : bufs) static_cast<PipePort*>(b.handle)->free_.push_back(const_cast<std::byte*>(b.data));
  }
  Drops drops() const override { return {}; }

 private:
  std::unique_ptr<std::byte[]> storage_;
  std::vector<std::byte*> free_;
  std::vector<RxBuf> queue_;
  size_t head_ = 0, tail_ = 0;
  PipePort* peer_ = nullptr;
};

struct Quiet final : EngineEvents {
  void cq_ready(Cq&) override {}
  void cq_overrun(Cq&) override { std::abort(); }
  void qp_peer_closed(Qp&) override {}
  void qp_closed(Qp&) override {}
  void qp_failed(Qp&, int error, AsyncEvent) override {
    std::fprintf(stderr, "QP failed: %d\n", error);
    std::abort();
  }
};

struct End {
  End(Clock& clock, unsigned number) : engine(clock, events, counters) {
    engine.add_port(port);
    send_cq = engine.cq_create(4096, nullptr);
    recv_cq = engine.cq_create(4096, nullptr);
    const QpAttr attr{.qpn = 1, .pd = 1, .send_cq = send_cq, .recv_cq = recv_cq, .max_send_wr = 128,
                      .max_recv_wr = 512, .max_send_sge = 1, .max_recv_sge = 1, .max_inline = 64,
                      .sq_sig_all = false, .owner = nullptr};
    for (unsigned i = 0; i < number; ++i) qps.push_back(engine.qp_create(attr));
    memory.resize(1 << 20);
    engine.mr_add({0x100, 1, kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead,
                   reinterpret_cast<uint64_t>(memory.data()), memory.size(),
                   reinterpret_cast<uint64_t>(memory.data())});
  }
  uint64_t counters[USIW_CNT_MAX] = {};
  Quiet events;
  PipePort port;
  Engine engine;
  Cq *send_cq, *recv_cq;
  std::vector<Qp*> qps;
  std::vector<std::byte> memory;
};

struct Case {
  const char* name;
  WrOpcode opcode;
  uint32_t bytes;
  unsigned depth;
  bool inlined;
  uint16_t mtu;
  unsigned qps = 1;  ///< which take turns
};

constexpr Case kCases[] = {
    {"pingpong_send_8_inline", WrOpcode::kSend, 8, 1, true, 1500},
    {"pingpong_100_qps", WrOpcode::kSend, 8, 1, true, 1500, 100},
    {"pingpong_1000_qps", WrOpcode::kSend, 8, 1, true, 1500, 1000},
    {"send_64", WrOpcode::kSend, 64, 64, false, 1500},
    {"send_64k", WrOpcode::kSend, 65536, 16, false, 1500},
    {"write_8_inline", WrOpcode::kRdmaWrite, 8, 64, true, 1500},
    {"write_64", WrOpcode::kRdmaWrite, 64, 64, false, 1500},
    {"write_4k", WrOpcode::kRdmaWrite, 4096, 64, false, 1500},
    {"write_64k", WrOpcode::kRdmaWrite, 65536, 16, false, 1500},
    {"write_64k_mtu9000", WrOpcode::kRdmaWrite, 65536, 16, false, 9000},
    {"read_64", WrOpcode::kRdmaRead, 64, 16, false, 1500},
    {"read_64k", WrOpcode::kRdmaRead, 65536, 16, false, 1500},
};

/// @p exact: for who counts instructions.
void run(const Case& c, uint64_t messages, bool exact) {
  SteadyClock steady;
  StepClock step;
  Clock& clock = c.qps == 1 && !exact ? static_cast<Clock&>(steady) : step;
  End a(clock, c.qps), b(clock, c.qps);
  a.port.join(b.port);
  b.port.join(a.port);
  ConnAttr conn{.snd_psn = 1, .rcv_psn = 1, .snd_window = 1024, .ird = 16, .ord = 16, .mtu = c.mtu, .initiator = true};
  for (unsigned i = 0; i < c.qps; ++i) {
    FlowKey flow{};
    flow.local_addr = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
    flow.remote_addr = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2};
    flow.local_port = static_cast<uint16_t>(1000 + i);
    flow.remote_port = 4791;
    FlowKey back = flow;
    std::swap(back.local_addr, back.remote_addr);
    std::swap(back.local_port, back.remote_port);
    if (a.engine.qp_connect(a.qps[i], 0, {flow, {}, {}, 64, 0}, conn) != 0 ||
        b.engine.qp_connect(b.qps[i], 0, {back, {}, {}, 64, 0}, conn) != 0)
      std::abort();
  }

  const Sge local{reinterpret_cast<uint64_t>(a.memory.data()), c.bytes, 0x100};
  const Sge remote{reinterpret_cast<uint64_t>(b.memory.data()), c.bytes, 0x100};
  const Qp::SendWr wr{1, c.opcode, static_cast<uint8_t>(kWrSignaled | (c.inlined ? kWrInline : 0)), remote.addr, 0x100};
  const bool pingpong = c.depth == 1;  // the peer answers each message; a round trip is one message
  Qp::SendWr reply = wr;
  reply.flags = kWrInline;
  uint64_t posted = 0, done = 0;
  std::vector<uint64_t> a_receives(c.qps), b_receives(c.qps);
  const auto receives = [](Qp* qp, uint64_t& number, const Sge& sge) {
    for (; number < 256 && qp->post_recv(1, std::span(&sge, 1)) == 0; ++number) {}
  };
  Cqe cqes[64];
  const auto start = std::chrono::steady_clock::now();
  while (done < messages) {
    const size_t turn = done % c.qps;
    Qp *qa = a.qps[turn], *qb = b.qps[turn];
    if (c.opcode == WrOpcode::kSend) {
      receives(qb, b_receives[turn], remote);
      if (pingpong) receives(qa, a_receives[turn], local);
    }
    const uint64_t before = posted;
    while (posted < messages && posted - done < c.depth && qa->post_send(wr, std::span(&local, 1)) == 0) ++posted;
    if (posted != before) qa->ring_send();
    a.engine.progress();
    b.engine.progress();
    const size_t received = b.recv_cq->poll(cqes);
    b_receives[turn] -= received;
    if (!pingpong) {
      done += a.send_cq->poll(cqes);
      continue;
    }
    a.send_cq->poll(cqes);
    if (received != 0) {
      if (qb->post_send(reply, std::span(&remote, 1)) != 0) std::abort();
      qb->ring_send();
      b.engine.progress();
    }
    a.engine.progress();
    a.engine.next_deadline_ns();
    b.engine.next_deadline_ns();
    const size_t replies = a.recv_cq->poll(cqes);
    a_receives[turn] -= replies;
    done += replies;
  }
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%-24s %10.0f msg/s %9.1f MB/s %8.1f ns/msg  %llu datagrams, %llu SACKs, %llu time-outs\n", c.name,
              static_cast<double>(messages) / s, static_cast<double>(messages) * c.bytes / s / 1e6,
              s / static_cast<double>(messages) * 1e9,
              static_cast<unsigned long long>(a.counters[USIW_CNT_TX_PKTS] + b.counters[USIW_CNT_TX_PKTS]),
              static_cast<unsigned long long>(a.counters[USIW_CNT_TX_SACKS] + b.counters[USIW_CNT_TX_SACKS]),
              static_cast<unsigned long long>(a.counters[USIW_CNT_RTO] + b.counters[USIW_CNT_RTO]));
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t messages = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 200'000;
  bool found = false;
  for (const Case& c : kCases) {
    if (argc > 2 && std::strcmp(argv[2], c.name) != 0) continue;
    found = true;
    run(c, c.bytes > 10'000 ? messages / 20 + 1 : messages, argc > 2);
  }
  if (!found) std::fprintf(stderr, "no such case: %s\n", argv[2]);
  return found ? 0 : 2;
}
