// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ucm_query.cc
/// Queries of rdma_cm ids, and their options.
#include <infiniband/ib.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "cm/object/usiw_limits.h"
#include "tools/run/host/settings.h"
#include "tools/run/ucm/ucm_id.h"

namespace usiw::run {
namespace {

constexpr uint8_t kPortNumber = 1;

uint16_t fill_sockaddr(__kernel_sockaddr_storage& to, const Endpoint& e) {
  sockaddr_storage sa;
  socklen_t len = endpoint_to(e, sa);
  std::memcpy(&to, &sa, sizeof to);
  return static_cast<uint16_t>(len);
}

}  // namespace

/// Returns the source address of the id as queries report it. If a program binds an id to a loopback address with port
/// 0, it asks which address this host has for RDMA. libfabric offers the answer to other hosts, so the answer must be
/// the device's address. The kernel, too, treats a loopback address in this call as a wildcard. Such an id belongs to
/// the device, because librpma uses the same call to find the device.
Endpoint UcmId::reported_source() const {
  if (state_ != State::kAddrBound || !asks_address_) return src_;
  Endpoint own = device_address(src_.ipv4());
  if (own.any()) return src_;
  own.port = src_.port;
  return own;
}

rdma_ucm_query_route_resp UcmId::query_route() const {
  rdma_ucm_query_route_resp r{};
  const rdma_ucm_query_addr_resp ends = query_addr();
  std::memcpy(&r.src_addr, &ends.src_addr, sizeof r.src_addr);
  std::memcpy(&r.dst_addr, &ends.dst_addr, sizeof r.dst_addr);
  r.node_guid = ends.node_guid;
  r.port_num = ends.port_num;
  if (settings().face == FaceKind::kRoce) {
    sockaddr_ib source{}, destination{};
    set_gids(source, destination);
    std::memcpy(r.ib_route[0].sgid, &source.sib_addr, sizeof source.sib_addr);
    std::memcpy(r.ib_route[0].dgid, &destination.sib_addr, sizeof destination.sib_addr);
  } else if (has_device()) {
    std::memcpy(r.ib_route[0].sgid, device_mac().data(), device_mac().size());
  }
  return r;
}

rdma_ucm_query_addr_resp UcmId::query_addr() const {
  rdma_ucm_query_addr_resp r{};
  if (state_ != State::kIdle) r.src_size = fill_sockaddr(r.src_addr, reported_source());
  if (state_ > State::kAddrBound && state_ != State::kListen) r.dst_size = fill_sockaddr(r.dst_addr, dst_);
  if (has_device()) {
    r.node_guid = std::bit_cast<uint64_t>(node_guid());
    r.port_num = kPortNumber;
    r.pkey = 0xffff;
  }
  return r;
}

/// Returns the GIDs of both ends as AF_IB addresses: on the RoCE face their addresses, else the device's own GID, and
/// zeros for the peer.
rdma_ucm_query_addr_resp UcmId::query_gid() const {
  rdma_ucm_query_addr_resp r = query_addr();
  std::memset(&r.src_addr, 0, sizeof r.src_addr);
  std::memset(&r.dst_addr, 0, sizeof r.dst_addr);
  sockaddr_ib ib{};
  ib.sib_family = AF_IB;
  ib.sib_pkey = 0xffff;
  r.src_size = r.dst_size = sizeof ib;
  if (settings().face == FaceKind::kRoce) {
    sockaddr_ib source = ib;
    set_gids(source, ib);
    std::memcpy(&r.src_addr, &source, sizeof source);
    std::memcpy(&r.dst_addr, &ib, sizeof ib);
    return r;
  }
  std::memcpy(&r.dst_addr, &ib, sizeof ib);
  if (has_device()) std::memcpy(&ib.sib_addr, device_mac().data(), device_mac().size());
  std::memcpy(&r.src_addr, &ib, sizeof ib);
  return r;
}

/// Fills @p attr with the attributes to modify a QP to @p qp_state. Without a connection, rdma_cm returns the same
/// attributes for every state. With a connection, iw_cm returns attributes for INIT, RTR and RTS, and refuses other
/// states.
int UcmId::init_qp_attr(uint32_t qp_state, ib_uverbs_qp_attr& attr) const {
  if (!has_device()) return -EINVAL;
  if (settings().face == FaceKind::kRoce) return init_qp_attr_on_face(qp_state, attr);
  attr.qp_state = qp_state;
  attr.port_num = kPortNumber;
  attr.qp_attr_mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
  if (!conn_) return 0;
  switch (qp_state) {
    case IBV_QPS_INIT:
    case IBV_QPS_RTR:
      attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
      return 0;
    case IBV_QPS_RTS:
      attr.qp_attr_mask = IBV_QP_PORT;
      return 0;
    default:
      return -EINVAL;
  }
}

/// Returns the error for an option of InfiniBand. RDMA_OPTION_IB_PATH sets a path of InfiniBand, so it is refused. The
/// kernel accepts a path for an address that has been resolved, although iWARP ignores it.
static int set_ib_option(uint32_t name) { return name == RDMA_OPTION_IB_PATH ? -EINVAL : -ENOSYS; }

int UcmId::set_option(uint32_t level, uint32_t name, const void* value, uint32_t len) {
  int flag = 0;
  if (level == RDMA_OPTION_IB) return set_ib_option(name);
  if (level != RDMA_OPTION_ID) return -ENOSYS;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      if (len != 1) return -EINVAL;
      tos_ = usiw_traffic_class(*static_cast<const uint8_t*>(value));
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
      if (len != sizeof flag) return -EINVAL;
      std::memcpy(&flag, value, sizeof flag);
      if (name == RDMA_OPTION_ID_REUSEADDR) {
        if (flag != 0 ? state_ == State::kListen : state_ != State::kIdle) return -EINVAL;
        reuse_ = flag != 0;
        return 0;
      }
      if (state_ != State::kIdle && state_ != State::kAddrBound) return -EINVAL;
      afonly_ = flag != 0;
      afonly_is_set_ = true;
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      // Only the RoCE face uses this timeout, but the kernel accepts it for all ids with reliable connections.
      if (len != 1 || ps_ == RDMA_PS_UDP || ps_ == RDMA_PS_IPOIB) return -EINVAL;
      ack_timeout_ = *static_cast<const uint8_t*>(value);
      return 0;
    default:
      return -ENOSYS;
  }
}

}  // namespace usiw::run
