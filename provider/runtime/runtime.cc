// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file runtime.cc
/// Life of a runtime: contexts, counters page, ports, fork and exit.
#include "runtime/runtime.h"

#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "port/ethdev_port.h"
#include "port/fault_port.h"
#include "port/shm_port.h"
#include "port/socket_port.h"
#include "uapi/usiw_wire.h"
#include "base/say.h"

namespace usiw {

std::atomic<uint32_t> Runtime::g_fork_generation{0};

namespace {

// Never destroyed: threads of the application may still be inside while the process exits.
std::mutex& registry_lock() {
  static std::mutex& lock = *new std::mutex;
  return lock;
}
std::vector<Runtime*>& registry() {
  static auto& list = *new std::vector<Runtime*>;
  return list;
}

/// Asked of the kernel once. A raw IP socket takes the same right as a packet socket, whose closing takes milliseconds.
bool packets_permitted() {
  static const bool once = [] {
    const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    if (fd >= 0) close(fd);
    return fd >= 0;
  }();
  return once;
}

uint64_t* map_page(void* at, int flags, int fd, uint64_t offset, size_t size) {
  void* p = mmap(at, size, PROT_READ | PROT_WRITE, flags | (at != nullptr ? MAP_FIXED : 0), fd,
                 static_cast<off_t>(offset));
  return p == MAP_FAILED ? nullptr : static_cast<uint64_t*>(p);
}

}  // namespace

// ---- fork and exit ------------------------------------------------------------------

void Runtime::before_fork() { registry_lock().lock(); }
void Runtime::after_fork_parent() { registry_lock().unlock(); }
void Runtime::after_fork_child() {
  g_fork_generation.fetch_add(1, std::memory_order_relaxed);
  registry().clear();  // leaked on purpose: nothing in it may be touched
  registry_lock().unlock();
}

void Runtime::at_exit() {
  // Exit handlers and destructors run from here on, DPDK's too: nobody may drive meanwhile.
  if (!registry_lock().try_lock()) return;
  for (Runtime* r : registry())
    if (r->progress_->freeze()) r->acknowledge_all();
  registry_lock().unlock();
}

/// The kernel's RESETs follow.
void Runtime::acknowledge_all() {
  std::unique_lock hold(qps_lock_, std::try_to_lock);
  if (!hold) return;
  Progress::Hold held(*progress_);
  for (auto& [qpn, qp] : qps_)
    if (qp->qp != nullptr) engine_->qp_acknowledge(qp->qp);
}

// ---- Contexts ---------------------------------------------------------------------------

int Runtime::attach(Context& context, const usiw_link_info& link) try {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    atexit(at_exit);
  });
  std::lock_guard hold(registry_lock());
  const char* name = context.ibv->device->name;
  auto& list = registry();
  auto it = std::find_if(list.begin(), list.end(), [&](Runtime* r) {
    return r->device_ == name && r->ifindex_ == link.ifindex && !r->gone_;
  });
  Runtime* runtime;
  if (it != list.end()) {
    runtime = *it;
  } else {
    list.reserve(list.size() + 1);
    runtime = new Runtime(name, link, context.port_kind);
    list.push_back(runtime);
  }
  runtime->contexts_.push_back(&context);
  context.runtime = runtime;
  if (runtime->contexts_.size() == 1) runtime->point_counters();
  runtime->progress_->watch(context.event_fd, Progress::Kind::kControl, context);
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void Runtime::detach(Context& context) {
  Runtime* runtime = context.runtime;
  runtime->progress_->unwatch(context.event_fd);
  bool last;
  {
    std::lock_guard hold(registry_lock());
    bool owned_page = runtime->contexts_.front() == &context;
    std::erase(runtime->contexts_, &context);
    if (owned_page) runtime->point_counters();
    last = runtime->contexts_.empty();
    if (last) std::erase(registry(), runtime);
  }
  if (last) delete runtime;
}

/// As the rest counts on it: ports have room for USIW_MAX_MTU, the name has an end.
usiw_link_info Runtime::usable(usiw_link_info link) {
  link.mtu = std::min<uint32_t>(link.mtu, USIW_MAX_MTU);
  link.lo_mtu = std::min<uint32_t>(link.lo_mtu, USIW_MAX_MTU);
  link.ifname[sizeof link.ifname - 1] = 0;
  return link;
}

Runtime::Runtime(std::string device, const usiw_link_info& link, uint32_t port_kind)
    : device_(std::move(device)),
      fork_generation_(g_fork_generation.load(std::memory_order_relaxed)),
      ifindex_(link.ifindex),
      port_kind_(port_kind),
      link_(usable(link)),
      link_mtu_(link_.mtu) {
  counters_ = map_page(nullptr, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, USIW_COUNTERS_SIZE);
  if (counters_ == nullptr) throw std::bad_alloc();
  engine_ = std::make_unique<Engine>(clock_, static_cast<EngineEvents&>(*this), counters_);
  progress_.reset(new Progress(*this, clock_, Progress::mode_from_environment()));
  if (const char* wish = getenv(kPortVariable); wish != nullptr && *wish != 0 && !parse_port_wish(wish, wish_))
    say_once(std::string(kPortVariable) + ": " + kPortNames + ", not '" + wish + "'; auto is taken");
}

Runtime::~Runtime() {
  progress_.reset();
  engine_.reset();
  ports_.clear();
  trace_.reset();
  munmap(counters_, USIW_COUNTERS_SIZE);
}

/// The engine adds to one page for all contexts: that of the first living context, which
/// the kernel sums up for the device. When its owner closes, the next one's page takes its
/// address.
void Runtime::point_counters() {
  Progress::Hold held(*progress_);
  if (!contexts_.empty()) {
    const Context& c = *contexts_.front();
    if (c.counters_size == USIW_COUNTERS_SIZE &&
        map_page(counters_, MAP_SHARED, c.cmd_fd, c.counters_offset, USIW_COUNTERS_SIZE) != nullptr) {
      madvise(counters_, USIW_COUNTERS_SIZE, MADV_DONTFORK);
      return;
    }
  }
  if (map_page(counters_, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, USIW_COUNTERS_SIZE) == nullptr)
    abort();  // MAP_FIXED may have unmapped the page that the engine writes
}

// ---- Ports ---------------------------------------------------------------------------------

int Runtime::bring_up() {
  std::lock_guard hold(ports_lock_);
  if (up_) return 0;
  bool sockets = true;
  {
    // Nobody has read the kernel's events yet: the link may have changed since the open.
    std::lock_guard registered(registry_lock());
    for (Context* c : contexts_) {
      c->ready(c->event_fd, 0);
      sockets = sockets && (c->caps & USIW_CAP_DATA_SOCKET) != 0;
    }
  }
  bool loopback, link_up;
  uint32_t mtu;
  std::string ifname;
  {
    std::lock_guard link_hold(link_lock_);
    loopback = link_.is_loopback != 0;
    link_up = link_.up != 0;
    mtu = link_.mtu;
    ifname = link_.ifname;
  }
  if (const int rc = make_first_port(sockets, loopback, mtu); rc != 0) return rc;
  if (int rc = progress_->start(); rc != 0) {
    say_once(device_ + ": the progress thread could not be started: " + strerror(rc));
    return rc;
  }
  open_trace();
  if (!link_up)
    say_once(device_ + ": netdev " + ifname + " is down; no connection will come about until 'ip link set " +
             ifname + " up'");
  up_ = true;
  return 0;
}

/// [ports_lock_] Where it takes long, ahead of the first connection. What cannot be made matters now only if nothing
/// can take its place.
int Runtime::make_first_port(bool sockets, bool loopback, uint32_t mtu) {
  int error = 0;
  std::string why;
  if (port_kind_ != USIW_PORT_PACKET) {
    if (port_for(port_kind_ == USIW_PORT_SHM ? Reach::kMemory : Reach::kSockets, mtu, error, why) != nullptr) return 0;
  } else {
    const bool must = !sockets || wish_ == PortWish::kPacket;
    if (!must && (loopback || wish_ != PortWish::kAuto || !packets_permitted())) return 0;
    if (port_for(packet_reach(false), mtu, error, why) != nullptr) return 0;
    packets_broken_ = true;
    if (!must) return 0;
  }
  say_once(device_ + ": " + why);
  return error;
}

/// [ports_lock_] Before the first QP; a program without a trace runs as well. A program with more
/// rights than its user does not let that user say where it makes files.
void Runtime::open_trace() {
  const TraceSpec spec = TraceSpec::parse(secure_getenv("USIW_TRACE"));
  if (!spec.complaint.empty()) say_once(spec.complaint);
  std::string why;
  trace_ = TraceFile::create(spec, device_, why);
  if (trace_ == nullptr) {
    if (!spec.directory.empty()) say_once(device_ + ": " + why);
    return;
  }
  Progress::Hold held(*progress_);
  engine_->trace_into(trace_->memory());
}

/// [ports_lock_] A port to there, for packets of up to @p mtu bytes: made when first needed (a
/// connection of the host to itself, a netdev whose MTU has grown).
Runtime::PortSlot* Runtime::port_for(Reach reach, uint32_t mtu, int& error, std::string& why) {
  for (PortSlot& slot : ports_)
    if (slot.reach == reach && slot.port->mtu() >= mtu) return &slot;

  std::unique_ptr<NetPort> port = make_port(reach, mtu, error, why);
  if (!port) return nullptr;
  if (const Faults& faults = Faults::from_environment(); faults.on_wire())
    port = std::make_unique<FaultPort>(std::move(port), faults);
  int number;
  {
    Progress::Hold held(*progress_);
    number = engine_->add_port(*port);
    if (number >= 0) to_arm_.push_back(port.get());
  }
  if (number < 0) {
    error = ENOMEM;
    why = "no room for another port";
    return nullptr;
  }
  progress_->watch(port->wait_fd(), Progress::Kind::kPacket, *this);
  if (port->control_fd() >= 0) progress_->watch(port->control_fd(), Progress::Kind::kControl, port_control_);
  ports_.push_back({std::move(port), number, reach});
  return &ports_.back();
}

std::unique_ptr<NetPort> Runtime::make_port(Reach reach, uint32_t mtu, int& error, std::string& why) {
  if (reach == Reach::kSockets || reach == Reach::kMemory) return make_socket_port(reach == Reach::kMemory, error, why);
  return make_packet_port(reach == Reach::kLoopback, mtu, error, why);
}

/// One for all: the kernel routes.
std::unique_ptr<NetPort> Runtime::make_socket_port(bool memory, int& error, std::string& why) {
  std::unique_ptr<NetPort> port;
  if (memory)
    port = ShmPort::create(USIW_MAX_MTU, error);
  else
    port = SocketPort::create(USIW_MAX_MTU, error);
  if (!port) why = std::string("no memory or descriptors for a port: ") + strerror(error);
  return port;
}

std::unique_ptr<NetPort> Runtime::make_packet_port(bool loopback, uint32_t mtu, int& error, std::string& why) {
  EthdevPort::Spec spec;
  {
    std::lock_guard hold(link_lock_);
    if (loopback)
      spec = {"lo", if_nametoindex("lo"), std::max(mtu, link_.lo_mtu), nullptr};
    else
      spec = {link_.ifname, ifindex_, std::max(mtu, link_.mtu), &link_mtu_};
  }
  return EthdevPort::create(spec, why, error);
}

Runtime::Reach Runtime::packet_reach(bool local) {
  std::lock_guard hold(link_lock_);
  return local || link_.is_loopback != 0 ? Reach::kLoopback : Reach::kNetdev;
}

/// [ports_lock_] Which port a connection goes by, of those that the control path offers.
PortChoice Runtime::choose(const usiw_conn_info& conn) const {
  if ((conn.flags & USIW_CONN_F_SOCKET) == 0) return {PortKind::kPacket, USIW_PORT_WHY_ONLY};
  if (port_kind_ != USIW_PORT_PACKET)  // usiw-run has chosen
    return {port_kind_ == USIW_PORT_SHM ? PortKind::kShm : PortKind::kSocket, USIW_PORT_WHY_ONLY};
  const bool eligible = (conn.flags & USIW_CONN_F_PACKET) != 0;
  return choose_port(wish_, {.not_packet = eligible ? USIW_NOT_PACKET_NONE
                                           : conn.not_packet != USIW_NOT_PACKET_NONE
                                               ? static_cast<usiw_not_packet>(conn.not_packet)
                                               : USIW_NOT_PACKET_NETDEV,
                             .permitted = packets_permitted(),
                             .broken = packets_broken_,
                             .socket = conn.data_fd >= 0,
                             .same_host = (conn.flags & USIW_CONN_F_LOCAL) != 0});
}

/// [ports_lock_] The port, or none and an errno value. A raw port that cannot be made has a data socket in its place.
Runtime::PortSlot* Runtime::port_of(const usiw_conn_info& conn, PortChoice& choice, int& error) {
  const uint32_t mtu = std::min<uint32_t>(conn.mtu, USIW_MAX_MTU);
  std::string why;
  choice = choose(conn);
  if (choice.kind == PortKind::kPacket) {
    if (PortSlot* slot = port_for(packet_reach((conn.flags & USIW_CONN_F_LOCAL) != 0), mtu, error, why)) return slot;
    packets_broken_ = true;
    if ((conn.flags & USIW_CONN_F_SOCKET) != 0) choice = choose(conn);
  }
  switch (choice.kind) {
    case PortKind::kSocket:
      if (PortSlot* slot = port_for(Reach::kSockets, mtu, error, why)) return slot;
      break;
    case PortKind::kShm:
      if (PortSlot* slot = port_for(Reach::kMemory, mtu, error, why)) return slot;
      break;
    case PortKind::kNone:
      if (error == 0) error = conn.data_fd < 0 ? -conn.data_fd : EPERM;
      if (why.empty())
        why = wish_ == PortWish::kPacket ? "USIW_PORT=packet, and a connection cannot go by raw packets"
                                         : std::string("no data socket for a connection: ") + strerror(error);
      break;
    case PortKind::kPacket:
      break;
  }
  say_once(device_ + ": " + why);
  return nullptr;
}

bool Runtime::arm() {
  bool quiet = true;
  for (NetPort* port : to_arm_) quiet = port->arm() && quiet;
  return quiet;
}

bool Runtime::ready(int fd, short revents) {
  if ((revents & POLLNVAL) != 0) return false;
  if ((revents & (POLLERR | POLLHUP)) != 0) {  // ENETDOWN, once per going down
    std::lock_guard hold(ports_lock_);
    for (PortSlot& slot : ports_)
      if (slot.port->wait_fd() == fd) slot.port->clear_error();
  }
  return true;
}

bool Runtime::PortControl::ready(int fd, short revents) {
  if ((revents & POLLNVAL) != 0) return false;
  std::lock_guard hold(runtime.ports_lock_);
  for (PortSlot& slot : runtime.ports_) {
    if (slot.port->control_fd() != fd) continue;
    Progress::Hold held(*runtime.progress_);
    slot.port->control();
  }
  return true;
}

void Runtime::release_port(VQp& qp) {
  std::lock_guard hold(ports_lock_);
  if (qp.port == nullptr) return;
  Progress::Hold held(*progress_);
  qp.port->remove_flow(qp.path);
  qp.port = nullptr;
}

// ---- QPs by number ------------------------------------------------------------------------

void Runtime::add_qp(VQp& qp) {
  std::lock_guard hold(qps_lock_);
  qps_[qp.ibv.qp_num] = &qp;
}

void Runtime::remove_qp(VQp& qp) {
  {
    std::lock_guard hold(qps_lock_);
    qps_.erase(qp.ibv.qp_num);
  }
  if (qp.qp != nullptr) {
    Progress::Hold held(*progress_);
    engine_->qp_acknowledge(qp.qp);  // ahead of the kernel's RESET
    engine_->qp_destroy(qp.qp);
    qp.qp = nullptr;
  }
  while (qp.pins.load(std::memory_order_acquire) != 0) sched_yield();
  release_port(qp);
}

VQp* Runtime::pin(uint32_t qpn) {
  std::lock_guard hold(qps_lock_);
  auto it = qps_.find(qpn);
  if (it == qps_.end()) return nullptr;
  it->second->pins.fetch_add(1, std::memory_order_relaxed);
  return it->second;
}

}  // namespace usiw
