// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file post_fault.cc
/// Makes one send work request fail, as USIW_FAULTS asks: it is posted with an lkey that names no
/// region, so everything that follows is what follows from a real fault.
#include <atomic>

#include "port/faults.h"
#include "verbs/post.h"

using namespace usiw;

namespace {

std::atomic<uint64_t> g_posted{0};

/// Posts one work request alone.
int post_alone(ibv_qp* qp, ibv_send_wr wr) {
  ibv_send_wr* bad;
  wr.next = nullptr;
  return usiw_verb_post_send(qp, &wr, &bad);
}

}  // namespace

bool usiw::post_fault_is_due() {
  return g_posted.fetch_add(1, std::memory_order_relaxed) + 1 == Faults::from_environment().fail_wr;
}

extern "C" int usiw_wants_post_fault(void) { return Faults::from_environment().fail_wr != 0; }

extern "C" int usiw_verb_post_send_fault(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  for (; wr != nullptr; wr = wr->next) {
    int rc;
    if (post_fault_is_due()) {
      ibv_send_wr bad_wr = *wr;
      const Sge bad_sge = faulty(wr->num_sge > 0 ? sges_of(wr->sg_list, 1)[0] : Sge{1, 1, 0});
      ibv_sge sge{bad_sge.addr, bad_sge.length, bad_sge.lkey};
      bad_wr.sg_list = &sge;
      bad_wr.num_sge = 1;
      bad_wr.send_flags &= ~static_cast<unsigned>(IBV_SEND_INLINE);
      rc = post_alone(qp, bad_wr);
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
