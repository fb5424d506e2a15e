// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/qp.h"

#include <cerrno>
#include <map>

#include "cm/object/usiw_limits.h"
#include "tools/run/host/never_destroyed.h"
#include "tools/run/host/random.h"

namespace usiw::run {
namespace {

using QpTable = std::map<uint32_t, std::weak_ptr<Qp>>;

}  // namespace

int qp_add(const std::shared_ptr<Qp>& qp) {
  // The first number is random, so that QPs of two processes on this host rarely have the same QPN.
  static uint32_t next = USIW_QPN_FIRST + random_u32() % (USIW_QPN_LAST - USIW_QPN_FIRST);
  QpTable& table = never_destroyed<QpTable>();
  if (table.size() >= USIW_MAX_QP) return -ENOMEM;
  while (qp->qpn == 0) {
    next = next >= USIW_QPN_LAST ? USIW_QPN_FIRST : next + 1;
    if (table.count(next) == 0) qp->qpn = next;
  }
  return table.try_emplace(qp->qpn, qp).second ? 0 : -EEXIST;
}

void qp_remove(const Qp& qp) { never_destroyed<QpTable>().erase(qp.qpn); }

std::shared_ptr<Qp> qp_by_number(uint32_t qpn) {
  const QpTable& table = never_destroyed<QpTable>();
  const auto it = table.find(qpn);
  return it == table.end() ? nullptr : it->second.lock();
}

void qps_abandon() { never_destroyed<QpTable>().clear(); }

}  // namespace usiw::run
