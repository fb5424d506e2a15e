// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "by_verbs.h"

bool roce() { return context()->device->node_type == IBV_NODE_CA; }

ibv_gid gid_at(int index) {
  ibv_gid_entry entry = {};
  if (const int error = ibv_query_gid_ex(context(), 1, static_cast<uint32_t>(index), &entry, 0); error != 0)
    FAIL("GID %d: %s", index, std::strerror(error));
  return entry.gid;
}

// ---- Moves ----

Change only_state(int state) {
  Change c;
  c.mask = IBV_QP_STATE;
  c.attr.qp_state = static_cast<ibv_qp_state>(state);
  return c;
}

Change to_init() {
  Change c = only_state(IBV_QPS_INIT);
  c.mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  c.attr.port_num = 1;
  c.attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC;
  return c;
}

Change to_rtr(const ibv_gid& peer, uint32_t peer_qpn, int gid_index) {
  Change c = only_state(IBV_QPS_RTR);
  c.mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
            IBV_QP_MIN_RNR_TIMER;
  c.attr.ah_attr.is_global = 1;
  c.attr.ah_attr.port_num = 1;
  c.attr.ah_attr.grh.dgid = peer;
  c.attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index);
  c.attr.ah_attr.grh.hop_limit = 64;
  c.attr.path_mtu = IBV_MTU_1024;
  c.attr.dest_qp_num = peer_qpn;
  c.attr.rq_psn = 0x123;
  c.attr.max_dest_rd_atomic = 4;
  c.attr.min_rnr_timer = 12;
  return c;
}

Change to_rts() {
  Change c = only_state(IBV_QPS_RTS);
  c.mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  c.attr.timeout = 14;
  c.attr.retry_cnt = 7;
  c.attr.rnr_retry = 7;
  c.attr.sq_psn = 0x123;
  c.attr.max_rd_atomic = 4;
  return c;
}

Change required_for(ibv_qp* qp, int state) {
  static OwnQp* const nobody = new OwnQp;
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  if (attr.qp_state == IBV_QPS_RESET && state == IBV_QPS_INIT) return to_init();
  if (attr.qp_state == IBV_QPS_INIT && state == IBV_QPS_RTR) return to_rtr(gid_at(kGidIndex), nobody->number());
  if (attr.qp_state == IBV_QPS_RTR && state == IBV_QPS_RTS) return to_rts();
  return only_state(state);
}

// ---- A QP ----

OwnQp::OwnQp(uint32_t depth) {
  pd = pd_a();
  send_cq = ibv_create_cq(context(), static_cast<int>(depth), nullptr, nullptr, 0);
  recv_cq = ibv_create_cq(context(), static_cast<int>(depth), nullptr, nullptr, 0);
  CHECK(send_cq != nullptr && recv_cq != nullptr);
  ibv_qp_init_attr init = {};
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {depth, depth, 2, 2, 32};
  qp = ibv_create_qp(pd, &init);
  if (!qp) FAIL("ibv_create_qp: %s", std::strerror(errno));
}

OwnQp::~OwnQp() { end(); }

void OwnQp::end() {
  if (qp && ibv_destroy_qp(qp)) tap::note("ibv_destroy_qp failed");
  qp = nullptr;
  for (ibv_cq* cq : {send_cq, recv_cq})
    if (cq && ibv_destroy_cq(cq)) tap::note("ibv_destroy_cq failed");
  send_cq = recv_cq = nullptr;
}

void OwnQp::must(const Change& change) {
  if (const int error = change.apply(qp); error != 0)
    FAIL("ibv_modify_qp to %d: %s", change.attr.qp_state, std::strerror(error));
}

void OwnQp::connect(uint32_t peer_qpn, int gid_index) {
  init();
  rtr(peer_qpn, gid_index);
  rts();
}

ibv_qp_attr OwnQp::attributes() const {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  constexpr int kAll = 0x1fffff;
  CHECK_EQ(ibv_query_qp(qp, &attr, kAll, &init), 0);
  return attr;
}

void exercise(OwnQp& a, OwnQp& b) {
  constexpr size_t kLength = 5000;
  int pattern = 1;
  for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    Region source(from->pd, kLength), sink(to->pd, kLength);
    source.fill(pattern);
    to->recv(7, {sink.sge()});
    from->send({.wr_id = 8, .sges = {source.sge()}});
    expect_wc(from->send_cq, 8);
    CHECK_EQ(expect_wc(to->recv_cq, 7).byte_len, kLength);
    sink.check(pattern, 0, kLength);
    source.fill(++pattern);
    from->send({.wr_id = 9,
                .opcode = IBV_WR_RDMA_WRITE,
                .sges = {source.sge()},
                .remote_addr = sink.addr(),
                .rkey = sink.rkey()});
    expect_wc(from->send_cq, 9);
    source.clear();
    from->send({.wr_id = 10,
                .opcode = IBV_WR_RDMA_READ,
                .sges = {source.sge()},
                .remote_addr = sink.addr(),
                .rkey = sink.rkey()});
    expect_wc(from->send_cq, 10);
    source.check(pattern++, 0, kLength);
    sink.check_guards();
  }
}

void establish(rdma_cm_id* id, ibv_qp* qp) {
  for (const ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attr = {};
    int mask = 0;
    attr.qp_state = state;
    CHECK_CALL(rdma_init_qp_attr(id, &attr, &mask));
    CHECK_EQ(ibv_modify_qp(qp, &attr, mask), 0);
  }
  CHECK_CALL(rdma_establish(id));
}
