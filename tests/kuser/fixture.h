// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// The module in the mock kernel, with devices on eth0 and eth1, processes that use it, and cm_ids as iw_cm has them. A
// test fails if it does not free everything, or if the mock has found a violation.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "mock/mock.h"

extern "C" {
#include "kmod/usiw_addr.h"
#include "kmod/usiw_conn.h"
#include "kmod/usiw_conn_act.h"
#include "kmod/usiw_conn_run.h"
#include "kmod/usiw_data.h"
#include "kmod/usiw_device.h"
#include "kmod/usiw_event.h"
#include "kmod/usiw_follow.h"
#include "kmod/usiw_admission.h"
#include "kmod/usiw_iwcm_quirks.h"
#include "kmod/usiw_mr.h"
#include "kmod/usiw_netdev.h"
#include "kmod/usiw_qp.h"
#include "kmod/usiw_qp_ref.h"
#include "kmod/usiw_route.h"
#include "kmod/usiw_rx.h"
#include "kmod/usiw_sock.h"
#include "kmod/usiw_stats.h"
#include "kmod/usiw_unread.h"
#include "kmod/usiw_user.h"
#include "kmod/usiw_verbs.h"
#include "kmod/usiw_verbs_types.h"
}

namespace kuser {

inline constexpr uint16_t kPort = 7000;

in6_addr ipv4(const char* text);
in6_addr ipv6(const char* text);
sockaddr_storage endpoint(const in6_addr& addr, uint16_t port, int scope = 0);

/// Returns the violations that the mock has found so far, one a line.
std::string violations();

/// A verbs program: one context with one CQ and one QP.
class Process {
 public:
  explicit Process(const char* netdev);
  ~Process();
  Process(const Process&) = delete;

  /// Each returns the result of the driver, and does nothing if an earlier step has failed.
  int open();         ///< with the event stream
  int open_events();  ///< again
  int create_cq();
  int create_qp();
  int open_all();
  int modify(ib_qp_state state);
  int destroy_qp();
  /// Does what ib_core does when the file is closed: it destroys the objects, then the context.
  void close();
  /// SIGKILL was sent: the process does nothing by itself any more.
  void kill() {
    killed_ = true;
    signal.flags = SIGNAL_GROUP_EXIT;
  }
  bool killed() const { return killed_; }

  /// Reads all records of the event file.
  std::vector<usiw_event> events();
  int report(uint32_t kind, uint32_t conn_id, int error = 0, uint32_t async_event = 0);
  int report_port(uint32_t conn_id, uint32_t port, uint32_t why = USIW_PORT_WHY_FASTEST);
  int report(const usiw_qp_report& report);
  /// Answers the records as a provider does: CONNECT by READY, with the port if that was agreed, and DISCONNECT by
  /// CLOSED. Returns the number of answers.
  int answer();

  void enter() { mock_current = &task; }
  usiw_qp* qp() const { return to_usiw_qp(ibqp); }
  usiw_ucontext* context() const { return to_usiw_uctx(ibuc); }

  task_struct task{};
  mm_struct mm{};
  signal_struct signal{};
  ib_device* device;
  ib_ucontext* ibuc = nullptr;
  ib_cq* ibcq = nullptr;
  ib_qp* ibqp = nullptr;
  int event_fd = -1;
  uint64_t caps = 0;  ///< that it asks for
  /// Events that the driver has raised, read or unread.
  std::vector<ib_event_type> async_events;
  int completions = 0;
  bool reads_events = true;  ///< each one as soon as it is raised
  /// Adds an event to the list of the object, as uverbs does.
  void on_event(list_head& unread, u32& reported, ib_event_type type);
  /// Reads the oldest of them.
  ib_event_type read_event(list_head& unread, u32& reported);
  std::vector<int> data_fds;     ///< that came with CONNECT; closed with the process
  std::vector<usiw_event> seen;  ///< every record read

 private:
  struct UnreadEvent {
    list_head node;
    ib_event_type type;
  };
  std::list<UnreadEvent> unread_events_;
  bool killed_ = false;
  nsproxy ns_{&init_net};
};

/// A cm_id with the rules of iw_cm. Breaking a rule is a violation.
class CmId {
 public:
  struct Event {
    iw_cm_event_type type;
    int status;
    std::string private_data;
    uint8_t ird, ord;
  };

  CmId();
  ~CmId();
  CmId(const CmId&) = delete;

  int listen(ib_device* device, const in6_addr& addr, uint16_t port, int backlog = 4, bool only = false);
  int connect(Process& process, const in6_addr& from, uint16_t from_port, const in6_addr& to,
              uint16_t to_port, const std::string& private_data = "");
  int accept(Process& process, const std::string& private_data = "");
  int reject(const std::string& private_data = "");
  int disconnect(bool abrupt = false);
  void destroy();
  /// requests of a listener
  void drop_requests();

  bool told(iw_cm_event_type type) const;
  bool established() const;

  iw_cm_id id{};
  rdma_cm_id user{};  ///< made by rdma_cm in init_net
  int scope = 0;      ///< interface of link-local addresses, as the program names it
  int refs = 1;       ///< its own and the driver's
  std::vector<Event> events;
  std::vector<std::unique_ptr<CmId>> requests;  ///< requests that a listener got

 private:
  enum class State { kIdle, kListening, kConnecting, kRequest, kAccepting, kFailed, kDestroyed };
  int on_event(iw_cm_event* event);
  bool take_qp(Process& process);
  void drop_qp();

  State state_ = State::kIdle;
  ib_qp* proxy_ = nullptr;
};

/// Calls iw_get_qp as iw_cm does, with interrupts off. Returns nullptr if the current process has no such QP.
ib_qp* get_qp(ib_device* device, int qpn);

/// Returns a UDP datagram of @p len bytes from the client's end of a connection to the server's.
mock_datagram client_datagram(unsigned len);

class Kuser : public ::testing::Test {
 protected:
  Kuser();
  ~Kuser() override;
  void SetUp() override;
  void TearDown() override;

  /// Loads the module and makes both devices. Returns false if an injected error prevented that.
  bool load();
  /// Unloads the module. Returns a description of what was left, or "".
  std::string unload();
  /// Delivers datagrams and runs work until nothing is due now.
  void pump();
  /// The same, and the processes answer their records.
  void settle(std::initializer_list<Process*> processes);
  /// Tears the test's objects and @p ids down and sets them up again.
  void start_anew(std::initializer_list<CmId*> ids);
  bool loaded_ = false;
};

/// A client on eth0 and a server on eth1, from nothing to the end of a connection. The story continues until a step
/// fails. It calls on_step between any two steps.
class Story {
 public:
  Story();
  ~Story();
  /// on_step throws this to end the story.
  struct Stop {};
  void tell();
  /// Ends everything in the order of a dying process.
  void end();

  std::function<void(int)> on_step;
  int steps = 0;
  bool both_established = false;
  bool ipv6 = false;
  bool orderly = true;
  std::unique_ptr<Process> client, server;
  std::unique_ptr<CmId> listener, active;
  CmId* passive() { return listener && !listener->requests.empty() ? listener->requests[0].get() : nullptr; }

 private:
  void tell_all();
  void step();
  void settle();
};

/// Establishes a connection; both processes have answered.
class Connected : public Kuser {
 protected:
  void SetUp() override;
  void TearDown() override;
  void establish();
  usiw_conn* client_conn() { return client->qp()->conn; }
  usiw_conn* server_conn() { return server->qp()->conn; }
  std::unique_ptr<Process> client, server;
  uint64_t caps = 0;  ///< that both ask for
  CmId listener, active;
  CmId* passive = nullptr;
};

}  // namespace kuser
