// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ucm_id.cc
/// The states of rdma_cm ids, and the commands that change them. Queries and options are in ucm_query.cc.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "cm/object/usiw_limits.h"
#include "tools/run/conn/qp.h"
#include "tools/run/host/never_destroyed.h"
#include "tools/run/host/settings.h"
#include "tools/run/ucm/ucm_id.h"

namespace usiw::run {
namespace {

constexpr uint32_t kMaxBacklog = 1024;
/// Limits of iw_cm: bytes of private data; READs for IRD and ORD. An event of iw_cm has one byte for each number.
constexpr uint16_t kMaxPrivateData = 255, kMaxDepth = 255;
/// Reject reasons of InfiniBand that rdma_cm accepts from a program.
constexpr uint8_t kRejectConsumer = 28, kRejectVendorOption = 35;
/// The reject reason of InfiniBand if nobody listens.
constexpr uint8_t kRejectInvalidService = 8;

/// enum rdma_cm_event_type, whose header cannot be included beside rdma/rdma_user_cm.h.
enum : uint32_t {
  kAddrResolved = 0,
  kAddrError = 1,
  kRouteResolved = 2,
  kConnectRequest = 4,
  kConnectResponse = 5,
  kConnectError = 6,
  kUnreachable = 7,
  kRejected = 8,
  kEstablished = 9,
  kDisconnected = 10,
};

using IdTable = std::map<uint32_t, std::shared_ptr<UcmId>>;

IdTable& id_table() { return never_destroyed<IdTable>(); }

uint32_t next_id_number() {
  static uint32_t last = 0;
  do {
    last++;
  } while (id_table().count(last) != 0);
  return last;
}

/// Returns true if by default (sysctl net.ipv6.bindv6only) a listener on the IPv6 wildcard address gets no IPv4
/// connections.
bool bound_v6_only() {
  std::ifstream setting("/proc/sys/net/ipv6/bindv6only");
  int value = 0;
  setting >> value;
  return value != 0;
}

/// Returns the reject reason of InfiniBand, which a CA reports in place of an error number.
int reject_reason(const usiw_cm_conn& cm) {
  const bool nobody = cm.answer == USIW_CM_ANSWER_NO_PORT || cm.reject_reason == USIW_REJECT_NO_LISTENER;
  return nobody ? kRejectInvalidService : kRejectConsumer;
}

uint8_t as_depth(uint16_t value) { return static_cast<uint8_t>(std::min(value, kMaxDepth)); }

void fill_private_data(rdma_ucm_conn_param& to, const usiw_cm_conn& cm) {
  to.private_data_len = static_cast<uint8_t>(std::min(cm.peer_pd_len, kMaxPrivateData));
  std::memcpy(to.private_data, cm.peer_pd, to.private_data_len);
}

}  // namespace

// ---- The table --------------------------------------------------------------------------

UcmId::UcmId(const std::shared_ptr<UcmEvents>& file, uint64_t uid, uint16_t ps)
    : id_(next_id_number()), uid_(uid), ps_(ps), file_(file) {}

std::shared_ptr<UcmId> UcmId::create(const std::shared_ptr<UcmEvents>& file, uint64_t uid, uint16_t ps) {
  auto id = std::make_shared<UcmId>(file, uid, ps);
  id_table()[id->id_] = id;
  return id;
}

std::shared_ptr<UcmId> UcmId::find(const UcmEvents& file, uint32_t number, int& error) {
  auto it = id_table().find(number);
  error = it == id_table().end() ? -ENOENT : it->second->file_.get() != &file ? -EINVAL : 0;
  return error == 0 ? it->second : nullptr;
}

void ids_abandon() {
  // The child leaks the ids, because their destructors would act on the parent's connections.
  new IdTable(std::move(id_table()));
  id_table().clear();
}

std::vector<std::shared_ptr<UcmId>> ids_of(const UcmEvents& file) {
  std::vector<std::shared_ptr<UcmId>> found;
  for (auto& [number, id] : id_table())
    if (id->file() == &file) found.push_back(id);
  return found;
}

void UcmId::move_to(const std::shared_ptr<UcmEvents>& file) {
  std::vector<UcmEvent> unread = file_->take(*this);
  file_ = file;
  for (UcmEvent& e : unread) {
    if (e.child) e.child->file_ = file;
    file_->push(std::move(e));
  }
}

void UcmId::destroy() {
  if (state_ == State::kDestroyed) return;
  state_ = State::kDestroyed;
  unbind();
  std::shared_ptr<UcmId> alive = shared_from_this();
  id_table().erase(id_);
  // A request that the program has not read ends with its listener.
  for (UcmEvent& e : file_->take(*this))
    if (e.child && e.child.get() != this) e.child->destroy();
  if (std::shared_ptr<Conn> conn = std::move(conn_)) {
    conn->forget_user();
    if (listener_.lock() && !answered_)
      conn->reject(nullptr, 0);
    else if (conn->state().state != USIW_CM_CLOSING)  // a connection in CLOSING continues to its orderly end
      conn->abort(USIW_ABORT_LOCAL);
  }
}

// ---- Addresses --------------------------------------------------------------------------

void UcmId::unbind() {
  for (auto& s : sockets_) {
    s->remove_id();
    if (s->listener == this) s->listener = nullptr;
  }
  if (backlog_) sockets_.front()->admission->leave(*backlog_);
  backlog_.reset();
  sockets_.clear();
}

/// Returns an error if another id of this process is bound to the port, at an address that conflicts with @p addr, and
/// the two may not share the port: -EADDRNOTAVAIL if one of the addresses is a wildcard, else -EADDRINUSE. rdma_cm
/// counts ids that were bound, not sockets. The id of an accepted connection was never bound (its sockets_ is empty),
/// so it does not occupy the port.
int UcmId::check_port(const Endpoint& addr, bool reuse) const {
  if (addr.port == 0) return 0;
  for (auto& [number, other] : id_table()) {
    if (other.get() == this || other->sockets_.empty() || other->src_.port != addr.port) continue;
    if (reuse && other->reuse_) continue;
    if (afonly_ && other->afonly_ && addr.ipv4() != other->src_.ipv4()) continue;
    if (addr.any() || other->src_.any()) return -EADDRNOTAVAIL;
    if (addr == other->src_) return -EADDRINUSE;
  }
  return 0;
}

/// Returns the result of check_port() for an id that is about to be bound to @p addr. If the program has not set
/// afonly_, this function first sets the default. It does so for an unbound id only: when listen() adds the IPv4 socket
/// of an IPv6 wildcard, afonly_ must not change.
int UcmId::claims_port(const Endpoint& addr) {
  if (!afonly_is_set_ && state_ == State::kIdle) afonly_ = addr.ipv4() || bound_v6_only();
  return check_port(addr, reuse_);
}

/// Binds the id to the UDP port of @p addr. check_port() sees the ids of this process only. A port that another process
/// has is detected when the socket is bound.
int UcmId::bind_port(const Endpoint& addr) {
  int error = claims_port(addr);
  if (error != 0) return error;
  std::shared_ptr<UdpSocket> s = addr.port != 0 ? UdpSocket::find(addr) : nullptr;
  if (!s) s = Conn::open_port(addr, reuse_, error);
  if (!s) return error;
  s->add_id();
  sockets_.push_back(s);
  src_ = addr;
  src_.port = s->local().port;
  return 0;
}

/// Returns -EADDRINUSE if the id is bound to the IPv6 wildcard address, would get IPv4 connections as well, does not
/// share its port, and another socket has the port in IPv4.
int UcmId::check_other_family() const {
  if (!src_.any() || src_.ipv4() || afonly_ || reuse_) return 0;
  const Endpoint v4 = endpoint_any(true, src_.port);
  int error = 0;
  if (!UdpSocket::find(v4)) Conn::open_port(v4, false, error);
  return error == -EADDRINUSE ? error : 0;
}

int UcmId::bind(const Endpoint& addr) {
  if (state_ != State::kIdle) return -EINVAL;
  if (IN6_IS_ADDR_LINKLOCAL(&addr.addr) && addr.scope == 0) return -EINVAL;
  if (!addr.any() && !is_own_address(addr)) return -EADDRNOTAVAIL;
  // For port 0 the host's kernel chooses a free port. If the address is the IPv6 wildcard, another process may have
  // that port in IPv4, so the loop tries other ports.
  int ret = 0;
  for (int tries = addr.port != 0 ? 1 : 64; tries > 0; --tries) {
    ret = bind_port(addr);
    if (ret != 0 || (ret = check_other_family()) == 0) break;
    unbind();
  }
  if (ret == 0) state_ = State::kAddrBound;
  asks_address_ = addr.loopback() && addr.port == 0;
  return ret;
}

/// Resolves @p dst and reports the result by an event, as the kernel does. A source port that is taken is an error of
/// the call, because the kernel binds an id to its source before it resolves. If @p src is a wildcard address, the
/// kernel binds the id to that wildcard. This conflicts with every other id on the port that does not share it:
/// -EADDRNOTAVAIL.
int UcmId::resolve_addr(const Endpoint* src, const Endpoint& dst) {
  if (state_ != State::kIdle && state_ != State::kAddrBound) return -EINVAL;
  if (state_ == State::kIdle && src != nullptr && !src->any() && !is_own_address(*src)) return -EADDRNOTAVAIL;
  if (state_ == State::kAddrBound && asks_address_ && !dst.loopback() && !dst.any()) {
    unbind();
    state_ = State::kIdle;
  }
  Endpoint from = state_ == State::kAddrBound ? src_ : src != nullptr ? *src : endpoint_any(dst.ipv4());
  if (from.ipv4() != dst.ipv4() && !(from.any() && state_ == State::kAddrBound)) return -EINVAL;
  if (from.any() || from.ipv4() != dst.ipv4()) {
    uint16_t port = from.port;
    from = preferred_source(dst.ipv4());
    from.port = port;
  }
  const bool from_anywhere = state_ == State::kIdle && src != nullptr && src->any();
  if (from_anywhere)
    if (int error = claims_port(*src); error != 0) return error;
  dst_ = dst;
  if (dst_.any()) dst_.addr.s6_addr32[3] = htonl(dst.ipv4() ? INADDR_LOOPBACK : 1);
  Route route;
  int ret = route_to(from, dst_, route);
  if (ret != 0 && src == nullptr && from.port == 0)
    ret = route_to(endpoint_any(dst.ipv4()), dst_, route);  // perhaps no route leads to the peer from --address
  if (ret == 0) {
    route.local.port = from.port;
    if (state_ != State::kIdle)
      src_ = route.local;
    else if (int error = bind_port(route.local); error != 0)
      return error == -EADDRINUSE && from_anywhere ? -EADDRNOTAVAIL : error;
  }
  if (ret != 0) {
    report(kAddrError, ret);
    return 0;
  }
  mtu_ = static_cast<uint16_t>(route.mtu);
  state_ = State::kAddrResolved;
  report(kAddrResolved, 0);
  return 0;
}

int UcmId::resolve_route(uint32_t timeout_ms) {
  if (state_ != State::kAddrResolved || timeout_ms == 0) return -EINVAL;
  state_ = State::kRouteResolved;
  report(kRouteResolved, 0);
  return 0;
}

// ---- Connections ------------------------------------------------------------------------

/// Returns the error for an id that is no RDMA_PS_TCP. The kernel has EPROTONOSUPPORT for an RNIC. A CA has datagrams,
/// but not this one.
static int no_such_service() { return settings().face == FaceKind::kRoce ? -EOPNOTSUPP : -EPROTONOSUPPORT; }

static int check_param(const rdma_ucm_conn_param& param) {
  if (param.valid == 0) return -EINVAL;
  return usiw_check_depths(param.responder_resources, param.initiator_depth);
}

static ConnParam conn_param(const rdma_ucm_conn_param& param) {
  return {param.responder_resources, param.initiator_depth, param.private_data, param.private_data_len};
}

int UcmId::connect(const rdma_ucm_conn_param& param) {
  int ret = state_ != State::kRouteResolved ? -EINVAL : check_param(param);
  if (ret != 0) return ret;
  if (ps_ != RDMA_PS_TCP) return no_such_service();
  if (!dst_.unicast() || dst_.port == 0) return -EINVAL;
  if (mtu_ < USIW_MIN_MTU) return -EMSGSIZE;
  std::shared_ptr<Qp> qp = qp_by_number(param.qp_num);
  if (!qp) return -EINVAL;
  if (ret = sockets_.front()->claim(); ret != 0) return ret;
  state_ = State::kConnect;
  ret = Conn::connect(sockets_.front(), {{src_, dst_}, mtu_, tos_}, conn_param(param), qp, this, conn_);
  if (ret != 0) state_ = State::kRouteResolved;
  return ret;
}

int UcmId::listen(uint32_t backlog) {
  if (state_ == State::kIdle) {
    int ret = bind(endpoint_any(true));
    if (ret != 0) return ret;
  }
  if (state_ != State::kAddrBound) return -EINVAL;
  if (ps_ != RDMA_PS_TCP) return no_such_service();
  // A listener does not share its port, even if both ids asked for sharing when they were bound.
  if (int ret = check_port(src_, false); ret != 0) return ret;
  if (sockets_.front()->listener != nullptr) return -EADDRINUSE;
  if (int ret = sockets_.front()->claim(); ret != 0) return ret;
  reuse_ = false;
  if (src_.any() && !src_.ipv4() && !afonly_) {
    // A listener on the IPv6 wildcard address gets IPv4 connections as well, by a second socket. A host without IPv4
    // cannot have that socket and does not need it.
    const Endpoint own = src_;
    int ret = bind_port(endpoint_any(true, own.port));
    src_ = own;
    if (ret != 0 && ret != -EAFNOSUPPORT) return ret;
  }
  for (auto& s : sockets_) s->listener = this;
  state_ = State::kListen;
  listen_tos_ = tos_;
  backlog_ = std::make_shared<Backlog>();
  sockets_.front()->admission->join(*backlog_, backlog != 0 && backlog < kMaxBacklog ? backlog : kMaxBacklog);
  return 0;
}

int UcmId::open(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req, uint32_t isn) {
  int reason;
  const std::shared_ptr<Conn> conn = Conn::open(sock, tuple, req, isn, backlog_, listen_tos_, reason);
  if (!conn) return reason;
  std::shared_ptr<UcmId> child = create(file_, 0, ps_);
  child->state_ = State::kConnect;
  child->src_ = tuple.local;
  child->dst_ = tuple.remote;
  child->listener_ = weak_from_this();
  child->ack_timeout_ = ack_timeout_;
  child->conn_ = conn;
  const usiw_cm_conn& cm = conn->state();
  UcmEvent e{shared_from_this(), child, {}};
  e.resp.uid = uid_;
  e.resp.id = child->id_;
  e.resp.event = kConnectRequest;
  e.resp.param.conn.initiator_depth = as_depth(cm.peer_ird);
  e.resp.param.conn.responder_resources = as_depth(cm.peer_ord);
  if (settings().face == FaceKind::kRoce) e.resp.param.conn.qp_num = child->number_of_peer_qp();
  fill_private_data(e.resp.param.conn, cm);
  file_->push(std::move(e));
  return 0;
}

int UcmId::accept(uint64_t uid, const rdma_ucm_conn_param& param) {
  // This is rdma_establish(3), which a program calls if it manages its QP itself. Nothing is left to do, because the
  // connection was complete when ESTABLISHED was reported.
  if (conn_ && conn_->state().initiator != 0 && param.valid == 0) return 0;
  if (state_ != State::kConnect || !conn_ || conn_->state().initiator != 0 || answered_) return -EINVAL;
  std::shared_ptr<Qp> qp;
  int ret = check_param(param);
  if (ret == 0 && !(qp = qp_by_number(param.qp_num))) ret = -EINVAL;
  if (ret != 0)
    conn_->abort(USIW_ABORT_LOCAL);
  else
    ret = conn_->accept(conn_param(param), qp, this);
  listener_.reset();
  answered_ = true;
  if (ret == 0) uid_ = uid;
  return ret;
}

/// Rejects a request. @p reason is for InfiniBand; the peer of an iWARP connection sees the private data only. The
/// kernel checks the reason all the same.
int UcmId::reject(const void* pd, uint8_t len, uint8_t reason) {
  if (reason != 0 && reason != kRejectConsumer && reason != kRejectVendorOption) return -EINVAL;
  if (!conn_ || conn_->state().initiator != 0) return -EINVAL;
  if (answered_) {
    // The program has answered the request already. A reject after an accept ends the connection, as long as the peer
    // has not confirmed it. In all other cases a reject is an error.
    const uint8_t state = conn_->state().state;
    if (state != USIW_CM_INSTALLING && state != USIW_CM_ACCEPT_SENT) return -EINVAL;
    conn_->forget_user();
    conn_->abort(USIW_ABORT_LOCAL);
    return 0;
  }
  answered_ = true;
  bool known = conn_->state().state == USIW_CM_REQ_RCVD;
  conn_->reject(pd, len);
  return known ? 0 : -ECONNRESET;
}

/// Returns true if the id belongs to the device. An id that is bound to a wildcard address, or listens there, belongs
/// to none.
bool UcmId::has_device() const {
  switch (state_) {
    case State::kIdle: return false;
    case State::kAddrBound:
    case State::kListen: return !src_.any();
    default: return true;
  }
}

/// Carries out rdma_notify(3), by which a program reports that it saw an event of the QP before rdma_cm did. iWARP does
/// not use the report, so this function only checks the state of the id.
int UcmId::notify() const {
  const bool listens_by_device = state_ == State::kListen && has_device();
  return listens_by_device || conn_ ? 0 : -EINVAL;
}

/// Refuses a multicast group with the kernel's errors, because no iWARP device has multicast.
int UcmId::join() const {
  const bool may = state_ == State::kAddrBound || state_ == State::kAddrResolved;
  return has_device() && may && (ps_ == RDMA_PS_UDP || ps_ == RDMA_PS_IPOIB) ? -ENOSYS : -EINVAL;
}

int UcmId::disconnect() {
  if (!conn_) return -EINVAL;
  conn_->disconnect();
  return 0;
}

// ---- Events of the connection -----------------------------------------------------------

void UcmId::report(uint32_t event, int status, const usiw_cm_conn* cm) {
  UcmEvent e{shared_from_this(), nullptr, {}};
  e.resp.uid = uid_;
  e.resp.id = id_;
  e.resp.event = event;
  e.resp.status = static_cast<uint32_t>(status);
  if (cm != nullptr) {
    e.resp.param.conn.initiator_depth = as_depth(cm->ord);
    e.resp.param.conn.responder_resources = as_depth(cm->ird);
    if (settings().face == FaceKind::kRoce) e.resp.param.conn.qp_num = number_of_peer_qp();
    if (cm->initiator != 0) fill_private_data(e.resp.param.conn, *cm);
  }
  file_->push(std::move(e));
}

/// Reports an event of iw_cm as the event of rdma_cm that the kernel would report. CLOSE becomes DISCONNECTED. iw_cm's
/// DISCONNECT is not reported to users.
void UcmId::on_event(uint32_t event, int status, const usiw_cm_conn& cm) {
  if (event == USIW_CM_A_EV_CLOSE) return report(kDisconnected, 0);
  // The acceptor gets one ESTABLISHED even if the connection has failed meanwhile. CLOSE reports the failure.
  if (event == USIW_CM_A_EV_ESTABLISHED) return report(kEstablished, 0, &cm);
  if (event != USIW_CM_A_EV_REPLY) return;
  const bool is_ca = settings().face == FaceKind::kRoce;
  switch (status) {
    // On a CA the program, or librdmacm for it, moves the QP to RTS first and then accepts this answer.
    case 0: return report(is_ca ? kConnectResponse : kEstablished, 0, &cm);
    case -ECONNRESET:
    case -ECONNREFUSED: return report(kRejected, is_ca ? reject_reason(cm) : status, &cm);
    case -ETIMEDOUT: return report(kUnreachable, status, &cm);
    default: return report(kConnectError, status, &cm);
  }
}

}  // namespace usiw::run
