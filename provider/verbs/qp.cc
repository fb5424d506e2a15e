// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp.cc
/// Queue pairs: the control path.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include "verbs/runtime.h"

using namespace usiw;

namespace {

/// 0 or why a QP like this cannot be.
int check_init(const ibv_qp_init_attr& attr) {
  if (attr.qp_type != IBV_QPT_RC || attr.srq != nullptr) return EOPNOTSUPP;
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr) return EINVAL;
  const ibv_qp_cap& cap = attr.cap;
  if (cap.max_send_wr > USIW_MAX_QP_WR || cap.max_recv_wr > USIW_MAX_QP_WR ||
      cap.max_send_sge > USIW_MAX_SGE || cap.max_recv_sge > USIW_MAX_SGE ||
      cap.max_inline_data > USIW_MAX_INLINE)
    return EINVAL;
  return 0;
}

}  // namespace

extern "C" ibv_qp* usiw_create_qp(ibv_pd* ibpd, ibv_qp_init_attr* attr) {
  Context& context = Context::of(ibpd->context);
  Runtime& runtime = *context.runtime;
  int rc = runtime.dead() ? EINVAL : check_init(*attr);
  if (rc == 0) rc = runtime.bring_up();
  VQp* qp = rc == 0 ? new (std::nothrow) VQp{} : nullptr;
  if (qp == nullptr) {
    errno = rc != 0 ? rc : ENOMEM;
    return nullptr;
  }
  qp->context = &context;
  qp->runtime = &runtime;
  qp->peer_closed.qp = qp->closed.qp = qp->failed.qp = qp;

  // Granted: what the rings will really hold (powers of two), at least one of each, so that
  // the engine's and the kernel's notions agree and ibv_query_qp() tells the truth.
  ibv_qp_init_attr granted = *attr;
  granted.cap.max_send_wr = std::bit_ceil(std::max(1u, granted.cap.max_send_wr));
  granted.cap.max_recv_wr = std::bit_ceil(std::max(1u, granted.cap.max_recv_wr));
  granted.cap.max_send_sge = std::max(1u, granted.cap.max_send_sge);
  granted.cap.max_recv_sge = std::max(1u, granted.cap.max_recv_sge);
  const ibv_qp_cap cap = granted.cap;
  rc = usiw_cmd_create_qp(ibpd, &qp->ibv, &granted);
  bool in_kernel = rc == 0;
  if (in_kernel) {
    Progress::Hold held(runtime.progress());
    qp->qp = runtime.engine().qp_create({.qpn = qp->ibv.qp_num,
                                         .pd = from(ibpd)->number,
                                         .send_cq = from(attr->send_cq)->cq,
                                         .recv_cq = from(attr->recv_cq)->cq,
                                         .max_send_wr = cap.max_send_wr,
                                         .max_recv_wr = cap.max_recv_wr,
                                         .max_send_sge = cap.max_send_sge,
                                         .max_recv_sge = cap.max_recv_sge,
                                         .max_inline = cap.max_inline_data,
                                         .sq_sig_all = attr->sq_sig_all != 0,
                                         .owner = qp});
    if (qp->qp == nullptr) rc = ENOMEM;
  }
  if (rc != 0) {
    if (in_kernel) usiw_cmd_destroy_qp(&qp->ibv);
    delete qp;
    errno = rc;
    return nullptr;
  }
  qp->cap = cap;
  qp->sq_sig_all = attr->sq_sig_all != 0;
  attr->cap = cap;
  runtime.add_qp(*qp);
  return &qp->ibv;
}

extern "C" int usiw_modify_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int mask) {
  VQp* qp = from(ibqp);
  Runtime& runtime = *qp->runtime;
  if (runtime.dead()) return EINVAL;
  if (int rc = usiw_cmd_modify_qp(ibqp, attr, mask); rc != 0) return rc;
  if ((mask & IBV_QP_STATE) == 0) return 0;
  // The kernel announces what follows from SQD (it drives the disconnect); ERR and RESET
  // are complete when this returns.
  if (attr->qp_state == IBV_QPS_ERR) {
    Progress::Hold held(runtime.progress());
    runtime.engine().qp_abort(qp->qp);
  } else if (attr->qp_state == IBV_QPS_RESET) {
    {
      Progress::Hold held(runtime.progress());
      runtime.engine().qp_reset(qp->qp);
      qp->conn_id = 0;
    }
    runtime.release_port(*qp);
  }
  return 0;
}

extern "C" int usiw_query_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  VQp* qp = from(ibqp);
  if (qp->runtime->dead()) return EINVAL;
  if (int rc = usiw_cmd_query_qp(ibqp, attr, mask, init); rc != 0) return rc;
  // The engine knows of a failure before the kernel has been told.
  if (qp->qp->state() == QpState::kError) {
    attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
    ibqp->state = IBV_QPS_ERR;
  }
  attr->cap = init->cap = qp->cap;
  init->sq_sig_all = qp->sq_sig_all;
  return 0;
}

extern "C" int usiw_destroy_qp(ibv_qp* ibqp) {
  VQp* qp = from(ibqp);
  Runtime& runtime = *qp->runtime;
  if (runtime.dead()) return EINVAL;
  runtime.remove_qp(*qp);
  if (int rc = usiw_cmd_destroy_qp(ibqp); rc != 0) return rc;
  delete qp;
  return 0;
}
