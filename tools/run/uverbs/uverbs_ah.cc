// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_ah.cc
/// The commands for address handles. Only the RoCE face has them, because an RNIC has no datagrams. Programs such as
/// UCX also create one to find out whether a GID works, so CREATE_AH checks the address as modify_qp to RTR does.
#include <cerrno>

#include "cm/object/usiw_limits.h"
#include "tools/run/face/face.h"
#include "tools/run/host/settings.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {
namespace {

int create_ah(UverbsContext& u, const Command& c, const ib_uverbs_create_ah& cmd) {
  if (settings().face != FaceKind::kRoce) return -EOPNOTSUPP;
  const std::shared_ptr<Pd> pd = u.find(u.pds, cmd.pd_handle);
  if (!pd) return -EINVAL;
  if (int ret = Face::check_handle(cmd.attr); ret != 0) return ret;
  struct {
  } none;
  if (int ret = c.read_driver_data(sizeof cmd, none); ret != 0) return ret;
  if (Counted<Ah>::number() >= USIW_MAX_AH) return -ENOMEM;
  ib_uverbs_create_ah_resp r{};
  r.ah_handle = u.next_handle++;
  if (int ret = c.respond(r); ret != 0) return ret;
  u.ahs[r.ah_handle] = std::make_shared<Ah>(Ah{.pd = pd});
  return 0;
}

int destroy_ah(UverbsContext& u, const Command&, const ib_uverbs_destroy_ah& cmd) {
  if (settings().face != FaceKind::kRoce) return -EOPNOTSUPP;
  int error;
  u.remove(u.ahs, cmd.ah_handle, error);
  return error;
}

constexpr UverbsMethod kMethodsOfAh[] = {
    method<create_ah>(IB_USER_VERBS_CMD_CREATE_AH, sizeof(ib_uverbs_create_ah_resp)),
    method<destroy_ah>(IB_USER_VERBS_CMD_DESTROY_AH),
};

}  // namespace

const std::span<const UverbsMethod> kAhMethods = kMethodsOfAh;

}  // namespace usiw::run
