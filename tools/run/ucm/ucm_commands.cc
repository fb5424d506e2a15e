// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ucm_commands.cc
/// The commands of the file, one function each. Each checks in the order of the kernel's ucma.c, because a request with
/// two faults gets the error of the first check.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/run/libc/file.h"
#include "tools/run/libc/program_memory.h"
#include "tools/run/libc/real.h"
#include "tools/run/ucm/ucm.h"

namespace usiw::run {
namespace {

/// Writes @p value to the program's memory at @p at, as far as there is space. Returns 0, -EFAULT, or -ENOSPC for less
/// than @p least bytes.
template <typename T>
int answer_with(uint64_t at, size_t out_len, const T& value, size_t least = sizeof(T)) {
  if (out_len < least) return -ENOSPC;
  return copy_to_program(at, &value, std::min(out_len, sizeof value));
}

/// The length of an address of its family; 0: of none that rdma_cm knows.
size_t address_size(sa_family_t family) {
  return family == AF_INET ? sizeof(sockaddr_in) : family == AF_INET6 ? sizeof(sockaddr_in6) : 0;
}

/// Errors for an IPv4 address as an IPv6 one (::ffff:a.b.c.d), which in the kernel is an IPv6 address that no interface
/// has and no route leads to. Inside of this library it is the form of an IPv4 address.
constexpr int kMappedIsNoneOfOurs = -EADDRNOTAVAIL, kMappedIsNowhere = -ENETUNREACH;

int endpoint_of(const sockaddr_storage& sa, int mapped, Endpoint& out) {
  if (sa.ss_family == AF_INET6) {
    sockaddr_in6 six;
    std::memcpy(&six, &sa, sizeof six);
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return mapped;
  }
  return endpoint_from(sa, out);
}

int endpoint_of(const __kernel_sockaddr_storage& sa, size_t len, int mapped, Endpoint& out) {
  sockaddr_storage storage{};
  static_assert(sizeof storage == sizeof sa);
  std::memcpy(&storage, &sa, sizeof storage);
  if (len == 0 || len != address_size(storage.ss_family)) return -EINVAL;
  return endpoint_of(storage, mapped, out);
}

int endpoint_of(const sockaddr_in6& sa, int mapped, Endpoint& out) {
  sockaddr_storage storage{};
  std::memcpy(&storage, &sa, sizeof sa);
  return address_size(sa.sin6_family) == 0 ? -EINVAL : endpoint_of(storage, mapped, out);
}

}  // namespace

// ---- Ids --------------------------------------------------------------------------------

int UcmFile::create_id(const Request& r) {
  const auto c = r.as<rdma_ucm_create_id>();
  if (r.out_len < sizeof(rdma_ucm_create_id_resp)) return -ENOSPC;
  if (c.ps != RDMA_PS_TCP && c.ps != RDMA_PS_UDP && c.ps != RDMA_PS_IPOIB && c.ps != RDMA_PS_IB) return -EINVAL;
  std::shared_ptr<UcmId> id = UcmId::create(self_.lock(), c.uid, c.ps);
  const int error = answer_with(c.response, r.out_len, rdma_ucm_create_id_resp{id->id()});
  if (error != 0) id->destroy();
  return error;
}

int UcmFile::destroy_id(const Request& r) {
  return with_id<rdma_ucm_destroy_id>(r, [&](UcmId& id, const auto& c) {
    if (r.out_len < sizeof(rdma_ucm_destroy_id_resp)) return -ENOSPC;
    id.destroy();
    return answer_with(c.response, r.out_len, rdma_ucm_destroy_id_resp{id.events_reported});
  });
}

int UcmFile::migrate_id(const Request& r) {
  const auto c = r.as<rdma_ucm_migrate_id>();
  const int fd = static_cast<int>(c.fd);
  auto from = std::dynamic_pointer_cast<UcmFile>(file_of(fd));
  if (!from) return USIW_REAL(fcntl)(fd, F_GETFD) < 0 ? -ENOENT : -EINVAL;
  int error;
  std::shared_ptr<UcmId> id = UcmId::find(*from, c.id, error);
  if (!id) return error;
  if (from.get() != this) id->move_to(self_.lock());
  return answer_with(c.response, r.out_len, rdma_ucm_migrate_resp{id->events_reported});
}

int UcmFile::get_event(const Request& r) {
  const auto c = r.as<rdma_ucm_get_event>();
  constexpr size_t kLeast = offsetof(rdma_ucm_event_resp, reserved);
  if (r.out_len < kLeast) return -ENOSPC;
  return static_cast<int>(wait_for([&]() -> ssize_t {
    if (events_.empty()) return -EAGAIN;
    UcmEvent& e = events_.front();
    if (int ret = answer_with(c.response, r.out_len, e.resp, kLeast); ret != 0) return ret;
    e.id->events_reported++;
    events_.pop_front();
    if (events_.empty()) set_readable(false);
    return 0;
  }));
}

// ---- Addresses --------------------------------------------------------------------------

int UcmFile::bind_ip(const Request& r) {
  return with_id<rdma_ucm_bind_ip>(r, [](UcmId& id, const auto& c) {
    Endpoint addr;
    const int error = endpoint_of(c.addr, kMappedIsNoneOfOurs, addr);
    return error != 0 ? error : id.bind(addr);
  });
}

int UcmFile::bind(const Request& r) {
  return with_id<rdma_ucm_bind>(r, [](UcmId& id, const auto& c) {
    Endpoint addr;
    if (c.reserved != 0 || c.addr_size == 0) return -EINVAL;
    const int error = endpoint_of(c.addr, c.addr_size, kMappedIsNoneOfOurs, addr);
    return error != 0 ? error : id.bind(addr);
  });
}

int UcmFile::resolve_ip(const Request& r) {
  return with_id<rdma_ucm_resolve_ip>(r, [](UcmId& id, const auto& c) {
    Endpoint src, dst;
    const bool has_src = c.src_addr.sin6_family != 0;
    int error = has_src ? endpoint_of(c.src_addr, kMappedIsNoneOfOurs, src) : 0;
    if (error == 0) error = endpoint_of(c.dst_addr, kMappedIsNowhere, dst);
    return error != 0 ? error : id.resolve_addr(has_src ? &src : nullptr, dst);
  });
}

int UcmFile::resolve_addr(const Request& r) {
  return with_id<rdma_ucm_resolve_addr>(r, [](UcmId& id, const auto& c) {
    Endpoint src, dst;
    if (c.reserved != 0) return -EINVAL;
    const bool has_src = c.src_size != 0;
    int error = has_src ? endpoint_of(c.src_addr, c.src_size, kMappedIsNoneOfOurs, src) : 0;
    if (error == 0) error = endpoint_of(c.dst_addr, c.dst_size, kMappedIsNowhere, dst);
    return error != 0 ? error : id.resolve_addr(has_src ? &src : nullptr, dst);
  });
}

int UcmFile::resolve_route(const Request& r) {
  return with_id<rdma_ucm_resolve_route>(r, [](UcmId& id, const auto& c) { return id.resolve_route(c.timeout_ms); });
}

// ---- Queries and options ----------------------------------------------------------------

int UcmFile::query_route(const Request& r) {
  return with_id<rdma_ucm_query>(r, [&](UcmId& id, const auto& c) {
    return answer_with(c.response, r.out_len, id.query_route(), offsetof(rdma_ucm_query_route_resp, ibdev_index));
  });
}

int UcmFile::query(const Request& r) {
  return with_id<rdma_ucm_query>(r, [&](UcmId& id, const auto& c) {
    constexpr size_t kLeast = offsetof(rdma_ucm_query_addr_resp, ibdev_index);
    switch (c.option) {
      case RDMA_USER_CM_QUERY_ADDR: return answer_with(c.response, r.out_len, id.query_addr(), kLeast);
      case RDMA_USER_CM_QUERY_GID: return answer_with(c.response, r.out_len, id.query_gid(), kLeast);
      case RDMA_USER_CM_QUERY_PATH: return answer_with(c.response, r.out_len, rdma_ucm_query_path_resp{});
      default: return -ENOSYS;
    }
  });
}

int UcmFile::init_qp_attr(const Request& r) {
  if (r.out_len < sizeof(ib_uverbs_qp_attr)) return -ENOSPC;
  if (r.as<rdma_ucm_init_qp_attr>().qp_state > IBV_QPS_ERR) return -EINVAL;
  return with_id<rdma_ucm_init_qp_attr>(r, [&](UcmId& id, const auto& c) {
    ib_uverbs_qp_attr attr{};
    const int error = id.init_qp_attr(c.qp_state, attr);
    return error != 0 ? error : answer_with(c.response, r.out_len, attr);
  });
}

int UcmFile::get_option(const Request&) { return -ENOSYS; }

int UcmFile::set_option(const Request& r) {
  return with_id<rdma_ucm_set_option>(r, [](UcmId& id, const auto& c) {
    uint8_t value[64] = {};
    const int error = copy_from_program(value, c.optval, std::min<size_t>(c.optlen, sizeof value));
    return error != 0 ? error : id.set_option(c.level, c.optname, value, c.optlen);
  });
}

// ---- Connections ------------------------------------------------------------------------

int UcmFile::connect(const Request& r) {
  if (r.as<rdma_ucm_connect>().conn_param.valid == 0) return -EINVAL;
  return with_id<rdma_ucm_connect>(r, [](UcmId& id, const auto& c) { return id.connect(c.conn_param); });
}

int UcmFile::listen(const Request& r) {
  return with_id<rdma_ucm_listen>(r, [](UcmId& id, const auto& c) { return id.listen(c.backlog); });
}

int UcmFile::accept(const Request& r) {
  return with_id<rdma_ucm_accept>(r, [](UcmId& id, const auto& c) { return id.accept(c.uid, c.conn_param); });
}

int UcmFile::reject(const Request& r) {
  return with_id<rdma_ucm_reject>(r, [](UcmId& id, const auto& c) {
    return id.reject(c.private_data, c.private_data_len, c.reason);
  });
}

int UcmFile::disconnect(const Request& r) {
  return with_id<rdma_ucm_disconnect>(r, [](UcmId& id, const auto&) { return id.disconnect(); });
}

int UcmFile::notify(const Request& r) {
  return with_id<rdma_ucm_notify>(r, [](UcmId& id, const auto&) { return id.notify(); });
}

// ---- Multicast, which no iWARP device has -----------------------------------------------

int UcmFile::join(const rdma_ucm_join_mcast& c, size_t addr_len, size_t out_len) {
  if (addr_len == 0) return -EINVAL;
  if (out_len < sizeof(rdma_ucm_create_id_resp)) return -ENOSPC;
  if (c.addr_size != addr_len) return -EINVAL;
  if (c.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return -EINVAL;
  int error;
  std::shared_ptr<UcmId> id = UcmId::find(*this, c.id, error);
  return id ? id->join() : error;
}

int UcmFile::join_ip_mcast(const Request& r) {
  const auto c = r.as<rdma_ucm_join_ip_mcast>();
  const size_t len = address_size(c.addr.sin6_family);
  rdma_ucm_join_mcast join_cmd{};
  join_cmd.id = c.id;
  join_cmd.addr_size = static_cast<uint16_t>(len);
  return join(join_cmd, len, r.out_len);
}

int UcmFile::join_mcast(const Request& r) {
  const auto c = r.as<rdma_ucm_join_mcast>();
  return join(c, address_size(c.addr.ss_family), r.out_len);
}

/// No id can have joined a group.
int UcmFile::leave_mcast(const Request& r) { return r.out_len < sizeof(rdma_ucm_destroy_id_resp) ? -ENOSPC : -ENOENT; }

}  // namespace usiw::run
