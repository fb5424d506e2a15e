// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_end_host.h
/// A host of cm/usiw_cm_end.h for tests. The test decides which route there is, whether the data socket is open, and
/// which calls fail. The host checks the contract of the state machine and the invariants of the end after each call.
#ifndef USIW_TESTS_SUPPORT_CM_END_HOST_H
#define USIW_TESTS_SUPPORT_CM_END_HOST_H

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "cm/usiw_cm_end.h"
#include "cm/usiw_cm_records.h"
#include "cm_contract.h"

struct TestEnd : usiw_cm_end {
  explicit TestEnd(uint32_t number = 7) : usiw_cm_end{} {
    const usiw_cm_tuple ends{};
    usiw_cm_end_init(this, &kHost, number, &ends);
    next_route.reason = USIW_NOT_PACKET_NONE;
    next_route.mtu = 1500;
    next_route.mac_known = 1;
    next_route.next_hop = 1;
  }

  // The test sets these.
  usiw_cm_route next_route{};
  int route_error = 0, send_error = 0;
  bool reply_fails = false;  ///< the user cannot be notified of success
  bool socket_is_open = true;

  // The host records these.
  struct Notice {
    uint32_t event;
    int status;
  };
  std::vector<Notice> notices;
  std::vector<usiw_cm_log> logs;
  std::string broken;  ///< the first broken rule
  usiw_cm_records unread{};
  usiw_qp_state qp_state = USIW_QPS_INIT;
  bool has_user = false, has_qp = false, in_backlog = false, in_table = true;
  bool by_packets = false, data_closed = false;
  int followed = -1;  ///< next hop that is followed; -1: none
  unsigned sent = 0;
  std::vector<std::vector<uint8_t>> wire;  ///< datagrams sent
  Contract contract;

  void attach(uint8_t kinds) {
    has_user = has_qp = true;
    usiw_cm_end_attach(this, kinds);
  }
  /// Reads all unread records. Returns their types in order.
  std::vector<uint32_t> read() {
    std::vector<uint32_t> types;
    usiw_event record;
    while (usiw_cm_records_peek(&unread, &record) != 0) {
      types.push_back(record.type);
      usiw_cm_records_pop(&unread, &record);
    }
    return types;
  }
  /// Returns what the host of a silent connection that has given way has done wrong.
  std::string state_after_yield() const {
    if (!notices.empty()) return "the user was notified";
    if ((unread.pending >> USIW_EVENT_ABORT & 1) != 0) return "ABORT";
    return qp_state == USIW_QPS_ERR ? "the QP is in ERR" : "";
  }
  unsigned count(uint32_t event) const {
    unsigned n = 0;
    for (const Notice& notice : notices) n += notice.event == event;
    return n;
  }

 private:
  static TestEnd& of(usiw_cm_end* end) { return *static_cast<TestEnd*>(end); }
  void expect(bool holds, const char* rule) {
    if (!holds && broken.empty()) broken = rule;
  }

  static int send_one(usiw_cm_end* end, const void* data, uint32_t len) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    of(end).wire.emplace_back(bytes, bytes + len);
    return ++of(end).sent, of(end).send_error;
  }
  static int notify_user(usiw_cm_end* end, uint32_t event, int status) {
    TestEnd& t = of(end);
    t.expect(t.has_user, "a notice without a user");
    const bool lost = event == USIW_CM_A_EV_REPLY && t.reply_fails && status != -ENOMEM;
    if (!lost) t.notices.push_back({event, status});
    return lost ? -ENOMEM : 0;
  }
  static void drop_user(usiw_cm_end* end) { of(end).has_user = false; }
  static void state_of_qp(usiw_cm_end* end, usiw_qp_state state) {
    if (of(end).has_qp) of(end).qp_state = state;
  }
  static void drop_qp(usiw_cm_end* end) { of(end).has_qp = false; }
  static void queue(usiw_cm_end* end, usiw_event_type type) { usiw_cm_records_push(&of(end).unread, type, &end->info); }
  static int look_up(usiw_cm_end* end, usiw_cm_route* route) {
    if (of(end).route_error == 0) *route = of(end).next_route;
    return of(end).route_error;
  }
  static void watch(usiw_cm_end* end, const usiw_cm_route* route) {
    of(end).followed = route != nullptr ? route->next_hop : -1;
  }
  static int data_socket(usiw_cm_end* end, usiw_cm_data what) {
    TestEnd& t = of(end);
    if (what == USIW_CM_DATA_CLOSE) t.data_closed = true;
    if (what == USIW_CM_DATA_BY_PACKETS || what == USIW_CM_DATA_BY_SOCKET)
      t.by_packets = what == USIW_CM_DATA_BY_PACKETS;
    return t.socket_is_open && !t.data_closed;
  }
  static void give_back(usiw_cm_end* end) { of(end).in_backlog = false; }
  static void take_out(usiw_cm_end* end) { of(end).in_table = false; }
  static void clock(usiw_cm_end* end) {
    TestEnd& t = of(end);
    const bool over = usiw_cm_is_over(&end->cm) != 0;
    if (const char* what = usiw_cm_end_check(end)) t.expect(false, what);
    t.expect(!over || !t.has_user, "over, and there is a user");
    t.expect(!over || !t.has_qp, "over, and there is a QP");
    t.expect(!over || !t.in_backlog, "over, and in a backlog");
    t.expect(!over || t.followed < 0, "over, and its route is followed");
    t.expect(end->cm.state != USIW_CM_DEAD || !t.in_table, "dead, and in the table");
  }
  static void print(usiw_cm_end* end, usiw_cm_log what, const char*) { of(end).logs.push_back(what); }
  static void show(usiw_cm_end* end, uint32_t actions) {
    TestEnd& t = of(end);
    const std::string what = t.contract.check(end->cm, actions);
    t.expect(what.empty(), what.c_str());
  }

 public:
  static inline const usiw_cm_host kHost = {
      .send = send_one,
      .notify = notify_user,
      .release_user = drop_user,
      .set_qp_state = state_of_qp,
      .release_qp = drop_qp,
      .record = queue,
      .route = look_up,
      .follow = watch,
      .data = data_socket,
      .leave_backlog = give_back,
      .forget = take_out,
      .arm = clock,
      .log = print,
      .acting = show,
  };
};

#endif  // USIW_TESTS_SUPPORT_CM_END_HOST_H
