// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ucm.h
/// /dev/infiniband/rdma_cm: ids and their events, by the ABI of rdma/rdma_user_cm.h, with the
/// states and errors of the kernel's cma.c and ucma.c for iWARP.
#ifndef USIW_RUN_UCM_H
#define USIW_RUN_UCM_H

// First: the kernel's header declares addresses in its own way where libc's is not there yet.
#include <netinet/in.h>

#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "tools/run/conn/conn.h"
#include "tools/run/conn/udp_socket.h"
#include "tools/run/host/host.h"
#include "tools/run/libc/event_file.h"

namespace usiw::run {

class UcmFile;
class UcmId;

/// An event that the owner of an id has yet to read.
struct UcmEvent {
  std::shared_ptr<UcmId> id;     ///< counts it as reported; for a request the listening one
  std::shared_ptr<UcmId> child;  ///< of a request
  rdma_ucm_event_resp resp;
};

/// All calls [big lock], errors -errno.
class UcmId final : public ConnUser, public Listener, public std::enable_shared_from_this<UcmId> {
 public:
  UcmId(const std::shared_ptr<UcmFile>& file, uint64_t uid, uint16_t ps);
  /// Finds an id of @p file; null and -ENOENT or -EINVAL in @p error.
  static std::shared_ptr<UcmId> find(const UcmFile& file, uint32_t id, int& error);
  static std::shared_ptr<UcmId> create(const std::shared_ptr<UcmFile>& file, uint64_t uid, uint16_t ps);

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
  /// Out of the tables, with its connection, its unread events and the requests among them.
  void destroy();
  void move_to(const std::shared_ptr<UcmFile>& file);

  rdma_ucm_query_route_resp query_route() const;
  rdma_ucm_query_addr_resp query_addr() const;
  rdma_ucm_query_addr_resp query_gid() const;
  int init_qp_attr(uint32_t qp_state, ib_uverbs_qp_attr& attr) const;

  uint32_t id() const { return id_; }
  UcmFile* file() const { return file_.get(); }
  uint32_t events_reported = 0;

  // ConnUser, Listener
  void on_reply(int status, const usiw_cm_conn& cm) override;
  void on_established(const usiw_cm_conn& cm) override;
  void on_close() override;
  void on_request(const std::shared_ptr<Conn>& conn) override;
  const std::shared_ptr<Backlog>& backlog() override { return backlog_; }
  uint8_t tos() const override { return listen_tos_; }

 private:
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
  std::shared_ptr<UcmFile> file_;
  State state_ = State::kIdle;
  Endpoint src_, dst_;
  uint16_t mtu_ = 0;
  uint8_t tos_ = 0;
  uint8_t listen_tos_ = 0;              ///< as it was when listening began
  bool reuse_ = false;
  bool answered_ = false;               ///< a request, accepted or rejected
  bool asks_address_ = false;           ///< bound to a loopback address and no port: see reported_source()
  std::shared_ptr<Backlog> backlog_;    ///< listening
  std::weak_ptr<UcmId> listener_;       ///< of a request that is neither accepted nor gone
  std::vector<std::shared_ptr<UdpSocket>> sockets_;  ///< bound; two for an IPv6 wildcard that takes both
  bool afonly_ = false;                 ///< as it was bound last, or tried to be
  bool afonly_is_set_ = false;          ///< by the program
  std::shared_ptr<Conn> conn_;
};

class UcmFile final : public EventFile {
 public:
  static int open();
  ssize_t write(int fd, const void* buf, size_t count) override;
  void closed() override;
  dev_t device() const override;

  /// [big lock]
  void push(UcmEvent event);
  /// [big lock] Takes the events of @p id out, in order.
  std::vector<UcmEvent> take(const UcmId& id);

 private:
  /// One command of write(2), decoded.
  struct Request {
    std::vector<uint8_t> in;  ///< the command's structure, as far as the program has written it
    size_t out_len;           ///< space for the response, bytes

    /// The structure at the front of the command. Its end is zeros if the program left it out.
    template <typename T>
    T as() const {
      T value{};
      std::memcpy(&value, in.data(), std::min(in.size(), sizeof value));
      return value;
    }
  };
  using Handler = int (UcmFile::*)(const Request&);
  struct Method {
    uint32_t command;
    size_t request_size;  ///< least length of the request, bytes; a shorter one gets EINVAL
    Handler handler;
    bool waits = false;  ///< the handler takes the lock itself, each time that it has waited
  };
  static const Method* find_method(uint32_t command);

  /// Calls @p call with the id that @p r names in a structure T, and with that structure. Returns its result, or the
  /// error of UcmId::find(). A structure that ends within the id names none.
  template <typename T, typename Call>
  int with_id(const Request& r, Call call) {
    const auto c = r.as<T>();
    const bool has_id = r.in.size() >= offsetof(T, id) + sizeof c.id;
    int error = 0;
    std::shared_ptr<UcmId> id = UcmId::find(*this, has_id ? c.id : 0, error);
    return id ? call(*id, c) : error;
  }

  // ucm_commands.cc. All but get_event(): [big lock]
  int create_id(const Request& r);
  int destroy_id(const Request& r);
  int migrate_id(const Request& r);
  int get_event(const Request& r);
  int bind_ip(const Request& r);
  int bind(const Request& r);
  int resolve_ip(const Request& r);
  int resolve_addr(const Request& r);
  int resolve_route(const Request& r);
  int query_route(const Request& r);
  int query(const Request& r);
  int init_qp_attr(const Request& r);
  int get_option(const Request& r);
  int set_option(const Request& r);
  int connect(const Request& r);
  int listen(const Request& r);
  int accept(const Request& r);
  int reject(const Request& r);
  int disconnect(const Request& r);
  int notify(const Request& r);
  int join(const rdma_ucm_join_mcast& c, size_t addr_len, size_t out_len);
  int join_ip_mcast(const Request& r);
  int join_mcast(const Request& r);
  int leave_mcast(const Request& r);

  std::weak_ptr<UcmFile> self_;
  std::deque<UcmEvent> events_;
  bool closed_ = false;  ///< by another thread than the one that is in a call
};

/// [big lock] All ids of a file.
std::vector<std::shared_ptr<UcmId>> ids_of(const UcmFile& file);
/// [big lock] In a child of fork(): forgets all without a word.
void ids_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_UCM_H
