// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// What the device says of itself: the same in both worlds, by one table, and each limit is reached and
// refused one beyond. Of max_mr and max_mw (a million each, minutes of system calls) only the number told is tested.
#include <sys/mman.h>
#include <unistd.h>

#include <functional>

#include "by_verbs.h"
#include "uapi/usiw_abi.h"
#include "uapi/usiw_version.h"
#include "uapi/usiw_wire.h"

namespace {

ibv_device_attr_ex device() {
  ibv_device_attr_ex attr;
  std::memset(&attr, 0x5a, sizeof attr);
  CHECK_EQ(ibv_query_device_ex(context(), nullptr, &attr), 0);
  return attr;
}

ibv_port_attr port() {
  ibv_port_attr attr;
  CHECK_EQ(ibv_query_port(context(), 1, &attr), 0);
  return attr;
}

struct Row {
  const char* name;
  unsigned long long told, wanted;
};
#define ROW(member, value) {#member, static_cast<unsigned long long>(member), static_cast<unsigned long long>(value)}

template <size_t kRows>
void compare(const Row (&rows)[kRows]) {
  std::string wrong;
  for (const Row& r : rows)
    if (r.told != r.wanted)
      wrong += std::string(r.name) + " is " + std::to_string(r.told) + ", not " + std::to_string(r.wanted) + "; ";
  if (!wrong.empty()) FAIL("%s", wrong.c_str());
}

/// errno of ibv_create_qp() with these capabilities; 0 if it works.
int create_qp(const ibv_qp_cap& cap) {
  ibv_cq* cq = ibv_create_cq(context(), 16, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = cap;
  errno = 0;
  ibv_qp* qp = ibv_create_qp(pd_a(), &init);
  const int error = qp ? 0 : errno;
  if (qp) CHECK_EQ(ibv_destroy_qp(qp), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
  return error;
}

/// Creates objects until that fails: by ENOMEM, behind @p limit of them or a few less, which others have.
template <typename Object>
void count_up(unsigned limit, const std::function<Object*()>& create, const std::function<int(Object*)>& destroy) {
  constexpr unsigned kOthers = 64;
  std::vector<Object*> all;
  errno = 0;
  while (all.size() <= limit) {
    Object* one = create();
    if (!one) break;
    all.push_back(one);
  }
  const int error = errno;
  const size_t made = all.size();
  for (Object* one : all) CHECK_EQ(destroy(one), 0);
  if (made > limit || made + kOthers < limit) FAIL("%zu of %u could be made", made, limit);
  CHECK_EQ(error, ENOMEM);
}

/// Entries of the GID table on the RoCE face.
constexpr uint32_t kGidTableLength = 32;

/// Checks the GIDs of a RoCE device: a link-local GID, the IPv4 addresses, the IPv6 addresses, and empty entries.
void check_gids_of_roce() {
  static const uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  ibv_gid_entry table[kGidTableLength + 1] = {};
  const auto count = static_cast<uint32_t>(ibv_query_gid_table(context(), table, kGidTableLength + 1, 0));
  CHECK(count >= 2 && count < kGidTableLength);
  bool ipv6_seen = false;
  for (uint32_t i = 0; i < count; ++i) {
    ibv_gid gid = {};
    ibv_gid_entry entry = {};
    CHECK_EQ(ibv_query_gid(context(), 1, static_cast<int>(i), &gid), 0);
    CHECK_EQ(ibv_query_gid_ex(context(), 1, i, &entry, 0), 0);
    CHECK_EQ(std::memcmp(entry.gid.raw, gid.raw, sizeof gid.raw), 0);
    CHECK_EQ(std::memcmp(table[i].gid.raw, gid.raw, sizeof gid.raw), 0);
    CHECK_EQ(entry.gid_index, i);
    CHECK_EQ(entry.port_num, 1);
    CHECK_EQ(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
    CHECK(entry.ndev_ifindex != 0);
    CHECK_EQ(gid.raw[0] == 0xfe && gid.raw[1] == 0x80, i == 0);
    const bool ipv4 = std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
    if (i == 1) CHECK(ipv4);
    CHECK(!(ipv4 && ipv6_seen));
    ipv6_seen = ipv6_seen || (i > 0 && !ipv4);
  }
  // The kernel reports an empty entry as zeros in sysfs, and as ENODATA in the newer call.
  const ibv_gid zero = {};
  ibv_gid gid = {};
  ibv_gid_entry entry = {};
  CHECK_EQ(ibv_query_gid(context(), 1, static_cast<int>(count), &gid), 0);
  CHECK_EQ(std::memcmp(gid.raw, zero.raw, sizeof gid.raw), 0);
  CHECK_EQ(ibv_query_gid_ex(context(), 1, count, &entry, 0), ENODATA);
  CHECK(ibv_query_gid(context(), 1, kGidTableLength, &gid) != 0);
  CHECK_EQ(ibv_query_gid_ex(context(), 1, kGidTableLength, &entry, 0), EINVAL);
  CHECK(ibv_query_gid(context(), 2, 0, &gid) != 0);
}

/// Checks the GID of an RNIC: there is one, which has the MAC and zeros.
void check_gid_of_rnic() {
  ibv_gid gid = {}, again = {};
  CHECK_EQ(ibv_query_gid(context(), 1, 0, &gid), 0);
  uint64_t low = 0;
  std::memcpy(&low, gid.raw + 8, 8);
  CHECK_EQ(low, 0);
  CHECK(ibv_query_gid(context(), 1, 1, &again) != 0);
  CHECK(ibv_query_gid(context(), 2, 0, &again) != 0);
  ibv_gid_entry entry = {}, table[4] = {};
  CHECK_EQ(ibv_query_gid_ex(context(), 1, 0, &entry, 0), 0);
  CHECK_EQ(std::memcmp(entry.gid.raw, gid.raw, sizeof gid.raw), 0);
  CHECK_EQ(entry.gid_index, 0);
  CHECK_EQ(entry.port_num, 1);
  CHECK_EQ(ibv_query_gid_table(context(), table, 4, 0), 1);
  CHECK_EQ(std::memcmp(table[0].gid.raw, gid.raw, sizeof gid.raw), 0);
  CHECK(ibv_query_gid_ex(context(), 1, 1, &entry, 0) != 0);
}

}  // namespace

CASE(device_attr, "query/device-attributes", .core = true) {
  const ibv_device_attr_ex ex = device();
  const ibv_device_attr& d = ex.orig_attr;
  ibv_device_attr plain;
  CHECK_EQ(ibv_query_device(context(), &plain), 0);
  CHECK_EQ(std::memcmp(&plain, &d, sizeof plain), 0);
  CHECK(d.node_guid != 0 && d.node_guid == d.sys_image_guid);
  CHECK_EQ(d.node_guid, ibv_get_device_guid(context()->device));
  CHECK_EQ(std::strcmp(d.fw_ver, USIW_VERSION), 0);
  const Row rows[] = {
      ROW(d.max_mr_size, USIW_MAX_MR_SIZE),
      ROW(d.page_size_cap, sysconf(_SC_PAGESIZE)),
      ROW(d.vendor_id, USIW_VENDOR_ID),
      ROW(d.vendor_part_id, 0),
      ROW(d.hw_ver, 1),
      ROW(d.max_qp, USIW_MAX_QP),
      ROW(d.max_qp_wr, USIW_MAX_QP_WR),
      ROW(d.device_cap_flags, IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
                                  IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW |
                                  IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B),
      ROW(d.max_sge, USIW_MAX_SGE),
      ROW(d.max_sge_rd, USIW_MAX_SGE),
      ROW(d.max_cq, USIW_MAX_CQ),
      ROW(d.max_cqe, USIW_MAX_CQE),
      ROW(d.max_mr, USIW_MAX_MR - 1),
      ROW(d.max_pd, USIW_MAX_PD),
      ROW(d.max_qp_rd_atom, USIW_MAX_IRD),
      ROW(d.max_ee_rd_atom, 0),
      ROW(d.max_res_rd_atom, USIW_MAX_QP * USIW_MAX_IRD),
      ROW(d.max_qp_init_rd_atom, USIW_MAX_ORD),
      ROW(d.max_ee_init_rd_atom, 0),
      ROW(d.atomic_cap, IBV_ATOMIC_GLOB),
      ROW(d.max_ee, 0),
      ROW(d.max_rdd, 0),
      ROW(d.max_mw, USIW_MAX_MW),
      ROW(d.max_raw_ipv6_qp, 0),
      ROW(d.max_raw_ethy_qp, 0),
      ROW(d.max_mcast_grp, 0),
      ROW(d.max_mcast_qp_attach, 0),
      ROW(d.max_total_mcast_qp_attach, 0),
      ROW(d.max_ah, roce() ? USIW_MAX_AH : 0),
      ROW(d.max_fmr, 0),
      ROW(d.max_map_per_fmr, 0),
      ROW(d.max_srq, USIW_MAX_SRQ),
      ROW(d.max_srq_wr, USIW_MAX_SRQ_WR),
      ROW(d.max_srq_sge, USIW_MAX_SGE),
      ROW(d.max_pkeys, 1),
      ROW(d.local_ca_ack_delay, 0),
      ROW(d.phys_port_cnt, 1),
      ROW(ex.phys_port_cnt_ex, 1),
      ROW(ex.comp_mask, 0),
      ROW(ex.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT),
      ROW(ex.odp_caps.per_transport_caps.rc_odp_caps, IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
                                                          IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                                                          IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV),
      ROW(ex.odp_caps.per_transport_caps.uc_odp_caps, 0),
      ROW(ex.odp_caps.per_transport_caps.ud_odp_caps, 0),
      ROW(ex.completion_timestamp_mask, USIW_TIMESTAMP_MASK),
      ROW(ex.hca_core_clock, USIW_CLOCK_KHZ),
      ROW(ex.device_cap_flags_ex, d.device_cap_flags),
      ROW(ex.tso_caps.max_tso, 0),
      ROW(ex.tso_caps.supported_qpts, 0),
      ROW(ex.rss_caps.supported_qpts, 0),
      ROW(ex.rss_caps.max_rwq_indirection_tables, 0),
      ROW(ex.max_wq_type_rq, 0),
      ROW(ex.packet_pacing_caps.qp_rate_limit_max, 0),
      ROW(ex.raw_packet_caps, 0),
      ROW(ex.tm_caps.max_num_tags, 0),
      ROW(ex.cq_mod_caps.max_cq_count, 0),
      ROW(ex.max_dm_size, 0),
      ROW(ex.pci_atomic_caps.fetch_add, 0),
      ROW(ex.xrc_odp_caps, 0),
  };
  compare(rows);
}

CASE(device_port, "query/port-attributes", .core = true) {
  const ibv_port_attr p = port();
  const Row rows[] = {
      ROW(p.state, IBV_PORT_ACTIVE),
      ROW(p.phys_state, 5),
      ROW(p.max_mtu, p.active_mtu),
      ROW(p.gid_tbl_len, roce() ? kGidTableLength : 1),
      ROW(p.pkey_tbl_len, 1),
      ROW(p.port_cap_flags, 1 << 16),
      ROW(p.port_cap_flags2, 0),
      ROW(p.max_msg_sz, USIW_MAX_MSG_SIZE),
      ROW(p.bad_pkey_cntr, 0),
      ROW(p.qkey_viol_cntr, 0),
      ROW(p.lid, 0),
      ROW(p.sm_lid, 0),
      ROW(p.lmc, 0),
      ROW(p.max_vl_num, 0),
      ROW(p.sm_sl, 0),
      ROW(p.subnet_timeout, 0),
      ROW(p.init_type_reply, 0),
      ROW(p.link_layer, IBV_LINK_LAYER_ETHERNET),
  };
  compare(rows);
  CHECK(p.active_mtu >= IBV_MTU_256 && p.active_mtu <= IBV_MTU_4096);
  CHECK(p.active_width == 1 || p.active_width == 2);
  CHECK(p.active_speed != 0);
  ibv_port_attr none;
  for (uint8_t number : {0, 2, 255}) CHECK_EQ(ibv_query_port(context(), number, &none), EINVAL);
}

CASE(device_tables, "query/gid-and-pkey", .core = true) {
  if (roce())
    check_gids_of_roce();
  else
    check_gid_of_rnic();
  __be16 pkey = 0;
  CHECK_EQ(ibv_query_pkey(context(), 1, 0, &pkey), 0);
  CHECK_EQ(be16toh(pkey), 0xffff);
  CHECK(ibv_query_pkey(context(), 1, 1, &pkey) != 0);
}

CASE(limit_qp_wr, "limits/work-requests-and-elements", .seconds = 60, .core = true) {
  const ibv_device_attr d = device().orig_attr;
  const auto wr = static_cast<uint32_t>(d.max_qp_wr), sge = static_cast<uint32_t>(d.max_sge);
  CHECK_EQ(create_qp({wr, 1, 1, 1, 0}), 0);
  CHECK_EQ(create_qp({1, wr, 1, 1, 0}), 0);
  CHECK_EQ(create_qp({wr + 1, 1, 1, 1, 0}), EINVAL);
  CHECK_EQ(create_qp({1, wr + 1, 1, 1, 0}), EINVAL);
  CHECK_EQ(create_qp({1, 1, sge, sge, 0}), 0);
  CHECK_EQ(create_qp({1, 1, sge + 1, 1, 0}), EINVAL);
  CHECK_EQ(create_qp({1, 1, 1, sge + 1, 0}), EINVAL);
  CHECK_EQ(create_qp({1, 1, 1, 1, USIW_MAX_INLINE}), 0);
  CHECK_EQ(create_qp({1, 1, 1, 1, USIW_MAX_INLINE + 1}), EINVAL);
}

CASE(limit_posted, "limits/posted-at-once", .seconds = 60) {
  Options options;
  const ibv_device_attr d = device().orig_attr;
  const auto wr = static_cast<uint32_t>(d.max_qp_wr), sge = static_cast<uint32_t>(d.max_sge);
  options.recv_wr = wr;
  options.send_sge = options.recv_sge = sge;
  Pair p(options);
  Region at_a(p.a.pd, 4096), at_b(p.b.pd, 4096);
  for (uint32_t i = 0; i < wr; ++i) p.b.recv(i, {at_b.sge(0, 8)});
  CHECK_EQ(p.b.try_recv(wr, {at_b.sge(0, 8)}), ENOMEM);
  // max_sge_rd: a READ into as many pieces, and not one more.
  at_b.fill(4);
  std::vector<ibv_sge> pieces;
  for (uint32_t i = 0; i < sge; ++i) pieces.push_back(at_a.sge(i * 100, 100));
  p.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .sges = pieces, .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
  expect_wc(p.a.send_cq, 1);
  at_a.check(4, 0, sge * 100);
  pieces.push_back(at_a.sge(0, 1));
  CHECK_EQ(p.a.try_send({.wr_id = 2, .opcode = IBV_WR_RDMA_READ, .sges = pieces, .remote_addr = at_b.addr(),
                         .rkey = at_b.rkey()}), EINVAL);
  p.close();
}

CASE(limit_cqe, "limits/completion-queue-entries", .core = true) {
  const int most = device().orig_attr.max_cqe;
  ibv_cq* cq = ibv_create_cq(context(), most, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  CHECK(cq->cqe >= most);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
  errno = 0;
  CHECK(ibv_create_cq(context(), most + 1, nullptr, nullptr, 0) == nullptr);
  CHECK_EQ(errno, EINVAL);
}

CASE(limit_mr_size, "limits/region-size", .core = true) {
  const uint64_t most = device().orig_attr.max_mr_size;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, most + page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) FAIL("mmap of 64 TiB: %s", std::strerror(errno));
  ibv_mr* mr = ibv_reg_mr(pd_a(), memory, most, IBV_ACCESS_REMOTE_READ);
  const int refused = errno;
  if (mr) CHECK_EQ(ibv_dereg_mr(mr), 0);
  errno = 0;
  ibv_mr* beyond = ibv_reg_mr(pd_a(), memory, most + 1, IBV_ACCESS_REMOTE_READ);
  const int error = errno;
  if (beyond) ibv_dereg_mr(beyond);
  munmap(memory, most + page);
  if (!mr) FAIL("a region of the greatest size: %s", std::strerror(refused));
  CHECK(beyond == nullptr);
  CHECK_EQ(error, EINVAL);
}

// rdma_cm's parameters have eight bits: a listener that offers all is granted the device's limit.
CASE(limit_depths, "limits/reads-outstanding", .core = true) {
  const ibv_device_attr d = device().orig_attr;
  Options options;
  options.ird = static_cast<uint8_t>(d.max_qp_rd_atom);
  options.ord = static_cast<uint8_t>(d.max_qp_init_rd_atom);
  Pair p(options);
  for (Endpoint* e : {&p.a, &p.b}) {
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    CHECK_EQ(ibv_query_qp(e->qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init), 0);
    CHECK_EQ(attr.max_rd_atomic, d.max_qp_init_rd_atom);
    CHECK_EQ(attr.max_dest_rd_atomic, d.max_qp_rd_atom);
    attr.max_rd_atomic = static_cast<uint8_t>(d.max_qp_init_rd_atom + 1);
    attr.max_dest_rd_atomic = static_cast<uint8_t>(d.max_qp_rd_atom + 1);
    CHECK_EQ(ibv_modify_qp(e->qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC), EINVAL);
    CHECK_EQ(ibv_modify_qp(e->qp, &attr, IBV_QP_MAX_DEST_RD_ATOMIC), EINVAL);
  }
  exercise(p);
  p.close();
}

CASE(limit_pd, "limits/protection-domains", .seconds = 240) {
  count_up<ibv_pd>(static_cast<unsigned>(device().orig_attr.max_pd), [] { return ibv_alloc_pd(context()); },
                   ibv_dealloc_pd);
}

CASE(limit_cq, "limits/completion-queues", .seconds = 240) {
  count_up<ibv_cq>(static_cast<unsigned>(device().orig_attr.max_cq),
                   [] { return ibv_create_cq(context(), 1, nullptr, nullptr, 0); }, ibv_destroy_cq);
}

CASE(limit_qp, "limits/queue-pairs", .seconds = 400) {
  ibv_cq* cq = ibv_create_cq(context(), 16, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  count_up<ibv_qp>(static_cast<unsigned>(device().orig_attr.max_qp),
                   [&] {
                     init.cap = {1, 1, 1, 1, 0};
                     return ibv_create_qp(pd_a(), &init);
                   },
                   ibv_destroy_qp);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
}
