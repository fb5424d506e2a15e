// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ucm_file.cc
/// The file: commands by write(2), and the events that wait.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tools/run/libc/device_numbers.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/program_memory.h"
#include "tools/run/libc/real.h"
#include "tools/run/ucm/open_rdma_cm.h"
#include "tools/run/ucm/ucm.h"

namespace usiw::run {
namespace {

/// The structure at the front of a command; what the program left out is zeros.
template <typename T>
T as(const std::vector<uint8_t>& in) {
  T value{};
  std::memcpy(&value, in.data(), std::min(in.size(), sizeof value));
  return value;
}

/// Where the number of the id is that a command is about. In those not listed it comes first.
constexpr std::pair<uint32_t, size_t> kIdAt[] = {
    {RDMA_USER_CM_CMD_DESTROY_ID, offsetof(rdma_ucm_destroy_id, id)},
    {RDMA_USER_CM_CMD_BIND_IP, offsetof(rdma_ucm_bind_ip, id)},
    {RDMA_USER_CM_CMD_RESOLVE_IP, offsetof(rdma_ucm_resolve_ip, id)},
    {RDMA_USER_CM_CMD_QUERY_ROUTE, offsetof(rdma_ucm_query, id)},
    {RDMA_USER_CM_CMD_QUERY, offsetof(rdma_ucm_query, id)},
    {RDMA_USER_CM_CMD_CONNECT, offsetof(rdma_ucm_connect, id)},
    {RDMA_USER_CM_CMD_ACCEPT, offsetof(rdma_ucm_accept, id)},
    {RDMA_USER_CM_CMD_INIT_QP_ATTR, offsetof(rdma_ucm_init_qp_attr, id)},
    {RDMA_USER_CM_CMD_SET_OPTION, offsetof(rdma_ucm_set_option, id)},
};

uint32_t id_in(uint32_t cmd, const std::vector<uint8_t>& in) {
  size_t at = 0;
  for (auto [known, where] : kIdAt)
    if (known == cmd) at = where;
  uint32_t id = 0;
  if (at + sizeof id <= in.size()) std::memcpy(&id, in.data() + at, sizeof id);
  return id;
}

template <typename T>
int answer_with(uint64_t at, size_t room, const T& value) {
  if (room < sizeof value) return -ENOSPC;
  return copy_to_program(at, &value, sizeof value);
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

dev_t UcmFile::device() const { return rdma_cm_device(); }

int UcmFile::open() {
  auto file = std::make_shared<UcmFile>();
  file->self_ = file;
  World hold(world());
  return EventFile::open(file);
}

int open_rdma_cm() { return UcmFile::open(); }

void UcmFile::push(UcmEvent event) {
  events_.push_back(std::move(event));
  set_readable(true);
}

std::vector<UcmEvent> UcmFile::take(const UcmId& id) {
  std::vector<UcmEvent> taken;
  std::erase_if(events_, [&](UcmEvent& e) {
    bool its = e.id.get() == &id || e.child.get() == &id;
    if (its) taken.push_back(e);
    return its;
  });
  if (events_.empty()) set_readable(false);
  return taken;
}

void UcmFile::closed() {
  World hold(world());
  closed_ = true;
  for (auto& id : ids_of(*this)) id->destroy();
  events_.clear();
}

ssize_t UcmFile::get_event(uint64_t response, size_t room) {
  constexpr size_t kLeast = offsetof(rdma_ucm_event_resp, reserved);
  if (room < kLeast) return -ENOSPC;
  return wait_for([&]() -> ssize_t {
    if (events_.empty()) return -EAGAIN;
    UcmEvent& e = events_.front();
    int ret = copy_to_program(response, &e.resp, std::min(room, sizeof e.resp));
    if (ret != 0) return ret;
    e.id->events_reported++;
    events_.pop_front();
    if (events_.empty()) set_readable(false);
    return 0;
  });
}

ssize_t UcmFile::write(int, const void* buf, size_t count) {
  rdma_ucm_cmd_hdr hdr;
  if (count < sizeof hdr) return -EINVAL;
  int ret = copy_from_program(&hdr, reinterpret_cast<uint64_t>(buf), sizeof hdr);
  if (ret != 0) return ret;
  if (hdr.cmd > RDMA_USER_CM_CMD_JOIN_MCAST || hdr.in + sizeof hdr > count) return -EINVAL;
  std::vector<uint8_t> in(hdr.in);
  ret = copy_from_program(in.data(), reinterpret_cast<uint64_t>(buf) + sizeof hdr, in.size());
  if (ret != 0) return ret;
  if (hdr.cmd == RDMA_USER_CM_CMD_GET_EVENT) {
    ret = static_cast<int>(get_event(as<rdma_ucm_get_event>(in).response, hdr.out));
  } else {
    World hold(world());
    ret = closed_ ? -EBADF : command(hdr.cmd, in, hdr.out);
  }
  return ret != 0 ? ret : static_cast<ssize_t>(count);
}

int UcmFile::query(const rdma_ucm_query& cmd, UcmId& id, size_t room) {
  switch (cmd.option) {
    case RDMA_USER_CM_QUERY_ADDR:
    case RDMA_USER_CM_QUERY_GID: {
      rdma_ucm_query_addr_resp r = cmd.option == RDMA_USER_CM_QUERY_ADDR ? id.query_addr() : id.query_gid();
      if (room < offsetof(rdma_ucm_query_addr_resp, ibdev_index)) return -ENOSPC;
      return copy_to_program(cmd.response, &r, std::min(room, sizeof r));
    }
    case RDMA_USER_CM_QUERY_PATH:
      return answer_with(cmd.response, room, rdma_ucm_query_path_resp{});
    default:
      return -ENOSYS;
  }
}

int UcmFile::migrate(const rdma_ucm_migrate_id& cmd, size_t room) {
  const int fd = static_cast<int>(cmd.fd);
  auto from = std::dynamic_pointer_cast<UcmFile>(file_of(fd));
  if (!from) return USIW_REAL(fcntl)(fd, F_GETFD) < 0 ? -ENOENT : -EINVAL;
  int error;
  std::shared_ptr<UcmId> id = UcmId::find(*from, cmd.id, error);
  if (!id) return error;
  if (from.get() != this) id->move_to(self_.lock());
  return answer_with(cmd.response, room, rdma_ucm_migrate_resp{id->events_reported});
}

int UcmFile::join(const rdma_ucm_join_mcast& cmd, size_t addr_len, size_t room) {
  if (room < sizeof(rdma_ucm_create_id_resp)) return -ENOSPC;
  if (addr_len == 0 || cmd.addr_size != addr_len) return -EINVAL;
  if (cmd.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return -EINVAL;
  int error;
  std::shared_ptr<UcmId> id = UcmId::find(*this, cmd.id, error);
  return id ? id->join() : error;
}

int UcmFile::command(uint32_t cmd, const std::vector<uint8_t>& in, size_t room) {
  int error = 0;
  switch (cmd) {
    case RDMA_USER_CM_CMD_CREATE_ID: {
      auto c = as<rdma_ucm_create_id>(in);
      if (room < sizeof(rdma_ucm_create_id_resp)) return -ENOSPC;
      if (c.ps != RDMA_PS_TCP && c.ps != RDMA_PS_UDP && c.ps != RDMA_PS_IPOIB && c.ps != RDMA_PS_IB) return -EINVAL;
      std::shared_ptr<UcmId> id = UcmId::create(self_.lock(), c.uid, c.ps);
      error = answer_with(c.response, room, rdma_ucm_create_id_resp{id->id()});
      if (error != 0) id->destroy();
      return error;
    }
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      return migrate(as<rdma_ucm_migrate_id>(in), room);
    case RDMA_USER_CM_CMD_GET_OPTION:
      return -ENOSYS;
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST: {
      auto c = as<rdma_ucm_join_ip_mcast>(in);
      const size_t len = address_size(c.addr.sin6_family);
      rdma_ucm_join_mcast join_cmd{};
      join_cmd.id = c.id;
      join_cmd.addr_size = static_cast<uint16_t>(len);
      return len == 0 ? -EINVAL : join(join_cmd, len, room);
    }
    case RDMA_USER_CM_CMD_JOIN_MCAST: {
      auto c = as<rdma_ucm_join_mcast>(in);
      const size_t len = address_size(c.addr.ss_family);
      return len == 0 ? -EINVAL : join(c, len, room);
    }
    case RDMA_USER_CM_CMD_LEAVE_MCAST:  // of a group that nobody could join
      return room < sizeof(rdma_ucm_destroy_id_resp) ? -ENOSPC : -ENOENT;
    case RDMA_USER_CM_CMD_CONNECT:
      if (in.size() < offsetof(rdma_ucm_connect, ece) || as<rdma_ucm_connect>(in).conn_param.valid == 0) return -EINVAL;
      break;
    case RDMA_USER_CM_CMD_ACCEPT:
      if (in.size() < offsetof(rdma_ucm_accept, ece)) return -EINVAL;
      break;
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      if (room < sizeof(ib_uverbs_qp_attr)) return -ENOSPC;
      if (as<rdma_ucm_init_qp_attr>(in).qp_state > IBV_QPS_ERR) return -EINVAL;
      break;
    default:
      break;
  }
  std::shared_ptr<UcmId> id = UcmId::find(*this, id_in(cmd, in), error);
  if (!id) return error;
  switch (cmd) {
    case RDMA_USER_CM_CMD_DESTROY_ID: {
      if (room < sizeof(rdma_ucm_destroy_id_resp)) return -ENOSPC;
      id->destroy();
      return answer_with(as<rdma_ucm_destroy_id>(in).response, room, rdma_ucm_destroy_id_resp{id->events_reported});
    }
    case RDMA_USER_CM_CMD_BIND_IP: {
      Endpoint addr;
      error = endpoint_of(as<rdma_ucm_bind_ip>(in).addr, kMappedIsNoneOfOurs, addr);
      return error != 0 ? error : id->bind(addr);
    }
    case RDMA_USER_CM_CMD_BIND: {
      auto c = as<rdma_ucm_bind>(in);
      Endpoint addr;
      if (c.reserved != 0 || c.addr_size == 0) return -EINVAL;
      error = endpoint_of(c.addr, c.addr_size, kMappedIsNoneOfOurs, addr);
      return error != 0 ? error : id->bind(addr);
    }
    case RDMA_USER_CM_CMD_RESOLVE_IP: {
      auto c = as<rdma_ucm_resolve_ip>(in);
      Endpoint src, dst;
      bool has_src = c.src_addr.sin6_family != 0;
      if (has_src) error = endpoint_of(c.src_addr, kMappedIsNoneOfOurs, src);
      if (error == 0) error = endpoint_of(c.dst_addr, kMappedIsNowhere, dst);
      return error != 0 ? error : id->resolve_addr(has_src ? &src : nullptr, dst);
    }
    case RDMA_USER_CM_CMD_RESOLVE_ADDR: {
      auto c = as<rdma_ucm_resolve_addr>(in);
      Endpoint src, dst;
      if (c.reserved != 0) return -EINVAL;
      if (c.src_size != 0) error = endpoint_of(c.src_addr, c.src_size, kMappedIsNoneOfOurs, src);
      if (error == 0) error = endpoint_of(c.dst_addr, c.dst_size, kMappedIsNowhere, dst);
      return error != 0 ? error : id->resolve_addr(c.src_size != 0 ? &src : nullptr, dst);
    }
    case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
      return id->resolve_route(as<rdma_ucm_resolve_route>(in).timeout_ms);
    case RDMA_USER_CM_CMD_QUERY_ROUTE: {
      rdma_ucm_query_route_resp r = id->query_route();
      if (room < offsetof(rdma_ucm_query_route_resp, ibdev_index)) return -ENOSPC;
      return copy_to_program(as<rdma_ucm_query>(in).response, &r, std::min(room, sizeof r));
    }
    case RDMA_USER_CM_CMD_QUERY:
      return query(as<rdma_ucm_query>(in), *id, room);
    case RDMA_USER_CM_CMD_CONNECT:
      return id->connect(as<rdma_ucm_connect>(in).conn_param);
    case RDMA_USER_CM_CMD_LISTEN:
      return id->listen(as<rdma_ucm_listen>(in).backlog);
    case RDMA_USER_CM_CMD_ACCEPT: {
      auto c = as<rdma_ucm_accept>(in);
      return id->accept(c.uid, c.conn_param);
    }
    case RDMA_USER_CM_CMD_REJECT: {
      auto c = as<rdma_ucm_reject>(in);
      return id->reject(c.private_data, c.private_data_len, c.reason);
    }
    case RDMA_USER_CM_CMD_DISCONNECT:
      return id->disconnect();
    case RDMA_USER_CM_CMD_INIT_QP_ATTR: {
      auto c = as<rdma_ucm_init_qp_attr>(in);
      ib_uverbs_qp_attr attr{};
      error = id->init_qp_attr(c.qp_state, attr);
      return error != 0 ? error : answer_with(c.response, room, attr);
    }
    case RDMA_USER_CM_CMD_SET_OPTION: {
      auto c = as<rdma_ucm_set_option>(in);
      uint8_t value[64] = {};
      error = copy_from_program(value, c.optval, std::min<size_t>(c.optlen, sizeof value));
      return error != 0 ? error : id->set_option(c.level, c.optname, value, c.optlen);
    }
    case RDMA_USER_CM_CMD_NOTIFY:
      return id->notify();
    default:
      return -ENOSYS;
  }
}

}  // namespace usiw::run
