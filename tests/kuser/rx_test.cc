// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_rx.c: datagrams of every length and shape, whole in the head of the skb or in its pages. ASan
// guards both ends of each.
#include "fixture.h"

namespace kuser {
namespace {

class Rx : public Connected {
 protected:
  /// A datagram of @p len zeros from the destination of @p req to its sender.
  static mock_datagram answer_to(const mock_datagram& req, u32 len) {
    mock_datagram d{};
    d.from = req.to;
    d.from_port = req.to_port;
    d.to = req.from;
    d.to_port = req.from_port;
    d.len = len;
    return d;
  }
  mock_datagram datagram(u16 opflags, u32 len) {
    mock_datagram d{};
    d.from = ipv4("192.0.2.1");
    d.from_port = cpu_to_be16(9000);
    d.to = ipv4("192.0.2.2");
    d.to_port = cpu_to_be16(kPort);
    d.len = len;
    for (u32 i = 0; i < len; i++) d.data[i] = i * 7;
    if (len >= 10) {
      const __be16 wire = cpu_to_be16(opflags);
      memcpy(d.data + 8, &wire, 2);
    }
    return d;
  }
  unsigned drop_sent() {
    mock_datagram d;
    unsigned n = 0;
    while (mock_take(&d)) n++;
    return n;
  }
};

TEST_F(Rx, encap_rcv__every_opcode_length_and_split) {
  for (unsigned opcode = 0; opcode < 16; opcode++) {
    for (const u16 flags : {0, 0x001, 0x008, 0x010, 0xfff}) {
      for (u32 len = 0; len <= 40; len++) {
        for (const unsigned linear : {8u, 9u, 21u, 22u, 23u, 2000u}) {
          const mock_datagram d = datagram(opcode << USIW_TRP_OPCODE_SHIFT | flags, len);
          mock_deliver(&d, linear);
        }
      }
      mock_run();
      drop_sent();
    }
  }
  EXPECT_TRUE(listener.requests.empty());
}

TEST_F(Rx, encap_rcv__longest_and_too_long) {
  usiw_sock* us = static_cast<usiw_listener*>(listener.id.provider_data)->us;
  mock_datagram d = datagram(USIW_TRP_REQ << USIW_TRP_OPCODE_SHIFT, USIW_CM_MAX_DATAGRAM);
  mock_deliver(&d, 8);
  EXPECT_EQ(us->rx_len, 1u);
  d.len++;
  mock_deliver(&d, 8);
  EXPECT_EQ(us->rx_len, 1u);
}

TEST_F(Rx, encap_rcv__queue_is_bounded) {
  usiw_sock* us = static_cast<usiw_listener*>(listener.id.provider_data)->us;
  const mock_datagram d = datagram(USIW_TRP_CONFIRM << USIW_TRP_OPCODE_SHIFT, 14);
  for (int i = 0; i < USIW_MAX_RX_QUEUE + 10; i++) mock_deliver(&d, 8);
  EXPECT_EQ(us->rx_len, unsigned{USIW_MAX_RX_QUEUE});
  mock_run();
  EXPECT_EQ(us->rx_len, 0u);
  drop_sent();
}

TEST_F(Rx, encap_rcv__no_memory) {
  usiw_sock* us = static_cast<usiw_listener*>(listener.id.provider_data)->us;
  const mock_datagram d = datagram(USIW_TRP_REQ << USIW_TRP_OPCODE_SHIFT, 30);
  mock_errors[MOCK_ALLOC] = 1;
  mock_deliver(&d, 8);
  EXPECT_EQ(us->rx_len, 0u);
}

TEST_F(Rx, data__stray_is_answered_at_a_bounded_rate) {
  mock_advance_ms(USIW_CM_STRAY_US / 1000 + 1);
  const mock_datagram d = datagram(USIW_TRP_DATA << USIW_TRP_OPCODE_SHIFT, 200);
  for (int i = 0; i < 50; i++) mock_deliver(&d, 8);
  mock_run();
  EXPECT_EQ(drop_sent(), 1u);
  mock_advance_ms(USIW_CM_STRAY_US / 1000 + 1);
  mock_deliver(&d, 8);
  mock_run();
  EXPECT_EQ(drop_sent(), 1u);
}

TEST_F(Rx, data__of_a_live_connection_is_the_engines) {
  establish();
  mock_advance_ms(USIW_CM_STRAY_US / 1000 + 1);
  const mock_datagram d = datagram(USIW_TRP_DATA << USIW_TRP_OPCODE_SHIFT, 200);
  mock_deliver(&d, 8);
  mock_run();
  EXPECT_EQ(drop_sent(), 0u);
  EXPECT_EQ(server_conn()->end.cm.state, USIW_CM_ESTABLISHED);
}

TEST_F(Rx, reset__stray_flag_is_the_engines) {
  establish();
  const mock_datagram d = datagram(USIW_TRP_RESET << USIW_TRP_OPCODE_SHIFT | USIW_TRP_F_STRAY, 14);
  mock_deliver(&d, 8);
  mock_run();
  EXPECT_NE(server_conn(), nullptr);
}

TEST_F(Rx, reset__with_wrong_psns) {
  establish();
  const mock_datagram d = datagram(USIW_TRP_RESET << USIW_TRP_OPCODE_SHIFT, 14);
  mock_deliver(&d, 8);
  mock_run();
  EXPECT_NE(server_conn(), nullptr);
}

TEST_F(Rx, encap_err_rcv__psn_has_to_fit) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("198.51.100.9"), kPort), 0);
  mock_datagram req;
  ASSERT_TRUE(mock_take(&req));
  mock_datagram forged = req;
  forged.data[0] ^= 1;
  mock_deliver_icmp(&forged, 8);
  EXPECT_FALSE(client_conn()->flags & BIT(USIW_CONN_ICMP));
  mock_deliver_icmp(&req, 8);
  EXPECT_TRUE(client_conn()->flags & BIT(USIW_CONN_ICMP));
  mock_run();
  drop_sent();
}

TEST_F(Rx, encap_err_rcv__without_the_isn_it_is_not_believed) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("198.51.100.9"), kPort), 0);
  mock_datagram req;
  ASSERT_TRUE(mock_take(&req));
  for (const unsigned quoted : {0u, 3u}) {  // the UDP header and no more
    mock_deliver_icmp(&req, quoted);
    EXPECT_FALSE(client_conn()->flags & BIT(USIW_CONN_ICMP));
  }
  mock_deliver_icmp(&req, 4);
  EXPECT_TRUE(client_conn()->flags & BIT(USIW_CONN_ICMP));
}

// docs/protocol.md requires that they are dropped, over IPv4 too.
TEST_F(Rx, encap_rcv__handshake_without_a_checksum_is_dropped) {
  usiw_device* dev = to_usiw_dev(mock_device("eth1"));
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  mock_datagram req;
  ASSERT_TRUE(mock_take(&req));
  req.no_checksum = true;
  mock_deliver(&req, 8);
  mock_run();
  EXPECT_TRUE(listener.requests.empty());
  EXPECT_EQ(atomic64_read(&dev->kcounters[USIW_KCNT_CM_NO_CHECKSUM]), 1);
  req.partial = true;  // a checksum that a NIC has to finish may be 0 now
  mock_deliver(&req, 8);
  mock_run();
  EXPECT_EQ(listener.requests.size(), 1u);
  EXPECT_EQ(atomic64_read(&dev->kcounters[USIW_KCNT_CM_NO_CHECKSUM]), 1);
}

TEST_F(Rx, encap_err_rcv__ipv6) {
  ASSERT_EQ(active.connect(*client, ipv6("2001:db8::1"), 9000, ipv6("2001:db8::9"), kPort), 0);
  mock_datagram req;
  ASSERT_TRUE(mock_take(&req));
  mock_deliver_icmp(&req, 100);
  EXPECT_TRUE(client_conn()->flags & BIT(USIW_CONN_ICMP));
}

TEST_F(Rx, encap_err_rcv__what_it_means) {
  ASSERT_EQ(active.connect(*client, ipv6("2001:db8::1"), 9000, ipv6("2001:db8::9"), kPort), 0);
  mock_datagram req;
  ASSERT_TRUE(mock_take(&req));
  mock_deliver_icmp(&req, 100);
  mock_run();
  EXPECT_EQ(client_conn()->end.cm.answer, USIW_CM_ANSWER_NO_PORT);
  drop_sent();
}

/// The server of a connection is no usiw, and answers.
TEST_F(Rx, encap_rcv__alien) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("198.51.100.9"), kPort), 0);
  mock_datagram req;
  ASSERT_TRUE(mock_take(&req));
  mock_datagram alien = answer_to(req, 20);
  memset(alien.data, 0xee, alien.len);
  mock_advance_ms(USIW_CM_STRAY_US / 1000 + 1);
  for (int i = 0; i < 50; i++) mock_deliver(&alien, 8);
  usiw_sock* us = client_conn()->sock;
  EXPECT_EQ(us->rx_len, 1u) << "at a bounded rate";
  mock_run();
  EXPECT_EQ(client_conn()->end.cm.answer, USIW_CM_ANSWER_ALIEN);
  EXPECT_EQ(client_conn()->end.cm.alien_len, 8u);
  EXPECT_EQ(client_conn()->end.cm.alien[0], 0xee);
  alien.len = 3;  // shorter than any header
  mock_advance_ms(USIW_CM_STRAY_US / 1000 + 1);
  mock_deliver(&alien, 8);
  mock_run();
  EXPECT_EQ(client_conn()->end.cm.alien_len, 3u);
  drop_sent();
}

/// The peer has an older connection of the same 4-tuple and probes it. The answer ends that connection.
TEST_F(Rx, encap_rcv__data_of_an_older_connection_while_the_req_waits) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("198.51.100.9"), kPort), 0);
  mock_datagram req;
  ASSERT_TRUE(mock_take(&req));
  mock_datagram probe = answer_to(req, sizeof(usiw_trp_hdr));
  probe.data[8] = USIW_TRP_SACK << 4;
  mock_advance_ms(USIW_CM_STRAY_US / 1000 + 1);
  for (int i = 0; i < 50; i++) mock_deliver(&probe, 8);
  mock_run();
  mock_datagram reset;
  ASSERT_TRUE(mock_take(&reset));
  EXPECT_EQ(reset.data[8], USIW_TRP_RESET << 4);
  EXPECT_EQ(drop_sent(), 0u) << "at a bounded rate";
  EXPECT_EQ(client_conn()->end.cm.state, USIW_CM_REQ_SENT);
}

TEST_F(Rx, encap_rcv__alien__of_no_connection_or_one_that_there_is) {
  establish();
  usiw_sock* us = static_cast<usiw_listener*>(listener.id.provider_data)->us;
  mock_datagram alien = datagram(0x9000, 40);
  mock_advance_ms(USIW_CM_STRAY_US / 1000 + 1);
  mock_deliver(&alien, 8);
  EXPECT_EQ(us->rx_len, 0u);
  alien.len = 0;
  mock_advance_ms(USIW_CM_STRAY_US / 1000 + 1);
  mock_deliver(&alien, 8);
  EXPECT_EQ(us->rx_len, 0u);
  EXPECT_EQ(drop_sent(), 0u);
}

TEST_F(Rx, refuse__other_version) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  mock_datagram req, answer;
  ASSERT_TRUE(mock_take(&req));
  req.data[sizeof(usiw_trp_hdr)] = USIW_WIRE_VERSION + 1;
  mock_deliver(&req, 8);
  mock_run();
  ASSERT_TRUE(mock_take(&answer));
  EXPECT_EQ(answer.data[8] >> 4, USIW_TRP_REJECT);
}

TEST_F(Rx, request__nobody_listens) {
  CmId other;
  ASSERT_EQ(other.listen(client->device, ipv4("0.0.0.0"), 7300), 0);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), 7300), 0);
  mock_datagram req, answer;
  ASSERT_TRUE(mock_take(&req));
  ASSERT_TRUE(mock_deliver(&req, 8));
  mock_run();
  ASSERT_TRUE(mock_take(&answer));
  EXPECT_EQ(answer.data[8] >> 4, USIW_TRP_REJECT);
}

TEST_F(Rx, purge__queued_datagrams_are_freed) {
  const mock_datagram d = datagram(USIW_TRP_REQ << USIW_TRP_OPCODE_SHIFT, 30);
  for (int i = 0; i < 5; i++) mock_deliver(&d, 8);
  listener.destroy();
  EXPECT_EQ(mock_pending_works(), 0u);
}

}  // namespace
}  // namespace kuser
