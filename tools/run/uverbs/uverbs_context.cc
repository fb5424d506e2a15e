// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_context.cc
/// The commands that make a context and that query the device and its port. Queries return what kmod/usiw_link.c would
/// return.
#include <bit>
#include <cerrno>

#include "base/machine.h"
#include "cm/object/usiw_device_attr.h"
#include "cm/object/usiw_limits.h"
#include "tools/run/conn/port_events.h"
#include "tools/run/host/gid_table.h"
#include "tools/run/host/host.h"
#include "tools/run/host/settings.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {
namespace {

ib_uverbs_query_device_resp device_attr() {
  ib_uverbs_query_device_resp r{};
  usiw_fill_device_attr(&r, page_size());
  r.node_guid = r.sys_image_guid = std::bit_cast<uint64_t>(node_guid());
  r.max_sge = USIW_MAX_SGE;
  if (settings().face == FaceKind::kRoce) r.max_ah = USIW_MAX_AH;
  r.phys_port_cnt = 1;
  return r;
}

/// Capabilities without which a provider cannot use this device. Under usiw-run any connection may need a data socket.
constexpr uint64_t kCapsNeeded = USIW_CAP_DATA_SOCKET;
constexpr uint64_t kCaps = kCapsNeeded | USIW_CAP_PORT_REPORT | USIW_CAP_PORT_MOVE | USIW_CAP_MERGES | USIW_CAP_SILENT;

int get_context(UverbsContext& u, const Command& c, const ib_uverbs_get_context&) {
  constexpr size_t kCore = sizeof(ib_uverbs_get_context);
  usiw_alloc_ucontext_req req;
  struct {
    uint32_t async_fd, num_comp_vectors;  // struct ib_uverbs_get_context_resp
    usiw_alloc_ucontext_resp drv;
  } resp{};
  static_assert(offsetof(decltype(resp), drv) == sizeof(ib_uverbs_get_context_resp));
  if (u.open) return -EINVAL;
  if (c.in_len < kCore + sizeof req.abi_version) return -EINVAL;
  std::memcpy(&req.abi_version, c.in + kCore, sizeof req.abi_version);
  resp.drv.abi_min = USIW_ABI_VERSION_MIN;
  resp.drv.abi_max = USIW_ABI_VERSION;
  if (req.abi_version < USIW_ABI_VERSION_MIN || req.abi_version > USIW_ABI_VERSION) {
    const int ret = c.respond(resp);
    return ret != 0 ? ret : -EPROTO;
  }
  if (int ret = c.read_driver_data(kCore, req, sizeof req); ret != 0) return ret;
  if (req.comp_mask != 0) return -EOPNOTSUPP;
  if ((req.caps & kCapsNeeded) != kCapsNeeded) return -EOPNOTSUPP;

  auto async = std::make_shared<AsyncFile>();
  int async_fd = AsyncFile::open(async);
  if (async_fd < 0) return async_fd;
  resp.async_fd = static_cast<uint32_t>(async_fd);
  resp.num_comp_vectors = USIW_COMP_VECTORS;
  resp.drv.caps = req.caps & kCaps;
  resp.drv.counters_size = u.pages != 0 ? USIW_COUNTERS_SIZE : 0;
  resp.drv.link = link_info();
  // USIW_PORT_SHM includes a raw port, which the provider opens for the first connection whose CONNECT record permits
  // raw packets.
  resp.drv.port_kind = settings().port == PortWish::kSocket ? USIW_PORT_SOCKET : USIW_PORT_SHM;
  if (int ret = c.respond(resp); ret != 0) {
    file_close(async_fd);
    return ret;
  }
  u.shown.show_context(settings().device.c_str());
  u.async = async;
  port_events_to(async);
  u.caps = resp.drv.caps;
  u.open = true;
  return 0;
}

int query_device(UverbsContext&, const Command& c, const ib_uverbs_query_device&) {
  if (c.in_len > sizeof(ib_uverbs_query_device)) return -EINVAL;
  return c.respond(device_attr());
}

int query_device_ex(UverbsContext&, const Command& c, const ib_uverbs_ex_query_device& cmd) {
  if (cmd.comp_mask != 0 || cmd.reserved != 0 || c.driver_in != 0 || c.driver_out != 0) return -EINVAL;
  ib_uverbs_ex_query_device_resp r{};
  r.base = device_attr();
  r.timestamp_mask = USIW_TIMESTAMP_MASK;
  r.hca_core_clock = USIW_CLOCK_KHZ;
  r.odp_caps.general_caps = USIW_ODP_GENERAL_CAPS;
  r.odp_caps.per_transport_caps.rc_odp_caps = USIW_ODP_RC_CAPS;
  r.device_cap_flags_ex = r.base.device_cap_flags;
  r.response_length = static_cast<uint32_t>(c.out_len < sizeof r ? c.out_len : sizeof r);
  return c.respond(r);
}

int query_port(UverbsContext&, const Command& c, const ib_uverbs_query_port& cmd) {
  if (cmd.port_num != 1) return -EINVAL;
  usiw_link_info link = link_info();
  ib_uverbs_query_port_resp r{};
  const usiw_netdev_is is{.up = link.up, .enabled = link_enabled(), .mtu = link.mtu, .mbps = link_speed()};
  usiw_fill_port_attr(&r, &is);
  if (settings().face == FaceKind::kRoce) r.gid_tbl_len = kGidTableLength;
  constexpr uint8_t kEthernet = 2;
  r.link_layer = kEthernet;
  return c.respond(r);
}

constexpr UverbsMethod kMethodsOfContext[] = {
    method<get_context>(IB_USER_VERBS_CMD_GET_CONTEXT, sizeof(ib_uverbs_get_context_resp)),
    method<query_device>(IB_USER_VERBS_CMD_QUERY_DEVICE, sizeof(ib_uverbs_query_device_resp)),
    method<query_port>(IB_USER_VERBS_CMD_QUERY_PORT, sizeof(ib_uverbs_query_port_resp)),
};

}  // namespace

const std::span<const UverbsMethod> kContextMethods = kMethodsOfContext;
const UverbsMethod kQueryDeviceEx = method<query_device_ex>(IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
                                                            offsetof(ib_uverbs_ex_query_device_resp, odp_caps));

}  // namespace usiw::run
