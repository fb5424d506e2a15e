// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file post_fault.cc
/// Makes one send work request fail, as USIW_FAULTS asks: it is posted with an lkey that names no
/// region, so everything that follows is what follows from a real fault.
#include <atomic>

#include "port/fault_port.h"
#include "runtime/glue.h"

using usiw::Faults;

namespace {

/// STag index 0 is never given out.
constexpr uint32_t kNoRegion = 0;

std::atomic<uint64_t> g_posted{0};

/// Posts one work request alone.
int post_alone(ibv_qp* qp, ibv_send_wr wr) {
  ibv_send_wr* bad;
  wr.next = nullptr;
  return usiw_post_send(qp, &wr, &bad);
}

}  // namespace

extern "C" int usiw_wants_post_fault(void) { return Faults::from_environment().fail_wr != 0; }

extern "C" int usiw_post_send_fault(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  for (; wr != nullptr; wr = wr->next) {
    int rc;
    if (g_posted.fetch_add(1, std::memory_order_relaxed) + 1 == Faults::from_environment().fail_wr) {
      ibv_send_wr faulty = *wr;
      ibv_sge sge{1, 1, kNoRegion};
      if (wr->num_sge > 0) sge = {wr->sg_list[0].addr, wr->sg_list[0].length != 0 ? wr->sg_list[0].length : 1, kNoRegion};
      faulty.sg_list = &sge;
      faulty.num_sge = 1;
      faulty.send_flags &= ~static_cast<unsigned>(IBV_SEND_INLINE);
      rc = post_alone(qp, faulty);
    } else {
      rc = post_alone(qp, *wr);
    }
    if (rc != 0) {
      *bad = wr;
      return rc;
    }
  }
  return 0;
}
