// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_qp.cc
/// The commands for queue pairs.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file_limit.h"
#include "cm/object/usiw_device_attr.h"
#include "cm/object/usiw_limits.h"
#include "tools/run/conn/conn.h"
#include "tools/run/face/face.h"
#include "tools/run/host/host.h"
#include "tools/run/host/settings.h"
#include "tools/run/libc/print_line.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {
namespace {

template <typename Response>
void fill_caps(const ibv_qp_cap& cap, Response& r) {
  r.max_send_wr = cap.max_send_wr;
  r.max_recv_wr = cap.max_recv_wr;
  r.max_send_sge = cap.max_send_sge;
  r.max_recv_sge = cap.max_recv_sge;
  r.max_inline_data = cap.max_inline_data;
}

/// Returns the number of a free page of the memfd for the counters of a QP. Returns 0 if the memfd cannot become longer,
/// for example because of RLIMIT_FSIZE. Then the provider counts in its own memory, which no tool can read.
uint32_t take_page(UverbsContext& u, int fd) {
  if (!u.free_pages.empty()) {
    const uint32_t page = u.free_pages.back();
    u.free_pages.pop_back();
    return page;
  }
  if (u.pages == 0 || resize_memory(fd, stat_page_at(u.pages + 1)) != 0) return 0;
  return u.pages++;
}

void return_page(UverbsContext& u, int fd, Qp& qp) {
  const uint32_t page = qp.page;
  qp.state.hide(u.shown);
  if (page == 0) return;
  // Punching a hole fills the page with zeros. The next QP may get the page while the provider still maps it for this
  // QP. The last counts of this QP then appear in the counters of the next one.
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, stat_page_at(page), stat_page_at(1)) == 0)
    u.free_pages.push_back(page);
}

int create_qp(UverbsContext& u, const Command& c, const ib_uverbs_create_qp& cmd) {
  struct {
    ib_uverbs_create_qp_resp core;
    usiw_create_qp_resp drv;
  } r{};
  std::shared_ptr<Pd> pd = u.find(u.pds, cmd.pd_handle);
  auto send_cq = u.find(u.cqs, cmd.send_cq_handle), recv_cq = u.find(u.cqs, cmd.recv_cq_handle);
  std::shared_ptr<Srq> srq;
  if (cmd.is_srq != 0 && !(srq = u.find(u.srqs, cmd.srq_handle))) return -EINVAL;
  if (!pd || !send_cq || !recv_cq) return -EINVAL;
  if (cmd.qp_type != IBV_QPT_RC) return -EOPNOTSUPP;
  const int fits = srq ? usiw_check_srq_qp_caps(cmd.max_send_wr, cmd.max_send_sge, cmd.max_inline_data)
                       : usiw_check_qp_caps(cmd.max_send_wr, cmd.max_recv_wr, cmd.max_send_sge, cmd.max_recv_sge,
                                            cmd.max_inline_data);
  if (fits != 0) return fits;
  if (int ret = c.check_driver_data<usiw_create_qp_req>(sizeof cmd); ret != 0) return ret;
  if (!u.events) return -EINVAL;

  auto qp = std::make_shared<Qp>();
  if (settings().face == FaceKind::kRoce) {
    int error;
    if ((u.caps & USIW_CAP_SILENT) == 0) return -EOPNOTSUPP;
    if (!(qp->face = Face::open(error))) return error;
    qp->qpn = qp->face->qpn();
    qp->moved_by_program = true;
  }
  qp->user_handle = cmd.user_handle;
  qp->sq_sig_all = cmd.sq_sig_all != 0;
  qp->merges = (u.caps & USIW_CAP_MERGES) != 0;
  qp->cap = {cmd.max_send_wr, cmd.max_recv_wr, cmd.max_send_sge, cmd.max_recv_sge, cmd.max_inline_data};
  if (srq) qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;
  qp->srq = srq;
  qp->pd = pd;
  qp->send_cq = send_cq;
  qp->recv_cq = recv_cq;
  qp->events = u.events;
  qp->async = u.async;
  qp->page = take_page(u, c.fd);
  if (int ret = qp_add(qp); ret != 0) {
    return_page(u, c.fd, *qp);
    return ret;
  }
  if (qp->page != 0) {
    qp->state.show_in(MappedPage(c.fd, qp->page), qp->qpn);
    r.drv.stats_size = USIW_COUNTERS_SIZE;
    r.drv.stats_offset = static_cast<uint64_t>(stat_page_at(qp->page));
  }
  r.core.qp_handle = qp->handle = u.next_handle++;
  r.core.qpn = r.drv.qpn = qp->qpn;
  fill_caps(qp->cap, r.core);
  if (int ret = c.respond(r); ret != 0) {
    qp_remove(*qp);
    return_page(u, c.fd, *qp);
    return ret;
  }
  u.qps[qp->handle] = qp;
  return 0;
}

/// Prints once on stderr why a QP without a connection cannot become RTS, because most programs print only "failed to
/// modify QP to RTS".
void hint_own_connect() {
  static bool printed = false;
  if (!std::exchange(printed, true))
    print_line("usiw-run: this program exchanges QP numbers by itself, but an iWARP device connects by rdma_cm only "
               "(perftest: option -R; qperf: -cm 1)\n");
}

/// Checks a modify_qp by the states of an RNIC. Returns 0 or -EINVAL.
int check_move(const Qp& qp, const ib_uverbs_modify_qp& cmd) {
  const uint32_t mask = cmd.attr_mask;
  if ((mask & USIW_QP_CUR_STATE) != 0 && !usiw_qp_is_in(qp.state, cmd.cur_qp_state)) return -EINVAL;
  if ((mask & USIW_QP_STATE) != 0 && !usiw_qp_may_move(qp.state, cmd.qp_state)) {
    if (cmd.qp_state == USIW_QPS_RTS && !qp.conn) hint_own_connect();
    return -EINVAL;
  }
  return 0;
}

int modify_qp(UverbsContext& u, const Command&, const ib_uverbs_modify_qp& cmd) {
  const std::shared_ptr<Qp> qp = u.find(u.qps, cmd.qp_handle);
  if (!qp) return u.no_such(cmd.qp_handle);
  const uint32_t mask = cmd.attr_mask;
  int ret;
  const usiw_qp_state from = qp->face ? qp->face->moves_from(*qp) : qp->state;
  // As in the kernel, an attribute that the table of InfiniBand does not permit is EINVAL, whatever the device supports.
  if (qp->face && (ret = Face::check_move(from, cmd)) != 0) return ret;
  usiw_check_qp_attrs(ret, &cmd, mask);
  if (ret == 0) ret = qp->face ? qp->face->check_address(cmd) : check_move(*qp, cmd);
  if (ret != 0) return ret;
  usiw_keep_qp_attrs(&qp->attrs, &cmd, mask, qp->state);
  if ((mask & USIW_QP_STATE) != 0) {
    if (cmd.qp_state == USIW_QPS_ERR || cmd.qp_state == USIW_QPS_RESET) {
      if (qp->face) qp->face->leave();
      if (const std::shared_ptr<Conn> conn = qp->conn) conn->abort(USIW_ABORT_LOCAL);
    }
    if (from == qp->state || cmd.qp_state == USIW_QPS_RESET)
      qp->state = static_cast<usiw_qp_state>(usiw_qp_state_after(qp->state, cmd.qp_state));
  }
  if (qp->face) qp->face->moved(qp, cmd);
  return 0;
}

int query_qp(UverbsContext& u, const Command& c, const ib_uverbs_query_qp& cmd) {
  std::shared_ptr<Qp> qp = u.find(u.qps, cmd.qp_handle);
  if (!qp) return u.no_such(cmd.qp_handle);
  ib_uverbs_query_qp_resp r{};
  usiw_fill_qp_attrs(&r, &qp->attrs, qp->state);
  r.path_mtu = usiw_mtu_named(link_info().mtu);
  if (qp->face) qp->face->fill(*qp, r);
  fill_caps(qp->cap, r);
  r.sq_sig_all = qp->sq_sig_all;
  return c.respond(r);
}

int destroy_qp(UverbsContext& u, const Command& c, const ib_uverbs_destroy_qp& cmd) {
  auto it = u.qps.find(cmd.qp_handle);
  if (it == u.qps.end()) return -ENOENT;
  const std::shared_ptr<Qp> qp = it->second;
  end_qp(u, *qp);
  return_page(u, c.fd, *qp);
  u.qps.erase(it);
  return c.respond(ib_uverbs_destroy_qp_resp{*qp->async_events});
}

constexpr UverbsMethod kMethodsOfQp[] = {
    method<create_qp>(IB_USER_VERBS_CMD_CREATE_QP, sizeof(ib_uverbs_create_qp_resp)),
    method<modify_qp>(IB_USER_VERBS_CMD_MODIFY_QP),
    method<query_qp>(IB_USER_VERBS_CMD_QUERY_QP, sizeof(ib_uverbs_query_qp_resp)),
    method<destroy_qp>(IB_USER_VERBS_CMD_DESTROY_QP, sizeof(ib_uverbs_destroy_qp_resp)),
};

}  // namespace

const std::span<const UverbsMethod> kQpMethods = kMethodsOfQp;

void end_qp(UverbsContext& u, Qp& qp) {
  qp.destroying = true;
  if (qp.face) qp.face->close();
  if (const std::shared_ptr<Conn> conn = qp.conn) {
    conn->abort(USIW_ABORT_LOCAL);
    qp.events->cancel(*conn);
  }
  qp_remove(qp);
  u.async->purge(qp.async_events);
  // A shared pointer of another function may keep the QP for a moment. Without these resets the PD, the CQs and the SRQ
  // would count as in use until then, and the program could not destroy them.
  qp.pd.reset();
  qp.send_cq.reset();
  qp.recv_cq.reset();
  qp.srq.reset();
}

}  // namespace usiw::run
