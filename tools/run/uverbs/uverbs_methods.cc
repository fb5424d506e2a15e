// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_methods.cc
/// The ioctl methods that usiw adds to uverbs (uapi/usiw_abi.h). All other methods get EPROTONOSUPPORT.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <cerrno>

#include "cm/object/usiw_report.h"
#include "tools/run/conn/conn.h"
#include "tools/run/face/face.h"
#include "tools/run/host/big_lock.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {
namespace {

static_assert(USIW_ASYNC_SQ_DRAINED == IBV_EVENT_SQ_DRAINED);
static_assert(USIW_ASYNC_LAST_WQE_REACHED == IBV_EVENT_QP_LAST_WQE_REACHED);

/// A method: its numbers, the numbers of its attributes, and its handler if it is an event.
struct Ioctl {
  uint16_t object, method;
  uint16_t handle, data;                                           ///< attributes; data 0: the method has no data
  int (*event)(UverbsContext& u, uint32_t handle, uint32_t kind);  ///< null: the method is not an event
};

constexpr Ioctl kIoctls[] = {
    {USIW_OBJECT_EVENT_FILE, USIW_METHOD_EVENT_FILE_ALLOC, USIW_ATTR_EVENT_FILE_HANDLE, 0, nullptr},
    {UVERBS_OBJECT_CQ, USIW_METHOD_CQ_EVENT, USIW_ATTR_CQ_EVENT_HANDLE, USIW_ATTR_CQ_EVENT_KIND, cq_event},
    {UVERBS_OBJECT_SRQ, USIW_METHOD_SRQ_EVENT, USIW_ATTR_SRQ_EVENT_HANDLE, USIW_ATTR_SRQ_EVENT_KIND, srq_event},
    {UVERBS_OBJECT_QP, USIW_METHOD_QP_REPORT, USIW_ATTR_QP_REPORT_HANDLE, USIW_ATTR_QP_REPORT_DATA, nullptr},
};

int qp_report(UverbsContext& u, uint32_t handle, const usiw_qp_report& report) {
  std::shared_ptr<Qp> qp = u.find(u.qps, handle);
  if (!qp) return u.no_such(handle);
  if (usiw_report_is_valid(&report, u.caps) == 0) return -EINVAL;
  if (report.kind == USIW_REPORT_FAILED && qp->face) qp->face->failed(*qp, report);
  if (report.kind != USIW_REPORT_ASYNC)
    if (std::shared_ptr<Conn> conn = qp->conn) conn->report(report);
  if (report.async_event != 0) u.async->push({qp->user_handle, report.async_event, 0}, qp->async_events);
  return 0;
}

/// Opens the event stream of the context and writes the descriptor to the program's attribute at @p attr_at. A context
/// has one event stream: a second call returns -EBUSY.
int open_events(UverbsContext& u, uint64_t attr_at) {
  auto stream = std::make_shared<EventStream>();
  int fd;
  {
    HoldBigLock hold;
    if (!u.open) return -EINVAL;
    if (u.events) return -EBUSY;
    fd = EventStream::open(stream);
    if (fd < 0) return fd;
    u.events = stream;
  }
  const int64_t id = fd;
  const int ret = copy_to_program(attr_at + offsetof(ib_uverbs_attr, data_s64), &id, sizeof id);
  if (ret == 0) return 0;
  file_close(fd);  // takes the big lock itself
  HoldBigLock hold;
  u.events.reset();
  return ret;
}

/// Copies a report of the program to @p report. The report of an older provider ends before the newer members, which
/// are then 0. The report of a newer provider is longer, and the bytes that this version does not know must be 0. The
/// kernel's core does the same for UVERBS_ATTR_STRUCT, except that it has no limit of kMost bytes.
int copy_report(const ib_uverbs_attr& data, usiw_qp_report& report) {
  constexpr size_t kMost = 256, kLeast = offsetof(usiw_qp_report, port);
  uint8_t bytes[kMost] = {};
  if (data.len < kLeast || data.len > kMost) return -EINVAL;
  if (int ret = copy_from_program(bytes, data.data, data.len); ret != 0) return ret;
  for (size_t i = sizeof report; i < data.len; i++)
    if (bytes[i] != 0) return -EOPNOTSUPP;
  std::memcpy(&report, bytes, sizeof report);
  return 0;
}

}  // namespace

int uverbs_ioctl(UverbsContext& u, unsigned long request, void* arg) {
  if (request != RDMA_VERBS_IOCTL) return -ENOTTY;
  ib_uverbs_ioctl_hdr hdr;
  ib_uverbs_attr attrs[2];
  const auto at = reinterpret_cast<uint64_t>(arg);
  if (int ret = copy_from_program(&hdr, at, sizeof hdr); ret != 0) return ret;
  if (hdr.length > 4096) return -E2BIG;
  if (hdr.length != sizeof hdr + hdr.num_attrs * sizeof(ib_uverbs_attr) || hdr.reserved1 != 0 || hdr.reserved2 != 0)
    return -EINVAL;
  if (hdr.object_id == UVERBS_OBJECT_DEVICE && hdr.num_attrs <= Attributes::kMost) {
    Attributes all{.list = {}, .number = hdr.num_attrs};
    if (int ret = copy_from_program(all.list, at + sizeof hdr, all.number * sizeof all.list[0]); ret != 0) return ret;
    return gid_ioctl(hdr.method_id, all);
  }
  const Ioctl* known = nullptr;
  for (const Ioctl& m : kIoctls)
    if (m.object == hdr.object_id && m.method == hdr.method_id) known = &m;
  if (known == nullptr) return -EPROTONOSUPPORT;
  const uint16_t wanted = known->data != 0 ? 2 : 1;
  if (hdr.driver_id != USIW_DRIVER_ID || hdr.num_attrs != wanted) return -EINVAL;
  if (int ret = copy_from_program(attrs, at + sizeof hdr, wanted * sizeof attrs[0]); ret != 0) return ret;
  const ib_uverbs_attr &handle = attrs[0], &data = attrs[1];
  if (handle.attr_id != known->handle || (wanted == 2 && data.attr_id != known->data)) return -EINVAL;
  if (wanted == 1) return handle.len == 0 ? open_events(u, at + sizeof hdr) : -EINVAL;

  const auto object = static_cast<uint32_t>(handle.data);
  usiw_qp_report report;
  uint32_t kind = 0;
  if (known->event == nullptr) {
    if (int ret = copy_report(data, report); ret != 0) return ret;
  } else {
    if (data.len != sizeof kind) return -EINVAL;
    std::memcpy(&kind, &data.data, sizeof kind);  // data of up to 8 bytes is in the attribute itself
  }
  HoldBigLock hold;
  return known->event != nullptr ? known->event(u, object, kind) : qp_report(u, object, report);
}

}  // namespace usiw::run
