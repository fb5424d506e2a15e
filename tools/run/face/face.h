// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file face.h
/// The class Face: what a QP has on the RoCE face (docs/face.md). It owns the UDP port of the QP, and connects the QP
/// when the program has moved it to RTR. cm/usiw_face.h decides which end asks and which REQ fits.
#ifndef USIW_RUN_FACE_H
#define USIW_RUN_FACE_H

#include <rdma/ib_user_verbs.h>

#include <cstdint>
#include <memory>

#include "cm/usiw_face.h"
#include "tools/run/conn/conn.h"
#include "tools/run/conn/qp.h"
#include "tools/run/conn/udp_socket.h"

namespace usiw::run {

/// All functions need the big lock.
class Face final : public ConnUser, public std::enable_shared_from_this<Face> {
 public:
  /// Opens a free UDP port, from which the QP gets its number. Returns null and sets @p error to -errno if there is
  /// none.
  static std::shared_ptr<Face> open(int& error);
  /// In a child of fork(): forgets all of them, because the QPs belong to the parent.
  static void abandon_all();
  ~Face() override;

  uint32_t qpn() const { return face_.qpn; }

  /// Returns the state from which modify_qp may move @p qp: the state of the QP, or the one in which a connection of
  /// rdma_cm has begun and ended. librdmacm learns of such a connection only by its response, and then moves the QP to
  /// RTS. These moves do not lead out of ERR.
  usiw_qp_state moves_from(const Qp& qp) const;
  /// Checks by the states of InfiniBand whether modify_qp may move a QP from the state @p from. Returns 0 or -EINVAL.
  static int check_move(usiw_qp_state from, const ib_uverbs_modify_qp& cmd);
  /// Checks the address vector of a modify_qp whose other attributes are correct. Returns 0 or -errno. If the QP moves to
  /// RTR, moved() then uses the addresses that this call has found.
  int check_address(const ib_uverbs_modify_qp& cmd);
  /// Checks the attributes of an address handle by the rules of check_address(). Returns 0 or -errno.
  static int check_handle(const ib_uverbs_ah_attr& attr);
  /// Carries out a modify_qp that check() has allowed, after the state and the other attributes of @p qp have been set.
  void moved(const std::shared_ptr<Qp>& qp, const ib_uverbs_modify_qp& cmd);
  /// Fills in those attributes of the QP that only this face has.
  void fill(const Qp& qp, ib_uverbs_query_qp_resp& attr) const;
  /// Forgets the peer and the connection, because the QP leaves RTR, RTS or SQD. The caller ends the connection.
  void leave();
  /// Handles the report that @p qp has failed without a connection, because its work has waited too long, or with one
  /// that has already given way to another one here. The QP is in ERR then. All other reports are for the connection.
  void failed(Qp& qp, const usiw_qp_report& report);
  /// Closes the port, because the QP is being destroyed.
  void close();

  void on_event(uint32_t event, int status, const usiw_cm_conn& cm) override;

 private:
  explicit Face(const std::shared_ptr<UdpSocket>& sock);
  static void receive(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len);
  static void icmp(UdpSocket& sock, const Endpoint& to, usiw_cm_answer answer, const void* quoted, uint32_t len);
  static void ignored(UdpSocket& sock);
  int find_path(const ib_uverbs_modify_qp& cmd);
  void connect(const std::shared_ptr<Qp>& qp);
  void answer(const std::shared_ptr<Qp>& qp);
  ConnParam param(const Qp& qp) const;

  std::shared_ptr<UdpSocket> sock_;
  usiw_face face_{};
  Tuple kept_from_{};                        ///< ends of the REQ that face_ keeps
  ConnPath path_{};                          ///< from RTR on
  ib_uverbs_qp_dest av_{};                   ///< as the program has set it
  usiw_qp_state moved_to_ = USIW_QPS_RESET;  ///< by the program
  uint16_t pkey_index_ = 0;
  uint8_t path_mtu_ = 0;
  usiw_face_ask ask_{};         ///< private data of REQ
  std::shared_ptr<Conn> conn_;  ///< the silent connection, or null
};

}  // namespace usiw::run

#endif  // USIW_RUN_FACE_H
