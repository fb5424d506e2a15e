// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ucm_file.cc
/// The file /dev/infiniband/rdma_cm and its commands (rdma/rdma_user_cm.h). A program writes each command by write(2).
/// The response goes to an address that the command names. A request with two faults gets the error of the first check,
/// so the commands make their checks in the order of the kernel's ucma.c. The exception is the id: a handler that
/// with_id() calls makes its checks after the look-up of the id, but ucma.c makes some of them before, as for REJECT.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <vector>

#include "tools/run/host/big_lock.h"
#include "tools/run/libc/device_nodes.h"
#include "tools/run/libc/program_memory.h"
#include "tools/run/libc/real.h"
#include "tools/run/ucm/ucm_id.h"

namespace usiw::run {
namespace {

class UcmFile final : public UcmEvents, public std::enable_shared_from_this<UcmFile> {
 public:
  ssize_t write(int fd, const void* buf, size_t count) override;
  void closed() override;
  dev_t device() const override { return rdma_cm_device(); }
  /// [big lock not held] Waits for an event and copies it to the program. Returns 0 or -errno.
  int get_event(const rdma_ucm_get_event& c, size_t out_len);

 private:
  bool closed_ = false;  ///< set by closed(), which may run while another thread is in a call
};

/// One command of write(2), decoded.
struct Request {
  UcmFile& file;
  std::vector<uint8_t> in;  ///< the command's structure, as far as the program has written it
  size_t out_len;           ///< space for the response, bytes

  /// Returns the command's structure. Members that the program has left out at its end are 0.
  template <typename T>
  T as() const {
    T value{};
    std::memcpy(&value, in.data(), std::min(in.size(), sizeof value));
    return value;
  }
};

/// Writes @p value to the program's memory at @p at, but at most @p out_len bytes. Returns 0, -EFAULT, or -ENOSPC if
/// @p out_len is less than @p least.
template <typename T>
int answer_with(uint64_t at, size_t out_len, const T& value, size_t least = sizeof(T)) {
  if (out_len < least) return -ENOSPC;
  return copy_to_program(at, &value, std::min(out_len, sizeof value));
}

/// Returns the length of an address of this family, or 0 if rdma_cm does not know the family.
size_t address_size(sa_family_t family) {
  return family == AF_INET ? sizeof(sockaddr_in) : family == AF_INET6 ? sizeof(sockaddr_in6) : 0;
}

/// Errors for a mapped IPv4 address (::ffff:a.b.c.d) as an address of this host, and as the address of a peer. To the
/// kernel it is an IPv6 address that no interface has and to which no route leads. The commands must refuse it, because
/// this library uses the same form for IPv4 addresses.
constexpr int kMappedIsNoneOfOurs = -EADDRNOTAVAIL, kMappedIsNowhere = -ENETUNREACH;

/// Returns true if @p sa, a structure of the program, has an address of exactly @p len bytes.
bool is_address(const __kernel_sockaddr_storage& sa, size_t len) {
  return len != 0 && len == address_size(sa.ss_family);
}

/// Converts the program's address structure @p sa to @p out. Returns 0, @p mapped for a mapped IPv4 address, or -EINVAL
/// if the family is neither IPv4 nor IPv6.
template <typename Address>
int endpoint_of(const Address& sa, int mapped, Endpoint& out) {
  sockaddr_storage storage{};
  std::memcpy(&storage, &sa, sizeof sa);
  if (endpoint_from(storage, out) != 0) return -EINVAL;
  return storage.ss_family == AF_INET6 && out.ipv4() ? mapped : 0;
}

/// Handlers of the commands. UcmFile::write() holds the big lock during each of them, except during get_event().
struct UcmCommands {
  // ---- Ids ----

  static int create_id(const Request& r) {
    const auto c = r.as<rdma_ucm_create_id>();
    if (r.out_len < sizeof(rdma_ucm_create_id_resp)) return -ENOSPC;
    if (c.ps != RDMA_PS_TCP && c.ps != RDMA_PS_UDP && c.ps != RDMA_PS_IPOIB && c.ps != RDMA_PS_IB) return -EINVAL;
    std::shared_ptr<UcmId> id = UcmId::create(r.file.shared_from_this(), c.uid, c.ps);
    const int error = answer_with(c.response, r.out_len, rdma_ucm_create_id_resp{id->id()});
    if (error != 0) id->destroy();
    return error;
  }

  static int destroy_id(UcmId& id, const rdma_ucm_destroy_id& c, const Request& r) {
    if (r.out_len < sizeof(rdma_ucm_destroy_id_resp)) return -ENOSPC;
    id.destroy();
    return answer_with(c.response, r.out_len, rdma_ucm_destroy_id_resp{id.events_reported});
  }

  static int migrate_id(const Request& r) {
    const auto c = r.as<rdma_ucm_migrate_id>();
    const int fd = static_cast<int>(c.fd);
    auto from = std::dynamic_pointer_cast<UcmFile>(file_of(fd));
    if (!from) return USIW_REAL(fcntl)(fd, F_GETFD) < 0 ? -ENOENT : -EINVAL;
    int error;
    std::shared_ptr<UcmId> id = UcmId::find(*from, c.id, error);
    if (!id) return error;
    if (from.get() != &r.file) id->move_to(r.file.shared_from_this());
    return answer_with(c.response, r.out_len, rdma_ucm_migrate_resp{id->events_reported});
  }

  static int get_event(const Request& r) { return r.file.get_event(r.as<rdma_ucm_get_event>(), r.out_len); }

  // ---- Addresses ----

  template <typename Address>
  static int bind_to(UcmId& id, const Address& to) {
    Endpoint addr;
    const int error = endpoint_of(to, kMappedIsNoneOfOurs, addr);
    return error != 0 ? error : id.bind(addr);
  }
  static int bind_ip(UcmId& id, const rdma_ucm_bind_ip& c, const Request&) { return bind_to(id, c.addr); }
  static int bind(UcmId& id, const rdma_ucm_bind& c, const Request&) {
    return c.reserved == 0 && is_address(c.addr, c.addr_size) ? bind_to(id, c.addr) : -EINVAL;
  }

  template <typename Address>
  static int resolve(UcmId& id, bool has_src, const Address& from, const Address& to) {
    Endpoint src, dst;
    int error = has_src ? endpoint_of(from, kMappedIsNoneOfOurs, src) : 0;
    if (error == 0) error = endpoint_of(to, kMappedIsNowhere, dst);
    return error != 0 ? error : id.resolve_addr(has_src ? &src : nullptr, dst);
  }
  static int resolve_ip(UcmId& id, const rdma_ucm_resolve_ip& c, const Request&) {
    return resolve(id, c.src_addr.sin6_family != 0, c.src_addr, c.dst_addr);
  }
  static int resolve_addr(UcmId& id, const rdma_ucm_resolve_addr& c, const Request&) {
    const bool has_src = c.src_size != 0;
    if (c.reserved != 0 || (has_src && !is_address(c.src_addr, c.src_size)) || !is_address(c.dst_addr, c.dst_size))
      return -EINVAL;
    return resolve(id, has_src, c.src_addr, c.dst_addr);
  }

  static int resolve_route(UcmId& id, const rdma_ucm_resolve_route& c, const Request&) {
    return id.resolve_route(c.timeout_ms);
  }

  // ---- Queries and options ----

  static int query_route(UcmId& id, const rdma_ucm_query& c, const Request& r) {
    return answer_with(c.response, r.out_len, id.query_route(), offsetof(rdma_ucm_query_route_resp, ibdev_index));
  }

  static int query(UcmId& id, const rdma_ucm_query& c, const Request& r) {
    constexpr size_t kLeast = offsetof(rdma_ucm_query_addr_resp, ibdev_index);
    switch (c.option) {
      case RDMA_USER_CM_QUERY_ADDR: return answer_with(c.response, r.out_len, id.query_addr(), kLeast);
      case RDMA_USER_CM_QUERY_GID: return answer_with(c.response, r.out_len, id.query_gid(), kLeast);
      case RDMA_USER_CM_QUERY_PATH: {
        const UcmPath path = id.query_path();
        if (path.num_paths != 0 && r.out_len >= sizeof path) return answer_with(c.response, r.out_len, path);
        return answer_with(c.response, r.out_len, rdma_ucm_query_path_resp{});
      }
      default: return -ENOSYS;
    }
  }

  static int init_qp_attr(const Request& r) {
    if (r.out_len < sizeof(ib_uverbs_qp_attr)) return -ENOSPC;
    if (r.as<rdma_ucm_init_qp_attr>().qp_state > IBV_QPS_ERR) return -EINVAL;
    return with_id<rdma_ucm_init_qp_attr, init_attr_of>(r);
  }
  static int init_attr_of(UcmId& id, const rdma_ucm_init_qp_attr& c, const Request& r) {
    ib_uverbs_qp_attr attr{};
    const int error = id.init_qp_attr(c.qp_state, attr);
    return error != 0 ? error : answer_with(c.response, r.out_len, attr);
  }

  static int get_option(const Request&) { return -ENOSYS; }

  static int set_option(UcmId& id, const rdma_ucm_set_option& c, const Request&) {
    uint8_t value[64] = {};
    const int error = copy_from_program(value, c.optval, std::min<size_t>(c.optlen, sizeof value));
    return error != 0 ? error : id.set_option(c.level, c.optname, value, c.optlen);
  }

  // ---- Connections ----

  static int connect(const Request& r) {
    if (r.as<rdma_ucm_connect>().conn_param.valid == 0) return -EINVAL;
    return with_id<rdma_ucm_connect, connect_id>(r);
  }
  static int connect_id(UcmId& id, const rdma_ucm_connect& c, const Request&) { return id.connect(c.conn_param); }
  static int listen(UcmId& id, const rdma_ucm_listen& c, const Request&) { return id.listen(c.backlog); }
  static int accept(UcmId& id, const rdma_ucm_accept& c, const Request&) { return id.accept(c.uid, c.conn_param); }
  static int reject(UcmId& id, const rdma_ucm_reject& c, const Request&) {
    return id.reject(c.private_data, c.private_data_len, c.reason);
  }
  static int disconnect(UcmId& id, const rdma_ucm_disconnect&, const Request&) { return id.disconnect(); }
  static int notify(UcmId& id, const rdma_ucm_notify&, const Request&) { return id.notify(); }

  // ---- Multicast, which no iWARP device has ----

  static int join(const Request& r, const rdma_ucm_join_mcast& c, size_t addr_len) {
    if (addr_len == 0) return -EINVAL;
    if (r.out_len < sizeof(rdma_ucm_create_id_resp)) return -ENOSPC;
    if (c.addr_size != addr_len || c.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return -EINVAL;
    int error;
    std::shared_ptr<UcmId> id = UcmId::find(r.file, c.id, error);
    return id ? id->join() : error;
  }

  static int join_ip_mcast(const Request& r) {
    const auto c = r.as<rdma_ucm_join_ip_mcast>();
    const size_t len = address_size(c.addr.sin6_family);
    rdma_ucm_join_mcast join_cmd{};
    join_cmd.id = c.id;
    join_cmd.addr_size = static_cast<uint16_t>(len);
    return join(r, join_cmd, len);
  }

  static int join_mcast(const Request& r) {
    const auto c = r.as<rdma_ucm_join_mcast>();
    return join(r, c, address_size(c.addr.ss_family));
  }

  /// Returns the error for a group that the id has not joined, because no id can join one.
  static int leave_mcast(const Request& r) { return r.out_len < sizeof(rdma_ucm_destroy_id_resp) ? -ENOSPC : -ENOENT; }

  /// Calls @p handler with the id that the structure T of @p r names, and with T. Returns the handler's result, or the
  /// error of UcmId::find(). If the program has left out a part of the id, number 0 is looked up, which no id has.
  template <typename T, int (*handler)(UcmId& id, const T& c, const Request& r)>
  static int with_id(const Request& r) {
    const auto c = r.as<T>();
    const bool has_id = r.in.size() >= offsetof(T, id) + sizeof c.id;
    int error = 0;
    std::shared_ptr<UcmId> id = UcmId::find(r.file, has_id ? c.id : 0, error);
    return id ? handler(*id, c, r) : error;
  }
};

struct UcmMethod {
  uint32_t command;
  int (*handler)(const Request& r);
  size_t request_size = 0;  ///< least length of the request, bytes; a shorter one gets EINVAL
};

using C = UcmCommands;

/// The commands, indexed by their numbers. As in the kernel's rdma_ucm, most have no least size. The kernel reads a
/// structure past the end that the program states; this library adds zeros instead.
constexpr UcmMethod kUcmMethods[] = {
    {RDMA_USER_CM_CMD_CREATE_ID, C::create_id},
    {RDMA_USER_CM_CMD_DESTROY_ID, C::with_id<rdma_ucm_destroy_id, C::destroy_id>},
    {RDMA_USER_CM_CMD_BIND_IP, C::with_id<rdma_ucm_bind_ip, C::bind_ip>},
    {RDMA_USER_CM_CMD_RESOLVE_IP, C::with_id<rdma_ucm_resolve_ip, C::resolve_ip>},
    {RDMA_USER_CM_CMD_RESOLVE_ROUTE, C::with_id<rdma_ucm_resolve_route, C::resolve_route>},
    {RDMA_USER_CM_CMD_QUERY_ROUTE, C::with_id<rdma_ucm_query, C::query_route>},
    {RDMA_USER_CM_CMD_CONNECT, C::connect, offsetof(rdma_ucm_connect, ece)},
    {RDMA_USER_CM_CMD_LISTEN, C::with_id<rdma_ucm_listen, C::listen>},
    {RDMA_USER_CM_CMD_ACCEPT, C::with_id<rdma_ucm_accept, C::accept>, offsetof(rdma_ucm_accept, ece)},
    {RDMA_USER_CM_CMD_REJECT, C::with_id<rdma_ucm_reject, C::reject>},
    {RDMA_USER_CM_CMD_DISCONNECT, C::with_id<rdma_ucm_disconnect, C::disconnect>},
    {RDMA_USER_CM_CMD_INIT_QP_ATTR, C::init_qp_attr},
    {RDMA_USER_CM_CMD_GET_EVENT, C::get_event},
    {RDMA_USER_CM_CMD_GET_OPTION, C::get_option},
    {RDMA_USER_CM_CMD_SET_OPTION, C::with_id<rdma_ucm_set_option, C::set_option>},
    {RDMA_USER_CM_CMD_NOTIFY, C::with_id<rdma_ucm_notify, C::notify>},
    {RDMA_USER_CM_CMD_JOIN_IP_MCAST, C::join_ip_mcast},
    {RDMA_USER_CM_CMD_LEAVE_MCAST, C::leave_mcast},
    {RDMA_USER_CM_CMD_MIGRATE_ID, C::migrate_id},
    {RDMA_USER_CM_CMD_QUERY, C::with_id<rdma_ucm_query, C::query>},
    {RDMA_USER_CM_CMD_BIND, C::with_id<rdma_ucm_bind, C::bind>},
    {RDMA_USER_CM_CMD_RESOLVE_ADDR, C::with_id<rdma_ucm_resolve_addr, C::resolve_addr>},
    {RDMA_USER_CM_CMD_JOIN_MCAST, C::join_mcast},
};

constexpr bool is_indexed() {
  for (size_t i = 0; i < std::size(kUcmMethods); i++)
    if (kUcmMethods[i].command != i) return false;
  return true;
}
static_assert(is_indexed());

ssize_t UcmFile::write(int, const void* buf, size_t count) {
  rdma_ucm_cmd_hdr hdr;
  if (count < sizeof hdr) return -EINVAL;
  int ret = copy_from_program(&hdr, reinterpret_cast<uint64_t>(buf), sizeof hdr);
  if (ret != 0) return ret;
  if (hdr.cmd >= std::size(kUcmMethods) || hdr.in + sizeof hdr > count) return -EINVAL;
  const UcmMethod& method = kUcmMethods[hdr.cmd];
  Request request{*this, std::vector<uint8_t>(hdr.in), hdr.out};
  ret = copy_from_program(request.in.data(), reinterpret_cast<uint64_t>(buf) + sizeof hdr, request.in.size());
  if (ret != 0) return ret;
  if (hdr.cmd == RDMA_USER_CM_CMD_GET_EVENT) {
    ret = method.handler(request);
  } else {
    HoldBigLock hold;
    if (closed_) return -EBADF;
    if (request.in.size() < method.request_size) return -EINVAL;
    ret = method.handler(request);
  }
  return ret != 0 ? ret : static_cast<ssize_t>(count);
}

int UcmFile::get_event(const rdma_ucm_get_event& c, size_t out_len) {
  constexpr size_t kLeast = offsetof(rdma_ucm_event_resp, reserved);
  if (out_len < kLeast) return -ENOSPC;
  return static_cast<int>(wait_for([&]() -> ssize_t {
    if (events_.empty()) return -EAGAIN;
    UcmEvent& e = events_.front();
    if (int ret = answer_with(c.response, out_len, e.resp, kLeast); ret != 0) return ret;
    e.id->events_reported++;
    events_.pop_front();
    if (events_.empty()) set_readable(false);
    return 0;
  }));
}

void UcmFile::closed() {
  HoldBigLock hold;
  closed_ = true;
  for (auto& id : ids_of(*this)) id->destroy();
  events_.clear();
}

}  // namespace

int open_rdma_cm() {
  auto file = std::make_shared<UcmFile>();
  HoldBigLock hold;
  return EventFile::open(file);
}

}  // namespace usiw::run
