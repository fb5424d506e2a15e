// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "kernel.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include "cm/usiw_cm_input.h"
#include "cm/usiw_cm_records.h"
#include "process.h"

namespace usiw::sim {

/// A connection, as struct usiw_conn in the module.
struct KConn : usiw_cm_end, std::enable_shared_from_this<KConn> {
  explicit KConn(Kernel& of) : usiw_cm_end{}, kernel(of) {}
  usiw_cm_records records{};
  Kernel& kernel;
  Contract contract;
  FlowKey flow{};
  uint32_t qpn = 0;           ///< remains after the QP is released
  Kernel::KQp* qp = nullptr;  ///< the QP that has this connection; nullptr: none
  Process* process = nullptr;
  CmUser* user = nullptr;   ///< nullptr: iw_cm has no cm_id for it yet, or no longer
  bool in_backlog = false;  ///< has a slot of the listener's backlog
  bool hashed = false;
};

namespace {

usiw_cm_tuple cm_tuple(const FlowKey& flow) {
  usiw_cm_tuple t{};
  std::copy(flow.local_addr.begin(), flow.local_addr.end(), t.local);
  std::copy(flow.remote_addr.begin(), flow.remote_addr.end(), t.remote);
  t.local_port = flow.local_port;
  t.remote_port = flow.remote_port;
  return t;
}

KConn& conn_of(usiw_cm_end* end) { return *static_cast<KConn*>(end); }

}  // namespace

/// A REQ that waits for admission, with its datagram.
struct Kernel::Kept : usiw_cm_req {
  Kept() : usiw_cm_req{} {}
  FlowKey flow{};
  std::vector<std::byte> data;
};

// ---- The calls of cm/ to its host ----

struct Kernel::Host {
  static int send(usiw_cm_end* end, const void* data, uint32_t len) {
    const KConn& conn = conn_of(end);
    conn.kernel.transmit(conn.flow, data, len);
    return 0;
  }

  static int notify(usiw_cm_end* end, uint32_t event, int status) {
    CmUser& user = *conn_of(end).user;
    if (event == USIW_CM_A_EV_REPLY) user.on_reply(status, {end->cm.peer_pd, end->cm.peer_pd_len});
    if (event == USIW_CM_A_EV_ESTABLISHED) user.on_established();
    if (event == USIW_CM_A_EV_DISCONNECT) user.on_disconnected(status);
    if (event == USIW_CM_A_EV_CLOSE) user.on_closed();
    return 0;
  }

  static void release_user(usiw_cm_end* end) { conn_of(end).user = nullptr; }

  static void set_qp_state(usiw_cm_end* end, usiw_qp_state state) {
    if (KQp* q = conn_of(end).qp) q->state = state;
  }

  static void release_qp(usiw_cm_end* end) {
    if (KQp* q = std::exchange(conn_of(end).qp, nullptr)) q->conn = nullptr;
  }

  static void record(usiw_cm_end* end, usiw_event_type type) {
    KConn& conn = conn_of(end);
    if (conn.process == nullptr) return;
    if (conn.records.pending == 0) conn.kernel.events_[conn.process].push_back(conn.shared_from_this());
    usiw_cm_records_push(&conn.records, type, &conn.info);
    conn.process->wake_events();
  }

  static int route(usiw_cm_end* end, usiw_cm_route* route) {
    const KConn& conn = conn_of(end);
    const Kernel& k = conn.kernel;
    const size_t outer = conn.flow.is_ipv4() ? 28 : 48;
    route->reason = static_cast<uint8_t>(k.not_packet_);
    route->mtu = static_cast<uint16_t>(std::min<size_t>(k.max_payload_, USIW_MAX_MTU - outer) + outer);
    route->mac_known = 1;
    return 0;
  }

  static void follow(usiw_cm_end*, const usiw_cm_route*) {}
  static int data(usiw_cm_end* end, usiw_cm_data) { return conn_of(end).kernel.w_.sc.two_ports; }

  static void leave_backlog(usiw_cm_end* end) {
    KConn& conn = conn_of(end);
    if (!std::exchange(conn.in_backlog, false)) return;
    if (usiw_cm_admission_return(&conn.kernel.places_, conn.kernel.now_us()) != 0) conn.kernel.admission_due_ = true;
  }

  static void forget(usiw_cm_end* end) { conn_of(end).hashed = false; }
  /// cm/ calls this after each call on an end, so the invariants have to hold.
  static void arm(usiw_cm_end* end) {
    const Kernel& k = conn_of(end).kernel;
    if (const char* wrong = usiw_cm_end_check(end)) k.fail("connection", "%s", wrong);
  }
  static void log(usiw_cm_end* end, usiw_cm_log what, const char*) {
    const Kernel& k = conn_of(end).kernel;
    if (what == USIW_CM_LOG_FORBIDDEN) ++k.w_.totals[kForbidden];
    k.trace("kernel: conn %u: log %d", end->id, what);
  }

  static void acting(usiw_cm_end* end, uint32_t actions) {
    KConn& conn = conn_of(end);
    const std::string broken = conn.contract.check(conn.cm, actions);
    if (!broken.empty()) conn.kernel.fail("contract", "connection machine: %s", broken.c_str());
    if (actions != 0)
      conn.kernel.trace("kernel: conn %u port %u state %u actions %03x", conn.id,
                        conn.cm.initiator ? conn.flow.local_port : conn.flow.remote_port, conn.cm.state, actions);
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

Kernel::Kernel(World& world, int side) : Reporter(world, side), side_(side) {
  const __u64 key[2] = {world.sc.seed, static_cast<__u64>(side)};
  usiw_cm_admission_net_init(&net_, key);
  admission_.net = &net_;
}

Kernel::~Kernel() { drop(usiw_cm_admission_purge(&admission_)); }

// ---- Tables ----

Kernel::Conn Kernel::lookup(const FlowKey& tuple) const {
  for (const Conn& c : conns_)
    if (c->hashed && c->flow == tuple) return c;
  return nullptr;
}

Kernel::Conn Kernel::by_id(uint32_t id) const {
  for (const Conn& c : conns_)
    if (c->id == id) return c;
  return nullptr;
}

Kernel::KQp* Kernel::qp(uint32_t qpn) {
  auto it = qps_.find(qpn);
  return it == qps_.end() ? nullptr : &it->second;
}

Kernel::Conn Kernel::make_conn(const FlowKey& tuple) {
  auto c = std::make_shared<KConn>(*this);
  const usiw_cm_tuple ends = cm_tuple(tuple);
  usiw_cm_end_init(c.get(), &Host::calls, next_id_++, &ends);
  c->flow = tuple;
  conns_.push_back(c);
  return c;
}

bool Kernel::has_socket(uint16_t port) const {
  if (port == kListenPort && listener_ != nullptr) return true;
  for (const Conn& c : conns_)
    if (c->flow.local_port == port) return true;
  return false;
}

/// Frees the connections that neither a QP, nor a record, nor the peer needs any more.
void Kernel::reap() {
  std::erase_if(conns_, [](const Conn& c) {
    return !c->hashed && c->qp == nullptr && c->records.pending == 0 && c->cm.state == USIW_CM_DEAD;
  });
}

std::string Kernel::describe() const {
  std::string out;
  for (const Conn& c : conns_) {
    char text[120];
    std::snprintf(text, sizeof text, "conn %u port %u state %u%s%s; ", c->id,
                  c->cm.initiator ? c->flow.local_port : c->flow.remote_port, c->cm.state, c->hashed ? " hashed" : "",
                  c->qp != nullptr ? " qp" : "");
    out += text;
  }
  return out;
}

// ---- usiw_rx.c ----

void Kernel::transmit(const FlowKey& flow, const void* data, uint32_t len) {
  const std::span d(static_cast<const std::byte*>(data), len);
  if (w_.tracing()) trace("kernel> %s", sim::describe(d).c_str());
  w_.wire.send(side_, d, flow);
}

void Kernel::receive(std::span<const std::byte> d, const FlowKey& flow) {
  if (!has_socket(flow.local_port)) {
    // ICMP has no TRP opcode. It is sent as a datagram that no port would send, and quotes the PSN.
    std::byte icmp[5] = {std::byte{0xff}};
    std::copy_n(d.begin(), std::min(d.size(), sizeof icmp - 1), icmp + 1);
    w_.wire.send(side_, icmp, flow);
    return;
  }
  switch (usiw_cm_look(d.data(), static_cast<uint32_t>(d.size()))) {
    case USIW_CM_LOOK_DATA:
      if (!rx_data(d, flow)) return;
      d = d.first(kTrpBytes);
      break;
    case USIW_CM_LOOK_HANDSHAKE:
      break;
    default:
      return;
  }
  // The worker handles the datagrams some time later, in their order.
  rx_at_ = std::max(rx_at_, w_.clock.now + w_.rng.below(20'000));
  w_.after(rx_at_ - w_.clock.now, life_,
           [this, copy = std::vector(d.begin(), d.end()), flow] { rx_work(copy, flow); });
}

/// Returns true if the worker has to answer @p d as a stray datagram.
bool Kernel::rx_data(std::span<const std::byte> d, const FlowKey& flow) {
  const bool stray = usiw_cm_stray_due(&stray_next_, now_us()) != 0;
  const Conn conn = lookup(flow);
  if (conn != nullptr && conn->cm.state == USIW_CM_ACCEPT_SENT && usiw_cm_confirms(&conn->cm, d.data()))
    usiw_cm_end_data_seen(conn.get(), now_us());
  reap();
  return stray && conn == nullptr;
}

void Kernel::icmp_unreachable(const FlowKey& flow, std::span<const std::byte> quoted) {
  const Conn conn = lookup(flow);
  if (conn != nullptr && usiw_cm_quotes(&conn->cm, quoted.data(), static_cast<uint32_t>(quoted.size())))
    usiw_cm_end_icmp(conn.get(), USIW_CM_ANSWER_NO_PORT, now_us());
  reap();
}

void Kernel::rx_work(const std::vector<std::byte>& d, const FlowKey& flow) {
  work_off_admission();
  work_off(d, flow, nullptr);
  work_off_admission();
}

void Kernel::work_off(std::span<const std::byte> d, const FlowKey& flow, Kept* kept) {
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  usiw_cm_verdict v{};
  const Conn conn = lookup(flow);
  const auto len = static_cast<uint32_t>(d.size());
  if (conn)
    usiw_cm_end_input(conn.get(), &v, d.data(), len, buf, now_us());
  else
    usiw_cm_input(&v, nullptr, d.data(), len, now_us(), buf);
  reap();
  if (v.kind == USIW_CM_V_ADMIT) return request(d, flow, v.pkt, kept);
  if (v.kind == USIW_CM_V_ANSWER) transmit(flow, buf, v.len);
  if (v.kind == USIW_CM_V_WITHDRAW) {
    const usiw_cm_tuple tuple = cm_tuple(flow);
    drop(usiw_cm_admission_withdraw(&admission_, &tuple, &v.pkt));
  }
  if (kept != nullptr) {
    usiw_cm_admission_discard(&admission_, kept, now_us());
    drop(kept);
  }
}

// ---- usiw_listen.c ----

/// Replaces the listener and its backlog. The size of the backlog depends on the seed, so that requests take every way
/// through the admission.
void Kernel::listen(Process* process) {
  if (places_.admission != nullptr) drop(usiw_cm_admission_leave(&places_, now_us()));
  listener_ = process;
  if (process == nullptr) return;
  usiw_cm_admission_join(&admission_, &places_, 1 + static_cast<uint32_t>(w_.sc.seed % 3) * 4);
  admission_due_ = true;
}

void Kernel::drop(usiw_cm_req* chain) {
  while (chain != nullptr) delete static_cast<Kept*>(std::exchange(chain, chain->next));
}

void Kernel::request(std::span<const std::byte> d, const FlowKey& flow, const usiw_cm_packet& pkt, Kept* kept) {
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  const bool known = kept != nullptr || pkt.ack_psn != 0;
  if (kept == nullptr) {
    kept = new Kept;
    kept->tuple = cm_tuple(flow);
    kept->flow = flow;
    kept->data.assign(d.begin(), d.end());
  }
  const bool listens = flow.local_port == kListenPort && listener_ != nullptr;
  usiw_cm_admission_verdict v;
  usiw_cm_admission_request(&v, &admission_, listens ? &places_ : nullptr, kept, &pkt, now_us());
  drop(v.out);
  int reason = v.kind == USIW_CM_ADM_REFUSE ? USIW_REJECT_NO_LISTENER : 0;
  if (v.kind == USIW_CM_ADM_ADMIT) reason = open(flow, pkt, v.isn, known);
  if (reason != 0)
    transmit(flow, buf, usiw_cm_build_refusal(&pkt, static_cast<uint8_t>(reason), buf));
  else if (v.pending != 0)
    transmit(flow, buf, usiw_cm_build_pending(&pkt, v.isn, buf));
  if (v.kind != USIW_CM_ADM_KEPT) drop(kept);
}

/// Makes a connection of an admitted REQ. @p known: the peer knows @p isn already. If not, the scenario has the ISN.
int Kernel::open(const FlowKey& flow, const usiw_cm_packet& pkt, uint32_t isn, bool known) {
  uint32_t planned = 0;
  uint16_t mtu = 1500;
  passive(flow, planned, mtu);
  const Conn conn = make_conn(flow);
  conn->in_backlog = true;
  conn->contract.handed_up();
  const int reason = usiw_cm_init_passive(&conn->cm, &pkt, known ? isn : planned, mtu, USIW_TRP_FIRST_WINDOW, now_us());
  if (reason != 0) {
    Host::leave_backlog(conn.get());
    conns_.pop_back();
    return reason;
  }
  usiw_cm_offer(&conn->cm, USIW_FEATURE_MERGES);
  conn->hashed = true;
  on_request(conn->id, {conn->cm.peer_pd, conn->cm.peer_pd_len});
  reap();
  return 0;
}

void Kernel::work_off_admission() {
  admission_due_ = false;
  drop(usiw_cm_admission_expire(&admission_, now_us()));
  while (usiw_cm_req* req = usiw_cm_admission_next(&admission_, now_us())) {
    auto* kept = static_cast<Kept*>(req);
    work_off(kept->data, kept->flow, kept);
  }
}

// ---- usiw_conn.c: the clock ----

/// Returns the time at which the timer for a deadline of cm/ fires. A deadline of 0 is none.
uint64_t Kernel::due_ns(uint64_t deadline_us) const {
  return deadline_us == 0 ? UINT64_MAX : deadline_us * 1000 + w_.sc.hosts[side_].timer_slop;
}

void Kernel::run_timers() {
  if (w_.mutation == Mutation::kDeafTimers) return void(++w_.mutated);
  if (admission_due_ || w_.clock.now >= due_ns(usiw_cm_admission_deadline(&admission_))) work_off_admission();
  const auto copy = std::vector<Conn>(conns_.begin(), conns_.end());
  for (const Conn& c : copy)
    if (w_.clock.now >= due_ns(usiw_cm_end_deadline(c.get()))) usiw_cm_end_tick(c.get(), now_us());
  reap();
}

uint64_t Kernel::next_deadline() const {
  if (w_.mutation == Mutation::kDeafTimers) return UINT64_MAX;
  if (admission_due_) return w_.clock.now;
  uint64_t at = due_ns(usiw_cm_admission_deadline(&admission_));
  for (const Conn& c : conns_) at = std::min(at, due_ns(usiw_cm_end_deadline(c.get())));
  return at;
}

// ---- usiw_iwcm.c ----

int Kernel::attach(const Conn& conn, uint32_t qpn, CmUser* user) {
  KQp* q = qp(qpn);
  if (q == nullptr || q->state > USIW_QPS_RTR) return -EINVAL;
  if (q->conn != nullptr) return -EISCONN;
  q->conn = conn;
  conn->qpn = qpn;
  conn->qp = q;
  conn->process = q->process;
  conn->user = user;
  usiw_cm_end_attach(conn.get(), w_.sc.two_ports ? USIW_CM_PACKETS | USIW_CM_SOCKET | USIW_CM_MOVES : USIW_CM_PACKETS);
  return 0;
}

int Kernel::connect(CmUser* user, uint32_t qpn, const FlowKey& tuple, uint32_t isn, const Params& p) {
  if (const Conn old = lookup(tuple); old != nullptr && old->cm.state == USIW_CM_LINGER) usiw_cm_end_drop(old.get());
  if (lookup(tuple) != nullptr) return -EADDRINUSE;
  const Conn conn = make_conn(tuple);
  int ret = usiw_cm_init_active(&conn->cm, isn, p.ird, p.ord, p.mtu, USIW_TRP_FIRST_WINDOW, p.pd.data(),
                                static_cast<uint16_t>(p.pd.size()));
  usiw_cm_offer(&conn->cm, USIW_FEATURE_MERGES);
  if (ret == 0) ret = attach(conn, qpn, user);
  if (ret != 0) {
    conns_.pop_back();
    return ret;
  }
  conn->hashed = true;
  conn->contract.connected();
  usiw_cm_end_connect(conn.get(), now_us());
  return 0;
}

int Kernel::accept(CmUser* user, uint32_t conn_id, uint32_t qpn, const Params& p) {
  const Conn conn = by_id(conn_id);
  if (conn == nullptr) return -ECONNRESET;
  int ret = conn->user == nullptr ? usiw_cm_end_may_accept(conn.get()) : -ECONNRESET;
  if (ret == 0) ret = attach(conn, qpn, user);
  if (ret == 0) {
    conn->contract.accepted();
    ret = usiw_cm_end_accept(conn.get(), p.ird, p.ord, p.pd.data(), static_cast<uint16_t>(p.pd.size()), now_us());
  }
  if (ret != 0) {
    usiw_cm_end_leave(conn.get());
    usiw_cm_end_abort(conn.get(), USIW_ABORT_LOCAL, now_us());
  }
  reap();
  return ret;
}

void Kernel::reject(uint32_t conn_id, std::span<const uint8_t> pd) {
  if (const Conn conn = by_id(conn_id))
    usiw_cm_end_reject(conn.get(), pd.data(), static_cast<uint16_t>(pd.size()), now_us());
  reap();
}

void Kernel::forget(CmUser* user) {
  for (const Conn& c : conns_)
    if (c->user == user) usiw_cm_end_leave(c.get());
}

// ---- usiw_qp.c ----

void Kernel::qp_create(uint32_t qpn, Process* process) { qps_[qpn] = {process, USIW_QPS_INIT, nullptr}; }

void Kernel::qp_destroy(uint32_t qpn) {
  KQp* q = qp(qpn);
  if (q == nullptr) return;
  if (const Conn conn = q->conn) {
    usiw_cm_end_abort(conn.get(), USIW_ABORT_LOCAL, now_us());
    cancel_events(conn);
  }
  qps_.erase(qpn);
  reap();
}

/// Ends the connection of a QP whose new state is @p state: ERR, or INIT after a reset.
void Kernel::qp_end(uint32_t qpn, usiw_qp_state state) {
  KQp* q = qp(qpn);
  if (q == nullptr) return;
  if (const Conn conn = q->conn) usiw_cm_end_abort(conn.get(), USIW_ABORT_LOCAL, now_us());
  q->state = state;
  reap();
}

/// Ends a connection for rdma_disconnect(): iw_cm asks a connected QP for SQD. A QP whose connection has ended needs no
/// call.
void Kernel::disconnect(uint32_t qpn) {
  const KQp* q = qp(qpn);
  if (q == nullptr || q->state == USIW_QPS_ERR || q->conn == nullptr) return;
  const Conn conn = q->conn;
  usiw_cm_end_disconnect(conn.get(), now_us());
  reap();
}

void Kernel::process_died(Process* process) {
  if (listener_ == process) listen(nullptr);
  for (const Conn& c : std::vector<Conn>(conns_.begin(), conns_.end()))
    if (c->qp == nullptr && c->cm.state == USIW_CM_REQ_RCVD) usiw_cm_end_reject(c.get(), nullptr, 0, now_us());
  std::vector<uint32_t> qpns;
  for (const auto& [qpn, q] : qps_)
    if (q.process == process) qpns.push_back(qpn);
  for (const uint32_t qpn : qpns) qp_destroy(qpn);
  for (const Conn& c : events_[process]) c->records.pending = 0;
  events_.erase(process);
  for (const Conn& c : conns_)
    if (c->process == process) c->process = nullptr;
  reap();
}

void Kernel::qp_report(uint32_t qpn, uint32_t kind, uint32_t conn_id, int error) {
  KQp* q = qp(qpn);
  if (q == nullptr || q->conn == nullptr) return;
  const Conn conn = q->conn;
  trace("kernel: report %u of conn %u, error %d", kind, conn_id, error);
  if (w_.mutation == Mutation::kSwallowReport && kind == USIW_REPORT_CLOSED) return void(++w_.mutated);
  usiw_qp_report report{};
  report.kind = kind;
  report.conn_id = conn_id;
  (kind == USIW_REPORT_PORT ? report.port : reinterpret_cast<uint32_t&>(report.error)) = static_cast<uint32_t>(error);
  usiw_cm_end_report(conn.get(), &report, now_us());
  reap();
}

// ---- usiw_event.c ----

void Kernel::cancel_events(const Conn& conn) {
  conn->records.pending = 0;
  if (auto it = events_.find(conn->process); it != events_.end()) it->second.remove(conn);
}

bool Kernel::read_event(Process* process, KEvent& event) {
  auto it = events_.find(process);
  if (it == events_.end() || it->second.empty()) return false;
  const Conn conn = it->second.front();
  usiw_event record;
  usiw_cm_records_peek(&conn->records, &record);
  const usiw_conn_info& info = record.conn;
  event = {record.type,
           conn->qpn,
           conn->id,
           conn->flow,
           {info.snd_psn, info.rcv_psn, info.snd_window, info.ird, info.ord, info.mtu,
            (info.flags & USIW_CONN_F_INITIATOR) != 0, (info.features & USIW_FEATURE_MERGES) != 0},
           static_cast<usiw_not_packet>(info.not_packet)};
  if (usiw_cm_records_pop(&conn->records, &record) == 0) it->second.pop_front();
  reap();
  return true;
}

// ---- usiw_follow.c ----

void Kernel::path_changes(usiw_not_packet not_packet, size_t max_payload) {
  if (!w_.sc.two_ports) return;
  not_packet_ = not_packet;
  max_payload_ = max_payload;
  for (const Conn& c : std::vector<Conn>(conns_.begin(), conns_.end())) usiw_cm_end_follow(c.get(), now_us());
  reap();
}

bool Kernel::goes_by_socket(const FlowKey& tuple) const {
  const Conn c = lookup(tuple);
  return c != nullptr && c->port == 1 + USIW_PORT_SOCKET;
}

bool Kernel::must_go_by_socket(const FlowKey& tuple) const {
  const Conn c = lookup(tuple);
  return c != nullptr && c->port == 1 + USIW_PORT_SOCKET && (c->records.pending >> USIW_EVENT_PATH & 1) == 0 &&
         not_packet_ != USIW_NOT_PACKET_NONE;
}

}  // namespace usiw::sim
