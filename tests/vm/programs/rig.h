// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file rig.h
/// Both ends of RC connections in one process: device A (client) and device B
/// (server), connected by rdma_cm. Addresses and device names come from the
/// environment (A_DEV, A_IP, B_DEV, B_IP). Everything fails the case on an error and
/// waits a bounded time only.
#ifndef USIW_TESTS_RIG_H
#define USIW_TESTS_RIG_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "region.h"
#include "tap.h"

inline const int kWaitMs = 15000 * static_cast<int>(tap::patience());  ///< for anything that should come soon

struct Site {
  std::string device;
  std::string ip;
};
Site site_a();
Site site_b();

/// The context that librdmacm uses for a device in this process.
ibv_context* context_of(const std::string& device);
inline ibv_context* context() { return context_of(site_a().device); }
/// One PD per device for the life of the process.
ibv_pd* pd_of(ibv_context* context);
ibv_pd* pd_a();
ibv_pd* pd_b();
sockaddr_in ipv4(const std::string& ip, uint16_t port);
/// Of either family.
sockaddr_storage address_of(const std::string& ip, uint16_t port);

// ---- Connection manager ----

/// A copy of an rdma_cm event, acknowledged.
struct CmEvent {
  rdma_cm_event_type type;
  int status;
  rdma_cm_id* id;
  unsigned responder_resources;
  unsigned initiator_depth;
  std::vector<uint8_t> private_data;
};

class EventChannel {
 public:
  EventChannel();
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;
  rdma_event_channel* get() const { return channel_; }
  rdma_cm_id* create_id(void* context = nullptr);  ///< of RDMA_PS_TCP; the caller's to destroy
  bool ready(int timeout_ms) const;  ///< an event is there
  CmEvent wait(int timeout_ms = kWaitMs);
  CmEvent expect(rdma_cm_event_type type, int timeout_ms = kWaitMs);

 private:
  rdma_event_channel* channel_;
};

/// ADDR_RESOLVED is on its way to the channel of @p id, which is new.
void make_event(rdma_cm_id* id);

class Listener {
 public:
  /// @p ip may be "0.0.0.0"; port 0 lets rdma_cm choose.
  explicit Listener(const std::string& ip, int backlog = 128, uint16_t port = 0);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  uint16_t port() const { return port_; }
  EventChannel& events() { return events_; }
  CmEvent wait_request(int timeout_ms = kWaitMs);

 private:
  EventChannel events_;
  rdma_cm_id* id_ = nullptr;
  uint16_t port_ = 0;
};

/// One listener on B's address for the life of the process.
Listener& shared_listener();

// ---- Endpoint ----

struct Options {
  uint32_t send_wr = 64, recv_wr = 64;
  uint32_t send_sge = 4, recv_sge = 4;
  uint32_t inline_data = 64;
  int send_cqe = 0, recv_cqe = 0;  ///< 0: as many as work requests
  bool sig_all = false;
  bool with_channel = false;       ///< CQs get completion channels
  uint8_t ird = 8, ord = 8;
  ibv_cq* cq = nullptr;            ///< both CQs, when not null (the caller's)
  ibv_pd* pd = nullptr;            ///< instead of pd_of()
  uint64_t send_ops = 0;           ///< IBV_QP_EX_WITH_*: the QP is made for ibv_wr_*
  ibv_srq* srq = nullptr;          ///< instead of a receive queue of its own (the caller's)
};

struct SendWr {
  uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = IBV_SEND_SIGNALED;
  std::vector<ibv_sge> sges = {};
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  uint32_t imm_data = 0;                ///< big endian, as verbs have it
  uint64_t compare_add = 0, swap = 0;   ///< of atomics
};

class Endpoint {
 public:
  Endpoint() = default;
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Address and route resolved from @p from to @p to; id in place, no QP yet.
  void resolve(const std::string& from, const std::string& to, uint16_t port);
  /// Takes the id of a CONNECT_REQUEST over.
  void adopt(rdma_cm_id* id);
  void create_qp(const Options& options);

  /// Return the errno value of ibv_post_*: 0 when accepted.
  int try_send(const SendWr& wr);
  int try_recv(uint64_t wr_id, std::vector<ibv_sge> sges);
  void send(const SendWr& wr);
  void recv(uint64_t wr_id, std::vector<ibv_sge> sges);

  ibv_qp_state state() const;
  void destroy_qp();
  void destroy();

  EventChannel events;
  rdma_cm_id* id = nullptr;
  ibv_pd* pd = nullptr;
  ibv_qp* qp = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* recv_cq = nullptr;
  ibv_comp_channel* send_channel = nullptr;
  ibv_comp_channel* recv_channel = nullptr;
  CmEvent established = {};  ///< the ESTABLISHED event of this end

 private:
  bool own_cqs_ = false;
};

/// Two connected endpoints: a on device A, b on device B.
class Pair {
 public:
  explicit Pair(const Options& both = {}) : Pair(both, both) {}
  Pair(const Options& of_a, const Options& of_b);
  /// Orderly: disconnect at A, both ends see DISCONNECTED, all is destroyed.
  void close();

  Endpoint a, b;
};

/// Connects by @p listener, with the private data and READ depths of the parameters.
void connect_pair(Endpoint& a, Endpoint& b, Listener& listener, const std::string& from,
                  const std::string& to, const Options& of_a, const Options& of_b);
rdma_conn_param conn_param(const Options& options);

// ---- Completions ----

/// Waits for one completion.
ibv_wc wait_wc(ibv_cq* cq, int timeout_ms = kWaitMs);
std::vector<ibv_wc> wait_wcs(ibv_cq* cq, size_t count, int timeout_ms = kWaitMs);
/// Waits for one completion and checks it; opcode is compared only with status success.
ibv_wc expect_wc(ibv_cq* cq, uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS);
/// Fails the case if a completion comes within @p ms.
void expect_no_wc(ibv_cq* cq, int ms);
/// Waits for a completion event of @p channel and acknowledges it; false on time-out.
bool wait_cq_event(ibv_comp_channel* channel, int timeout_ms);
/// Waits for an async event of @p context of that type for @p object, a QP, CQ or SRQ (or null: any).
void expect_async(ibv_context* context, ibv_event_type type, const void* object,
                  int timeout_ms = kWaitMs);
/// Takes all async events that are there.
void drain_async(ibv_context* context);

/// Round trip of a SEND each way and a WRITE and a READ on @p pair, with verified data.
void exercise(Pair& pair);

/// Waits until @p done returns true; fails the case with @p what on time-out.
void wait_until(const char* what, const std::function<bool()>& done, int timeout_ms = kWaitMs);

#endif  // USIW_TESTS_RIG_H
