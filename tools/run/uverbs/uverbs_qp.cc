// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_qp.cc
/// Queue pairs.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_limit.h"
#include "cm/object/usiw_device_attr.h"
#include "cm/object/usiw_limits.h"
#include "tools/run/host/host.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {
namespace {

template <typename Response>
void tell_caps(const ibv_qp_cap& cap, Response& r) {
  r.max_send_wr = cap.max_send_wr;
  r.max_recv_wr = cap.max_recv_wr;
  r.max_send_sge = cap.max_send_sge;
  r.max_recv_sge = cap.max_recv_sge;
  r.max_inline_data = cap.max_inline_data;
}

}  // namespace

uint32_t UverbsFile::take_page(int fd) {
  if (!free_pages_.empty()) {
    const uint32_t page = free_pages_.back();
    free_pages_.pop_back();
    return page;
  }
  if (pages_ == 0 || resize_memory(fd, stat_page_at(pages_ + 1)) != 0) return 0;
  return pages_++;
}

void UverbsFile::return_page(int fd, Qp& qp) {
  const uint32_t page = qp.page;
  qp.state.hide(shown_);
  if (page == 0) return;
  // What stays mapped somewhere keeps being shared with the next owner: counters, no more.
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, stat_page_at(page), stat_page_at(1)) == 0)
    free_pages_.push_back(page);
}

int UverbsFile::create_qp(const Command& c) {
  const auto& cmd = c.core<ib_uverbs_create_qp>();
  struct {
    ib_uverbs_create_qp_resp core;
    usiw_create_qp_resp drv;
  } r{};
  usiw_create_qp_req req;
  std::shared_ptr<Pd> pd = find(pds_, cmd.pd_handle);
  auto send_cq = find(cqs_, cmd.send_cq_handle), recv_cq = find(cqs_, cmd.recv_cq_handle);
  std::shared_ptr<Srq> srq;
  if (cmd.is_srq != 0 && !(srq = find(srqs_, cmd.srq_handle))) return -EINVAL;
  if (!pd || !send_cq || !recv_cq) return -EINVAL;
  if (cmd.qp_type != IBV_QPT_RC) return -EOPNOTSUPP;
  const int fits = srq ? usiw_check_srq_qp_caps(cmd.max_send_wr, cmd.max_send_sge, cmd.max_inline_data)
                       : usiw_check_qp_caps(cmd.max_send_wr, cmd.max_recv_wr, cmd.max_send_sge, cmd.max_recv_sge,
                                            cmd.max_inline_data);
  if (fits != 0) return fits;
  if (int ret = read_request(c, sizeof cmd, req, 0); ret != 0) return ret;
  if (req.comp_mask != 0) return -EOPNOTSUPP;
  if (req.reserved != 0 || !events_) return -EINVAL;

  auto qp = std::make_shared<Qp>();
  qp->user_handle = cmd.user_handle;
  qp->sq_sig_all = cmd.sq_sig_all != 0;
  qp->merges = (caps_ & USIW_CAP_MERGES) != 0;
  qp->cap = {cmd.max_send_wr, cmd.max_recv_wr, cmd.max_send_sge, cmd.max_recv_sge, cmd.max_inline_data};
  if (srq) qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;
  qp->srq = srq;
  qp->pd = pd;
  qp->send_cq = send_cq;
  qp->recv_cq = recv_cq;
  qp->events = events_;
  qp->async = async_;
  qp->page = take_page(c.fd);
  if (int ret = qp_add(qp); ret != 0) {
    return_page(c.fd, *qp);
    return ret;
  }
  if (qp->page != 0) {
    qp->state.show_in(MappedPage(c.fd, qp->page), qp->qpn);
    r.drv.stats_size = USIW_COUNTERS_SIZE;
    r.drv.stats_offset = static_cast<uint64_t>(stat_page_at(qp->page));
  }
  r.core.qp_handle = qp->handle = next_handle_++;
  r.core.qpn = r.drv.qpn = qp->qpn;
  tell_caps(qp->cap, r.core);
  if (int ret = respond(c, r); ret != 0) {
    qp->destroy();
    return_page(c.fd, *qp);
    return ret;
  }
  qps_[qp->handle] = qp;
  return 0;
}

int UverbsFile::modify_qp(const Command& c) {
  const auto& cmd = c.core<ib_uverbs_modify_qp>();
  std::shared_ptr<Qp> qp = find(qps_, cmd.qp_handle);
  if (!qp) return no_such(cmd.qp_handle);
  return qp->modify(cmd);
}

int UverbsFile::query_qp(const Command& c) {
  const uint32_t handle = c.core<ib_uverbs_query_qp>().qp_handle;
  std::shared_ptr<Qp> qp = find(qps_, handle);
  if (!qp) return no_such(handle);
  ib_uverbs_query_qp_resp r{};
  usiw_tell_qp_attrs(&r, &qp->attrs, qp->state);
  r.path_mtu = usiw_mtu_named(link_info().mtu);
  tell_caps(qp->cap, r);
  r.sq_sig_all = qp->sq_sig_all;
  return respond(c, r);
}

void UverbsFile::destroy_qp_object(const std::shared_ptr<Qp>& qp) {
  qp->destroy();
  async_->purge(qp->async_events);
  // Whoever still holds the QP for a moment does not hold the others.
  qp->pd.reset();
  qp->send_cq.reset();
  qp->recv_cq.reset();
  qp->srq.reset();
}

int UverbsFile::destroy_qp(const Command& c) {
  auto it = qps_.find(c.core<ib_uverbs_destroy_qp>().qp_handle);
  if (it == qps_.end()) return -ENOENT;
  std::shared_ptr<Qp> qp = it->second;
  destroy_qp_object(qp);
  return_page(c.fd, *qp);
  qps_.erase(it);
  return respond(c, ib_uverbs_destroy_qp_resp{*qp->async_events});
}

}  // namespace usiw::run
