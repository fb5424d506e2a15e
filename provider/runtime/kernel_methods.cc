// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/kernel_methods.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace usiw {
namespace {

int call(int cmd_fd, uint16_t object, uint16_t method, uint16_t handle_attr, uint32_t handle,
         uint16_t data_attr, uint16_t data_len, uint64_t data) {
  ib_uverbs_attr attrs[2] = {};
  attrs[0].attr_id = handle_attr;
  attrs[0].flags = UVERBS_ATTR_F_MANDATORY;
  attrs[0].data = handle;
  attrs[1].attr_id = data_attr;
  attrs[1].len = data_len;
  attrs[1].flags = UVERBS_ATTR_F_MANDATORY;
  attrs[1].data = data;
  ib_uverbs_ioctl_hdr hdr{};
  hdr.length = sizeof hdr + sizeof attrs;
  hdr.object_id = object;
  hdr.method_id = method;
  hdr.num_attrs = 2;
  hdr.driver_id = USIW_DRIVER_ID;
  // The header, then its attributes (the header's flexible member, which C++ cannot extend).
  alignas(8) std::byte command[sizeof hdr + sizeof attrs];
  std::memcpy(command, &hdr, sizeof hdr);
  std::memcpy(command + sizeof hdr, attrs, sizeof attrs);
  int rc;
  do
    rc = ioctl(cmd_fd, RDMA_VERBS_IOCTL, command);
  while (rc != 0 && errno == EINTR);
  return rc == 0 ? 0 : errno;
}

}  // namespace

int kernel_cq_event(int cmd_fd, uint32_t cq_handle, usiw_cq_event_kind kind) {
  uint32_t value = kind;
  uint64_t in_place = 0;  // data of up to 8 bytes travels in the attribute
  std::memcpy(&in_place, &value, sizeof value);
  return call(cmd_fd, UVERBS_OBJECT_CQ, USIW_METHOD_CQ_EVENT, USIW_ATTR_CQ_EVENT_HANDLE, cq_handle,
              USIW_ATTR_CQ_EVENT_KIND, sizeof value, in_place);
}

int kernel_qp_report(int cmd_fd, uint32_t qp_handle, const usiw_qp_report& report) {
  return call(cmd_fd, UVERBS_OBJECT_QP, USIW_METHOD_QP_REPORT, USIW_ATTR_QP_REPORT_HANDLE, qp_handle,
              USIW_ATTR_QP_REPORT_DATA, sizeof report, reinterpret_cast<uintptr_t>(&report));
}

}  // namespace usiw
