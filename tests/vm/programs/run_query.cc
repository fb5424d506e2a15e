// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// What programs ask of the kernel beside their traffic, for usiw-run.
#include "rig.h"

CASE(gids, "query/gids") {
  ibv_context* context = context_of(site_a().device);
  ibv_gid_entry one = {}, table[4] = {};
  union ibv_gid plain = {};
  CHECK_EQ(ibv_query_gid(context, 1, 0, &plain), 0);
  CHECK_EQ(ibv_query_gid_ex(context, 1, 0, &one, 0), 0);
  CHECK_EQ(ibv_query_gid_table(context, table, 4, 0), 1);
  for (const ibv_gid_entry& entry : {one, table[0]}) {
    CHECK_EQ(std::memcmp(&entry.gid, &plain, sizeof plain), 0);
    CHECK_EQ(entry.gid_type, IBV_GID_TYPE_ROCE_V1);  // as the kernel says of iWARP devices
    CHECK_EQ(entry.port_num, 1);
    CHECK(entry.ndev_ifindex != 0);
  }
}

// libibverbs asks in two ways, of which one is refused: that is not to be seen in errno, which programs show as the
// cause of something else.
CASE(errno_kept, "query/errno-is-left-alone") {
  ibv_context* context = ibv_open_device(context_of(site_a().device)->device);
  CHECK(context != nullptr);
  errno = 0;  // opening looks for files that need not be there
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_comp_channel* channel = ibv_create_comp_channel(context);
  ibv_cq* cq = ibv_create_cq(context, 16, nullptr, channel, 0);
  CHECK(pd != nullptr && channel != nullptr && cq != nullptr);
  CHECK(errno != EPROTONOSUPPORT);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {8, 8, 1, 1, 0};
  ibv_qp* qp = ibv_create_qp(pd, &init);
  CHECK(qp != nullptr);
  ibv_qp_attr attr = {};
  CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  CHECK(errno != EPROTONOSUPPORT);
  CHECK_EQ(ibv_destroy_qp(qp), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
  CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
  CHECK_EQ(ibv_close_device(context), 0);
  CHECK(errno != EPROTONOSUPPORT);
}

CASE(ack_timeout, "query/ack-timeout") {
  EventChannel events;
  uint8_t value[4] = {14};
  for (rdma_port_space ps : {RDMA_PS_TCP, RDMA_PS_UDP}) {
    rdma_cm_id* id;
    CHECK_CALL(rdma_create_id(events.get(), &id, nullptr, ps));
    const int ret = rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, value, 1);
    const int error = ret != 0 ? errno : 0;
    CHECK_EQ(error, ps == RDMA_PS_TCP ? 0 : EINVAL);
    CHECK_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, value, 4), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_CALL(rdma_destroy_id(id));
  }
}
