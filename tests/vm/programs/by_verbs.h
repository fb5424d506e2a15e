// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file by_verbs.h
/// QPs that connect by verbs alone, as InfiniBand and RoCE have it: a program exchanges GIDs, QP numbers and PSNs, and
/// then moves its QPs through RESET, INIT, RTR and RTS. Each move requires certain attributes (IBA 1.4, 11.2.5.2). An
/// RNIC cannot connect in this way.
#ifndef USIW_TESTS_BY_VERBS_H
#define USIW_TESTS_BY_VERBS_H

#include <cerrno>

#include "rig.h"

/// True if the device is a RoCE device: usiw on its RoCE face, or rxe. False if it is an RNIC.
bool roce();

/// The status of RDMA_CM_EVENT_REJECTED if the program of the other end has rejected the connection, and if nobody
/// listens. A RoCE device shows InfiniBand's reasons, and an RNIC an error.
inline int rejected_by_program() { return roce() ? 28 : -ECONNREFUSED; }
inline int rejected_by_nobody() { return roce() ? 8 : -ECONNREFUSED; }
/// Moves @p qp, which @p id does not have, to RTS by the attributes of rdma_cm, and accepts the response.
void establish(rdma_cm_id* id, ibv_qp* qp);

/// Returns the GID at @p index of the device's table. Fails the case if that entry is empty.
ibv_gid gid_at(int index);

/// The index of a GID that has an address of the interface, IPv4. Index 0 is the link-local GID.
constexpr int kGidIndex = 1;

/// The arguments of ibv_modify_qp().
struct Change {
  ibv_qp_attr attr = {};
  int mask = 0;

  int apply(ibv_qp* qp) const {
    ibv_qp_attr copy = attr;
    return ibv_modify_qp(qp, &copy, mask);
  }
  /// Returns this change without the attributes of @p attributes.
  Change without(int attributes) const {
    Change less = *this;
    less.mask &= ~attributes;
    return less;
  }
};

/// Each of these returns a move that has the required attributes and no others. The values are in bounds.
Change only_state(int state);
Change to_init();
Change to_rtr(const ibv_gid& peer, uint32_t peer_qpn, int gid_index = kGidIndex);
Change to_rts();

/// Returns a move of @p qp from its present state to @p state, with the attributes that a RoCE device requires for it.
/// The peer is a QP that stays in RESET.
Change required_for(ibv_qp* qp, int state);

/// A QP that this program connects by itself. Its CQs have as many entries as its queues.
class OwnQp : public Endpoint {
 public:
  explicit OwnQp(uint32_t depth = 16);
  ~OwnQp();
  OwnQp(const OwnQp&) = delete;
  OwnQp& operator=(const OwnQp&) = delete;

  uint32_t number() const { return qp->qp_num; }
  void init() { must(to_init()); }
  void rtr(uint32_t peer_qpn, int gid_index = kGidIndex) { must(to_rtr(gid_at(gid_index), peer_qpn, gid_index)); }
  void rts() { must(to_rts()); }
  void reset() { must(only_state(IBV_QPS_RESET)); }
  /// INIT, RTR and RTS.
  void connect(uint32_t peer_qpn, int gid_index = kGidIndex);
  /// Applies @p change. Fails the case if that fails.
  void must(const Change& change);
  ibv_qp_attr attributes() const;
  /// Destroys the QP and its CQs.
  void end();
};

/// Moves data both ways between two QPs that are connected or will be soon, and verifies it.
void exercise(OwnQp& a, OwnQp& b);

#endif  // USIW_TESTS_BY_VERBS_H
