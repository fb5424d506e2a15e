// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file kmod_methods.cc
/// A hostile process against the module as it ships, on the mock kernel of tests/kuser: create,
/// modify, query and destroy with any argument in any state, driver data of any length, reports
/// of any kind, mappings by any key, any word of the pages, the event stream read, closed and
/// opened at any time, faults of its memory, requests for memory that fail; beside it a peer on
/// the other interface who behaves, and connections between them. Whatever it does: no rule of
/// the kernel's is broken, errors are errors that a system call may give, and nothing is left
/// when it is gone.
#include <algorithm>
#include <array>
#include <climits>
#include <set>
#include <utility>
#include <vector>

#include "input.h"
#include "tests/kuser/fixture.h"

namespace {

using namespace kuser;
using usiw::fuzz::Input;

constexpr u16 kFirstPort = 9000;

class World final : public Kuser {
 public:
  explicit World(Input& in) : in_(in) {}
  void TestBody() override {}

  void run() {
    FUZZ_CHECK(load(), "the module does not load");
    begin();
    while (!in_.done()) {
      op();
      mock_errors[MOCK_ALLOC] = mock_errors[MOCK_COPY] = 0;
      check();
    }
    end();
    const std::string left = unload();
    if (!left.empty()) std::fprintf(stderr, "%s", left.c_str());
    FUZZ_CHECK(left.empty(), "something is left behind");
  }

 private:

  void begin() {
    peer_ = std::make_unique<Process>("eth1");
    FUZZ_CHECK(peer_->open_all() == 0, "the peer's objects");
    evil_ = std::make_unique<Process>("eth0");
    const u8 way = in_.get();
    if (way & 1) {  // the way in, for once
      evil_->caps = way >> 1;
      FUZZ_CHECK(evil_->open_all() == 0, "objects");
      cqs_.push_back(std::exchange(evil_->ibcq, nullptr));
      qps_.push_back(std::exchange(evil_->ibqp, nullptr));
    }
    listener_ = std::make_unique<CmId>();
    FUZZ_CHECK(listener_->listen(peer_->device, ipv4("192.0.2.2"), kPort) == 0, "listen");
  }

  /// As a dying process: its objects, then its cm_ids.
  void end() {
    mock_inject(0);
    while (!qps_.empty()) destroy_qp(0);
    while (!cqs_.empty()) destroy_cq(0);
    while (!srqs_.empty()) destroy_srq(0);
    while (!mws_.empty()) dealloc_mw(0);
    while (!mrs_.empty()) dereg_mr(0);
    path_is(0, nullptr);
    evil_->close();
    pump();
    ids_.clear();
    settle({peer_.get()});
    listener_->drop_requests();
    listener_->destroy();
    peer_->close();
    pump();
    evil_.reset();
    peer_.reset();
    listener_.reset();
  }

  void check() {
    const std::string found = violations();
    if (!found.empty()) std::fprintf(stderr, "%s", found.c_str());
    FUZZ_CHECK(found.empty(), "a rule of the kernel's");
  }

  /// 0 or an error that the user may see.
  static int errno_of(int ret) {
    FUZZ_CHECK(ret <= 0 && ret >= -MAX_ERRNO, "neither 0 nor an error");
    FUZZ_CHECK(ret != -EPROTONOSUPPORT, "an error of the core's own, which warns of it");
    return ret;
  }

  void op() {
    evil_->enter();
    if (in_.get() % 16 == 0) mock_errors[in_.flag() ? MOCK_ALLOC : MOCK_COPY] = u64{1} << in_.get() % 8;
    const u8 what = in_.get();
    if (what >= 0xf0) return what & 1 ? path_changes() : receive();
    if (what >= 0xe8) return srq();
    switch (what % 23) {
      case 0: get_context(); break;
      case 1: create_cq(); break;
      case 2: create_qp(); break;
      case 3: modify(); break;
      case 4: query(); break;
      case 5:
        if (!qps_.empty()) destroy_qp(in_.get() % qps_.size());
        break;
      case 6:
        if (!cqs_.empty()) destroy_cq(in_.get() % cqs_.size());
        break;
      case 7: reg_mr(); break;
      case 8:
        if (!mrs_.empty()) dereg_mr(in_.get() % mrs_.size());
        break;
      case 9: report(); break;
      case 10: cq_event(); break;
      case 11: read_events(); break;
      case 12: close_or_open_events(); break;
      case 13: map(); break;
      case 14: write_page(); break;
      case 15: connect(); break;
      case 16: accept(); break;
      case 17: mock_advance_ms(in_.get() * 16); break;
      case 18: statistics(); break;
      case 19: settle({peer_.get()}); break;
      case 20:
        if (!mrs_.empty()) rereg_mr(mrs_[in_.get() % mrs_.size()]);
        break;
      case 21: alloc_mw(); break;
      case 22:
        if (!mws_.empty()) dealloc_mw(in_.get() % mws_.size());
        break;
    }
    evil_->enter();
    if (in_.flag()) settle({peer_.get()});
  }

  /// Driver data: right, cut short, too long, or anything.
  template <typename T>
  std::vector<u8> request(const T& right) {
    std::vector<u8> bytes(sizeof right);
    memcpy(bytes.data(), &right, sizeof right);
    const u8 what = in_.get();
    if ((what & 3) == 1) bytes.resize(in_.get());
    if ((what & 3) == 2 && !bytes.empty()) bytes[in_.get() % bytes.size()] = in_.get();
    if ((what & 7) == 3) {
      const auto any = in_.take(in_.get());
      bytes.assign(any.begin(), any.end());
    }
    return bytes;
  }
  size_t room() { return in_.flag() ? response_.size() : in_.get(); }

  void get_context() {
    const auto req = request(usiw_alloc_ucontext_req{USIW_ABI_VERSION, 0, in_.get()});
    ib_udata udata{req.data(), response_.data(), req.size(), room(), nullptr};
    const auto* ops = evil_->device->ops;
    auto* c = static_cast<ib_ucontext*>(calloc(1, ops->size_ib_ucontext));
    c->device = evil_->device;
    const int ret = errno_of(ops->alloc_ucontext(c, &udata));
    if (ret == 0 && !evil_->ibuc) {
      evil_->ibuc = c;
      return;
    }
    if (ret == 0) ops->dealloc_ucontext(c);
    free(c);
  }

  void create_cq() {
    if (!evil_->ibuc || cqs_.size() == 3) return;
    const auto req = request(usiw_create_cq_req{0, 0});
    uverbs_attr_bundle attrs{};
    attrs.driver_udata = {req.data(), response_.data(), req.size(), room(), evil_->ibuc};
    const ib_cq_init_attr attr{in_.flag() ? 16 : in_.get<u32>(), in_.get() % 8 == 0 ? in_.get<u32>() : 0u};
    const auto* ops = evil_->device->ops;
    auto* cq = static_cast<ib_cq*>(calloc(1, ops->size_ib_cq));
    cq->device = evil_->device;
    cq->uobject = mock_ucq_object(&cq->mock_uobject);
    if (in_.flag()) {
      cq->comp_handler = [](ib_cq*, void*) {};
      cq->event_handler = [](ib_event*, void*) {};
    }
#if USIW_MOCK_KERNEL >= 611
    const int ret = errno_of(ops->create_cq(cq, &attr, &attrs));
#else
    const int ret = errno_of(ops->create_cq(cq, &attr, &attrs.driver_udata));
#endif
    if (ret == 0)
      cqs_.push_back(cq);
    else
      free(cq);
  }
  void destroy_cq(size_t n) {
    const bool used = std::any_of(qps_.begin(), qps_.end(), [&](ib_qp* qp) { return qp->send_cq == cqs_[n]; });
    if (used) return;  // the core's rule
    evil_->device->ops->destroy_cq(cqs_[n], nullptr);
    free(cqs_[n]);
    cqs_.erase(cqs_.begin() + n);
  }

  void create_qp() {
    if (cqs_.empty() || qps_.size() == 3) return;
    const auto req = request(usiw_create_qp_req{0, 0});
    ib_udata udata{req.data(), response_.data(), req.size(), room(), evil_->ibuc};
    ib_qp_init_attr attr{};
    attr.qp_type = in_.get() % 8 == 0 ? static_cast<ib_qp_type>(in_.get() % 8) : IB_QPT_RC;
    attr.send_cq = attr.recv_cq = cqs_[in_.get() % cqs_.size()];
    attr.cap = {16, 16, 1, 1, 0};
    if (in_.get() % 4 == 0)
      attr.cap = {in_.get<u32>(), in_.get<u16>(), in_.get(), in_.get(), in_.get<u16>()};
    attr.sq_sig_type = static_cast<ib_sig_type>(in_.flag());
    if (!srqs_.empty() && in_.flag()) attr.srq = srqs_[in_.get() % srqs_.size()];
    const auto* ops = evil_->device->ops;
    auto* qp = static_cast<ib_qp*>(calloc(1, ops->size_ib_qp));
    qp->device = evil_->device;
    qp->uobject = mock_ucq_object(&qp->mock_uobject);
    qp->qp_type = attr.qp_type;
    qp->srq = attr.srq;
    qp->send_cq = qp->recv_cq = attr.send_cq;
    if (in_.flag()) qp->event_handler = [](ib_event*, void*) {};
    if (errno_of(ops->create_qp(qp, &attr, &udata)) != 0) {
      free(qp);
      return;
    }
    FUZZ_CHECK(evil_->context()->events != nullptr, "a QP without an event stream");
    qps_.push_back(qp);
  }
  void destroy_qp(size_t n) {
    FUZZ_CHECK(evil_->device->ops->destroy_qp(qps_[n], nullptr) == 0, "destroy_qp");
    if (evil_->ibqp == qps_[n]) evil_->ibqp = nullptr;
    free(qps_[n]);
    qps_.erase(qps_.begin() + n);
  }

  void modify() {
    if (qps_.empty()) return;
    ib_udata udata{};
    ib_qp_attr attr{};
    attr.qp_state = static_cast<ib_qp_state>(in_.get() % 8);
    attr.cur_qp_state = static_cast<ib_qp_state>(in_.get() % 8);
    attr.qp_access_flags = in_.get<int>();
    attr.max_rd_atomic = in_.get();
    attr.max_dest_rd_atomic = in_.get();
    const int mask = in_.get() % 4 != 0 ? IB_QP_STATE : in_.get<int>();
    errno_of(evil_->device->ops->modify_qp(qps_[in_.get() % qps_.size()], &attr, mask, &udata));
  }
  void query() {
    if (qps_.empty()) return;
    ib_qp_attr attr;
    ib_qp_init_attr init;
    FUZZ_CHECK(evil_->device->ops->query_qp(qps_[in_.get() % qps_.size()], &attr, in_.get<int>(), &init) == 0, "query");
    FUZZ_CHECK(attr.qp_state <= IB_QPS_ERR, "a state that there is not");
  }

  void reg_mr() {
    if (mrs_.size() == 4) return;
    ib_udata udata{};
    ib_pd pd{evil_->device};
    const u64 start = in_.flag() ? 0x10000u + in_.get<u16>() : in_.get<u64>();
    const u64 length = in_.flag() ? in_.get<u16>() : in_.get<u64>();
    ib_mr* mr = evil_->device->ops->reg_user_mr(&pd, start, length, in_.get<u64>(), in_.get<int>() & INT_MAX, &udata);
    if (IS_ERR(mr)) {
      errno_of(PTR_ERR(mr));
      return;
    }
    for (const ib_mr* other : mrs_) FUZZ_CHECK(other->lkey >> 8 != mr->lkey >> 8, "an STag twice");
    mr->device = evil_->device;
    mrs_.push_back(mr);
  }
  void dereg_mr(size_t n) {
    evil_->device->ops->dereg_mr(mrs_[n], nullptr);
    mrs_.erase(mrs_.begin() + n);
  }

  void rereg_mr(ib_mr* mr) {
    ib_udata udata{};
    ib_pd pd{evil_->device};
    const u32 old = mr->lkey, rights = to_usiw_mr(mr)->access;
    const u64 start = in_.flag() ? 0x10000u + in_.get<u16>() : in_.get<u64>();
    const u64 length = in_.flag() ? in_.get<u16>() : in_.get<u64>();
    const int flags = in_.get() % 16, access = in_.get<int>() & INT_MAX;
    const ib_mr* now =
        evil_->device->ops->rereg_user_mr(mr, flags, start, length, start, access, &pd, &udata);
    FUZZ_CHECK(mr->lkey == mr->rkey && mr->lkey >> 8 == old >> 8, "the STag of another region");
    const bool renewed = now == nullptr && usiw_rereg_renews(flags, rights, to_usiw_mr(mr)->access);
    FUZZ_CHECK((mr->lkey != old) == renewed, "the key changes when the region lies elsewhere, and only then");
    if (now != nullptr) errno_of(PTR_ERR(now));
  }
  void alloc_mw() {
    if (mws_.size() == 4) return;
    const auto* ops = evil_->device->ops;
    ib_udata udata{};
    auto* mw = static_cast<ib_mw*>(calloc(1, ops->size_ib_mw));
    mw->device = evil_->device;
    mw->type = static_cast<ib_mw_type>(in_.get() % 4);
    if (const int ret = ops->alloc_mw(mw, &udata); ret != 0) {
      errno_of(ret);
      free(mw);
      return;
    }
    for (const ib_mw* other : mws_) FUZZ_CHECK(other->rkey >> 8 != mw->rkey >> 8, "an STag twice");
    for (const ib_mr* region : mrs_) FUZZ_CHECK(region->rkey >> 8 != mw->rkey >> 8, "the STag of a region");
    mws_.push_back(mw);
  }
  void dealloc_mw(size_t n) {
    FUZZ_CHECK(evil_->device->ops->dealloc_mw(mws_[n]) == 0, "dealloc_mw");
    free(mws_[n]);
    mws_.erase(mws_.begin() + n);
  }

  int call(u32 object, void* handle, const void* data, size_t len) {
    uverbs_attr_bundle attrs{};
    attrs.mock_object = handle;
    attrs.mock_data = data;
    attrs.mock_len = len;
    return errno_of(mock_uverbs_call(evil_->device, object, &attrs));
  }
  void report() {
    if (qps_.empty()) return;
    usiw_qp_report right{1u + in_.get() % 7, conn_id_, 0, 0, 0, 0};
    if (right.kind == USIW_REPORT_PORT) right.port = in_.get() % 4, right.port_why = in_.get() % 16;
    if (in_.get() % 4 == 0) right.conn_id = in_.get<u32>();
    if (in_.get() % 4 == 0) right.error = -static_cast<int>(in_.get());
    if (in_.get() % 4 == 0) right.async_event = in_.get() % 20;
    const auto bytes = request(right);
    call(UVERBS_OBJECT_QP, qps_[in_.get() % qps_.size()], bytes.data(), bytes.size());
  }
  void cq_event() {
    if (cqs_.empty()) return;
    const auto bytes = request(u32{in_.get() % 3u});
    call(UVERBS_OBJECT_CQ, cqs_[in_.get() % cqs_.size()], bytes.data(), bytes.size());
  }

  void srq() {
    const u8 what = in_.get();
    if (srqs_.empty() || what % 8 == 0) return create_srq();
    const size_t n = in_.get() % srqs_.size();
    const auto* ops = evil_->device->ops;
    ib_udata udata{};
    ib_srq_attr attr{in_.get<u32>(), in_.get(), in_.flag() ? in_.get() % 20u : in_.get<u32>()};
    const auto bytes = request(u32{in_.get() % 2u});
    switch (what % 8) {
      case 1: return destroy_srq(n);
      case 2:
      case 3: errno_of(ops->modify_srq(srqs_[n], &attr, static_cast<ib_srq_attr_mask>(in_.get() % 8), &udata)); return;
      case 4:
        FUZZ_CHECK(ops->query_srq(srqs_[n], &attr) == 0, "query");
        FUZZ_CHECK(attr.max_wr != 0 && attr.max_wr <= USIW_MAX_SRQ_WR && attr.srq_limit <= attr.max_wr, "limits");
        return;
      default: call(UVERBS_OBJECT_SRQ, srqs_[n], bytes.data(), bytes.size());
    }
  }
  void create_srq() {
    if (!evil_->ibuc || srqs_.size() == 3) return;
    const auto req = request(usiw_create_srq_req{0, 0});
    ib_udata udata{req.data(), response_.data(), req.size(), room(), evil_->ibuc};
    ib_srq_init_attr attr{{in_.flag() ? 16 : in_.get<u32>(), in_.get() % 40u, in_.get<u32>()},
                          in_.get() % 8 == 0 ? static_cast<ib_srq_type>(in_.get()) : IB_SRQT_BASIC};
    const auto* ops = evil_->device->ops;
    auto* srq = static_cast<ib_srq*>(calloc(1, ops->size_ib_srq));
    srq->device = evil_->device;
    srq->uobject = mock_ucq_object(&srq->mock_uobject);
    if (in_.flag()) srq->event_handler = [](ib_event*, void*) {};
    if (errno_of(ops->create_srq(srq, &attr, &udata)) == 0)
      srqs_.push_back(srq);
    else
      free(srq);
  }
  void destroy_srq(size_t n) {
    const bool used = std::any_of(qps_.begin(), qps_.end(), [&](ib_qp* qp) { return qp->srq == srqs_[n]; });
    if (used) return;  // the core's rule
    evil_->device->ops->destroy_srq(srqs_[n], nullptr);
    free(srqs_[n]);
    srqs_.erase(srqs_.begin() + n);
  }

  void read_events() {
    file* events = mock_file(evil_->event_fd);
    if (!events) return;
    usiw_event records[3];
    memset(records, 0xee, sizeof records);
    const size_t size = in_.flag() ? sizeof records : in_.get<u16>() % (sizeof records + 1);
    events->f_flags |= O_NONBLOCK;
    if (in_.get() % 8 == 0) peer_->enter();  // somebody else has it
    const ssize_t n = events->f_op->read(events, reinterpret_cast<char*>(records), size, nullptr);
    const unsigned state = events->f_op->poll(events, nullptr);
    FUZZ_CHECK(n <= static_cast<ssize_t>(size) && n >= -MAX_ERRNO, "more than there is room for");
    if (n == -EAGAIN) FUZZ_CHECK(state == 0, "readable, and nothing to read");
    if (n <= 0) return;
    FUZZ_CHECK(n % sizeof records[0] == 0, "a part of a record");
    for (size_t i = 0; i < n / sizeof records[0]; i++) {
      FUZZ_CHECK(records[i].type >= USIW_EVENT_CONNECT && records[i].type <= USIW_EVENT_PATH, "a record of no type");
      if (records[i].type == USIW_EVENT_LINK || records[i].type == USIW_EVENT_DEVICE_GONE) continue;
      FUZZ_CHECK(records[i].conn_id != 0, "a record of no connection");
      conn_id_ = records[i].conn_id;
      if (records[i].type != USIW_EVENT_CONNECT || !(records[i].conn.flags & USIW_CONN_F_SOCKET)) continue;
      if (records[i].conn.data_fd >= 0) evil_->data_fds.push_back(records[i].conn.data_fd);
    }
  }
  void close_or_open_events() {
    if (!evil_->ibuc) return;
    const bool had = evil_->context()->events != nullptr;
    if (evil_->event_fd >= 0 && in_.flag()) {
      mock_close(evil_->event_fd);
      evil_->event_fd = -1;
      return;
    }
    const int fd = mock_uverbs_open(evil_->ibuc, USIW_OBJECT_EVENT_FILE);
    FUZZ_CHECK(!had || fd < 0, "a second stream");
    if (fd >= 0) evil_->event_fd = fd;
  }

  /// Routes and policies are not the process's, but change at any time.
  static void path_is(int ipsec, net_device* dev) {
    mock_ipsec = ipsec;
    mock_route_dev = dev;
    mock_neigh_known = true;
    init_net.genid_ipv4++;
  }
  void path_changes() {
    const u8 what = in_.get();
    path_is(what & 1 ? 1 : what & 2 ? -EPERM : 0, what & 4 ? mock_netdev("eth1") : nullptr);
    mock_neigh_known = !(what & 8);
    mock_neigh_mac[5] = what;
    mock_advance_ms(USIW_FOLLOW_MS + 1);
    if (!evil_->data_fds.empty() && what & 0x80) {
      mock_close(evil_->data_fds.back());
      evil_->data_fds.pop_back();
    }
  }
  /// A datagram of the data path for one of its connections.
  void receive() {
    mock_datagram d{};
    d.from = ipv4("192.0.2.2");
    d.to = ipv4("192.0.2.1");
    d.from_port = cpu_to_be16(kPort);
    d.to_port = cpu_to_be16(kFirstPort + in_.get() % 8);
    const u8 way = in_.get();
    d.via = mock_netdev(way & 1 ? "eth0" : "eth1");
    d.decrypted = way & 2;
    d.reassembled = way & 4;
    const auto bytes = in_.take(in_.get());
    d.len = bytes.size();
    std::copy(bytes.begin(), bytes.end(), d.data);
    mock_deliver(&d, way);
  }

  /// The page of the context or of a QP; nullptr: there is none.
  usiw_counters* page() {
    if (!evil_->ibuc) return nullptr;
    const size_t n = in_.get() % (qps_.size() + 1);
    return n == qps_.size() ? &evil_->context()->counters : &to_usiw_qp(qps_[n])->counters;
  }
  void map() {
    usiw_counters* counters = page();
    if (!counters) return;
    // The core finds entries by their keys, of this context only: none, or one of ours.
    const bool none = in_.flag();
    vm_area_struct vma{0, in_.flag() ? PAGE_SIZE : in_.get<u16>(), in_.get<u32>(),
                       none ? 0 : reinterpret_cast<unsigned long>(counters->entry)};
    const bool fits = vma.vm_end == PAGE_SIZE;
    const int ret = errno_of(evil_->device->ops->mmap(evil_->ibuc, &vma));
    FUZZ_CHECK(ret != 0 || (fits && !none), "more than a page is mapped");
  }
  void write_page() {
    if (usiw_counters* counters = page())
      const_cast<u64*>(counters->page)[in_.get<u16>() % (PAGE_SIZE / 8)] = in_.get<u64>();
  }
  void statistics() {
    const auto* ops = evil_->device->ops;
    auto* stats = ops->alloc_hw_port_stats(evil_->device, 1);
    if (stats) {
      const std::array<u64, USIW_CNT_MAX> before = totals_;
      FUZZ_CHECK(ops->get_hw_stats(evil_->device, stats, 1, 0) == stats->num_counters, "get_hw_stats");
      std::copy_n(stats->value, USIW_CNT_MAX, totals_.begin());
      for (size_t i = 0; i < totals_.size(); i++) FUZZ_CHECK(totals_[i] >= before[i], "a total goes back");
      kfree(stats);
    }
    if (!qps_.empty()) errno_of(ops->fill_res_qp_entry(nullptr, qps_[0]));
  }

  void connect() {
    if (qps_.empty() || ids_.size() == 4) return;
    evil_->ibqp = qps_[in_.get() % qps_.size()];
    auto id = std::make_unique<CmId>();
    id->connect(*evil_, ipv4("192.0.2.1"), kFirstPort + ids_.size() + in_.get() % 4, ipv4("192.0.2.2"), kPort);
    evil_->ibqp = nullptr;
    ids_.push_back(std::move(id));
  }
  void accept() {
    if (!listener_->requests.empty()) {
      CmId& request = *listener_->requests[in_.get() % listener_->requests.size()];
      const bool first = answered_.insert(&request).second;
      if (!first)
        request.disconnect(in_.flag());
      else if (in_.get() % 4 == 0)
        request.reject();
      else
        request.accept(*peer_);
    }
    if (in_.flag() && !ids_.empty()) ids_[in_.get() % ids_.size()]->disconnect(in_.flag());
    if (peer_->qp()->state == IB_QPS_ERR && in_.flag()) {
      peer_->modify(IB_QPS_RESET);
      peer_->modify(IB_QPS_INIT);
    }
  }

  Input& in_;
  std::unique_ptr<Process> evil_, peer_;
  std::unique_ptr<CmId> listener_;
  std::vector<std::unique_ptr<CmId>> ids_;
  std::set<CmId*> answered_;  ///< requests
  std::vector<ib_cq*> cqs_;
  std::vector<ib_srq*> srqs_;
  std::vector<ib_qp*> qps_;
  std::vector<ib_mr*> mrs_;
  std::vector<ib_mw*> mws_;
  std::array<u8, 256> response_{};
  std::array<u64, USIW_CNT_MAX> totals_{};
  u32 conn_id_ = 1;  ///< of the last record
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  World(in).run();
  return 0;
}
