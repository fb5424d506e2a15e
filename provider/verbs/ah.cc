// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ah.cc
/// Address handles (ibv_create_ah(3)). The kernel side checks the address, and refuses all handles unless the device
/// shows the RoCE face. Only datagrams use an address handle, and usiw has none yet, so the provider keeps no address.
#include <cerrno>
#include <new>

#include "runtime/runtime.h"

using namespace usiw;

extern "C" ibv_ah* usiw_verb_create_ah(ibv_pd* ibpd, ibv_ah_attr* attr) {
  int rc = Context::of(ibpd->context).runtime->dead() ? EINVAL : 0;
  ibv_ah* ah = rc == 0 ? new (std::nothrow) ibv_ah{} : nullptr;
  if (ah == nullptr) {
    errno = rc != 0 ? rc : ENOMEM;
    return nullptr;
  }
  if (rc = usiw_cmd_create_ah(ibpd, attr, ah); rc != 0) {
    delete ah;
    errno = rc;
    return nullptr;
  }
  ++from(ibpd)->users;
  return ah;
}

extern "C" int usiw_verb_destroy_ah(ibv_ah* ah) {
  if (Context::of(ah->context).runtime->dead()) return EINVAL;
  if (int rc = usiw_cmd_destroy_ah(ah); rc != 0) return rc;
  --from(ah->pd)->users;
  delete ah;
  return 0;
}
