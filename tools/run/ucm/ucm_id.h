// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ucm_id.h
/// The ids of rdma_cm, by which a program names its listeners and connections. Their states and errors are those of the
/// kernel's cma.c and ucma.c for iWARP.
#ifndef USIW_RUN_UCM_ID_H
#define USIW_RUN_UCM_ID_H

#include <infiniband/ib.h>
#include <rdma/ib_user_sa.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cm/usiw_face.h"
#include "tools/run/conn/conn.h"
#include "tools/run/host/host.h"
#include "tools/run/ucm/ucm_events.h"

namespace usiw::run {

/// The answer to a query of the path: struct rdma_ucm_query_path_resp with one record.
struct UcmPath {
  uint32_t num_paths, reserved;
  ib_path_rec_data path;
};

/// An id of rdma_cm. All calls [big lock]. Calls that can fail return 0 or -errno, unless stated otherwise.
class UcmId final : public ConnUser, public Listener, public std::enable_shared_from_this<UcmId> {
 public:
  UcmId(const std::shared_ptr<UcmEvents>& file, uint64_t uid, uint16_t ps);
  /// Returns the id with number @p id. Returns null and sets @p error if there is no such id (-ENOENT) or if it belongs
  /// to another file (-EINVAL).
  static std::shared_ptr<UcmId> find(const UcmEvents& file, uint32_t id, int& error);
  static std::shared_ptr<UcmId> create(const std::shared_ptr<UcmEvents>& file, uint64_t uid, uint16_t ps);

  int bind(const Endpoint& addr);
  int resolve_addr(const Endpoint* src, const Endpoint& dst);
  int resolve_route(uint32_t timeout_ms);
  int listen(uint32_t backlog);
  int connect(const rdma_ucm_conn_param& param);
  int accept(uint64_t uid, const rdma_ucm_conn_param& param);
  int reject(const void* pd, uint8_t len, uint8_t reason);
  int disconnect();
  int notify() const;
  int join() const;
  int set_option(uint32_t level, uint32_t name, const void* value, uint32_t len);
  /// Ends the id: releases its port, discards its unread events, and ends its connection. Destroys the ids of requests
  /// that the program has not read.
  void destroy();
  void move_to(const std::shared_ptr<UcmEvents>& file);

  rdma_ucm_query_route_resp query_route() const;
  rdma_ucm_query_addr_resp query_addr() const;
  rdma_ucm_query_addr_resp query_gid() const;
  /// On the RoCE face: the path to the peer once the route is resolved, else none.
  UcmPath query_path() const;
  int init_qp_attr(uint32_t qp_state, ib_uverbs_qp_attr& attr) const;

  uint32_t id() const { return id_; }
  const UcmEvents* file() const { return file_.get(); }
  uint32_t events_reported = 0;

  // ConnUser, Listener
  void on_event(uint32_t event, int status, const usiw_cm_conn& cm) override;
  const std::shared_ptr<Backlog>& backlog() override { return backlog_; }
  uint8_t tos() const override { return listen_tos_; }
  int open(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req,
           uint32_t isn) override;

 private:
  void set_gids(sockaddr_ib& source, sockaddr_ib& destination) const;
  /// On the RoCE face: the number by which the QP of the peer is known. The true number is not on the wire.
  uint32_t number_of_peer_qp() const { return USIW_FACE_TAG_CM << 16 | ntohs(dst_.port); }
  int init_qp_attr_on_face(uint32_t qp_state, ib_uverbs_qp_attr& attr) const;
  enum class State { kIdle, kAddrBound, kAddrResolved, kRouteResolved, kConnect, kListen, kDestroyed };

  void report(uint32_t event, int status, const usiw_cm_conn* cm = nullptr);
  int check_port(const Endpoint& addr, bool reuse) const;
  int claims_port(const Endpoint& addr);
  int bind_port(const Endpoint& addr);
  int check_other_family() const;
  void unbind();
  bool has_device() const;
  Endpoint reported_source() const;

  const uint32_t id_;
  uint64_t uid_;
  const uint16_t ps_;
  std::shared_ptr<UcmEvents> file_;
  State state_ = State::kIdle;
  Endpoint src_, dst_;
  uint16_t mtu_ = 0;
  uint8_t tos_ = 0;
  uint8_t ack_timeout_ = 0;  ///< timeout of the QP, as the program has set it; 0: not set
  uint8_t listen_tos_ = 0;  ///< tos_ when listening began
  bool reuse_ = false;
  bool answered_ = false;                            ///< the request has been accepted or rejected
  bool asks_address_ = false;                        ///< bound to loopback with port 0: see reported_source()
  std::shared_ptr<Backlog> backlog_;                 ///< null unless the id listens
  std::weak_ptr<UcmId> listener_;                    ///< listener that got the request, until it is accepted
  std::vector<std::shared_ptr<UdpSocket>> sockets_;  ///< empty unless bound; two for an IPv6 listener that takes IPv4
  bool afonly_ = false;                              ///< an IPv6 wildcard gets no IPv4 connections
  bool afonly_is_set_ = false;                       ///< the program has set afonly_
  std::shared_ptr<Conn> conn_;
};

/// [big lock] Returns all ids of a file.
std::vector<std::shared_ptr<UcmId>> ids_of(const UcmEvents& file);
/// [big lock] In a child of fork(): forgets all ids and sends nothing, because the connections are the parent's.
void ids_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_UCM_ID_H
