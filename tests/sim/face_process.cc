// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "face_process.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cm/usiw_cm_cookie.h"
#include "cm/usiw_cm_records.h"
#include "tests/support/cm_contract.h"

namespace usiw::sim {
namespace {

constexpr uint16_t kIpMtu = 1500, kIrd = 16;

usiw_cm_tuple cm_tuple(const FlowKey& flow) {
  usiw_cm_tuple t{};
  std::copy(flow.local_addr.begin(), flow.local_addr.end(), t.local);
  std::copy(flow.remote_addr.begin(), flow.remote_addr.end(), t.remote);
  t.local_port = flow.local_port;
  t.remote_port = flow.remote_port;
  return t;
}

FlowKey flow_of(const usiw_cm_tuple& t) {
  FlowKey f{};
  std::copy_n(t.local, 16, f.local_addr.begin());
  std::copy_n(t.remote, 16, f.remote_addr.begin());
  f.local_port = t.local_port;
  f.remote_port = t.remote_port;
  return f;
}

}  // namespace

bool FacePort::next(Datagram& d, FlowKey& flow, bool& ce) {
  if (ring_.empty()) return false;
  std::tie(d, flow) = std::move(ring_.front());
  ce = false;
  ring_.pop_front();
  return true;
}

/// A connection, as the class Conn of usiw-run.
struct FaceProcess::Conn : usiw_cm_end, std::enable_shared_from_this<Conn> {
  explicit Conn(FaceProcess& of) : usiw_cm_end{}, process(of) {}
  FaceProcess& process;
  usiw_cm_records records{};
  Contract contract;
  uint32_t qpn = 0;
  FQp* qp = nullptr;
  bool hashed = true, has_user = true;
};

// ---- The calls of cm/ to its host (tools/run/conn/conn_act.cc) ----

struct FaceProcess::Host {
  static Conn& of(usiw_cm_end* end) { return *static_cast<Conn*>(end); }

  static int send(usiw_cm_end* end, const void* data, uint32_t len) {
    of(end).process.transmit(flow_of(end->tuple), data, len);
    return 0;
  }
  static int notify(usiw_cm_end* end, uint32_t event, int) {
    Conn& conn = of(end);
    if (conn.has_user) conn.process.on_user_event(conn.shared_from_this(), event);
    return 0;
  }
  static void release_user(usiw_cm_end* end) { of(end).has_user = false; }
  static void set_qp_state(usiw_cm_end* end, usiw_qp_state state) {
    if (FQp* q = of(end).qp) q->state = state;
  }
  static void release_qp(usiw_cm_end* end) {
    FQp* q = std::exchange(of(end).qp, nullptr);
    if (q != nullptr && q->conn.get() == end) q->conn = nullptr;
  }
  static void record(usiw_cm_end* end, usiw_event_type type) {
    Conn& conn = of(end);
    if (conn.qp == nullptr) return;
    if (conn.records.pending == 0) conn.process.events_.push_back(conn.shared_from_this());
    usiw_cm_records_push(&conn.records, type, &end->info);
    conn.process.wake_events();
  }
  static int route(usiw_cm_end*, usiw_cm_route* route) {
    route->reason = USIW_NOT_PACKET_NETDEV;
    route->mtu = kIpMtu;
    route->mac_known = 1;
    return 0;
  }
  static void follow(usiw_cm_end*, const usiw_cm_route*) {}
  static int data(usiw_cm_end*, usiw_cm_data) { return 1; }
  static void leave_backlog(usiw_cm_end*) {}
  static void forget(usiw_cm_end* end) { of(end).hashed = false; }
  static void arm(usiw_cm_end* end) {
    if (const char* wrong = usiw_cm_end_check(end)) of(end).process.fail("connection", "%s", wrong);
  }
  static void log(usiw_cm_end*, usiw_cm_log, const char*) {}
  static void acting(usiw_cm_end* end, uint32_t actions) {
    Conn& conn = of(end);
    const std::string broken = conn.contract.check(end->cm, actions);
    if (!broken.empty()) conn.process.fail("contract", "connection machine: %s", broken.c_str());
    if (actions != 0)
      conn.process.trace("kernel: conn %u of %06x state %u actions %03x", end->id, conn.qpn, end->cm.state, actions);
  }

  static constexpr usiw_cm_host calls = {
      .send = send,
      .notify = notify,
      .release_user = release_user,
      .set_qp_state = set_qp_state,
      .release_qp = release_qp,
      .record = record,
      .route = route,
      .follow = follow,
      .data = data,
      .leave_backlog = leave_backlog,
      .forget = forget,
      .arm = arm,
      .log = log,
      .acting = acting,
  };
};

FaceProcess::FaceProcess(World& world, const FacePlan& plan, int side)
    : Reporter(world, side),
      plan_(plan),
      side_(side),
      key_{world.rng(), world.rng()},
      port_(world.wire, side),
      engine(std::make_unique<Engine>(world.clock, *this, counters.data())),
      port_no_(engine->add_port(port_)) {}

FaceProcess::~FaceProcess() { engine.reset(); }

// ---- Tables ----

FaceProcess::ConnRef FaceProcess::lookup(const usiw_cm_tuple& tuple) const {
  for (const ConnRef& c : conns_)
    if (c->hashed && std::memcmp(&c->tuple, &tuple, sizeof tuple) == 0) return c;
  return nullptr;
}

FaceProcess::FQp* FaceProcess::by_port(uint16_t port) const {
  for (const auto& [qpn, q] : qps_)
    if (htons(usiw_face_port(qpn)) == port) return q.get();
  return nullptr;
}

bool FaceProcess::has_port(uint16_t port) const { return by_port(port) != nullptr; }

void FaceProcess::reap() {
  std::erase_if(conns_, [](const ConnRef& c) { return !c->hashed && c->qp == nullptr && c->records.pending == 0; });
}

std::string FaceProcess::describe() const {
  std::string out;
  for (const auto& [qpn, q] : qps_) {
    char text[160];
    std::snprintf(text, sizeof text, "%06x: state %d, engine %d, peer %06x, %s, conn state %d; ", qpn, q->state,
                  static_cast<int>(q->qp->state()), q->face.peer.qpn, q->face.req.kept ? "a REQ is kept" : "no REQ",
                  q->conn ? q->conn->cm.state : -1);
    out += text;
  }
  return out;
}

FaceProcess::Installed FaceProcess::installed(uint32_t qpn) const {
  const FQp& q = *qps_.at(qpn);
  return q.conn_id != 0 && q.qp->state() == QpState::kRts ? q.has : Installed{};
}

// ---- modify_qp (tools/run/face/face.cc, provider/verbs/qp.cc) ----

void FaceProcess::create(uint32_t qpn, Cq* cq, uint32_t access) {
  auto q = std::make_unique<FQp>();
  q->qpn = qpn;
  usiw_face_init(&q->face, qpn, static_cast<uint32_t>(w_.rng()));
  QpAttr attr{};
  attr.qpn = qpn;
  attr.pd = kPd;
  attr.send_cq = attr.recv_cq = cq;
  attr.max_send_wr = attr.max_recv_wr = 64;
  attr.max_send_sge = attr.max_recv_sge = 1;
  attr.max_inline = 64;
  attr.owner = q.get();
  q->qp = engine->qp_create(attr);
  if (q->qp == nullptr) return fail("setup", "qp_create");
  engine->qp_permit(q->qp, access);
  qps_[qpn] = std::move(q);
}

void FaceProcess::destroy(uint32_t qpn) {
  FQp& q = *qps_.at(qpn);
  leave(q);
  if (const ConnRef conn = q.conn) {
    usiw_cm_end_abort(conn.get(), USIW_ABORT_LOCAL, now_us());
    conn->records.pending = 0;
    events_.remove(conn);
  }
  engine->qp_destroy(q.qp);
  std::erase_if(reports_, [qpn](const Report& r) { return r.qpn == qpn; });
  qps_.erase(qpn);
  reap();
}

FaceProcess::ConnRef FaceProcess::make_conn(FQp& q) {
  if (lookup(q.face.peer.tuple)) fail("leak", "the old connection is still in the table");
  auto c = std::make_shared<Conn>(*this);
  usiw_cm_end_init(c.get(), &Host::calls, next_id_++, &q.face.peer.tuple);
  conns_.push_back(c);
  return c;
}

void FaceProcess::attach(FQp& q, const ConnRef& conn) {
  q.conn = conn;
  conn->qp = &q;
  conn->qpn = q.qpn;
  usiw_cm_end_attach(conn.get(), USIW_CM_SOCKET | USIW_CM_MOVES | USIW_CM_PACKETS);
  usiw_cm_offer(&conn->cm, USIW_FEATURE_MERGES);
}

void FaceProcess::rtr(uint32_t qpn, const Peer& peer) {
  FQp& q = *qps_.at(qpn);
  q.state = USIW_QPS_RTR;
  usiw_face_set_peer(&q.face, peer.local.data(), peer.remote.data(), 0, peer.qpn, peer.rq_psn);
  const usiw_face_part part = usiw_face_role(&q.face);
  if (part == USIW_FACE_ANSWERS) return challenge(q);
  usiw_face_build_ask(&q.face, &q.ask);
  const ConnRef conn = make_conn(q);
  if (usiw_cm_init_active(&conn->cm, static_cast<uint32_t>(w_.rng()), kIrd, kIrd, kIpMtu, USIW_TRP_FIRST_WINDOW, &q.ask,
                          sizeof q.ask) != 0)
    return fail("setup", "usiw_cm_init_active");
  usiw_cm_set_silent(&conn->cm);
  usiw_cm_offer(&conn->cm, USIW_FEATURE_FACE);
  attach(q, conn);
  conn->contract.connected();
  if (part == USIW_FACE_ITSELF)
    usiw_cm_end_connect_itself(conn.get(), now_us());
  else
    usiw_cm_end_connect(conn.get(), now_us());
}

/// Asks the sender of the REQ that has arrived before whether it still asks.
void FaceProcess::challenge(FQp& q) {
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  const uint32_t len = usiw_face_challenge(&q.face, key_, now_us(), buf);
  if (len != 0) transmit(flow_of(q.face.peer.tuple), buf, len);
}

/// Accepts the REQ that has arrived, if it fits.
void FaceProcess::answer(FQp& q) {
  if (w_.mutation == Mutation::kAnyQpFits && q.face.req.kept && q.face.peer.qpn != 0) {
    usiw_face_req& req = q.face.req;
    w_.mutated += req.src_qpn != q.face.peer.qpn;
    req.src_qpn = q.face.peer.qpn;
    req.attempt = q.face.attempt;
    q.face.peer.tuple = req.tuple;
  }
  const usiw_face_req* req = usiw_face_take(&q.face);
  if (req == nullptr) return;
  const ConnRef conn = make_conn(q);
  if (usiw_cm_init_passive(&conn->cm, &req->pkt, req->isn, kIpMtu, USIW_TRP_FIRST_WINDOW, now_us()) != 0) {
    conns_.pop_back();
    return;
  }
  usiw_cm_set_silent(&conn->cm);
  attach(q, conn);
  conn->contract.handed_up();
  conn->contract.accepted();
  if (usiw_cm_end_accept(conn.get(), kIrd, kIrd, nullptr, 0, now_us()) != 0) fail("cm", "a kept REQ is not accepted");
}

void FaceProcess::rts(uint32_t qpn, uint32_t sq_psn, const QpLimits& limits) {
  FQp& q = *qps_.at(qpn);
  q.state = USIW_QPS_RTS;
  usiw_face_set_sq_psn(&q.face, sq_psn);
  engine->qp_limit(q.qp, limits);
  engine->qp_resume(q.qp);
}

void FaceProcess::sqd(uint32_t qpn) {
  FQp& q = *qps_.at(qpn);
  q.state = USIW_QPS_SQD;
  engine->qp_pause(q.qp, true);
}

void FaceProcess::leave_sqd(uint32_t qpn) {
  FQp& q = *qps_.at(qpn);
  q.state = USIW_QPS_RTS;
  engine->qp_resume(q.qp);
}

void FaceProcess::leave(FQp& q) {
  usiw_face_forget_peer(&q.face);
  if (q.conn) usiw_cm_end_leave(q.conn.get());
}

void FaceProcess::error(uint32_t qpn) {
  FQp& q = *qps_.at(qpn);
  engine->qp_acknowledge(q.qp);
  leave(q);
  if (const ConnRef conn = q.conn) usiw_cm_end_abort(conn.get(), USIW_ABORT_LOCAL, now_us());
  q.state = USIW_QPS_ERR;
  engine->qp_abort(q.qp);
  reap();
}

void FaceProcess::reset(uint32_t qpn) {
  FQp& q = *qps_.at(qpn);
  engine->qp_acknowledge(q.qp);
  q.conn_id = 0;
  leave(q);
  if (const ConnRef conn = q.conn) usiw_cm_end_abort(conn.get(), USIW_ABORT_LOCAL, now_us());
  q.state = USIW_QPS_RESET;
  engine->qp_reset(q.qp);
  // The provider flushes them, and the kernel ignores them in RESET.
  std::erase_if(reports_, [qpn](const Report& r) { return r.qpn == qpn; });
  reap();
}

/// The engine has put a QP into ERROR that has no connection, because its work has waited too long, or a QP whose
/// connection is not this one.
void FaceProcess::failed(FQp& q, uint32_t conn_id) {
  if (conn_id != 0 && q.conn && q.conn->id == conn_id) return;
  if (q.state != USIW_QPS_RTS && q.state != USIW_QPS_SQD) return;
  leave(q);
  if (const ConnRef conn = q.conn) usiw_cm_end_abort(conn.get(), USIW_ABORT_LOCAL, now_us());
  q.state = USIW_QPS_ERR;
}

void FaceProcess::on_user_event(const ConnRef& conn, uint32_t event) {
  const bool end = event == USIW_CM_A_EV_CLOSE || (event == USIW_CM_A_EV_REPLY && conn->cm.status != 0);
  if (end && conn->qp != nullptr) usiw_face_forget_peer(&conn->qp->face);
}

void FaceProcess::obey_reset(uint32_t qpn) {
  const auto q = qps_.find(qpn);
  if (q == qps_.end() || !q->second->conn) return;
  ++w_.mutated;
  usiw_cm_end_abort(q->second->conn.get(), USIW_ABORT_PEER_RESET, now_us());
}

// ---- The network ----

void FaceProcess::transmit(const FlowKey& flow, const void* data, uint32_t len) {
  const std::span d(static_cast<const std::byte*>(data), len);
  if (w_.tracing()) trace("kernel> %s", sim::describe(d).c_str());
  w_.wire.send(side_, d, flow);
}

void FaceProcess::arrive(const Datagram& d, const FlowKey& flow) {
  if (usiw_cm_look(d.data(), static_cast<uint32_t>(d.size())) == USIW_CM_LOOK_DATA) return port_.arrive(d, flow);
  rx_at_ = std::max(rx_at_, w_.clock.now + w_.rng.below(20'000));
  w_.after(rx_at_ - w_.clock.now, life, [this, d, flow] { handshake(d, flow); });
}

/// Makes each REQ a proven one, whoever has sent it. A mutation.
void FaceProcess::prove(Datagram& d, const usiw_cm_tuple& tuple) const {
  usiw_cm_packet pkt;
  if (usiw_cm_decode(&pkt, d.data(), static_cast<uint32_t>(d.size())) != 0 || pkt.opcode != USIW_TRP_REQ) return;
  const FQp& q = *by_port(tuple.local_port);
  const __u64 key[2] = {key_[0] ^ q.face.attempt, key_[1] ^ q.qpn};  // as usiw_face.c has it
  __u8 proven;
  const uint32_t isn = usiw_cm_cookie_isn(key, &tuple, pkt.psn, pkt.ack_psn, now_us(), &proven);
  if (proven == 0) store_be32(d.data() + 4, isn), ++w_.mutated;
}

void FaceProcess::handshake(const Datagram& datagram, const FlowKey& flow) {
  if (frozen) return w_.after(1'000'000, life, [this, datagram, flow] { handshake(datagram, flow); });
  FQp* q = by_port(flow.local_port);
  if (q == nullptr) return;
  Datagram d = datagram;
  const usiw_cm_tuple tuple = cm_tuple(flow);
  if (w_.mutation == Mutation::kUnprovenCounts) prove(d, tuple);
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  usiw_face_verdict v;
  const ConnRef conn = lookup(tuple);
  usiw_face_input(&v, &q->face, conn.get(), &tuple, key_, d.data(), static_cast<uint32_t>(d.size()), now_us(), buf);
  if (v.kind == USIW_FACE_V_ANSWER) {
    if (v.len > d.size()) fail("amplify", "an answer of %u bytes to %zu", v.len, d.size());
    transmit(flow, buf, v.len);
  }
  if (v.kind == USIW_FACE_V_TAKE && w_.mutation == Mutation::kSwallowTake) return void(++w_.mutated);
  if (v.kind == USIW_FACE_V_TAKE && q->conn) {
    // The peer has not confirmed this connection, and has begun anew.
    const ConnRef old = q->conn;
    usiw_cm_end_yield(old.get(), now_us());
    std::erase(events_, old);
    old->records.pending = 0;
  }
  if ((v.kind == USIW_FACE_V_TAKE || w_.mutation == Mutation::kAnyQpFits) && !q->conn) answer(*q);
  reap();
}

void FaceProcess::unreachable(const FlowKey& flow, std::span<const std::byte> quoted) {
  const ConnRef conn = lookup(cm_tuple(flow));
  if (conn && usiw_cm_quotes(&conn->cm, quoted.data(), static_cast<uint32_t>(quoted.size())) != 0)
    usiw_cm_end_icmp(conn.get(), USIW_CM_ANSWER_NO_PORT, now_us());
}

void FaceProcess::run_timers() {
  if (w_.mutation == Mutation::kDeafTimers) return void(++w_.mutated);
  for (const ConnRef& c : std::vector<ConnRef>(conns_.begin(), conns_.end()))
    if (w_.clock.now >= due_ns(usiw_cm_end_deadline(c.get()))) usiw_cm_end_tick(c.get(), now_us());
  reap();
}

// ---- From the kernel (provider/runtime/runtime_events.cc) ----

void FaceProcess::wake_events() {
  if (reading_) return;
  reading_ = true;
  w_.after(w_.rng.below(plan_.event_pause + 1), life, [this] { read_events(); });
}

void FaceProcess::read_events() {
  reading_ = false;
  if (frozen) {
    reading_ = true;
    return w_.after(1'000'000, life, [this] { read_events(); });
  }
  while (!events_.empty()) {
    const ConnRef conn = events_.front();
    usiw_event record;
    usiw_cm_records_peek(&conn->records, &record);
    if (usiw_cm_records_pop(&conn->records, &record) == 0) events_.pop_front();
    on_record(conn, record);
  }
  reap();
}

void FaceProcess::on_record(const ConnRef& conn, const usiw_event& record) {
  const auto it = qps_.find(conn->qpn);
  if (it == qps_.end()) return;
  FQp& q = *it->second;
  trace("process: event %u of conn %u, %06x", record.type, conn->id, q.qpn);
  if (record.type == USIW_EVENT_CONNECT) {
    if (engine->qp_keeps_connection(q.qp)) return;
    const usiw_conn_info& info = record.conn;
    const ConnAttr attr{.snd_psn = info.snd_psn,
                        .rcv_psn = info.rcv_psn,
                        .snd_window = info.snd_window,
                        .ird = info.ird,
                        .ord = info.ord,
                        .mtu = info.mtu,
                        .initiator = (info.flags & USIW_CONN_F_INITIATOR) != 0,
                        .merges = (info.features & USIW_FEATURE_MERGES) != 0,
                        .handshake_mtu = info.handshake_mtu,
                        .silent = (info.flags & USIW_CONN_F_SILENT) != 0};
    if (!attr.silent) fail("setup", "a connection of the face that is not silent");
    const int error = engine->qp_connect(q.qp, port_no_, {flow_of(conn->tuple), {}, {}, 64, 0}, attr);
    if (error == 0) {
      q.conn_id = conn->id;
      q.has = {attr.snd_psn, attr.rcv_psn, true};
      on_installed(q.qpn, q.has);
    } else {
      engine->qp_abort(q.qp);
    }
    ++connecting_;
    w_.after(w_.rng.below(plan_.event_pause / 4 + 1), life, [this, qpn = q.qpn, id = conn->id, error] {
      reports_.push_front({qpn, error == 0 ? USIW_REPORT_READY : USIW_REPORT_REFUSED, id, -error});
      --connecting_;
      if (!flushing_) flush();
    });
    return;
  }
  if (q.conn_id != conn->id) {
    if (record.type == USIW_EVENT_ABORT && q.qp->state() == QpState::kIdle && q.state == USIW_QPS_ERR)
      engine->qp_abort(q.qp);
    return;
  }
  if (record.type == USIW_EVENT_DISCONNECT) engine->qp_shutdown(q.qp);
  if (record.type == USIW_EVENT_ABORT) engine->qp_abort(q.qp);
  if (record.type == USIW_EVENT_PROBE) engine->qp_probe(q.qp);
}

// ---- From the engine (provider/runtime/reports.cc) ----

void FaceProcess::ended(Qp& qp, uint32_t kind, int error) {
  auto& q = *static_cast<FQp*>(qp.owner());
  note(q, kind, q.conn_id, error);
}

void FaceProcess::qp_failed(Qp& qp, int error, AsyncEvent) {
  ended(qp, USIW_REPORT_FAILED, error > 0 ? -error : error);
  on_failed(qp.qpn());
}

void FaceProcess::note(FQp& q, uint32_t kind, uint32_t conn_id, int error) {
  trace("engine: %06x report %u of conn %u, error %d", q.qpn, kind, conn_id, error);
  std::erase_if(reports_, [&](const Report& r) { return r.qpn == q.qpn && r.kind == kind; });
  reports_.push_back({q.qpn, kind, conn_id, error});
  if (flushing_) return;
  flushing_ = true;
  w_.after(w_.rng.chance(80) ? 0 : w_.rng.below(plan_.event_pause + 1), life, [this] { flush(); });
}

/// Gives the kernel all reports in order. READY has been queued before them, so they wait for it.
void FaceProcess::flush() {
  flushing_ = false;
  if (connecting_ != 0) return;
  while (!reports_.empty()) {
    const Report r = reports_.front();
    reports_.pop_front();
    const auto it = qps_.find(r.qpn);
    if (it == qps_.end()) continue;
    FQp& q = *it->second;
    trace("kernel: %06x report %u of conn %u, error %d", r.qpn, r.kind, r.conn_id, r.error);
    if (r.kind == USIW_REPORT_FAILED) failed(q, r.conn_id);
    if (const ConnRef conn = q.conn) {
      usiw_qp_report report{};
      report.kind = r.kind;
      report.conn_id = r.conn_id;
      report.error = r.error;
      usiw_cm_end_report(conn.get(), &report, now_us());
    }
  }
  reap();
}

// ---- Running ----

unsigned FaceProcess::run() {
  if (frozen) return 0;
  run_timers();
  return engine->progress();
}

uint64_t FaceProcess::next_deadline() const {
  if (frozen) return UINT64_MAX;
  if (port_.pending()) return 0;
  uint64_t at = engine->next_deadline_ns();
  if (w_.mutation == Mutation::kDeafTimers) return at;
  for (const ConnRef& c : conns_) at = std::min(at, due_ns(usiw_cm_end_deadline(c.get())));
  return at;
}

void FaceProcess::check_empty() {
  if (!qps_.empty()) return fail("leak", "%zu QPs left", qps_.size());
  read_events();
  if (!conns_.empty()) fail("leak", "%zu connections left", conns_.size());
  while (port_.pending()) engine->progress();
  engine->progress();
  if (engine->next_deadline_ns() != UINT64_MAX) fail("leak", "a timer without a QP");
  engine.reset();
  if (port_.total_buffers() != port_.free_buffers())
    fail("leak", "%zu port buffers lost", port_.total_buffers() - port_.free_buffers());
}

}  // namespace usiw::sim
