// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of cm/usiw_cm_notify.c: the notices to the user of a connection.
#include "cm/usiw_cm_notify.h"

#include "fixture.h"

namespace {

constexpr uint32_t kReply = USIW_CM_A_EV_REPLY, kEstablished = USIW_CM_A_EV_ESTABLISHED,
                   kDisconnect = USIW_CM_A_EV_DISCONNECT, kClose = USIW_CM_A_EV_CLOSE;
constexpr uint32_t kAll[] = {kReply, kEstablished, kDisconnect, kClose};

usiw_cm_ledger initiator() {
  usiw_cm_ledger l{};
  usiw_cm_ledger_connected(&l);
  return l;
}

usiw_cm_ledger responder() {
  usiw_cm_ledger l{};
  usiw_cm_ledger_accepted(&l);
  return l;
}

TEST(Ledger, nobody_listens__nothing_is_told) {
  usiw_cm_ledger l{};
  EXPECT_FALSE(usiw_cm_awaited(&l));
  for (uint32_t event : kAll) EXPECT_FALSE(usiw_cm_notify(&l, event, 0));
  EXPECT_EQ(usiw_cm_owed(&l), 0u);
}

TEST(Ledger, initiator__in_order_and_each_once) {
  usiw_cm_ledger l = initiator();
  EXPECT_TRUE(usiw_cm_awaited(&l));
  EXPECT_FALSE(usiw_cm_notify(&l, kClose, 0));
  EXPECT_FALSE(usiw_cm_notify(&l, kDisconnect, 0));
  EXPECT_FALSE(usiw_cm_notify(&l, kEstablished, 0));
  EXPECT_TRUE(usiw_cm_notify(&l, kReply, 0));
  EXPECT_FALSE(usiw_cm_awaited(&l));
  EXPECT_FALSE(usiw_cm_notify(&l, kReply, -ECONNRESET));
  EXPECT_TRUE(usiw_cm_notify(&l, kDisconnect, 0));
  EXPECT_FALSE(usiw_cm_notify(&l, kDisconnect, 0));
  EXPECT_TRUE(usiw_cm_notify(&l, kClose, 0));
  for (uint32_t event : kAll) EXPECT_FALSE(usiw_cm_notify(&l, event, 0));
}

TEST(Ledger, initiator__no_end_after_a_failure) {
  usiw_cm_ledger l = initiator();
  EXPECT_TRUE(usiw_cm_notify(&l, kReply, -ECONNREFUSED));
  EXPECT_FALSE(usiw_cm_awaited(&l));
  for (uint32_t event : kAll) EXPECT_FALSE(usiw_cm_notify(&l, event, 0));
}

TEST(Ledger, initiator__success_that_could_not_be_told_is_a_failure) {
  usiw_cm_ledger l = initiator();
  EXPECT_TRUE(usiw_cm_notify(&l, kReply, 0));
  usiw_cm_reply_lost(&l);
  for (uint32_t event : kAll) EXPECT_FALSE(usiw_cm_notify(&l, event, 0));
  EXPECT_FALSE(usiw_cm_awaited(&l));
}

TEST(Ledger, responder__established_only_after_accept) {
  usiw_cm_ledger l = responder();
  EXPECT_TRUE(usiw_cm_awaited(&l));
  EXPECT_FALSE(usiw_cm_notify(&l, kReply, 0));
  EXPECT_FALSE(usiw_cm_notify(&l, kClose, 0));
  EXPECT_TRUE(usiw_cm_notify(&l, kEstablished, 0));
  EXPECT_FALSE(usiw_cm_notify(&l, kEstablished, 0));
  EXPECT_TRUE(usiw_cm_notify(&l, kClose, 0));
  EXPECT_FALSE(usiw_cm_notify(&l, kDisconnect, 0));
}

TEST(Ledger, release__pays_what_is_owed) {
  usiw_cm_ledger l = initiator();
  EXPECT_EQ(usiw_cm_owed(&l), kReply | kClose);
  EXPECT_TRUE(usiw_cm_notify(&l, kReply, -ECONNABORTED));
  EXPECT_FALSE(usiw_cm_notify(&l, kClose, 0));  // iw_cm runs into BUG() if CLOSE follows a failure
  l = responder();
  EXPECT_EQ(usiw_cm_owed(&l), kEstablished | kClose);
  EXPECT_TRUE(usiw_cm_notify(&l, kEstablished, 0));
  EXPECT_TRUE(usiw_cm_notify(&l, kClose, 0));
}

TEST(Ledger, mute__at_any_time) {
  usiw_cm_ledger l = initiator();
  EXPECT_TRUE(usiw_cm_notify(&l, kReply, 0));
  usiw_cm_ledger_mute(&l);
  for (uint32_t event : kAll) EXPECT_FALSE(usiw_cm_notify(&l, event, 0));
  EXPECT_FALSE(usiw_cm_awaited(&l));
}

}  // namespace
