// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_methods.cc
/// The methods that usiw adds to uverbs (uapi/usiw_abi.h), and the answer to all others.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <cerrno>

#include "tools/run/conn/conn.h"
#include "tools/run/host/big_lock.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {
namespace {

constexpr int kMaxErrno = 4095;
constexpr uint32_t kLastQpEvent = IBV_EVENT_SQ_DRAINED;

bool port_is_valid(const usiw_qp_report& r, uint64_t caps) {
  if (r.kind != USIW_REPORT_PORT) return r.port == 0 && r.port_why == 0;
  return (caps & USIW_CAP_PORT_TELL) != 0 && r.port < USIW_PORT_KIND_MAX && r.port_why < USIW_PORT_WHY_MAX;
}

bool report_is_valid(const usiw_qp_report& r, uint64_t caps) {
  return r.kind >= USIW_REPORT_READY && r.kind <= USIW_REPORT_PORT && r.error <= 0 && r.error >= -kMaxErrno &&
         (r.async_event <= kLastQpEvent || r.async_event == IBV_EVENT_QP_LAST_WQE_REACHED) && port_is_valid(r, caps);
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
  if (!report_is_valid(report, caps_)) return -EINVAL;
  if (report.kind != USIW_REPORT_ASYNC)
    if (std::shared_ptr<Conn> conn = qp->conn) conn->report(report);
  if (report.async_event != 0) async_->push({qp->user_handle, report.async_event, 0}, qp->async_events);
  return 0;
}

/// The context's event stream, once. @p attr_at is where the program's attribute is, which gets the descriptor.
int UverbsFile::open_events(uint64_t attr_at) {
  auto events = std::make_shared<EventStream>();
  int fd;
  {
    HoldBigLock hold;
    if (!open_) return -EINVAL;
    if (events_) return -EBUSY;
    fd = EventStream::open(events);
    if (fd < 0) return fd;
    events_ = events;
  }
  const int64_t id = fd;
  const int ret = copy_to_program(attr_at + offsetof(ib_uverbs_attr, data_s64), &id, sizeof id);
  if (ret == 0) return 0;
  file_close(fd);  // takes the big lock
  HoldBigLock hold;
  events_.reset();
  return ret;
}

/// Shorter by what is new in it, or longer than this version's, if what is too much is 0: as the core does for
/// UVERBS_ATTR_STRUCT.
static int copy_report(const ib_uverbs_attr& data, usiw_qp_report& report) {
  constexpr size_t kMost = 256, kLeast = offsetof(usiw_qp_report, port);
  uint8_t bytes[kMost] = {};
  if (data.len < kLeast || data.len > kMost) return -EINVAL;
  if (int ret = copy_from_program(bytes, data.data, data.len); ret != 0) return ret;
  for (size_t i = sizeof report; i < data.len; i++)
    if (bytes[i] != 0) return -EOPNOTSUPP;
  std::memcpy(&report, bytes, sizeof report);
  return 0;
}

int UverbsFile::ioctl(int, unsigned long request, void* arg) {
  if (request != RDMA_VERBS_IOCTL) return -ENOTTY;
  // As the provider has them, one behind the other: read at once. A shorter command may end where its memory does.
  ib_uverbs_ioctl_hdr hdr;
  ib_uverbs_attr attrs[2];
  std::byte command[sizeof hdr + sizeof attrs];
  const auto at = reinterpret_cast<uint64_t>(arg);
  const bool is_whole = copy_from_program(command, at, sizeof command) == 0;
  if (!is_whole)
    if (int ret = copy_from_program(command, at, sizeof hdr); ret != 0) return ret;
  std::memcpy(&hdr, command, sizeof hdr);
  if (hdr.length > 4096 || hdr.length != sizeof hdr + hdr.num_attrs * sizeof(ib_uverbs_attr) ||
      hdr.reserved1 != 0 || hdr.reserved2 != 0)
    return hdr.length > 4096 ? -E2BIG : -EINVAL;
  // Copies: Clang lets no lambda capture a structure with a flexible array.
  const auto is = [of = hdr.object_id, called = hdr.method_id](uint16_t object, uint16_t method) {
    return of == object && called == method;
  };
  const bool is_events = is(USIW_OBJECT_EVENT_FILE, USIW_METHOD_EVENT_FILE_ALLOC);
  const bool is_cq = is(UVERBS_OBJECT_CQ, USIW_METHOD_CQ_EVENT);
  const bool is_srq = is(UVERBS_OBJECT_SRQ, USIW_METHOD_SRQ_EVENT);
  if (!is_events && !is_cq && !is_srq && !is(UVERBS_OBJECT_QP, USIW_METHOD_QP_REPORT)) return -EPROTONOSUPPORT;
  const uint16_t wanted = is_events ? 1 : 2;
  if (hdr.driver_id != USIW_DRIVER_ID || hdr.num_attrs != wanted) return -EINVAL;
  if (!is_whole) {
    const int ret = copy_from_program(command + sizeof hdr, at + sizeof hdr, wanted * sizeof attrs[0]);
    if (ret != 0) return ret;
  }
  std::memcpy(attrs, command + sizeof hdr, sizeof attrs);
  if (is_events)
    return attrs[0].attr_id == USIW_ATTR_EVENT_FILE_HANDLE && attrs[0].len == 0 ? open_events(at + sizeof hdr)
                                                                                : -EINVAL;

  const ib_uverbs_attr &handle = attrs[0], &data = attrs[1];
  if (is_cq) {
    uint32_t kind;
    if (handle.attr_id != USIW_ATTR_CQ_EVENT_HANDLE || data.attr_id != USIW_ATTR_CQ_EVENT_KIND ||
        data.len != sizeof kind)
      return -EINVAL;
    std::memcpy(&kind, &data.data, sizeof kind);  // data of up to 8 bytes travels in the attribute
    HoldBigLock hold;
    return cq_event(static_cast<uint32_t>(handle.data), kind);
  }
  if (is_srq) {
    uint32_t kind;
    if (handle.attr_id != USIW_ATTR_SRQ_EVENT_HANDLE || data.attr_id != USIW_ATTR_SRQ_EVENT_KIND ||
        data.len != sizeof kind)
      return -EINVAL;
    std::memcpy(&kind, &data.data, sizeof kind);
    HoldBigLock hold;
    return srq_event(static_cast<uint32_t>(handle.data), kind);
  }
  usiw_qp_report report;
  if (handle.attr_id != USIW_ATTR_QP_REPORT_HANDLE || data.attr_id != USIW_ATTR_QP_REPORT_DATA) return -EINVAL;
  if (int ret = copy_report(data, report); ret != 0) return ret;
  HoldBigLock hold;
  return qp_report(static_cast<uint32_t>(handle.data), report);
}

}  // namespace usiw::run
