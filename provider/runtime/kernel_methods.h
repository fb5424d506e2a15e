// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file kernel_methods.h
/// The driver's own uverbs methods (uapi/usiw_abi.h), by ioctl on the context's fd.
#ifndef USIW_RUNTIME_KERNEL_METHODS_H
#define USIW_RUNTIME_KERNEL_METHODS_H

#include <cstdint>

#include "uapi/usiw_abi.h"

namespace usiw {

/// USIW_METHOD_EVENT_FILE_ALLOC: the descriptor of the context's event stream, or -errno.
int kernel_event_file(int cmd_fd);

/// USIW_METHOD_CQ_EVENT on the CQ with this uverbs handle. 0 or an errno value.
int kernel_cq_event(int cmd_fd, uint32_t cq_handle, usiw_cq_event_kind kind);

/// USIW_METHOD_SRQ_EVENT on the SRQ with this uverbs handle. 0 or an errno value.
int kernel_srq_event(int cmd_fd, uint32_t srq_handle, usiw_srq_event_kind kind);

/// USIW_METHOD_QP_REPORT on the QP with this uverbs handle. 0 or an errno value.
int kernel_qp_report(int cmd_fd, uint32_t qp_handle, const usiw_qp_report& report);

}  // namespace usiw

#endif  // USIW_RUNTIME_KERNEL_METHODS_H
