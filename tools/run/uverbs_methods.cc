// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_methods.cc
/// The two methods that usiw adds to uverbs (uapi/usiw_abi.h), and the answer to all others.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <cerrno>

#include "conn.h"
#include "uverbs.h"

namespace usiw::run {
namespace {

constexpr int kMaxErrno = 4095;
constexpr uint32_t kLastQpEvent = IBV_EVENT_SQ_DRAINED;

bool report_is_valid(const usiw_qp_report& r) {
  return r.kind >= USIW_REPORT_READY && r.kind <= USIW_REPORT_ASYNC && r.error <= 0 && r.error >= -kMaxErrno &&
         r.async_event <= kLastQpEvent;
}

}  // namespace

int UverbsFile::cq_event(uint32_t handle, uint32_t kind) {
  std::shared_ptr<Cq> cq = find(cqs_, handle);
  if (!cq) return no_such(handle);
  switch (kind) {
    case USIW_CQ_COMPLETION:
      if (cq->channel) cq->channel->push({cq->user_handle}, cq->comp_events);
      return 0;
    case USIW_CQ_OVERRUN:
      async_->push({cq->user_handle, IBV_EVENT_CQ_ERR, 0}, cq->async_events);
      return 0;
    default:
      return -EINVAL;
  }
}

int UverbsFile::qp_report(uint32_t handle, const usiw_qp_report& report) {
  std::shared_ptr<Qp> qp = find(qps_, handle);
  if (!qp) return no_such(handle);
  if (!report_is_valid(report)) return -EINVAL;
  if (report.kind != USIW_REPORT_ASYNC)
    if (std::shared_ptr<Conn> conn = qp->conn) conn->report(report);
  if (report.async_event != 0) async_->push({qp->user_handle, report.async_event, 0}, qp->async_events);
  return 0;
}

int UverbsFile::ioctl(int, unsigned long request, void* arg) {
  if (request != RDMA_VERBS_IOCTL) return -ENOTTY;
  ib_uverbs_ioctl_hdr hdr;
  ib_uverbs_attr attrs[2];
  const auto at = reinterpret_cast<uint64_t>(arg);
  int ret = copy_from_program(&hdr, at, sizeof hdr);
  if (ret != 0) return ret;
  if (hdr.length > 4096 || hdr.length != sizeof hdr + hdr.num_attrs * sizeof(ib_uverbs_attr) ||
      hdr.reserved1 != 0 || hdr.reserved2 != 0)
    return hdr.length > 4096 ? -E2BIG : -EINVAL;
  bool is_cq = hdr.object_id == UVERBS_OBJECT_CQ && hdr.method_id == USIW_METHOD_CQ_EVENT;
  bool is_qp = hdr.object_id == UVERBS_OBJECT_QP && hdr.method_id == USIW_METHOD_QP_REPORT;
  if (!is_cq && !is_qp) return -EPROTONOSUPPORT;
  if (hdr.driver_id != USIW_DRIVER_ID || hdr.num_attrs != 2) return -EINVAL;
  ret = copy_from_program(attrs, at + sizeof hdr, sizeof attrs);
  if (ret != 0) return ret;

  const ib_uverbs_attr &handle = attrs[0], &data = attrs[1];
  if (is_cq) {
    uint32_t kind;
    if (handle.attr_id != USIW_ATTR_CQ_EVENT_HANDLE || data.attr_id != USIW_ATTR_CQ_EVENT_KIND ||
        data.len != sizeof kind)
      return -EINVAL;
    std::memcpy(&kind, &data.data, sizeof kind);  // data of up to 8 bytes travels in the attribute
    World hold(world());
    return cq_event(static_cast<uint32_t>(handle.data), kind);
  }
  usiw_qp_report report;
  if (handle.attr_id != USIW_ATTR_QP_REPORT_HANDLE || data.attr_id != USIW_ATTR_QP_REPORT_DATA ||
      data.len != sizeof report)
    return -EINVAL;
  ret = copy_from_program(&report, data.data, sizeof report);
  if (ret != 0) return ret;
  World hold(world());
  return qp_report(static_cast<uint32_t>(handle.data), report);
}

}  // namespace usiw::run
