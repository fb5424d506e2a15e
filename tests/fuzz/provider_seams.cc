// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "provider_seams.h"

#include <cerrno>

#include "base/lock_rank.h"
#include "port/ethdev_port.h"
#include "progress/progress.h"
#include "uapi/usiw_wire.h"
#include "runtime/glue.h"
#include "runtime/kernel_methods.h"

namespace usiw::fuzz {

FakeKernel& kernel() {
  static FakeKernel k;
  return k;
}

}  // namespace usiw::fuzz

using usiw::fuzz::kernel;

// ---- Commands ----

extern "C" {

int usiw_cmd_alloc_pd(ibv_context* ctx, ibv_pd* pd) {
  pd->context = ctx;
  pd->handle = 1;
  return kernel().result();
}
int usiw_cmd_dealloc_pd(ibv_pd*) { return 0; }
int usiw_cmd_reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t, int, void* out) {
  auto* mr = static_cast<ibv_mr*>(out);
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = addr;
  mr->length = length;
  mr->lkey = mr->rkey = kernel().number();
  return kernel().result();
}
int usiw_cmd_dereg_mr(void*) { return 0; }
int usiw_cmd_rereg_mr(void* out, int, ibv_pd*, void*, size_t, uint64_t, int) {
  auto* mr = static_cast<ibv_mr*>(out);
  const int rc = kernel().result();
  if (rc == 0) mr->lkey = mr->rkey = (mr->lkey & ~0xffu) | (kernel().number() & 0xffu);
  return rc;
}
void usiw_mr_is_null(void*) {}
int usiw_cmd_alloc_mw(ibv_pd* pd, ibv_mw_type type, ibv_mw* mw) {
  mw->context = pd->context;
  mw->pd = pd;
  mw->type = type;
  mw->rkey = kernel().number() ^ USIW_MAX_MR << 8;  // as a rule an index of a window
  return kernel().result();
}
int usiw_cmd_dealloc_mw(ibv_mw*) { return 0; }
int usiw_cmd_create_cq(ibv_context* ctx, int cqe, ibv_comp_channel*, int, ibv_cq* cq) {
  cq->context = ctx;
  cq->cqe = cqe;
  return kernel().result();
}
int usiw_cmd_resize_cq(ibv_cq* cq, int cqe) {
  if (const int rc = kernel().result(); rc != 0) return rc;
  if (cqe < 1 || cqe > USIW_MAX_CQE) return EINVAL;
  cq->cqe = cqe;
  return 0;
}
int usiw_cmd_destroy_cq(ibv_cq*) { return 0; }
int usiw_cmd_create_srq(ibv_pd* pd, ibv_srq* srq, ibv_srq_init_attr*) {
  srq->context = pd->context;
  srq->pd = pd;
  return kernel().result();
}
int usiw_cmd_modify_srq(ibv_srq*, ibv_srq_attr*, int) { return kernel().result(); }
int usiw_cmd_query_srq(ibv_srq*, ibv_srq_attr* attr) {
  *attr = {};
  return kernel().result();
}
int usiw_cmd_destroy_srq(ibv_srq*) { return 0; }
void usiw_glue_is_qp_ex(ibv_qp*) {}
int usiw_cmd_create_qp(ibv_pd* pd, ibv_qp* qp, ibv_qp_init_attr* attr, usiw_create_qp_resp* resp) {
  qp->context = pd->context;
  qp->send_cq = attr->send_cq;  // as the library does
  qp->recv_cq = attr->recv_cq;
  qp->srq = attr->srq;
  qp->qp_num = kernel().next_qpn++;
  *resp = {};
  resp->qpn = qp->qp_num;
  resp->stats_size = USIW_COUNTERS_SIZE;
  return kernel().result();
}
int usiw_cmd_modify_qp(ibv_qp*, ibv_qp_attr*, int) { return kernel().result(); }
int usiw_cmd_query_qp(ibv_qp*, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
  attr->qp_state = static_cast<ibv_qp_state>(kernel().number() % (IBV_QPS_ERR + 1));
  return kernel().result();
}
int usiw_cmd_destroy_qp(ibv_qp*) { return kernel().destroy_qp; }

}  // extern "C"

namespace usiw {

int kernel_event_file(int) { return kernel().event_fd; }
int kernel_cq_event(int, uint32_t, usiw_cq_event_kind) {
  ++kernel().cq_events;
  return kernel().result();
}
int kernel_srq_event(int, uint32_t, usiw_srq_event_kind) { return kernel().result(); }
int kernel_qp_report(int, uint32_t, const usiw_qp_report& report) {
  kernel().reports.push_back(report);
  return kernel().result();
}

void say_once(const std::string& line);
void say_once(const std::string&) {}

// ---- A port into nowhere ----

std::unique_ptr<EthdevPort> EthdevPort::create(const Spec& spec, std::string& why, int& error) {
  if (spec.mtu > USIW_MAX_MTU) std::abort();  // frames would be too short
  error = kernel().port_error();
  if (error != 0) {
    why = "as the test says";
    return nullptr;
  }
  auto port = std::unique_ptr<EthdevPort>(new EthdevPort);
  port->mtu_ = spec.mtu;
  return port;
}
EthdevPort::~EthdevPort() = default;
size_t EthdevPort::tx_alloc(std::span<TxBuf> bufs) {
  for (TxBuf& b : bufs) b = {new std::byte[max_payload()], 0, nullptr, nullptr};
  return bufs.size();
}
size_t EthdevPort::tx(std::span<TxBuf> bufs) {
  tx_free(bufs);
  return bufs.size();
}
void EthdevPort::tx_free(std::span<TxBuf> bufs) {
  for (TxBuf& b : bufs) delete[] b.data;
}
size_t EthdevPort::rx(std::span<RxBuf>) { return 0; }
void EthdevPort::rx_free(std::span<RxBuf>) {}
void EthdevPort::clear_error() {}
int PacketFilter::add(uint16_t port) {
  const int error = kernel().port_error();
  if (error == 0) ++ports_[port];
  return error;
}
void PacketFilter::remove(uint16_t port) {
  auto it = ports_.find(port);
  if (it == ports_.end()) std::abort();  // removed what was not added
  if (--it->second == 0) ports_.erase(it);
}

// ---- Progress without a thread: every posting and polling drives ----

Progress::Mode Progress::mode_from_environment() { return Mode::kAdaptive; }
Progress::Progress(EngineDriver& driven, Clock& clock, Mode mode)
    : driven_(driven), clock_(clock), mode_(mode), scarce_cores_(false) {
  (void)clock_, (void)mode_, (void)scarce_cores_;
}
Progress::~Progress() {
  if (!watched_.empty()) std::abort();  // closed without unwatch()
}
int Progress::start() { return kernel().port_error(); }
Progress::Hold::Hold(Progress& p) : progress_(p) {
  lock_rank::check(LockRank::kEngine);
  if (p.token_.exchange(1) != 0) std::abort();  // held twice by one thread: a deadlock
  lock_rank::took(LockRank::kEngine);
}
Progress::Hold::~Hold() {
  lock_rank::released(LockRank::kEngine);
  progress_.token_.store(0);
  progress_.driven_.released();
}
void Progress::posted() {
  {
    Hold hold(*this);
    driven_.drive();
  }
}
void Progress::polled_empty(unsigned) { posted(); }
void Progress::arming() {}
void Progress::watch(std::initializer_list<Watched> all) {
  for (const Watched& w : all)
    if (w.kind == Kind::kControl) watched_.push_back(w);
}
void Progress::unwatch(int fd) {
  std::erase_if(watched_, [fd](const Watched& w) { return w.fd == fd; });
}
bool Progress::freeze() { return true; }
// For threads that block in usiw-run, which is not here.
void Progress::end_blocking() { std::abort(); }
void Progress::changed(const std::atomic<uint32_t>&) { std::abort(); }
Progress::Blocked Progress::drive_until(const std::atomic<uint32_t>&, uint32_t) { std::abort(); }

}  // namespace usiw
