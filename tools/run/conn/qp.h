// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp.h
/// A queue pair as the control path has it: its state as verbs see it, and its connection.
#ifndef USIW_RUN_QP_H
#define USIW_RUN_QP_H

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "cm/object/usiw_qp_attrs.h"
#include "tools/run/conn/stat_page.h"
#include "uapi/usiw_abi.h"

namespace usiw::run {

class Conn;
class EventStream;
class AsyncFile;
struct Cq;
struct Pd;
struct Srq;

/// The state of a QP. `usiw stat` reads it in the QP's page of counters.
class QpState {
 public:
  operator usiw_qp_state() const { return value_; }
  QpState& operator=(usiw_qp_state value) {
    value_ = value;
    show();
    return *this;
  }
  void show_in(MappedPage page, uint32_t qpn) {
    page_ = std::move(page);
    show();
    page_.show_qp(qpn);
  }
  /// rdma_accept() has accepted a connection with this QP, so sends may be posted from now on.
  void accepted() { page_.set_accepted(); }
  /// Removes the state from the page, and adds the counters of the page to those of @p context.
  void hide(MappedPage& context) {
    context.retire(page_);
    page_.hide();
    page_ = MappedPage();
  }

 private:
  /// Shows the name that verbs have for the state, since a reader of the page knows no other names.
  void show() { page_.set_state(value_ == USIW_QPS_CLOSING ? USIW_QPS_SQD : value_); }

  usiw_qp_state value_ = USIW_QPS_RESET;
  MappedPage page_;
};

/// All members [big lock].
struct Qp {
  uint32_t qpn = 0;
  uint32_t handle = 0;
  uint32_t page = 0;  ///< number of its page of counters; 0: it has none
  uint64_t user_handle = 0;
  QpState state;
  usiw_qp_attrs attrs{};
  bool sq_sig_all = false;
  bool merges = false;  ///< its provider understands USIW_TRP_F_MERGED
  ibv_qp_cap cap{};
  std::shared_ptr<Pd> pd;
  std::shared_ptr<Cq> send_cq, recv_cq;
  std::shared_ptr<Srq> srq;
  std::shared_ptr<EventStream> events;
  std::shared_ptr<AsyncFile> async;
  std::shared_ptr<uint32_t> async_events = std::make_shared<uint32_t>(0);  ///< number that the program has read
  std::shared_ptr<Conn> conn;
  bool destroying = false;
};

/// [big lock] Gives a QP its number. Returns 0 or -ENOMEM.
int qp_add(const std::shared_ptr<Qp>& qp);
/// [big lock]
void qp_remove(const Qp& qp);
/// [big lock] Returns the QP with a number, or null.
std::shared_ptr<Qp> qp_by_number(uint32_t qpn);
/// [big lock] In a child of fork(): the numbers are the parent's.
void qps_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_QP_H
