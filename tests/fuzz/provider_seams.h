// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file provider_seams.h
/// The provider's verbs/ without what is below and beside it: provider_seams.cc stands in for
/// the kernel's commands and methods, for the DPDK port and for the progress thread, so that
/// everything runs in one thread, at once.
#ifndef USIW_TESTS_FUZZ_PROVIDER_SEAMS_H
#define USIW_TESTS_FUZZ_PROVIDER_SEAMS_H

#include <functional>
#include <vector>

#include "engine/port.h"
#include "uapi/usiw_abi.h"

namespace usiw::fuzz {

/// The kernel as the provider meets it: what it answers, and what it was told.
struct FakeKernel {
  std::function<int()> result = [] { return 0; };   ///< of the next command: 0 or an errno value
  std::function<uint32_t()> number = [] { return 0u; };  ///< lkeys: any; QP numbers: made unique
  std::function<int()> port_error = [] { return 0; };    ///< of opening a netdev or adding a port
  int event_fd = -1;                                     ///< of the next context; or -errno
  std::vector<usiw_qp_report> reports;
  unsigned cq_events = 0;
  int destroy_qp = 0;                                    ///< what it answers to that: 0 or an errno value
  uint32_t next_qpn = 1;
};
FakeKernel& kernel();

}  // namespace usiw::fuzz

#endif  // USIW_TESTS_FUZZ_PROVIDER_SEAMS_H
