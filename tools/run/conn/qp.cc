// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/qp.h"

#include <cerrno>
#include <cstdio>
#include <map>
#include <utility>

#include "cm/object/usiw_limits.h"
#include "tools/run/conn/conn.h"
#include "tools/run/conn/event_stream.h"
#include "tools/run/host/random.h"

namespace usiw::run {
namespace {

std::map<uint32_t, std::weak_ptr<Qp>>& qp_table() {
  static auto& qps = *new std::map<uint32_t, std::weak_ptr<Qp>>;
  return qps;
}

/// Most programs say no more than "failed to modify QP to RTS".
void hint_own_connect() {
  static bool said = false;
  if (!std::exchange(said, true))
    fputs(
        "usiw-run: this program exchanges QP numbers by itself; this device, as any of iWARP's, connects by rdma_cm "
        "only "
        "(perftest: option -R; qperf: -cm 1)\n",
        stderr);
}

}  // namespace

int qp_add(const std::shared_ptr<Qp>& qp) {
  // Processes of one host count from different numbers: a QPN means one QP, as far as that goes.
  static uint32_t next = USIW_QPN_FIRST + random_u32() % (USIW_QPN_LAST - USIW_QPN_FIRST);
  if (qp_table().size() >= USIW_MAX_QP) return -ENOMEM;
  do {
    next = next >= USIW_QPN_LAST ? USIW_QPN_FIRST : next + 1;
  } while (qp_table().count(next) != 0);
  qp->qpn = next;
  qp_table()[next] = qp;
  return 0;
}

void qps_abandon() { qp_table().clear(); }

std::shared_ptr<Qp> qp_by_number(uint32_t qpn) {
  auto it = qp_table().find(qpn);
  return it == qp_table().end() ? nullptr : it->second.lock();
}

int Qp::modify(const ib_uverbs_modify_qp& cmd) {
  const uint32_t mask = cmd.attr_mask;
  int ret;
  usiw_check_qp_attrs(ret, &cmd, mask);
  if (ret != 0) return ret;
  if ((mask & USIW_QP_CUR_STATE) != 0 && !usiw_qp_is_in(state, cmd.cur_qp_state)) return -EINVAL;
  if ((mask & USIW_QP_STATE) != 0 && !usiw_qp_may_move(state, cmd.qp_state)) {
    if (cmd.qp_state == USIW_QPS_RTS && !conn) hint_own_connect();
    return -EINVAL;
  }
  usiw_keep_qp_attrs(&attrs, &cmd, mask, state);
  if ((mask & USIW_QP_STATE) == 0) return 0;
  if (cmd.qp_state == USIW_QPS_ERR || cmd.qp_state == USIW_QPS_RESET)
    if (std::shared_ptr<Conn> c = conn) c->abort(USIW_ABORT_LOCAL);
  state = static_cast<usiw_qp_state>(usiw_qp_state_after(state, cmd.qp_state));
  return 0;
}

void Qp::destroy() {
  destroying = true;
  if (std::shared_ptr<Conn> c = conn) {
    c->abort(USIW_ABORT_LOCAL);
    events->cancel(*c);
  }
  qp_table().erase(qpn);
}

}  // namespace usiw::run
