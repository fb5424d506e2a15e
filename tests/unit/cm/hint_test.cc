// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of cm/usiw_cm_hint.c: the line for people about a connection that could not be made.
#include "cm/usiw_cm_hint.h"

#include "cm/usiw_cm_input.h"
#include "fixture.h"

namespace {

/// Returns the line about an attempt in its present state; "": there is none.
std::string hint(const Conn& i) {
  char text[USIW_CM_HINT_MAX];
  std::memset(text, '#', sizeof text);
  return usiw_cm_hint(&i.c, text) ? text : "";
}

testing::AssertionResult says(const std::string& line, const std::string& words) {
  if (line.find(words) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << '"' << line << "\" does not say: " << words;
}

Conn attempt() { return Conn::in(Role::kInitiator, State::kReqSent); }

/// Passes a datagram from the peer's address and port to the connection, as a host does.
void comes(Conn& i, const void* bytes, uint32_t len) {
  usiw_cm_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  usiw_cm_input(&v, &i.c, bytes, len, i.now, buf);
  // Bytes that look like data draw a RESET, because they may be of an earlier connection.
  const bool data = usiw_cm_look(bytes, len) == USIW_CM_LOOK_DATA;
  EXPECT_EQ(v.kind, data ? unsigned{USIW_CM_V_ANSWER} : unsigned{USIW_CM_V_CONN});
  EXPECT_EQ(v.actions, 0u);
}

std::string after_icmp4(uint8_t code, uint8_t type = 3) {
  Conn i = attempt();
  usiw_cm_icmp(&i.c, usiw_cm_icmp4_answer(type, code), i.now);
  i.expire();
  return hint(i);
}

std::string after_icmp6(uint8_t code, uint8_t type = 1) {
  Conn i = attempt();
  usiw_cm_icmp(&i.c, usiw_cm_icmp6_answer(type, code), i.now);
  i.expire();
  return hint(i);
}

std::string after_reject(uint8_t reason, uint8_t version = USIW_WIRE_VERSION) {
  Conn i = attempt();
  i.now += USIW_CM_NO_LISTENER_GRACE_US;
  usiw_cm_packet reject = packet(USIW_TRP_REJECT);
  reject.reason = reason;
  reject.version = version;
  i.receive(reject);
  EXPECT_EQ(i.c.state, USIW_CM_DEAD);
  return hint(i);
}

TEST(Hint, silence) {
  Conn i = attempt();
  EXPECT_EQ(hint(i), "") << "it has not failed";
  i.expire();
  EXPECT_EQ(hint(i), "no answer: no host has this address, or a firewall drops UDP");
}

TEST(Hint, icmp) {
  for (const uint8_t code : {0, 1, 6, 7}) EXPECT_TRUE(says(after_icmp4(code), "no host has this address, or there"));
  for (const uint8_t code : {9, 10, 13}) EXPECT_TRUE(says(after_icmp4(code), "a firewall prohibits it"));
  EXPECT_TRUE(says(after_icmp4(3), "no usiw at this UDP port"));
  for (const uint8_t code : {0, 3, 6}) EXPECT_TRUE(says(after_icmp6(code), "no host has this address, or there"));
  for (const uint8_t code : {1, 5}) EXPECT_TRUE(says(after_icmp6(code), "a firewall prohibits it"));
  EXPECT_TRUE(says(after_icmp6(4), "no usiw at this UDP port"));
}

TEST(Hint, icmp_of_other_kinds_says_nothing) {
  const std::string silence = "no answer: no host has this address, or a firewall drops UDP";
  EXPECT_EQ(after_icmp4(4), silence);      // fragmentation needed
  EXPECT_EQ(after_icmp4(3, 11), silence);  // time exceeded
  EXPECT_EQ(after_icmp6(2), silence);      // beyond the scope of the source address
  EXPECT_EQ(after_icmp6(4, 2), silence);   // packet too big
}

TEST(Hint, refusals_of_usiw) {
  EXPECT_EQ(after_reject(USIW_REJECT_USER), "") << "the program has its private data";
  EXPECT_TRUE(says(after_reject(USIW_REJECT_NO_LISTENER), "no program listens"));
  EXPECT_TRUE(says(after_reject(USIW_REJECT_NO_RESOURCE), "backlog"));
  EXPECT_TRUE(says(after_reject(USIW_REJECT_MTU), "MTU"));
  EXPECT_TRUE(says(after_reject(USIW_REJECT_FEATURES), "same version at both ends"));
  EXPECT_TRUE(says(after_reject(USIW_REJECT_VERSION, USIW_WIRE_VERSION + 1),
              "wire version " + std::to_string(USIW_WIRE_VERSION + 1)));
}

TEST(Hint, an_accept_of_another_version) {
  Conn i = attempt();
  uint8_t accept[30] = {};
  accept[8] = USIW_TRP_ACCEPT << 4;
  accept[14] = 9;
  comes(i, accept, sizeof accept);
  i.expire();
  EXPECT_TRUE(says(hint(i), "wire version 9"));
}

TEST(Hint, a_server_that_does_not_accept) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSentPending);
  i.expire();
  EXPECT_TRUE(says(hint(i), "has not accepted in time"));
}

TEST(Hint, who_answers_is_not_usiw) {
  Conn i = attempt();
  comes(i, "SSH-2.0-OpenSSH_9.2 and more", 28);
  i.expire();
  EXPECT_EQ(hint(i), "what answers there is not usiw, it begins with 53 53 48 2d 32 2e 30 2d");
}

TEST(Hint, answers_that_are_not_usiw__short_long_and_by_an_echo_server) {
  Conn i = attempt();
  const Datagram req = built(i.c);
  comes(i, "?", 1);
  EXPECT_EQ(i.c.answer, USIW_CM_ANSWER_ALIEN);
  EXPECT_EQ(i.c.alien_len, 1u);
  comes(i, req.bytes, req.len);
  EXPECT_EQ(std::memcmp(i.c.alien, req.bytes, sizeof i.c.alien), 0);
  const std::vector<uint8_t> longest(65507, 0xff);
  comes(i, longest.data(), 65507);
  i.expire();
  EXPECT_EQ(hint(i), "what answers there is not usiw, it begins with ff ff ff ff ff ff ff ff");
}

TEST(Hint, the_own_firewall) {
  Conn i = attempt();
  usiw_cm_unsent(&i.c, -EAGAIN);
  EXPECT_EQ(i.c.answer, USIW_CM_ANSWER_NOTHING);
  usiw_cm_unsent(&i.c, -EPERM);
  i.expire();
  EXPECT_TRUE(says(hint(i), "firewall of this host"));
}

TEST(Hint, what_came_last_counts) {
  Conn i = attempt();
  comes(i, "?", 1);
  usiw_cm_icmp(&i.c, USIW_CM_ANSWER_NO_PORT, i.now);
  i.now = i.c.connect_us + USIW_CM_NO_LISTENER_GRACE_US;
  EXPECT_TRUE(i.unreachable() & USIW_CM_A_EV_REPLY);
  EXPECT_TRUE(says(hint(i), "no usiw at this UDP port"));
}

TEST(Hint, nothing_is_heard_of_a_connection_that_there_is) {
  for (const State state : {State::kInstalling, State::kEstablished, State::kClosing, State::kLingerClosed}) {
    Conn i = Conn::in(Role::kInitiator, state);
    comes(i, "?", 1);
    usiw_cm_icmp(&i.c, USIW_CM_ANSWER_NO_HOST, i.now);
    usiw_cm_unsent(&i.c, -EPERM);
    EXPECT_EQ(i.c.answer, USIW_CM_ANSWER_NOTHING);
  }
  Conn r = Conn::in(Role::kResponder, State::kAcceptSent);
  r.expire();
  EXPECT_EQ(hint(r), "") << "a responder's program is not told why";
}

TEST(Hint, an_end_by_this_host_has_no_line) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSentPending);
  i.abort();
  EXPECT_EQ(hint(i), "");
}

}  // namespace
