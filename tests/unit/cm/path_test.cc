// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of cm/usiw_cm_path.c without a host: the record that gives a connection to its engine.
#include "cm/usiw_cm_path.h"

#include "fixture.h"

namespace {

TEST(FillInfo, final_parameters_and_both_ends) {
  Conn i = Conn::in(Role::kInitiator, State::kEstablished);
  usiw_cm_tuple t{};
  t.local[10] = t.local[11] = t.remote[10] = t.remote[11] = 0xff;
  t.local[15] = 1;
  t.remote[15] = 2;
  t.local_port = 0x1234;
  t.remote_port = 0x5678;
  t.scope = 7;
  usiw_conn_info info;
  std::memset(&info, 0xee, sizeof info);
  usiw_cm_fill_info(&info, &i.c, &t);
  EXPECT_EQ(info.flags, unsigned{USIW_CONN_F_INITIATOR});
  EXPECT_EQ(std::memcmp(info.local_addr, t.local, 16) | std::memcmp(info.remote_addr, t.remote, 16), 0);
  EXPECT_EQ(info.local_port, t.local_port);
  EXPECT_EQ(info.remote_port, t.remote_port);
  EXPECT_EQ(info.snd_psn, kOwnIsn);
  EXPECT_EQ(info.rcv_psn, kPeerIsn);
  EXPECT_EQ(info.snd_window, 256u);
  EXPECT_EQ(info.ird, i.c.ird);
  EXPECT_EQ(info.ord, i.c.ord);
  EXPECT_EQ(info.mtu, 1500);
  EXPECT_EQ(info.scope, 7u);
  EXPECT_EQ(info.hop_limit | info.tos | info.data_fd | static_cast<int>(info.reason), 0);
  t.local[0] = 0xfd;
  usiw_cm_fill_info(&info, &i.c, &t);
  EXPECT_EQ(info.flags, USIW_CONN_F_INITIATOR | USIW_CONN_F_IPV6);
}

}  // namespace
