// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp.h
/// The queue pair of the control path: its state, its attributes and its connection, and the table of queue pairs.
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
class Face;
class EventStream;
class AsyncFile;
struct Cq;
struct Pd;
struct Srq;

/// The state of a QP. If the QP has a counters page, a copy of the state is there, for `usiw stat`.
class QpState {
 public:
  operator usiw_qp_state() const { return value_; }
  QpState& operator=(usiw_qp_state value) {
    value_ = value;
    show();
    return *this;
  }
  /// Writes the state and @p qpn to @p page, the counters page of the QP. From now on the page follows the state.
  void show_in(MappedPage page, uint32_t qpn) {
    page_ = std::move(page);
    show();
    page_.show_qp(qpn);
  }
  /// Sets usiw_qp_stats.accepted, so that the provider permits sends. Call it when rdma_accept() has accepted a
  /// connection with this QP.
  void accepted() { page_.set_accepted(); }
  /// Counts a datagram at the port of the QP that belongs to no connection.
  void count_ignored() { page_.count_ignored(); }
  /// Adds the counters of the QP to @p context, the page of its context, and marks the page of the QP as free.
  void hide(MappedPage& context) {
    context.retire(page_);
    page_.hide();
    page_ = MappedPage();
  }

 private:
  /// Writes the state to the page. CLOSING appears as SQD there, because verbs have no state CLOSING.
  void show() { page_.set_state(value_ == USIW_QPS_CLOSING ? USIW_QPS_SQD : value_); }

  usiw_qp_state value_ = USIW_QPS_RESET;
  MappedPage page_;
};

/// A queue pair. All members need the big lock.
struct Qp {
  uint32_t qpn = 0;
  uint32_t handle = 0;
  uint32_t page = 0;  ///< number of the counters page of the QP; 0: none
  uint64_t user_handle = 0;
  QpState state;
  usiw_qp_attrs attrs{};
  bool sq_sig_all = false;
  bool merges = false;  ///< the provider of the QP has the capability USIW_CAP_MERGES
  ibv_qp_cap cap{};
  std::shared_ptr<Pd> pd;
  std::shared_ptr<Cq> send_cq, recv_cq;
  std::shared_ptr<Srq> srq;
  std::shared_ptr<EventStream> events;
  std::shared_ptr<AsyncFile> async;
  std::shared_ptr<uint32_t> async_events = std::make_shared<uint32_t>(0);  ///< events that the program has read
  std::shared_ptr<Conn> conn;
  bool moved_by_program = false;  ///< on the RoCE face: no connection moves the QP to RTS
  std::shared_ptr<Face> face;     ///< on the RoCE face: its port and its peer (face/face.h)
  bool destroying = false;
};

/// [big lock] Adds @p qp to the table. If Qp::qpn is 0, sets it to a free number. Returns 0; -ENOMEM if the table is
/// full; -EEXIST if another QP has the number.
int qp_add(const std::shared_ptr<Qp>& qp);
/// [big lock] Removes the QP from the table.
void qp_remove(const Qp& qp);
/// [big lock] Returns the QP with the number @p qpn, or null.
std::shared_ptr<Qp> qp_by_number(uint32_t qpn);
/// [big lock] In a child of fork(): clears the table, because the QPs belong to the parent.
void qps_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_QP_H
