// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ucm_face.cc
/// The answers of rdma_cm on the RoCE face, where they differ from those for an RNIC: a program expects the path and
/// the QP attributes of InfiniBand there, and moves its QP by these attributes itself. The connection is the same.
#include <infiniband/ib.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>

#include <cerrno>
#include <cstring>

#include "cm/object/usiw_device_attr.h"
#include "cm/object/usiw_limits.h"
#include "cm/usiw_face.h"
#include "tools/run/host/gid_table.h"
#include "tools/run/ucm/ucm_id.h"

namespace usiw::run {
namespace {

constexpr uint8_t kFacePort = 1, kHopLimit = 64;
constexpr uint16_t kPkey = 0xffff;
/// The times that the kernel uses for a path of Ethernet: 4.096 us * 2^18, which is 1.07 s, and 7 retries.
constexpr uint8_t kPacketLifetime = 18, kRetries = 7;
constexpr uint8_t kExactly = 2 << 6;  ///< selector of a path record
constexpr uint8_t kRate10Gbit = 3;

/// Returns the index of the GID @p of, or 0 if the interface does not have this address.
uint8_t index_of(const Endpoint& of) {
  const GidTable table = gid_table();
  for (size_t i = 0; i < table.entries.size(); i++)
    if (table.entries[i].there && IN6_ARE_ADDR_EQUAL(&table.entries[i].gid, &of.addr)) return static_cast<uint8_t>(i);
  return 0;
}

}  // namespace

UcmPath UcmId::query_path() const {
  UcmPath r{};
  if (!has_device() || state_ < State::kRouteResolved || state_ == State::kListen) return r;
  r.num_paths = 1;
  ib_path_rec_data& data = r.path;
  data.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
  ibv_path_record path{};
  std::memcpy(&path.sgid, &src_.addr, sizeof path.sgid);
  std::memcpy(&path.dgid, &dst_.addr, sizeof path.dgid);
  path.flowlabel_hoplimit = htonl(kHopLimit);
  path.tclass = tos_;
  path.reversible_numpath = 1 << 7 | 1;
  path.pkey = htons(kPkey);
  path.mtu = static_cast<uint8_t>(kExactly | usiw_mtu_named(mtu_));
  path.rate = kExactly | kRate10Gbit;
  path.packetlifetime = kExactly | kPacketLifetime;
  static_assert(sizeof path == sizeof data.path_rec);
  std::memcpy(data.path_rec, &path, sizeof path);
  return r;
}

void UcmId::set_gids(sockaddr_ib& source, sockaddr_ib& destination) const {
  std::memcpy(&source.sib_addr, &src_.addr, sizeof src_.addr);
  if (state_ > State::kAddrBound && state_ != State::kListen)
    std::memcpy(&destination.sib_addr, &dst_.addr, sizeof dst_.addr);
}

/// As cm_init_qp_*_attr() of the kernel: the attributes that the move to @p qp_state requires. RTR and RTS need a
/// connection.
int UcmId::init_qp_attr_on_face(uint32_t qp_state, ib_uverbs_qp_attr& attr) const {
  const usiw_cm_conn* cm = conn_ ? &conn_->state() : nullptr;
  attr.qp_state = qp_state;
  attr.qp_attr_mask = IBV_QP_STATE;
  attr.port_num = kFacePort;
  switch (qp_state) {
    case IBV_QPS_INIT:
      attr.qp_attr_mask |= IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
      attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
      return 0;
    case IBV_QPS_RTR:
      if (cm == nullptr) return -EINVAL;
      attr.qp_attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                           IBV_QP_MIN_RNR_TIMER;
      std::memcpy(attr.ah_attr.grh.dgid, &dst_.addr, sizeof dst_.addr);
      attr.ah_attr.grh.sgid_index = index_of(src_);
      attr.ah_attr.grh.hop_limit = kHopLimit;
      attr.ah_attr.grh.traffic_class = conn_->tos_of_datagrams();
      attr.ah_attr.is_global = 1;
      attr.ah_attr.port_num = kFacePort;
      attr.path_mtu = usiw_mtu_named(cm->mtu);
      attr.dest_qp_num = number_of_peer_qp();
      attr.rq_psn = cm->peer_isn & USIW_FACE_PSN_MASK;
      attr.max_dest_rd_atomic = static_cast<uint8_t>(cm->ird != 0 ? cm->ird : cm->peer_ord);
      return 0;
    case IBV_QPS_RTS:
      if (cm == nullptr) return -EINVAL;
      attr.qp_attr_mask |= IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_MAX_QP_RD_ATOMIC;
      attr.sq_psn = cm->local_isn & USIW_FACE_PSN_MASK;
      attr.timeout = ack_timeout_ != 0 ? ack_timeout_ & 31 : kPacketLifetime + 1;
      attr.retry_cnt = attr.rnr_retry = kRetries;
      attr.max_rd_atomic = static_cast<uint8_t>(cm->ord != 0 ? cm->ord : cm->peer_ird);
      return 0;
    default: return -EINVAL;
  }
}

}  // namespace usiw::run
