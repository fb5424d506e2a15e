// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file fixture.h
/// One connection under test. Public calls alone drive it into any state.
#ifndef USIW_TESTS_CM_FIXTURE_H
#define USIW_TESTS_CM_FIXTURE_H

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cm/usiw_cm.h"
#include "tests/support/cm_contract.h"
#include "uapi/usiw_abi.h"

inline constexpr uint32_t kOwnIsn = 0xfffffff0u;
inline constexpr uint32_t kPeerIsn = 0x01020304u;
inline constexpr uint64_t kStart = 5'000'000;

/// A datagram with its decoded form.
struct Datagram {
  Datagram() = default;
  Datagram(const Datagram& other) { *this = other; }
  Datagram& operator=(const Datagram& other) {
    std::memcpy(bytes, other.bytes, sizeof bytes);
    len = other.len;
    decode();  // pkt.pd points into the bytes
    return *this;
  }

  uint8_t bytes[USIW_CM_MAX_DATAGRAM] = {};
  uint32_t len = 0;
  usiw_cm_packet pkt{};
  int rc = 0;

  void decode() { rc = usiw_cm_decode(&pkt, bytes, len); }
};

inline Datagram built(const usiw_cm_conn& c) {
  Datagram d;
  d.len = usiw_cm_build(&c, d.bytes);
  d.decode();
  EXPECT_EQ(d.rc, 0);
  return d;
}

inline std::string private_data(const usiw_cm_conn& c) {
  return {reinterpret_cast<const char*>(c.peer_pd), c.peer_pd_len};
}

/// Returns a packet that the peer of the connection under test sends.
inline usiw_cm_packet packet(uint8_t opcode, uint16_t flags = 0) {
  usiw_cm_packet p{};
  p.opcode = opcode;
  p.flags = flags;
  p.version = USIW_WIRE_VERSION;
  p.psn = kPeerIsn;
  p.ack_psn = opcode == USIW_TRP_REQ ? 0 : kOwnIsn;
  p.ird = 16;
  p.ord = 8;
  p.mtu = 1500;
  p.window = 256;
  p.pd_len = 4;
  p.pd = reinterpret_cast<const uint8_t*>("peer");
  return p;
}

enum class Role { kInitiator, kResponder };

/// States of the state machine. LINGER is several of them, by its answer to late datagrams.
enum class State {
  kIdle, kReqSent, kReqSentPending, kReqRcvd, kInstalling, kAcceptSent, kEstablished, kClosing,
  kLingerClosed, kLingerRejected, kLingerReset, kLingerWasReset, kDead,
};

class Conn {
 public:
  explicit Conn(Role role, uint16_t ird = 32, uint16_t ord = 4) : role_(role) {
    if (role == Role::kInitiator) {
      EXPECT_EQ(usiw_cm_init_active(&c, kOwnIsn, ird, ord, 9000, 512, "own", 3), 0);
    } else {
      const usiw_cm_packet req = packet(USIW_TRP_REQ);
      EXPECT_EQ(usiw_cm_init_passive(&c, &req, kOwnIsn, 9000, 512, now), 0);
      contract.handed_up();
    }
    check(0);
  }

  static Conn in(Role role, State state) {
    Conn conn(role);
    conn.drive(state);
    return conn;
  }

  // Calls of the state machine. The contract is checked after each.
  uint32_t connect() {
    if (c.state == USIW_CM_IDLE) contract.connected();
    return check(usiw_cm_connect(&c, now));
  }
  uint32_t accept(uint16_t ird = 12, uint16_t ord = 6, uint16_t pd_len = 3) {
    static const uint8_t kData[USIW_MAX_PRIVATE_DATA + 1] = {'o', 'w', 'n'};
    const uint32_t actions = usiw_cm_accept(&c, ird, ord, kData, pd_len, now, &err);
    if (!err) contract.accepted();
    return check(actions);
  }
  uint32_t reject() { return check(usiw_cm_reject(&c, "no", 2, now)); }
  uint32_t disconnect() { return check(usiw_cm_disconnect(&c, now)); }
  uint32_t abort(uint8_t reason = USIW_ABORT_ADDRESS) { return check(usiw_cm_abort(&c, reason, now)); }
  uint32_t ready() { return check(usiw_cm_ready(&c, now)); }
  uint32_t refused(int error = -ENOMEM) { return check(usiw_cm_refused(&c, error, now)); }
  uint32_t peer_closed() { return check(usiw_cm_report(&c, USIW_REPORT_PEER_CLOSED, 0, now)); }
  uint32_t closed() { return check(usiw_cm_report(&c, USIW_REPORT_CLOSED, 0, now)); }
  uint32_t failed(int error = -ETIMEDOUT) { return check(usiw_cm_failed(&c, error, now)); }
  uint32_t report(uint32_t kind, int error) { return check(usiw_cm_report(&c, kind, error, now)); }
  uint32_t receive(const usiw_cm_packet& pkt) { return check(usiw_cm_receive(&c, &pkt, now)); }
  uint32_t data_seen() { return check(usiw_cm_data_seen(&c)); }
  uint32_t unreachable() { return check(usiw_cm_icmp(&c, USIW_CM_ANSWER_NO_PORT, now)); }
  uint32_t timer() { return check(usiw_cm_timer(&c, now)); }

  /// Moves the clock to the connection's timer and runs it.
  uint32_t next_timer() {
    EXPECT_NE(c.deadline_us, 0u);
    now = c.deadline_us;
    return timer();
  }
  /// Runs timers until the state changes; returns the last actions.
  uint32_t expire() {
    const uint8_t before = c.state;
    uint32_t actions = 0;
    for (int i = 0; i < 1000 && c.state == before; i++) actions = next_timer();
    EXPECT_NE(c.state, before);
    return actions;
  }

  usiw_cm_conn c{};
  Contract contract;
  uint64_t now = kStart;
  int err = 0;

 private:
  uint32_t check(uint32_t actions) {
    EXPECT_EQ(contract.check(c, actions), "");
    return actions;
  }

  void drive(State state) {
    const bool active = role_ == Role::kInitiator;
    switch (state) {
      case State::kIdle:
      case State::kReqRcvd:
        return;
      case State::kReqSent:
        connect();
        return;
      case State::kReqSentPending:
        connect();
        receive(packet(USIW_TRP_ACCEPT, USIW_TRP_F_PENDING));
        return;
      case State::kInstalling:
        if (active) {
          connect();
          receive(packet(USIW_TRP_ACCEPT));
        } else {
          accept();
        }
        return;
      case State::kAcceptSent:
        accept();
        ready();
        return;
      case State::kEstablished:
        drive(State::kInstalling);
        ready();
        if (!active) receive(packet(USIW_TRP_CONFIRM));
        return;
      case State::kClosing:
        drive(State::kEstablished);
        disconnect();
        return;
      case State::kLingerClosed:
        drive(State::kClosing);
        closed();
        return;
      case State::kLingerRejected:
        reject();
        return;
      case State::kLingerReset:
        drive(State::kEstablished);
        abort();
        return;
      case State::kLingerWasReset:
        drive(State::kEstablished);
        receive(packet(USIW_TRP_RESET));
        return;
      case State::kDead:
        drive(State::kLingerClosed);
        expire();
        return;
    }
  }

  Role role_;
};

#endif  // USIW_TESTS_CM_FIXTURE_H
