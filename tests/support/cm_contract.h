// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_contract.h
/// Checks the contract of cm/usiw_cm.h: the actions of one connection, after each call.
#ifndef USIW_TESTS_SUPPORT_CM_CONTRACT_H
#define USIW_TESTS_SUPPORT_CM_CONTRACT_H

#include <cstdint>
#include <string>

#include "cm/usiw_cm.h"

class Contract {
 public:
  /// The test calls these after each usiw_cm_connect(), each successful usiw_cm_accept(), and when a request has been
  /// passed to the user.
  void connected() { connected_ = true; }
  void accepted() { accepted_ = true; }
  void handed_up() { handed_up_ = true; }

  /// To be called after each call on @p c, with the actions that it returned. Returns the rule that is broken; "":
  /// none.
  std::string check(const usiw_cm_conn& c, uint32_t actions) {
    if (dead_ && actions) return "actions after DEAD";
    if (actions & ~0xfffu) return "unknown action";
    if (actions & USIW_CM_A_EV_REQUEST) return "EV_REQUEST is the caller's";
    if (actions & USIW_CM_A_INSTALL) {
      if (installed_) return "INSTALL twice";
      installed_ = engine_ = true;
    }
    if ((actions & (USIW_CM_A_DRAIN | USIW_CM_A_PROBE)) && !engine_) return "no engine to tell";
    if (actions & USIW_CM_A_ABORT) {
      if (!engine_) return "ABORT without an installed connection";
      engine_ = false;
    }
    if (engine_ && !usiw_cm_is_installed(&c)) engine_ = false;  // the engine has reported the end by itself
    if (engine_ != static_cast<bool>(usiw_cm_is_installed(&c))) return "installed in the wrong state";
    if (actions & USIW_CM_A_TX) {
      uint8_t buf[USIW_CM_MAX_DATAGRAM];
      usiw_cm_packet pkt;
      const uint32_t len = usiw_cm_build(&c, buf);
      if (len > sizeof buf) return "datagram too long";
      if (usiw_cm_decode(&pkt, buf, len)) return "built a datagram that does not decode";
      if (pkt.psn != c.local_isn) return "datagram without the own ISN";
    }
    std::string broken = check_events(c, actions);
    if (!broken.empty()) return broken;
    return check_state(c, actions);
  }

 private:
  std::string check_events(const usiw_cm_conn& c, uint32_t actions) {
    constexpr uint32_t kEvents = USIW_CM_A_EV_REPLY | USIW_CM_A_EV_ESTABLISHED |
                                 USIW_CM_A_EV_DISCONNECT | USIW_CM_A_EV_CLOSE;
    if (released_ && (actions & kEvents)) return "event after RELEASE";
    if (actions & USIW_CM_A_EV_REPLY) {
      if (!c.initiator || !connected_) return "REPLY without connect";
      if (replied_) return "REPLY twice";
      if (c.status > 0) return "REPLY with a positive status";
      replied_ = true;
      open_ = c.status == 0;
      if (open_ && !usiw_cm_is_installed(&c)) return "REPLY 0 without an installed connection";
    }
    if (actions & USIW_CM_A_EV_ESTABLISHED) {
      if (c.initiator || !accepted_) return "ESTABLISHED without accept";
      if (established_) return "ESTABLISHED twice";
      established_ = open_ = true;
    }
    if (actions & USIW_CM_A_EV_DISCONNECT) {
      if (!open_) return "DISCONNECT while not open";
      if (disconnected_) return "DISCONNECT twice";
      if (c.status > 0) return "DISCONNECT with a positive status";
      disconnected_ = true;
    }
    if (actions & USIW_CM_A_EV_CLOSE) {
      if (!open_) return "CLOSE while not open";
      if (!(actions & USIW_CM_A_RELEASE)) return "CLOSE without RELEASE";
      open_ = false;
    }
    if (actions & USIW_CM_A_RELEASE) {
      if (released_) return "RELEASE twice";
      if (!connected_ && !handed_up_) return "RELEASE of what nobody had";
      if (open_) return "RELEASE without CLOSE";
      if (connected_ && !replied_) return "RELEASE without REPLY";
      const bool yields = c.silent && actions == (USIW_CM_A_RELEASE | USIW_CM_A_DEAD);  // usiw_cm_yield()
      if (accepted_ && !established_ && !yields) return "RELEASE of an accepted one without ESTABLISHED";
      if (engine_ && !yields) return "RELEASE with the connection still in the engine";
      released_ = true;
    }
    return "";
  }

  std::string check_state(const usiw_cm_conn& c, uint32_t actions) {
    if (actions & USIW_CM_A_DEAD) {
      if (dead_) return "DEAD twice";
      if ((connected_ || handed_up_) && !released_) return "DEAD without RELEASE";
      dead_ = true;
    }
    if (dead_ != (c.state == USIW_CM_DEAD)) return "state and DEAD differ";
    if (released_ && c.state != USIW_CM_LINGER && c.state != USIW_CM_DEAD)
      return "alive after RELEASE";
    if (c.state == USIW_CM_LINGER && !released_) return "LINGER without RELEASE";
    const bool timeless = c.state == USIW_CM_IDLE || c.state == USIW_CM_ESTABLISHED ||
                          c.state == USIW_CM_DEAD;
    if (c.silent) return c.expire_us != 0 || c.state == USIW_CM_LINGER ? "silent, and a state has a limit" : "";
    if (timeless != (c.expire_us == 0)) return "unbounded state, or time-out in a timeless one";
    if (timeless != (c.deadline_us == 0)) return "timer and time-out differ";
    if (c.deadline_us > c.expire_us) return "timer after the time-out";
    if (c.state == USIW_CM_ESTABLISHED && !open_) return "ESTABLISHED and nobody was told";
    return "";
  }

  bool connected_ = false, handed_up_ = false, accepted_ = false;
  bool installed_ = false, engine_ = false;
  bool replied_ = false, established_ = false, open_ = false, disconnected_ = false;
  bool released_ = false, dead_ = false;
};

#endif  // USIW_TESTS_SUPPORT_CM_CONTRACT_H
