// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "flow_host.h"

#include <cstring>

#include "process.h"

namespace usiw::sim {

namespace {

constexpr uint64_t kPatienceNs = 40'000'000'000;  // the provider's default

}  // namespace

// ---- The port ----

size_t FlowPort::tx(std::span<TxBuf> bufs) {
  for (const TxBuf& b : bufs)
    out_({.from = side_,
          .to = b.path->flow.remote_addr[15] - 1,
          .bytes = b.len + kAroundDatagram,
          .capable = b.path->ect,
          .data = Datagram(b.data, b.data + b.len),
          .flow = b.path->flow});
  tx_free(bufs);
  return bufs.size();
}

void FlowPort::arrive(Packet&& p) {
  ++arrived;
  if (ring_.size() >= (holds_ != 0 ? holds_ : kRing)) return void(++overflowed);
  ring_.push_back(std::move(p));
}

bool FlowPort::next(Datagram& d, FlowKey& flow, bool& ce) {
  if (ring_.empty()) return false;
  ce = ring_.front().marked;
  d = std::move(ring_.front().data);
  flow = SimWire::reversed(ring_.front().flow);
  ring_.pop_front();
  return true;
}

// ---- The host ----

FlowHost::FlowHost(World& world, int number, std::function<void(Packet&&)> out, size_t holds, uint64_t run)
    : side(number), port(world, number, std::move(out), holds),
      engine(std::make_unique<Engine>(world.clock, *this, counters_.data())), w_(world), run_ns_(run) {
  engine->set_patience(kPatienceNs);
  port_no = engine->add_port(port);
  cq = engine->cq_create(16384, nullptr);
}

FlowHost::~FlowHost() {
  engine.reset();
  if (port.total_buffers() != port.free_buffers()) w_.fail("leak", "host %d: port buffers", side);
}

uint32_t FlowHost::add_memory(std::vector<std::byte>& bytes) {
  const uint32_t stag = next_stag_++ << 8 | 0x5a;
  const auto addr = reinterpret_cast<uint64_t>(bytes.data());
  const uint32_t rights = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead;
  if (engine->mr_add({stag, kPd, rights, addr, bytes.size(), addr}) != 0)
    w_.fail("setup", "mr_add");
  return stag;
}

uint64_t FlowHost::repeated() const {
  return count(USIW_CNT_RETRANS_FAST) + count(USIW_CNT_RETRANS_RTO) + count(USIW_CNT_RETRANS_RNR);
}

void FlowHost::arrive(Packet&& p) {
  port.arrive(std::move(p));
  wake();
}

void FlowHost::wake() { run_at(std::max(w_.clock.now, free_at_)); }

void FlowHost::freeze(bool now) {
  frozen_ = now;
  if (!now) wake();
}

void FlowHost::run_at(uint64_t at) {
  if (frozen_ || at >= run_at_) return;
  run_at_ = at;
  w_.after(at - w_.clock.now, life_, [this, at] {
    if (run_at_ == at) run();
  });
}

void FlowHost::run() {
  run_at_ = UINT64_MAX;
  if (frozen_) return;
  free_at_ = w_.clock.now + run_ns_;
  engine->progress();
  std::array<Cqe, 64> got;
  size_t n;
  while ((n = cq->poll(got)) != 0)
    for (size_t i = 0; i < n; ++i) flows.at(got[i].qpn - 1)->on_cqe(got[i], *this);
  const uint64_t next = port.pending() ? 0 : engine->next_deadline_ns();
  if (next != UINT64_MAX) run_at(std::max(next, free_at_));
}

// ---- The flow ----

Flow::Flow(World& world, const Plan& plan, int id, FlowHost& source, FlowHost& sink, uint16_t mtu)
    : w_(world), plan_(plan), id_(id), source_(source), sink_(sink),
      out_(slots() * plan.message), in_(slots() * plan.message) {
  out_stag_ = source.add_memory(out_);
  in_stag_ = sink.add_memory(in_);
  const auto make = [&](FlowHost& h) {
    QpAttr a{};
    a.qpn = h.next_qpn++;
    a.pd = kPd;
    a.send_cq = a.recv_cq = h.cq;
    a.max_send_wr = plan.depth;
    a.max_recv_wr = 2 * plan.depth;
    a.max_send_sge = a.max_recv_sge = 1;
    a.owner = this;
    h.flows.push_back(this);
    return h.engine->qp_create(a);
  };
  qs_ = make(source);
  qr_ = make(sink);
  FlowKey key{};
  key.local_addr = SimWire::address(source.side, false);
  key.remote_addr = SimWire::address(sink.side, false);
  key.local_port = static_cast<uint16_t>(1000 + id);
  key.remote_port = kListenPort;
  const auto psn = static_cast<uint32_t>(w_.rng.below(uint64_t{1} << 32));
  const auto back = static_cast<uint32_t>(w_.rng.below(uint64_t{1} << 32));
  const Path there{key, {}, {}, 64, 0}, here{SimWire::reversed(key), {}, {}, 64, 0};
  if (sink.engine->qp_connect(qr_, sink.port_no, here, {back, psn, 1024, 16, 16, mtu, false}) != 0 ||
      source.engine->qp_connect(qs_, source.port_no, there, {psn, back, 1024, 16, 16, mtu, true}) != 0)
    w_.fail("setup", "qp_connect");
  if (!plan.read)
    for (uint64_t i = 0; i < slots(); ++i) post_recv();
}

void Flow::want(uint64_t messages) {
  wanted_ = messages;
  fill();
}

void Flow::post_recv() {
  const auto to = slot(in_, receives_);
  const Sge sge{reinterpret_cast<uint64_t>(to.data()), plan_.message, in_stag_};
  if (qr_->post_recv(receives_++, std::span(&sge, 1)) != 0) w_.fail("setup", "post_recv");
  if (qr_->ring_recv()) sink_.wake();
}

/// Writes the message's number to its beginning and end, and the flow's number after the first.
void Flow::stamp(uint64_t n) {
  const auto to = slot(out_, n);
  const uint64_t mark[2] = {n, static_cast<uint64_t>(id_)};
  std::memcpy(to.data(), mark, sizeof mark);
  std::memcpy(to.data() + to.size() - 8, &n, 8);
}

void Flow::check(uint64_t n) {
  const auto from = slot(in_, n);
  uint64_t mark[2], end;
  std::memcpy(mark, from.data(), sizeof mark);
  std::memcpy(&end, from.data() + from.size() - 8, 8);
  if (mark[0] != n || mark[1] != static_cast<uint64_t>(id_) || end != n)
    w_.fail("bytes", "flow %d: message %llu is %llu of %llu, its end of %llu", id_, ull(n), ull(mark[0]), ull(mark[1]),
            ull(end));
}

void Flow::fill() {
  Qp* qp = plan_.read ? qr_ : qs_;
  bool any = false;
  // A slot is written again only after both ends have completed its earlier message.
  while (!dead && posted_ < wanted_ && posted_ - std::min(completed_, received_) < plan_.depth) {
    stamp(posted_);
    const auto buf = slot(plan_.read ? in_ : out_, posted_);
    const Sge sge{reinterpret_cast<uint64_t>(buf.data()), plan_.message, plan_.read ? in_stag_ : out_stag_};
    const Qp::SendWr wr{posted_, plan_.read ? WrOpcode::kRdmaRead : WrOpcode::kSend, kWrSignaled,
                        reinterpret_cast<uint64_t>(slot(out_, posted_).data()), out_stag_};
    if (qp->post_send(wr, std::span(&sge, 1)) != 0) return w_.fail("setup", "post_send");
    ++posted_;
    any = true;
  }
  if (!any) return;
  qp->ring_send();
  (plan_.read ? sink_ : source_).wake();
}

void Flow::on_cqe(const Cqe& c, const FlowHost& at) {
  if (c.status != WcStatus::kSuccess) {
    // The transport has given the connection up. The peer gets no notice and waits.
    if (!dead) died(-static_cast<int>(c.status));
    return;
  }
  const bool arrived = &at == &sink_, done = !arrived || plan_.read;
  if (done && c.wr_id != completed_++)
    w_.fail("completion", "flow %d: %llu completes in the place of %llu", id_, ull(c.wr_id), ull(completed_ - 1));
  if (arrived) {
    if (c.wr_id != received_ || received_ >= posted_ || (!plan_.read && c.byte_len != plan_.message))
      w_.fail("completion", "flow %d: receive %llu of %u bytes in the place of %llu", id_, ull(c.wr_id), c.byte_len,
              ull(received_));
    check(received_++);
    if (first_ == 0) first_ = w_.clock.now;
    if (!plan_.read) post_recv();
    if (on_message) on_message();
  }
  fill();
}

void Flow::died(int why) {
  if (dead) return;
  dead = true;
  error = why;
  died_at = w_.clock.now;
}

}  // namespace usiw::sim
