// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of the structures that kernel and process exchange (uapi/usiw_abi.h, which asserts their sizes): their offsets,
// and that padding of one side leaks no memory of the other side.
#include "fixture.h"

namespace kuser {
namespace {

static_assert(offsetof(usiw_alloc_ucontext_req, abi_version) == 0);
static_assert(offsetof(usiw_alloc_ucontext_req, caps) == 8);
static_assert(offsetof(usiw_alloc_ucontext_resp, counters_offset) == 8);
static_assert(offsetof(usiw_alloc_ucontext_resp, comp_mask) == 20);
static_assert(offsetof(usiw_alloc_ucontext_resp, port_kind) == 32);
static_assert(offsetof(usiw_alloc_ucontext_resp, link) == 40);
static_assert(offsetof(struct usiw_link_info, ifname) == 20);
static_assert(offsetof(usiw_create_qp_resp, stats_offset) == 8);
static_assert(offsetof(usiw_conn_info, scope) == 88);
static_assert(offsetof(usiw_conn_info, not_packet) == 84);
static_assert(offsetof(usiw_conn_info, handshake_mtu) == 86);
static_assert(offsetof(usiw_conn_info, data_fd) == 80);
static_assert(offsetof(usiw_conn_info, flags) == 48);
static_assert(offsetof(usiw_conn_info, ird) == 64);
static_assert(offsetof(usiw_conn_info, reason) == 76);
static_assert(offsetof(usiw_event, conn) == 16);
static_assert(offsetof(usiw_qp_report, port) == 16);
static_assert(offsetof(usiw_qp_stats, gauges) == 2048);
static_assert(USIW_CNT_MAX <= USIW_COUNTERS_ROOM && USIW_GAUGE_MAX <= USIW_GAUGES_ROOM);

class Abi : public Connected {};

TEST_F(Abi, responses__every_byte_is_written) {
  usiw_alloc_ucontext_req req{USIW_ABI_VERSION, 0, ~u64{0}};
  usiw_alloc_ucontext_resp resp;
  memset(&resp, 0xee, sizeof(resp));
  ib_udata udata{&req, &resp, sizeof(req), sizeof(resp), nullptr};
  auto* c = static_cast<ib_ucontext*>(calloc(1, client->device->ops->size_ib_ucontext));
  c->device = client->device;
  ASSERT_EQ(client->device->ops->alloc_ucontext(c, &udata), 0);
  EXPECT_EQ(resp.counters_size, u32{USIW_COUNTERS_SIZE});
  EXPECT_EQ(resp.port_kind, u32{USIW_PORT_PACKET});
  const auto* bytes = reinterpret_cast<const u8*>(&resp);
  for (size_t i = 0; i < sizeof(resp); i++) EXPECT_NE(bytes[i], 0xee) << "byte " << i;
  client->device->ops->dealloc_ucontext(c);
  free(c);
}

TEST_F(Abi, event__unused_bytes_are_zero) {
  establish();
  ASSERT_EQ(client->seen.size(), 1u);
  const usiw_event& event = client->seen[0];
  EXPECT_EQ(event.reserved, 0u);
  const auto* bytes = reinterpret_cast<const u8*>(&event);
  for (size_t i = offsetof(usiw_event, conn) + sizeof(usiw_conn_info); i < sizeof(event); i++)
    EXPECT_EQ(bytes[i], 0) << "byte " << i;
  EXPECT_NE(event.conn_id, 0u);
  EXPECT_GE(event.qpn, u32{USIW_QPN_FIRST});
}

}  // namespace
}  // namespace kuser
