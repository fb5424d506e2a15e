// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// A server whose connections share a receive queue, and its peers, for tests that kill one of them:
//
//   srq_peers server ADDRESS COUNT         accepts COUNT connections and gives each receive back
//   srq_peers stream|idle FROM TO PORT     sends long messages all the time, or only waits with receives posted
//
// A peer ends with 0 once it has been told of the end: DISCONNECTED, and a completion for each work request that was
// posted, flushed but for those that were through.
#include <string>

#include "srq_server.h"

namespace {

constexpr uint32_t kMessage = 4 << 20;
constexpr uint64_t kReceives = 4, kSends = 4;

int serve(const std::string& ip, unsigned count) {
  SrqServer server(ip, count, kReceives, kMessage);
  say("connected", count);
  for (unsigned received = 0;;) {
    const ibv_wc wc = wait_wc(server.cq(), 8 * kWaitMs);
    if (wc.status == IBV_WC_SUCCESS && ++received == count) say("received", received);
    if (wc.status == IBV_WC_SUCCESS) server.post(wc.wr_id);
  }
}

int peer(const std::string& role, const std::string& from, const std::string& to, uint16_t port) {
  Endpoint end;
  end.resolve(from, to, port);
  end.create_qp({});
  Region source(end.pd, kMessage), sink(end.pd, 64);
  for (uint64_t i = 0; i < kReceives; ++i) end.recv(100 + i, {sink.sge()});
  rdma_conn_param param = conn_param({});
  CHECK_CALL(rdma_connect(end.id, &param));
  end.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  say("connected", port);
  uint64_t sends = 0;
  if (role == "stream")
    for (; sends < kSends; ++sends) end.send({.wr_id = sends, .sges = {source.sge()}});
  bool over = false;
  for (uint64_t left = sends; left > 0;) {
    const ibv_wc wc = wait_wc(end.send_cq, 8 * kWaitMs);
    --left;
    if (wc.status != IBV_WC_SUCCESS) over = true;
    if (over && wc.status != IBV_WC_WR_FLUSH_ERR) FAIL("a SEND completed with '%s'", ibv_wc_status_str(wc.status));
    if (over) continue;
    end.send({.wr_id = wc.wr_id, .sges = {source.sge()}});
    ++left;
  }
  for (uint64_t i = 0; i < kReceives; ++i)
    CHECK_EQ(wait_wc(end.recv_cq, 8 * kWaitMs).status, IBV_WC_WR_FLUSH_ERR);
  end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  say("disconnected", port);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return server_or_peer(argc, argv, serve, peer); }
