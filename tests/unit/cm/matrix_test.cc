// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of every input in every state: the effects in the cells of this table, and no effect in all other cells.
#include <functional>
#include <map>

#include "fixture.h"

namespace {

enum class Input {
  kConnect, kAccept, kReject, kDisconnect, kAbort, kReady, kRefused, kPeerClosed, kClosed,
  kFailed, kReq, kReqOther, kAcceptPkt, kPending, kConfirm, kRejectPkt, kReset, kStray,
  kDataSeen, kUnreachable, kEarlyTimer, kCount,
};

const char* const kInputNames[] = {
    "connect", "accept", "reject", "disconnect", "abort", "ready", "refused", "peer_closed",
    "closed", "failed", "REQ", "REQ other ISN", "ACCEPT", "PENDING", "CONFIRM", "REJECT", "RESET",
    "RESET stray", "data_seen", "unreachable", "early timer"};

uint32_t apply(Conn& e, Input input) {
  switch (input) {
    case Input::kConnect: return e.connect();
    case Input::kAccept: return e.accept();
    case Input::kReject: return e.reject();
    case Input::kDisconnect: return e.disconnect();
    case Input::kAbort: return e.abort();
    case Input::kReady: return e.ready();
    case Input::kRefused: return e.refused();
    case Input::kPeerClosed: return e.peer_closed();
    case Input::kClosed: return e.closed();
    case Input::kFailed: return e.failed();
    case Input::kReq: return e.receive(packet(USIW_TRP_REQ));
    case Input::kReqOther: {
      usiw_cm_packet p = packet(USIW_TRP_REQ);
      p.psn += 7;
      return e.receive(p);
    }
    case Input::kAcceptPkt: return e.receive(packet(USIW_TRP_ACCEPT));
    case Input::kPending: return e.receive(packet(USIW_TRP_ACCEPT, USIW_TRP_F_PENDING));
    case Input::kConfirm: return e.receive(packet(USIW_TRP_CONFIRM));
    case Input::kRejectPkt: return e.receive(packet(USIW_TRP_REJECT));
    case Input::kReset: return e.receive(packet(USIW_TRP_RESET));
    case Input::kStray: return e.receive(packet(USIW_TRP_RESET, USIW_TRP_F_STRAY));
    case Input::kDataSeen: return e.data_seen();
    case Input::kUnreachable: return e.unreachable();
    case Input::kEarlyTimer: return e.timer();
    case Input::kCount: break;
  }
  return 0;
}

struct Cell {
  uint32_t actions;
  uint8_t next;
  int tx;  ///< opcode that is sent; -1: none
};
using Table = std::map<std::pair<State, Input>, Cell>;

constexpr uint32_t kTx = USIW_CM_A_TX, kAbort = USIW_CM_A_ABORT, kReply = USIW_CM_A_EV_REPLY,
                   kEst = USIW_CM_A_EV_ESTABLISHED, kDisc = USIW_CM_A_EV_DISCONNECT, kClose = USIW_CM_A_EV_CLOSE,
                   kRel = USIW_CM_A_RELEASE, kDead = USIW_CM_A_DEAD, kProbe = USIW_CM_A_PROBE;
constexpr int kReqOp = USIW_TRP_REQ, kAcceptOp = USIW_TRP_ACCEPT, kConfirmOp = USIW_TRP_CONFIRM,
              kRejectOp = USIW_TRP_REJECT, kResetOp = USIW_TRP_RESET;

/// Cells that both roles share from ESTABLISHED on.
void add_common(Table& t) {
  using S = State;
  using I = Input;
  const uint8_t linger = USIW_CM_LINGER;
  for (S s : {S::kEstablished, S::kClosing}) {
    const uint32_t disc = s == S::kEstablished ? kDisc : 0;
    t[{s, I::kAbort}] = {kAbort | kTx | kClose | kRel, linger, kResetOp};
    t[{s, I::kPeerClosed}] = {disc | kClose | kRel, linger, -1};
    t[{s, I::kClosed}] = {disc | kClose | kRel, linger, -1};
    t[{s, I::kFailed}] = {kTx | kDisc | kClose | kRel, linger, kResetOp};
    t[{s, I::kReset}] = {kAbort | kTx | kDisc | kClose | kRel, linger, kResetOp};
    t[{s, I::kReqOther}] = {
        kProbe, s == S::kEstablished ? uint8_t{USIW_CM_ESTABLISHED} : uint8_t{USIW_CM_CLOSING}, -1};
  }
  t[{S::kEstablished, I::kDisconnect}] = {USIW_CM_A_DRAIN, USIW_CM_CLOSING, -1};
  t[{S::kLingerWasReset, I::kReset}] = {kTx, linger, kResetOp};
}

Table initiator_table() {
  using S = State;
  using I = Input;
  const uint8_t linger = USIW_CM_LINGER;
  Table t;
  t[{S::kIdle, I::kConnect}] = {kTx, USIW_CM_REQ_SENT, kReqOp};
  t[{S::kIdle, I::kAbort}] = t[{S::kIdle, I::kDisconnect}] = {kDead, USIW_CM_DEAD, -1};
  for (S s : {S::kReqSent, S::kReqSentPending}) {
    // A RESET needs the ISN of the peer, which this end has from PENDING only.
    const bool known = s == S::kReqSentPending;
    t[{s, I::kAbort}] = t[{s, I::kDisconnect}] = {(known ? kTx : 0) | kReply | kRel, linger,
                                                  known ? kResetOp : -1};
    t[{s, I::kAcceptPkt}] = {USIW_CM_A_INSTALL, USIW_CM_INSTALLING, -1};
    t[{s, I::kRejectPkt}] = {kReply | kRel | kDead, USIW_CM_DEAD, -1};
    t[{s, I::kReset}] = {kTx | kReply | kRel, linger, kResetOp};
  }
  t[{S::kReqSent, I::kPending}] = {kTx, USIW_CM_REQ_SENT, kReqOp};  // with the ISN of PENDING as ACK PSN
  t[{S::kInstalling, I::kAbort}] = t[{S::kInstalling, I::kDisconnect}] = {kAbort | kTx | kReply | kRel, linger,
                                                                          kResetOp};
  t[{S::kInstalling, I::kReady}] = {kTx | kReply, USIW_CM_ESTABLISHED, kConfirmOp};
  t[{S::kInstalling, I::kRefused}] = {kTx | kReply | kRel, linger, kResetOp};
  t[{S::kInstalling, I::kFailed}] = {kTx | kReply | kRel, linger, kResetOp};
  t[{S::kInstalling, I::kReset}] = {kAbort | kTx | kReply | kRel, linger, kResetOp};
  add_common(t);
  // A REQ that an initiator receives is always for another connection.
  t[{S::kEstablished, I::kReq}] = t[{S::kEstablished, I::kReqOther}];
  t[{S::kClosing, I::kReq}] = t[{S::kClosing, I::kReqOther}];
  t[{S::kEstablished, I::kAcceptPkt}] = {kTx, USIW_CM_ESTABLISHED, kConfirmOp};
  t[{S::kClosing, I::kAcceptPkt}] = {kTx, USIW_CM_CLOSING, kConfirmOp};
  t[{S::kLingerClosed, I::kAcceptPkt}] = {kTx, linger, kConfirmOp};
  for (S s : {S::kLingerReset, S::kLingerWasReset})
    for (I i : {I::kAcceptPkt, I::kPending}) t[{s, i}] = {kTx, linger, kResetOp};
  return t;
}

Table responder_table() {
  using S = State;
  using I = Input;
  const uint8_t linger = USIW_CM_LINGER;
  Table t;
  t[{S::kReqRcvd, I::kAccept}] = {USIW_CM_A_INSTALL, USIW_CM_INSTALLING, -1};
  for (I i : {I::kReject, I::kAbort, I::kDisconnect})
    t[{S::kReqRcvd, i}] = {kTx | kRel, linger, kRejectOp};
  t[{S::kReqRcvd, I::kReset}] = {kTx | kRel, linger, kResetOp};
  t[{S::kReqRcvd, I::kReq}] = {kTx, USIW_CM_REQ_RCVD, kAcceptOp};
  t[{S::kInstalling, I::kReq}] = {kTx, USIW_CM_INSTALLING, kAcceptOp};
  t[{S::kAcceptSent, I::kReq}] = {kTx, USIW_CM_ACCEPT_SENT, kAcceptOp};
  for (S s : {S::kInstalling, S::kAcceptSent}) {
    const uint32_t told = kEst | kDisc | kClose | kRel;
    t[{s, I::kAbort}] = t[{s, I::kDisconnect}] = {kAbort | kTx | told, linger, kResetOp};
    t[{s, I::kFailed}] = {kTx | told, linger, kResetOp};
    t[{s, I::kReset}] = {kAbort | kTx | told, linger, kResetOp};
  }
  t[{S::kInstalling, I::kReady}] = {kTx, USIW_CM_ACCEPT_SENT, kAcceptOp};
  t[{S::kInstalling, I::kRefused}] = {kTx | kEst | kDisc | kClose | kRel, linger, kResetOp};
  t[{S::kAcceptSent, I::kPeerClosed}] = t[{S::kAcceptSent, I::kClosed}] = {
      kEst | kDisc | kClose | kRel, linger, -1};
  t[{S::kAcceptSent, I::kConfirm}] = {kEst, USIW_CM_ESTABLISHED, -1};
  t[{S::kAcceptSent, I::kDataSeen}] = {kEst, USIW_CM_ESTABLISHED, -1};
  add_common(t);
  t[{S::kEstablished, I::kReq}] = {kTx, USIW_CM_ESTABLISHED, kAcceptOp};
  t[{S::kClosing, I::kReq}] = {kTx, USIW_CM_CLOSING, kAcceptOp};
  for (S s : {S::kLingerClosed, S::kLingerRejected, S::kLingerReset, S::kLingerWasReset})
    t[{s, I::kReqOther}] = {kDead, USIW_CM_DEAD, -1};
  t[{S::kLingerRejected, I::kReq}] = {kTx, linger, kRejectOp};
  for (S s : {S::kLingerReset, S::kLingerWasReset})
    for (I i : {I::kReq, I::kConfirm}) t[{s, i}] = {kTx, linger, kResetOp};
  return t;
}

void check_table(Role role, const std::vector<State>& states, const Table& table) {
  for (State state : states)
    for (int n = 0; n < static_cast<int>(Input::kCount); n++) {
      const auto input = static_cast<Input>(n);
      SCOPED_TRACE(std::string("state ") + std::to_string(static_cast<int>(state)) + ", " +
                   kInputNames[n]);
      Conn e = Conn::in(role, state);
      const auto cell = table.find({state, input});
      const Cell want = cell == table.end() ? Cell{0, e.c.state, -1} : cell->second;
      EXPECT_EQ(apply(e, input), want.actions);
      EXPECT_EQ(e.c.state, want.next);
      if (want.tx >= 0) {
        EXPECT_EQ(built(e.c).pkt.opcode, want.tx);
      }
      if (input == Input::kAccept) {
        EXPECT_EQ(e.err, state == State::kReqRcvd ? 0 : -ECONNRESET);
      }
      // After any input the connection ends in bounded time by its timers alone.
      if (e.c.state != USIW_CM_IDLE && e.c.state != USIW_CM_ESTABLISHED)
        for (int i = 0; i < 300 && e.c.state != USIW_CM_DEAD; i++) e.next_timer();
      EXPECT_TRUE(e.c.state == USIW_CM_DEAD || e.c.state == USIW_CM_IDLE ||
                  e.c.state == USIW_CM_ESTABLISHED);
      EXPECT_LE(e.now, kStart + 130'000'000);
    }
}

TEST(Matrix, initiator) {
  check_table(Role::kInitiator,
              {State::kIdle, State::kReqSent, State::kReqSentPending, State::kInstalling,
               State::kEstablished, State::kClosing, State::kLingerClosed, State::kLingerReset,
               State::kLingerWasReset, State::kDead},
              initiator_table());
}

TEST(Matrix, responder) {
  check_table(Role::kResponder,
              {State::kReqRcvd, State::kInstalling, State::kAcceptSent, State::kEstablished,
               State::kClosing, State::kLingerClosed, State::kLingerRejected, State::kLingerReset,
               State::kLingerWasReset, State::kDead},
              responder_table());
}

}  // namespace
