// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Private data with connect, accept and reject. struct rdma_conn_param holds its length in 8 bits;
// librdmacm 44 takes a few bytes of its own in no case for RDMA_PS_TCP on iWARP.
#include "by_verbs.h"
#include "rig.h"

namespace {

std::vector<uint8_t> bytes(size_t length, uint64_t seed) {
  std::vector<uint8_t> data(length);
  fill_pattern(data.data(), length, seed);
  return data;
}

/// A transport may pad private data with zeros (InfiniBand does), never change or cut it.
void check_private(const std::vector<uint8_t>& got, const std::vector<uint8_t>& wanted) {
  if (got.size() < wanted.size()) FAIL("%zu bytes of private data instead of %zu", got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const uint8_t expected = i < wanted.size() ? wanted[i] : 0;
    if (got[i] != expected) FAIL("byte %zu of %zu of the private data is wrong", i, wanted.size());
  }
}

}  // namespace

CASE(private_both, "private-data/connect-and-accept", .core = true) {
  for (size_t length : {0, 1, 2, 3, 4, 55, 56, 57, 64, 128, 195, 196, 254, 255}) {
    Endpoint a, b;
    Options options;
    const auto there = bytes(length, 1), back = bytes(255 - length, 2);
    a.resolve(site_a().ip, site_b().ip, shared_listener().port());
    a.create_qp(options);
    rdma_conn_param param = conn_param(options);
    param.private_data = there.data();
    param.private_data_len = static_cast<uint8_t>(there.size());
    CHECK_CALL(rdma_connect(a.id, &param));
    const CmEvent request = shared_listener().wait_request();
    check_private(request.private_data, there);
    b.adopt(request.id);
    b.create_qp(options);
    param = conn_param(options);
    param.private_data = back.data();
    param.private_data_len = static_cast<uint8_t>(back.size());
    CHECK_CALL(rdma_accept(b.id, &param));
    check_private(a.events.expect(RDMA_CM_EVENT_ESTABLISHED).private_data, back);
    b.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
}

CASE(private_reject, "private-data/reject", .core = true) {
  for (size_t length : {0, 1, 7, 64, 148, 255}) {
    Endpoint a, b;
    Options options;
    const auto reason = bytes(length, 3);
    a.resolve(site_a().ip, site_b().ip, shared_listener().port());
    a.create_qp(options);
    rdma_conn_param param = conn_param(options);
    CHECK_CALL(rdma_connect(a.id, &param));
    b.adopt(shared_listener().wait_request().id);
    CHECK_CALL(rdma_reject(b.id, reason.data(), static_cast<uint8_t>(length)));
    const CmEvent event = a.events.expect(RDMA_CM_EVENT_REJECTED);
    CHECK_EQ(event.status, rejected_by_program());
    check_private(event.private_data, reason);
    CHECK(!a.events.ready(50));
    // The QP was never connected: work posted to it fails, now or by a flush.
    Region region(a.pd, 64);
    if (a.try_send({.wr_id = 1, .sges = {region.sge()}}) == 0) expect_wc(a.send_cq, 1, IBV_WC_WR_FLUSH_ERR);
  }
}

// After a refusal the same client connects with a new id.
CASE(reject_retry, "reject/then-connect", .core = true) {
  for (int i = 0; i < 3; ++i) {
    {
      Endpoint a, b;
      Options options;
      a.resolve(site_a().ip, site_b().ip, shared_listener().port());
      a.create_qp(options);
      rdma_conn_param param = conn_param(options);
      CHECK_CALL(rdma_connect(a.id, &param));
      b.adopt(shared_listener().wait_request().id);
      CHECK_CALL(rdma_reject(b.id, nullptr, 0));
      a.events.expect(RDMA_CM_EVENT_REJECTED);
    }
    Pair p;
    exercise(p);
    p.close();
  }
}

// Destroying the id of a request is a refusal.
CASE(reject_destroy, "reject/by-destroying-the-request", .core = true) {
  Endpoint a;
  Options options;
  a.resolve(site_a().ip, site_b().ip, shared_listener().port());
  a.create_qp(options);
  rdma_conn_param param = conn_param(options);
  CHECK_CALL(rdma_connect(a.id, &param));
  {
    Endpoint b;
    b.adopt(shared_listener().wait_request().id);
  }
  a.events.expect(RDMA_CM_EVENT_REJECTED);
}
