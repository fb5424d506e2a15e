// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "kernel.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include "cm/usiw_cm_input.h"
#include "cm/usiw_cm_notify.h"
#include "process.h"

namespace usiw::sim {

struct KConn {
  usiw_cm_conn cm{};
  Contract contract;
  FlowKey tuple{};
  uint32_t id = 0;
  uint32_t qpn = 0;          ///< stays when the QP is released
  bool attached = false;     ///< the QP has this connection
  Process* process = nullptr;
  CmUser* user = nullptr;    ///< nullptr: iw_cm has no cm_id of it (any more)
  usiw_cm_ledger ledger{};
  bool in_backlog = false;   ///< has one of the listener's places
  bool announced = false, hashed = false;
  uint32_t pending = 0;      ///< unread records, bits of USIW_EVENT_*
  bool by_socket = false;    ///< the process says so
};

namespace {

constexpr uint32_t kEventOrder[] = {USIW_EVENT_CONNECT, USIW_EVENT_PATH, USIW_EVENT_PROBE, USIW_EVENT_DISCONNECT,
                                    USIW_EVENT_KILL};
usiw_cm_tuple cm_tuple(const FlowKey& flow) {
  usiw_cm_tuple t{};
  std::copy(flow.local_addr.begin(), flow.local_addr.end(), t.local);
  std::copy(flow.remote_addr.begin(), flow.remote_addr.end(), t.remote);
  t.local_port = flow.local_port;
  t.remote_port = flow.remote_port;
  return t;
}

void mute(KConn& conn) {
  conn.user = nullptr;
  usiw_cm_ledger_mute(&conn.ledger);
}

void tell(KConn& conn, uint32_t event, int status) {
  if (!usiw_cm_notify(&conn.ledger, event, status)) return;
  const usiw_cm_conn& cm = conn.cm;
  if (event == USIW_CM_A_EV_REPLY) conn.user->on_reply(status, {cm.peer_pd, cm.peer_pd_len});
  if (event == USIW_CM_A_EV_ESTABLISHED) conn.user->on_established();
  if (event == USIW_CM_A_EV_DISCONNECT) conn.user->on_disconnected(status);
  if (event == USIW_CM_A_EV_CLOSE) conn.user->on_closed();
}

}  // namespace

/// A REQ that waits at the gate, with its datagram.
struct Kernel::Kept : usiw_cm_req {
  Kept() : usiw_cm_req{} {}
  FlowKey flow{};
  std::vector<std::byte> data;
};

Kernel::Kernel(World& world, int side) : w_(world), side_(side) {
  const __u64 key[2] = {world.sc.seed, static_cast<__u64>(side)};
  usiw_cm_gate_net_init(&net_, key);
  gate_.net = &net_;
}

Kernel::~Kernel() {
  while (gate_.first != nullptr) {
    usiw_cm_req* req = gate_.first;
    usiw_cm_gate_discard(&gate_, req, now_us());
    drop(req);
  }
}

// ---- Tables ----

Kernel::Conn Kernel::lookup(const FlowKey& tuple) const {
  for (const Conn& c : conns_)
    if (c->hashed && c->tuple == tuple) return c;
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
  auto c = std::make_shared<KConn>();
  c->tuple = tuple;
  c->id = next_id_++;
  conns_.push_back(c);
  return c;
}

bool Kernel::has_socket(uint16_t port) const {
  if (port == kListenPort && listener_ != nullptr) return true;
  for (const Conn& c : conns_)
    if (c->tuple.local_port == port) return true;
  return false;
}

/// Connections that nobody holds any more are freed.
void Kernel::reap() {
  std::erase_if(conns_, [](const Conn& c) {
    return !c->hashed && !c->attached && c->pending == 0 && c->cm.state == USIW_CM_DEAD;
  });
}

int Kernel::status_of(uint32_t conn_id) const {
  const Conn c = by_id(conn_id);
  return c ? c->cm.status : 0;
}

std::string Kernel::describe() const {
  std::string out;
  for (const Conn& c : conns_) {
    char text[120];
    std::snprintf(text, sizeof text, "conn %u port %u state %u%s%s; ", c->id,
                  c->cm.initiator ? c->tuple.local_port : c->tuple.remote_port, c->cm.state,
                  c->hashed ? " hashed" : "", c->attached ? " qp" : "");
    out += text;
  }
  return out;
}

// ---- usiw_rx.c ----

void Kernel::transmit(const FlowKey& flow, const void* data, uint32_t len) {
  const std::span d(static_cast<const std::byte*>(data), len);
  if (w_.tracing()) w_.trace("%c kernel> %s", 'A' + side_, sim::describe(d).c_str());
  w_.wire.send(side_, d, flow);
}

void Kernel::receive(std::span<const std::byte> d, const FlowKey& flow) {
  if (!has_socket(flow.local_port)) {
    // ICMP has no opcode of TRP: it goes as a datagram that no port would send. It quotes the PSN.
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
  // The worker, some time later and in order.
  rx_at_ = std::max(rx_at_, w_.clock.now + w_.rng.below(20'000));
  w_.after(rx_at_ - w_.clock.now, life_,
           [this, copy = std::vector(d.begin(), d.end()), flow] { rx_work(copy, flow); });
}

/// True if the worker shall answer it as stray.
bool Kernel::rx_data(std::span<const std::byte> d, const FlowKey& flow) {
  const bool stray = usiw_cm_stray_due(&stray_next_, now_us()) != 0;
  const Conn conn = lookup(flow);
  if (conn != nullptr && conn->cm.state == USIW_CM_ACCEPT_SENT && usiw_cm_confirms(&conn->cm, d.data()))
    perform(conn, usiw_cm_data_seen(&conn->cm, now_us()));
  return stray && conn == nullptr;
}

void Kernel::icmp_unreachable(const FlowKey& flow, std::span<const std::byte> quoted) {
  const Conn conn = lookup(flow);
  if (conn != nullptr && usiw_cm_quotes(&conn->cm, quoted.data(), static_cast<uint32_t>(quoted.size())))
    perform(conn, usiw_cm_icmp(&conn->cm, USIW_CM_HEARD_NO_PORT, now_us()));
}

void Kernel::rx_work(const std::vector<std::byte>& d, const FlowKey& flow) {
  work_off_gate();
  work_off(d, flow, nullptr);
  work_off_gate();
}

void Kernel::work_off(std::span<const std::byte> d, const FlowKey& flow, Kept* kept) {
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  usiw_cm_verdict v{};
  const Conn conn = lookup(flow);
  usiw_cm_input(&v, conn ? &conn->cm : nullptr, d.data(), static_cast<uint32_t>(d.size()), now_us(), buf);
  if (conn) perform(conn, v.actions);
  if (v.kind == USIW_CM_V_ADMIT) return request(d, flow, v.pkt, kept);
  if (v.kind == USIW_CM_V_ANSWER) transmit(flow, buf, v.len);
  if (v.kind == USIW_CM_V_WITHDRAW) {
    const usiw_cm_tuple tuple = cm_tuple(flow);
    drop(usiw_cm_gate_withdraw(&gate_, &tuple, &v.pkt));
  }
  if (kept != nullptr) {
    usiw_cm_gate_discard(&gate_, kept, now_us());
    drop(kept);
  }
}

// ---- usiw_listen.c ----

/// Backlogs of all kinds, so that the gate is passed in each of its ways.
void Kernel::listen(CmListener* listener) {
  if (places_.gate != nullptr) drop(usiw_cm_gate_leave(&places_, now_us()));
  listener_ = listener;
  if (listener == nullptr) return;
  usiw_cm_gate_join(&gate_, &places_, 1 + static_cast<uint32_t>(w_.sc.seed % 3) * 4);
  gate_due_ = true;
}

void Kernel::drop(usiw_cm_req* chain) {
  while (chain != nullptr) delete static_cast<Kept*>(std::exchange(chain, chain->next));
}

void Kernel::request(std::span<const std::byte> d, const FlowKey& flow, const usiw_cm_packet& pkt, Kept* kept) {
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  const bool told = kept != nullptr || pkt.ack_psn != 0;
  if (kept == nullptr) {
    kept = new Kept;
    kept->tuple = cm_tuple(flow);
    kept->flow = flow;
    kept->data.assign(d.begin(), d.end());
  }
  const bool listens = flow.local_port == kListenPort && listener_ != nullptr;
  usiw_cm_gate_verdict v;
  usiw_cm_gate_request(&v, &gate_, listens ? &places_ : nullptr, kept, &pkt, now_us());
  drop(v.out);
  int reason = v.kind == USIW_CM_G_REFUSE ? USIW_REJECT_NO_LISTENER : 0;
  if (v.kind == USIW_CM_G_ADMIT) reason = open(flow, pkt, v.isn, told);
  if (reason != 0)
    transmit(flow, buf, usiw_cm_build_refusal(&pkt, static_cast<uint8_t>(reason), buf));
  else if (v.pending != 0)
    transmit(flow, buf, usiw_cm_build_pending(&pkt, v.isn, buf));
  if (v.kind != USIW_CM_G_KEPT) drop(kept);
}

/// A REQ that was admitted. @p told: the peer has heard of @p isn; else the scenario has one.
int Kernel::open(const FlowKey& flow, const usiw_cm_packet& pkt, uint32_t isn, bool told) {
  uint32_t planned = 0;
  uint16_t mtu = 1500;
  passive(flow, planned, mtu);
  const Conn conn = make_conn(flow);
  conn->in_backlog = true;
  const int reason = usiw_cm_init_passive(&conn->cm, &pkt, told ? isn : planned, mtu, USIW_TRP_FIRST_WINDOW, now_us());
  if (reason != 0) {
    leave_backlog(*conn);
    conns_.pop_back();
    return reason;
  }
  usiw_cm_offer(&conn->cm, USIW_FEATURE_MERGES);
  conn->hashed = true;
  conn->contract.handed_up();
  listener_->on_request(conn->id, flow, {conn->cm.peer_pd, conn->cm.peer_pd_len});
  perform(conn, 0);
  return 0;
}

/// The peer has confirmed, or the connection has ended.
void Kernel::leave_backlog(KConn& conn) {
  if (!std::exchange(conn.in_backlog, false)) return;
  if (usiw_cm_gate_return(&places_, now_us()) != 0) gate_due_ = true;
}

void Kernel::work_off_gate() {
  gate_due_ = false;
  drop(usiw_cm_gate_expire(&gate_, now_us()));
  while (usiw_cm_req* req = usiw_cm_gate_next(&gate_, now_us())) {
    auto* kept = static_cast<Kept*>(req);
    work_off(kept->data, kept->flow, kept);
  }
}

// ---- usiw_conn.c: the clock ----

void Kernel::run_timers() {
  if (w_.mutation == Mutation::kDeafTimers) return void(++w_.mutated);
  const uint64_t slop = w_.sc.hosts[static_cast<size_t>(side_)].timer_slop;
  if (const uint64_t at = usiw_cm_gate_deadline(&gate_); gate_due_ || (at != 0 && w_.clock.now >= at * 1000 + slop))
    work_off_gate();
  const auto copy = std::vector<Conn>(conns_.begin(), conns_.end());
  for (const Conn& c : copy) {
    if (c->cm.deadline_us != 0 && w_.clock.now >= c->cm.deadline_us * 1000 + slop)
      perform(c, usiw_cm_timer(&c->cm, now_us()));
  }
}

uint64_t Kernel::next_deadline() const {
  uint64_t at = UINT64_MAX;
  if (w_.mutation == Mutation::kDeafTimers) return at;
  const uint64_t slop = w_.sc.hosts[static_cast<size_t>(side_)].timer_slop;
  if (gate_due_) return w_.clock.now;
  if (const uint64_t due = usiw_cm_gate_deadline(&gate_); due != 0) at = due * 1000 + slop;
  for (const Conn& c : conns_)
    if (c->cm.deadline_us != 0) at = std::min<uint64_t>(at, c->cm.deadline_us * 1000 + slop);
  return at;
}

// ---- usiw_iwcm.c ----

int Kernel::attach(const Conn& conn, uint32_t qpn, CmUser* user) {
  KQp* q = qp(qpn);
  if (q == nullptr || q->state != kInit) return -EINVAL;
  if (q->conn != nullptr) return -EISCONN;
  q->conn = conn;
  conn->qpn = qpn;
  conn->attached = true;
  conn->process = q->process;
  conn->user = user;
  return 0;
}

int Kernel::connect(CmUser* user, uint32_t qpn, const FlowKey& tuple, uint32_t isn, const Params& p) {
  if (const Conn old = lookup(tuple); old != nullptr && old->cm.state == USIW_CM_LINGER) old->hashed = false;
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
  usiw_cm_ledger_connected(&conn->ledger);
  perform(conn, usiw_cm_connect(&conn->cm, now_us()));
  return 0;
}

int Kernel::accept(CmUser* user, uint32_t conn_id, uint32_t qpn, const Params& p) {
  const Conn conn = by_id(conn_id);
  if (conn == nullptr) return -ECONNRESET;
  int ret = conn->cm.state == USIW_CM_REQ_RCVD && conn->user == nullptr ? 0 : -ECONNRESET;
  if (ret == 0) ret = attach(conn, qpn, user);
  uint32_t actions = 0;
  if (ret == 0)
    actions = usiw_cm_accept(&conn->cm, p.ird, p.ord, p.pd.data(), static_cast<uint16_t>(p.pd.size()), now_us(), &ret);
  if (ret == 0) {
    usiw_cm_ledger_accepted(&conn->ledger);
    conn->contract.accepted();
    perform(conn, actions);
  } else {
    mute(*conn);
    perform(conn, usiw_cm_abort(&conn->cm, USIW_KILL_LOCAL, now_us()));
  }
  return ret;
}

void Kernel::reject(uint32_t conn_id, std::span<const uint8_t> pd) {
  if (const Conn conn = by_id(conn_id))
    perform(conn, usiw_cm_reject(&conn->cm, pd.data(), static_cast<uint16_t>(pd.size()), now_us()));
}

void Kernel::forget(CmUser* user) {
  for (const Conn& c : conns_)
    if (c->user == user) mute(*c);
}

// ---- usiw_qp.c ----

void Kernel::qp_create(uint32_t qpn, Process* process) { qps_[qpn] = {qpn, process, kInit, nullptr}; }

void Kernel::qp_destroy(uint32_t qpn) {
  KQp* q = qp(qpn);
  if (q == nullptr) return;
  if (const Conn conn = q->conn) {
    perform(conn, usiw_cm_abort(&conn->cm, USIW_KILL_LOCAL, now_us()));
    cancel_events(conn);
  }
  qps_.erase(qpn);
}

void Kernel::qp_move(uint32_t qpn, QpState next) {
  KQp* q = qp(qpn);
  if (q == nullptr) return;
  if (const Conn conn = q->conn) {
    if (next == kSqd)
      perform(conn, usiw_cm_disconnect(&conn->cm, now_us()));
    else
      perform(conn, usiw_cm_abort(&conn->cm, USIW_KILL_LOCAL, now_us()));
  }
  if (next != kSqd) q->state = next;
}

void Kernel::disconnect(uint32_t qpn) {
  KQp* q = qp(qpn);
  // iw_cm moves a QP to SQD from RTS only; one that has ended needs nothing more.
  if (q != nullptr && q->state != kErr) qp_move(qpn, kSqd);
}

void Kernel::process_died(Process* process) {
  if (listener_ != nullptr && process->is_listener(listener_)) listen(nullptr);
  for (const Conn& c : std::vector<Conn>(conns_.begin(), conns_.end()))
    if (!c->attached && c->cm.state == USIW_CM_REQ_RCVD)
      perform(c, usiw_cm_reject(&c->cm, nullptr, 0, now_us()));
  std::vector<uint32_t> qpns;
  for (const auto& [qpn, q] : qps_)
    if (q.process == process) qpns.push_back(qpn);
  for (const uint32_t qpn : qpns) qp_destroy(qpn);
  for (const Conn& c : events_[process]) c->pending = 0;
  events_.erase(process);
  for (const Conn& c : conns_)
    if (c->process == process) c->process = nullptr;
  reap();
}

void Kernel::qp_report(uint32_t qpn, uint32_t kind, uint32_t conn_id, int error) {
  KQp* q = qp(qpn);
  if (q == nullptr || q->conn == nullptr || q->conn->id != conn_id || !q->conn->announced) return;
  const Conn conn = q->conn;
  w_.trace("%c kernel: report %u of conn %u, error %d", 'A' + side_, kind, conn_id, error);
  if (w_.mutation == Mutation::kSwallowReport && kind == USIW_REPORT_CLOSED) return void(++w_.mutated);
  if (kind == USIW_REPORT_PORT)
    conn->by_socket = error == USIW_PORT_SOCKET;
  else
    perform(conn, usiw_cm_report(&conn->cm, kind, error, now_us()));
}

// ---- usiw_event.c ----

void Kernel::push_event(const Conn& conn, uint32_t type) {
  Process* p = conn->process;
  if (p == nullptr) return;
  if (type == USIW_EVENT_KILL) cancel_events(conn);  // what is unread is out of date
  if (conn->pending == 0) events_[p].push_back(conn);
  conn->pending |= 1u << type;
  p->wake_events();
}

void Kernel::cancel_events(const Conn& conn) {
  conn->pending = 0;
  if (auto it = events_.find(conn->process); it != events_.end()) it->second.remove(conn);
}

bool Kernel::read_event(Process* process, KEvent& event) {
  auto it = events_.find(process);
  if (it == events_.end() || it->second.empty()) return false;
  const Conn conn = it->second.front();
  for (const uint32_t type : kEventOrder) {
    if ((conn->pending >> type & 1) == 0) continue;
    const usiw_cm_conn& cm = conn->cm;
    event = {type, conn->qpn, conn->id, conn->tuple,
             {cm.local_isn, cm.peer_isn, cm.peer_window, cm.ird, cm.ord, cm.mtu, cm.initiator != 0,
              (cm.features & USIW_FEATURE_MERGES) != 0},
             not_packet_, path_mtu(*conn)};
    conn->pending &= ~(1u << type);
    break;
  }
  if (conn->pending == 0) it->second.pop_front();
  reap();
  return true;
}

// ---- usiw_follow.c ----

uint32_t Kernel::path_mtu(const KConn& conn) const {
  const size_t outer = conn.tuple.is_ipv4() ? 28 : 48;
  if (max_payload_ > conn.cm.mtu) return conn.cm.mtu;
  return static_cast<uint32_t>(std::clamp<size_t>(max_payload_ + outer, USIW_MIN_MTU, conn.cm.mtu));
}

void Kernel::path_changes(usiw_not_packet not_packet, size_t max_payload) {
  if (!w_.sc.two_ports) return;
  not_packet_ = not_packet;
  max_payload_ = max_payload;
  for (const Conn& c : conns_)
    if (c->attached && c->announced && c->cm.state != USIW_CM_DEAD) push_event(c, USIW_EVENT_PATH);
}

bool Kernel::goes_by_socket(const FlowKey& tuple) const {
  const Conn c = lookup(tuple);
  return c != nullptr && c->by_socket;
}

bool Kernel::must_go_by_socket(const FlowKey& tuple) const {
  const Conn c = lookup(tuple);
  return c != nullptr && c->by_socket && (c->pending >> USIW_EVENT_PATH & 1) == 0 &&
         not_packet_ != USIW_NOT_PACKET_NONE;
}

// ---- usiw_conn_act.c ----

void Kernel::release(const Conn& conn) {
  leave_backlog(*conn);
  const uint32_t owed = usiw_cm_owed(&conn->ledger, &conn->cm);
  for (const uint32_t event : {USIW_CM_A_EV_REPLY, USIW_CM_A_EV_ESTABLISHED, USIW_CM_A_EV_CLOSE})
    if ((owed & event) != 0) tell(*conn, event, event == USIW_CM_A_EV_REPLY ? -ECONNABORTED : 0);
  mute(*conn);
  if (KQp* q = qp(conn->qpn); q != nullptr && q->conn == conn) {
    if (conn->announced) q->state = kErr;
    q->conn = nullptr;
  }
  conn->attached = false;
}

void Kernel::perform_one(const Conn& conn, uint32_t action) {
  usiw_cm_conn* cm = &conn->cm;
  KQp* q = conn->attached ? qp(conn->qpn) : nullptr;
  switch (action) {
    case USIW_CM_A_INSTALL:
      conn->announced = true;
      return push_event(conn, USIW_EVENT_CONNECT);
    case USIW_CM_A_GRACE:
      if (q != nullptr) q->state = kSqd;
      return push_event(conn, USIW_EVENT_DISCONNECT);
    case USIW_CM_A_KILL:
      if (!conn->announced) return;
      if (q != nullptr) q->state = kErr;
      return push_event(conn, USIW_EVENT_KILL);
    case USIW_CM_A_PROBE:
      return push_event(conn, USIW_EVENT_PROBE);
    case USIW_CM_A_TX: {
      uint8_t buf[USIW_CM_MAX_DATAGRAM];
      return transmit(conn->tuple, buf, usiw_cm_build(cm, buf));
    }
    case USIW_CM_A_EV_REPLY:
    case USIW_CM_A_EV_ESTABLISHED:
      if (cm->state == USIW_CM_ESTABLISHED) leave_backlog(*conn);
      if (cm->state == USIW_CM_ESTABLISHED && q != nullptr) q->state = kRts;
      return tell(*conn, action, cm->status);
    case USIW_CM_A_EV_DISCONNECT:
    case USIW_CM_A_EV_CLOSE:
      return tell(*conn, action, cm->status);
    case USIW_CM_A_RELEASE:
      return release(conn);
    case USIW_CM_A_DEAD:
      conn->hashed = false;
      return;
    default:
      return;
  }
}

void Kernel::perform(const Conn& conn, uint32_t actions) {
  const std::string broken = conn->contract.check(conn->cm, actions);
  if (!broken.empty()) w_.fail("contract", "%c: connection machine: %s", 'A' + side_, broken.c_str());
  if (w_.tracing() && actions != 0)
    w_.trace("%c kernel: conn %u port %u state %u actions %03x", 'A' + side_, conn->id,
             conn->cm.initiator ? conn->tuple.local_port : conn->tuple.remote_port, conn->cm.state, actions);
  while (actions != 0) {
    const uint32_t action = actions & -actions;
    actions &= ~action;
    perform_one(conn, action);
  }
  reap();
}

}  // namespace usiw::sim
