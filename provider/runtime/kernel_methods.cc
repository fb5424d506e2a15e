// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/kernel_methods.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/engine_loan.h"

namespace usiw {
namespace {

/// One method with @p count attributes, which the kernel may write to. 0 or an errno value.
int call(int cmd_fd, uint16_t object, uint16_t method, ib_uverbs_attr* attrs, uint16_t count) {
  constexpr uint16_t kMost = 2;
  ib_uverbs_ioctl_hdr hdr{};
  hdr.length = static_cast<uint16_t>(sizeof hdr + count * sizeof *attrs);
  hdr.object_id = object;
  hdr.method_id = method;
  hdr.num_attrs = count;
  hdr.driver_id = USIW_DRIVER_ID;
  // The header, then its attributes (the header's flexible member, which C++ cannot extend).
  alignas(8) std::byte command[sizeof hdr + kMost * sizeof *attrs];
  std::memcpy(command, &hdr, sizeof hdr);
  std::memcpy(command + sizeof hdr, attrs, count * sizeof *attrs);
  int rc;
  do
    rc = ioctl(cmd_fd, RDMA_VERBS_IOCTL, command);
  while (rc != 0 && errno == EINTR);
  std::memcpy(attrs, command + sizeof hdr, count * sizeof *attrs);
  return rc == 0 ? 0 : errno;
}

ib_uverbs_attr attr(uint16_t id, uint16_t len, uint64_t data) {
  ib_uverbs_attr a{};
  a.attr_id = id;
  a.len = len;
  a.flags = UVERBS_ATTR_F_MANDATORY;
  a.data = data;
  return a;
}

/// Data of up to 8 bytes travels in the attribute.
ib_uverbs_attr number(uint16_t id, uint32_t value) {
  uint64_t in_place = 0;
  std::memcpy(&in_place, &value, sizeof value);
  return attr(id, sizeof value, in_place);
}

}  // namespace

int kernel_event_file(int cmd_fd) {
  ib_uverbs_attr attrs[] = {attr(USIW_ATTR_EVENT_FILE_HANDLE, 0, 0)};
  const int error = call(cmd_fd, USIW_OBJECT_EVENT_FILE, USIW_METHOD_EVENT_FILE_ALLOC, attrs, 1);
  return error != 0 ? -error : static_cast<int>(attrs[0].data_s64);
}

int kernel_cq_event(int cmd_fd, uint32_t cq_handle, usiw_cq_event_kind kind) {
  if (usiw_run_cq_event != nullptr) return usiw_run_cq_event(cmd_fd, cq_handle, kind);
  ib_uverbs_attr attrs[] = {attr(USIW_ATTR_CQ_EVENT_HANDLE, 0, cq_handle), number(USIW_ATTR_CQ_EVENT_KIND, kind)};
  return call(cmd_fd, UVERBS_OBJECT_CQ, USIW_METHOD_CQ_EVENT, attrs, 2);
}

int kernel_srq_event(int cmd_fd, uint32_t srq_handle, usiw_srq_event_kind kind) {
  ib_uverbs_attr attrs[] = {attr(USIW_ATTR_SRQ_EVENT_HANDLE, 0, srq_handle), number(USIW_ATTR_SRQ_EVENT_KIND, kind)};
  return call(cmd_fd, UVERBS_OBJECT_SRQ, USIW_METHOD_SRQ_EVENT, attrs, 2);
}

int kernel_qp_report(int cmd_fd, uint32_t qp_handle, const usiw_qp_report& report) {
  ib_uverbs_attr attrs[] = {attr(USIW_ATTR_QP_REPORT_HANDLE, 0, qp_handle),
                            attr(USIW_ATTR_QP_REPORT_DATA, sizeof report, reinterpret_cast<uintptr_t>(&report))};
  return call(cmd_fd, UVERBS_OBJECT_QP, USIW_METHOD_QP_REPORT, attrs, 2);
}

}  // namespace usiw
