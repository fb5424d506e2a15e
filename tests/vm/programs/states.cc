// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// ibv_modify_qp() and ibv_query_qp(): every transition of an RC QP that rdma_cm connects, allowed or
// refused with nothing changed (cm/object/usiw_qp_states.h), SQD, and the attributes that a query returns.
#include <poll.h>

#include <functional>
#include <string>

#include "by_verbs.h"

namespace {

struct Answer {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
};

Answer query(ibv_qp* qp) {
  Answer a;
  constexpr int kAll = 0x1fffff;
  CHECK_EQ(ibv_query_qp(qp, &a.attr, kAll, &a.init), 0);
  return a;
}

int modify(ibv_qp* qp, int to, int mask = IBV_QP_STATE, bool notify = false) {
  ibv_qp_attr attr = {};
  attr.qp_state = static_cast<ibv_qp_state>(to);
  attr.en_sqd_async_notify = notify;
  return ibv_modify_qp(qp, &attr, notify ? mask | IBV_QP_EN_SQD_ASYNC_NOTIFY : mask);
}

/// Moves a QP with the attributes that its device requires. An RNIC requires none but the state.
int move(ibv_qp* qp, int to) { return (roce() ? required_for(qp, to) : only_state(to)).apply(qp); }

/// A QP without a connection.
struct Alone {
  ibv_context* context = context_of(site_a().device);
  ibv_cq* cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
  ibv_qp* qp = nullptr;

  Alone() {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {16, 16, 2, 2, 32};
    qp = ibv_create_qp(pd_a(), &init);
    CHECK(qp != nullptr);
  }
  ~Alone() {
    if (qp) ibv_destroy_qp(qp);
    if (cq) ibv_destroy_cq(cq);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
};

/// Tries all targets of a QP, which @p prepare leads to the state @p shown each time: those in @p allowed work and lead
/// where @p after says, all others are refused and change nothing.
void try_all(const char* what, const std::function<ibv_qp*()>& prepare, ibv_qp_state shown, const std::string& allowed,
             const std::function<int(int)>& after) {
  for (int to : {0, 1, 2, 3, 4, 5, 6, 7, 100}) {
    ibv_qp* qp = prepare();
    CHECK_EQ(query(qp).attr.qp_state, shown);
    const bool may = to < 10 && allowed.find(static_cast<char>('0' + to)) != std::string::npos;
    const int error = move(qp, to);
    if (error != (may ? 0 : EINVAL)) FAIL("%s to %d: error %d", what, to, error);
    const int now = query(qp).attr.qp_state, wanted = may ? after(to) : static_cast<int>(shown);
    if (now != wanted) FAIL("%s to %d: now in %d, not in %d", what, to, now, wanted);
    CHECK_EQ(query(qp).attr.cur_qp_state, now);
  }
}

/// The state that a query reports of a QP in RESET. An RNIC has IDLE instead, which is reported as INIT.
ibv_qp_state reset_shown() { return roce() ? IBV_QPS_RESET : IBV_QPS_INIT; }

/// The state that a query reports after a move to @p to.
int idle(int to) { return to == IBV_QPS_RESET ? reset_shown() : to; }

void wait_error(Endpoint& e) {
  wait_until("a QP in ERR", [&] { return e.state() == IBV_QPS_ERR; });
}

}  // namespace

CASE(states_unconnected, "states/without-a-connection", .core = true) {
  std::unique_ptr<Alone> one;
  const auto fresh = [&](std::initializer_list<int> by) {
    one = std::make_unique<Alone>();
    for (int to : by) CHECK_EQ(move(one->qp, to), 0);
    return one->qp;
  };
  if (roce()) {
    constexpr ibv_qp_state kReset = IBV_QPS_RESET, kInit = IBV_QPS_INIT, kRtr = IBV_QPS_RTR, kRts = IBV_QPS_RTS,
                           kSqd = IBV_QPS_SQD, kErr = IBV_QPS_ERR;
    try_all(
        "fresh", [&] { return fresh({}); }, kReset, "01", idle);
    try_all(
        "RESET",
        [&] {
          return fresh({kInit, kReset});
        },
        kReset, "01", idle);
    try_all(
        "INIT", [&] { return fresh({kInit}); }, kInit, "0126", idle);
    try_all(
        "RTR",
        [&] {
          return fresh({kInit, kRtr});
        },
        kRtr, "036", idle);
    try_all(
        "RTS",
        [&] {
          return fresh({kInit, kRtr, kRts});
        },
        kRts, "0346", idle);
    try_all(
        "SQD",
        [&] {
          return fresh({kInit, kRtr, kRts, kSqd});
        },
        kSqd, "0346", idle);
    try_all(
        "ERR",
        [&] {
          return fresh({kInit, kErr});
        },
        kErr, "06", idle);
    return;
  }
  try_all("fresh", [&] { return fresh({}); }, IBV_QPS_INIT, "0126", idle);
  try_all("RESET", [&] { return fresh({IBV_QPS_INIT, IBV_QPS_RESET}); }, IBV_QPS_INIT, "0126", idle);
  try_all("INIT", [&] { return fresh({IBV_QPS_INIT}); }, IBV_QPS_INIT, "0126", idle);
  try_all("RTR", [&] { return fresh({IBV_QPS_INIT, IBV_QPS_RTR}); }, IBV_QPS_RTR, "06", idle);
  // SQD in ERR changes nothing: rdma_disconnect(3) asks for it.
  try_all("ERR", [&] { return fresh({IBV_QPS_ERR}); }, IBV_QPS_ERR, "046",
          [](int to) { return to == IBV_QPS_SQD ? IBV_QPS_ERR : idle(to); });
}

CASE(states_connected, "states/connected", .seconds = 90, .core = true) {
  std::unique_ptr<Pair> p;
  const auto fresh = [&](std::initializer_list<int> by) {
    p = std::make_unique<Pair>();
    for (int to : by) CHECK_EQ(move(p->a.qp, to), 0);
    return p->a.qp;
  };
  // INIT and RTR of a program that makes its QP by itself: the connection of an RNIC may have been faster.
  try_all(
      "RTS", [&] { return fresh({}); }, IBV_QPS_RTS, roce() ? "0346" : "012346",
      [](int to) { return to == IBV_QPS_INIT || to == IBV_QPS_RTR ? IBV_QPS_RTS : idle(to); });
  try_all("SQD", [&] { return fresh({IBV_QPS_SQD}); }, IBV_QPS_SQD, "0346", idle);
  p.reset();
}

// What a refused call names besides the state is not taken over either, and a wrong IBV_QP_CUR_STATE is refused.
CASE(states_nothing, "states/refused-changes-nothing", .core = true) {
  Alone one;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 9;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  CHECK_EQ(ibv_modify_qp(one.qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_ACCESS_FLAGS), EINVAL);
  attr.cur_qp_state = IBV_QPS_RTR;
  CHECK_EQ(ibv_modify_qp(one.qp, &attr, IBV_QP_CUR_STATE | IBV_QP_TIMEOUT | IBV_QP_ACCESS_FLAGS), EINVAL);
  const Answer a = query(one.qp);
  CHECK_EQ(a.attr.timeout, 0);
  CHECK_EQ(a.attr.qp_access_flags, 0);
  CHECK_EQ(a.attr.qp_state, reset_shown());
  const struct {
    int mask;
    std::function<void(ibv_qp_attr&)> set;
  } wrong[] = {
      {IBV_QP_PORT, [](ibv_qp_attr& w) { w.port_num = 2; }},
      {IBV_QP_PORT, [](ibv_qp_attr& w) { w.port_num = 0; }},
      {IBV_QP_PKEY_INDEX, [](ibv_qp_attr& w) { w.pkey_index = 1; }},
      {IBV_QP_TIMEOUT, [](ibv_qp_attr& w) { w.timeout = 32; }},
      {IBV_QP_RETRY_CNT, [](ibv_qp_attr& w) { w.retry_cnt = 8; }},
      {IBV_QP_RNR_RETRY, [](ibv_qp_attr& w) { w.rnr_retry = 8; }},
      {IBV_QP_MIN_RNR_TIMER, [](ibv_qp_attr& w) { w.min_rnr_timer = 32; }},
      {IBV_QP_ACCESS_FLAGS, [](ibv_qp_attr& w) { w.qp_access_flags = 1 << 15; }},
      {IBV_QP_PATH_MTU, [](ibv_qp_attr& w) { w.path_mtu = static_cast<ibv_mtu>(0); }},
      {IBV_QP_PATH_MTU, [](ibv_qp_attr& w) { w.path_mtu = static_cast<ibv_mtu>(6); }},
  };
  for (const auto& w : wrong) {
    attr = {};
    w.set(attr);
    const int error = ibv_modify_qp(one.qp, &attr, w.mask);
    if (error != EINVAL) FAIL("mask %#x: error %d", w.mask, error);
  }
  // What the device does not have. InfiniBand's table of states does not permit these attributes here.
  attr = {};
  for (int mask : {IBV_QP_CAP, IBV_QP_QKEY, IBV_QP_PATH_MIG_STATE})
    if (const int error = ibv_modify_qp(one.qp, &attr, mask); error != (roce() ? EINVAL : EOPNOTSUPP))
      FAIL("mask %#x: error %d", mask, error);
}

CASE(states_attributes, "states/attributes-told-back", .core = true) {
  Options options;
  options.send_wr = 33;
  options.recv_wr = 17;
  options.sig_all = true;
  options.ird = 5;
  options.ord = 3;
  Pair p(options);
  ibv_qp_attr attr = {};
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  attr.timeout = 14;
  attr.retry_cnt = 6;
  attr.rnr_retry = 5;
  attr.min_rnr_timer = 12;
  // InfiniBand permits some of them in SQD only.
  constexpr int kTimers = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER;
  if (roce()) {
    CHECK_EQ(ibv_modify_qp(p.a.qp, &attr, kTimers), EINVAL);
    CHECK_EQ(modify(p.a.qp, IBV_QPS_SQD), 0);
  }
  CHECK_EQ(ibv_modify_qp(p.a.qp, &attr, IBV_QP_ACCESS_FLAGS | kTimers), 0);
  const Answer a = query(p.a.qp), b = query(p.b.qp);
  CHECK_EQ(a.attr.qp_access_flags, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  CHECK_EQ(a.attr.timeout, 14);
  CHECK_EQ(a.attr.retry_cnt, 6);
  CHECK_EQ(a.attr.rnr_retry, 5);
  CHECK_EQ(a.attr.min_rnr_timer, 12);
  CHECK_EQ(a.attr.port_num, 1);
  CHECK_EQ(a.attr.sq_draining, 0);
  CHECK_EQ(a.attr.max_rd_atomic, 3);
  CHECK(b.attr.max_dest_rd_atomic >= a.attr.max_rd_atomic);
  CHECK(a.attr.path_mtu >= IBV_MTU_256 && a.attr.path_mtu <= IBV_MTU_4096);
  ibv_port_attr port;
  CHECK_EQ(ibv_query_port(p.a.id->verbs, 1, &port), 0);
  CHECK_EQ(a.attr.path_mtu, port.active_mtu);
  CHECK(a.attr.cap.max_send_wr >= 33 && a.attr.cap.max_recv_wr >= 17 && a.attr.cap.max_inline_data >= 64);
  CHECK_EQ(std::memcmp(&a.attr.cap, &a.init.cap, sizeof a.init.cap), 0);
  CHECK(a.init.send_cq == p.a.send_cq && a.init.recv_cq == p.a.recv_cq && a.init.srq == nullptr);
  CHECK(a.init.qp_context == &p.a);
  CHECK_EQ(a.init.qp_type, IBV_QPT_RC);
  CHECK_EQ(a.init.sq_sig_all, 1);
  // The depths are the connection's: naming others changes nothing, beyond the device's they are refused.
  attr.max_rd_atomic = 1;
  CHECK_EQ(ibv_modify_qp(p.a.qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC), 0);
  CHECK_EQ(query(p.a.qp).attr.max_rd_atomic, 3);
  attr.max_rd_atomic = 255;
  CHECK_EQ(ibv_modify_qp(p.a.qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC), EINVAL);
  if (roce()) CHECK_EQ(modify(p.a.qp, IBV_QPS_RTS), 0);
  exercise(p);
  p.close();
}

// RTS to SQD: what is posted completes, the event says so, what is posted then waits for RTS.
CASE(states_sqd, "states/send-queue-drained", .seconds = 60, .core = true) {
  Pair p;
  drain_async(p.a.id->verbs);
  constexpr uint32_t kLength = 20000;
  Region at_a(p.a.pd, 8 * kLength), at_b(p.b.pd, 8 * kLength);
  at_a.fill(3);
  for (uint64_t i = 0; i < 8; ++i) p.b.recv(i, {at_b.sge(i * kLength, kLength)});
  const auto send = [&](uint64_t i) { p.a.send({.wr_id = i, .sges = {at_a.sge(i * kLength, kLength)}}); };
  for (uint64_t i = 0; i < 4; ++i) send(i);
  CHECK_EQ(modify(p.a.qp, IBV_QPS_SQD, IBV_QP_STATE, true), 0);
  CHECK_EQ(query(p.a.qp).attr.qp_state, IBV_QPS_SQD);
  for (uint64_t i = 4; i < 8; ++i) send(i);
  for (uint64_t i = 0; i < 4; ++i) expect_wc(p.a.send_cq, i);
  expect_async(p.a.id->verbs, IBV_EVENT_SQ_DRAINED, p.a.qp);
  CHECK_EQ(query(p.a.qp).attr.sq_draining, 0);
  for (uint64_t i = 0; i < 4; ++i) expect_wc(p.b.recv_cq, i);
  expect_no_wc(p.a.send_cq, 100);
  expect_no_wc(p.b.recv_cq, 0);
  at_b.check_clear(4 * kLength, 4 * kLength);
  // The other way all goes on: receives, and what the peer reads and writes.
  p.a.recv(20, {at_a.sge(0, 8)});
  p.b.send({.wr_id = 21, .sges = {at_b.sge(0, 8)}});
  expect_wc(p.b.send_cq, 21);
  expect_wc(p.a.recv_cq, 20);
  Region sink(p.b.pd, 1000);
  p.b.send({.wr_id = 22, .opcode = IBV_WR_RDMA_READ, .sges = {sink.sge()}, .remote_addr = at_a.addr() + kLength,
            .rkey = at_a.rkey()});
  expect_wc(p.b.send_cq, 22);
  CHECK_EQ(modify(p.a.qp, IBV_QPS_SQD), 0);
  CHECK_EQ(modify(p.a.qp, IBV_QPS_RTS), 0);
  CHECK_EQ(query(p.a.qp).attr.qp_state, IBV_QPS_RTS);
  for (uint64_t i = 4; i < 8; ++i) {
    expect_wc(p.a.send_cq, i);
    expect_wc(p.b.recv_cq, i);
  }
  at_b.check(3, 0, 8 * kLength);
  exercise(p);
  p.close();
}

// A SEND that the peer takes late keeps the queue draining; without the wish there is no event.
CASE(states_draining, "states/draining", .seconds = 60) {
  for (const bool notify : {false, true}) {
    Pair p;
    drain_async(p.a.id->verbs);
    Region at_a(p.a.pd, 100), at_b(p.b.pd, 100);
    p.a.send({.wr_id = 1, .sges = {at_a.sge()}});
    CHECK_EQ(modify(p.a.qp, IBV_QPS_SQD, IBV_QP_STATE, notify), 0);
    CHECK_EQ(query(p.a.qp).attr.sq_draining, 1);
    expect_no_wc(p.a.send_cq, 50);
    p.b.recv(1, {at_b.sge()});
    expect_wc(p.a.send_cq, 1);
    wait_until("the queue drained", [&] { return query(p.a.qp).attr.sq_draining == 0; });
    if (notify) expect_async(p.a.id->verbs, IBV_EVENT_SQ_DRAINED, p.a.qp);
    // Of an empty queue it is said at once.
    CHECK_EQ(modify(p.a.qp, IBV_QPS_RTS), 0);
    CHECK_EQ(modify(p.a.qp, IBV_QPS_SQD, IBV_QP_STATE, notify), 0);
    if (notify) expect_async(p.a.id->verbs, IBV_EVENT_SQ_DRAINED, p.a.qp);
    // rdma_disconnect() out of it: what waits is flushed.
    p.a.send({.wr_id = 2, .sges = {at_a.sge()}});
    CHECK_CALL(rdma_disconnect(p.a.id));
    expect_wc(p.a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    wait_error(p.a);
    CHECK_EQ(modify(p.a.qp, IBV_QPS_RTS), EINVAL);
    ibv_async_event event;
    pollfd readable = {p.a.id->verbs->async_fd, POLLIN, 0};
    while (poll(&readable, 1, 0) > 0) {
      CHECK_CALL(ibv_get_async_event(p.a.id->verbs, &event));
      ibv_ack_async_event(&event);
      if (event.event_type == IBV_EVENT_SQ_DRAINED) FAIL("an event that nobody asked for, or a second one");
    }
  }
}

// ERR flushes both queues at once, out of SQD too; RESET empties them without completions.
CASE(states_err, "states/error-flushes", .core = true) {
  for (const bool first_sqd : {false, true}) {
    Pair p;
    Region at_a(p.a.pd, 100);
    if (first_sqd) CHECK_EQ(modify(p.a.qp, IBV_QPS_SQD), 0);
    for (uint64_t i = 0; i < 3; ++i) p.a.recv(10 + i, {at_a.sge()});
    for (uint64_t i = 0; i < 3; ++i) p.a.send({.wr_id = i, .sges = {at_a.sge()}});
    CHECK_EQ(modify(p.a.qp, IBV_QPS_ERR), 0);
    CHECK_EQ(query(p.a.qp).attr.qp_state, IBV_QPS_ERR);
    for (uint64_t i = 0; i < 3; ++i) expect_wc(p.a.send_cq, i, IBV_WC_WR_FLUSH_ERR);
    for (uint64_t i = 0; i < 3; ++i) expect_wc(p.a.recv_cq, 10 + i, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(modify(p.a.qp, IBV_QPS_ERR), 0);
    p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    expect_no_wc(p.a.send_cq, 0);
  }
}

// Emptied without completions, and connected once more by another id.
CASE(states_reset, "states/reset-and-connect-again", .seconds = 60, .core = true) {
  Options options;
  Pair p(options);
  exercise(p);
  Region at_a(p.a.pd, 100), at_b(p.b.pd, 100);
  for (uint64_t i = 0; i < 3; ++i) p.a.recv(10 + i, {at_a.sge()});
  for (uint64_t i = 0; i < 3; ++i) p.a.send({.wr_id = i, .sges = {at_a.sge()}});
  CHECK_EQ(modify(p.a.qp, IBV_QPS_RESET), 0);
  CHECK_EQ(modify(p.a.qp, IBV_QPS_RESET), 0);
  CHECK_EQ(query(p.a.qp).attr.qp_state, reset_shown());
  CHECK_EQ(p.a.try_send({.wr_id = 4, .sges = {at_a.sge()}}), EINVAL);
  expect_no_wc(p.a.send_cq, 50);
  expect_no_wc(p.a.recv_cq, 0);
  p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  p.b.destroy();

  Endpoint a, b;
  a.resolve(site_a().ip, site_b().ip, shared_listener().port());
  rdma_conn_param param = conn_param(options);
  param.qp_num = p.a.qp->qp_num;
  if (roce()) CHECK_EQ(move(p.a.qp, IBV_QPS_INIT), 0);
  CHECK_CALL(rdma_connect(a.id, &param));
  b.adopt(shared_listener().wait_request().id);
  b.create_qp(options);
  param = conn_param(options);
  CHECK_CALL(rdma_accept(b.id, &param));
  a.events.expect(roce() ? RDMA_CM_EVENT_CONNECT_RESPONSE : RDMA_CM_EVENT_ESTABLISHED);
  if (roce()) establish(a.id, p.a.qp);
  b.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  CHECK_EQ(query(p.a.qp).attr.qp_state, IBV_QPS_RTS);
  at_a.fill(5);
  b.recv(1, {at_b.sge()});
  p.a.send({.wr_id = 2, .sges = {at_a.sge()}});
  expect_wc(p.a.send_cq, 2);
  expect_wc(b.recv_cq, 1);
  at_b.check(5, 0, 100);
  CHECK_EQ(modify(p.a.qp, IBV_QPS_ERR), 0);
  a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
}

// A program's SQD is not the connection's end, and rdma_disconnect() out of SQD is.
CASE(states_sqd_stays, "states/sqd-is-no-disconnect", .core = true) {
  Pair p;
  CHECK_EQ(modify(p.a.qp, IBV_QPS_SQD), 0);
  CHECK(!p.b.events.ready(200));
  CHECK_EQ(query(p.a.qp).attr.qp_state, IBV_QPS_SQD);
  CHECK_EQ(modify(p.a.qp, IBV_QPS_RTS), 0);
  exercise(p);
  CHECK_EQ(modify(p.a.qp, IBV_QPS_SQD), 0);
  p.close();
}
