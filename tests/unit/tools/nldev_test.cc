// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file nldev_test.cc
/// Netlink messages, as the kernel sends them and as it never would.
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include <cstring>
#include <random>
#include <string>

#include "tools/nldev.h"
#include "uapi/usiw_abi.h"

namespace usiw::tools {
namespace {

using Message = std::vector<std::byte>;

Message attribute(uint16_t type, const void* data, size_t size) {
  const nlattr head{static_cast<uint16_t>(sizeof(nlattr) + size), type};
  Message m((head.nla_len + 3u) & ~size_t{3});
  std::memcpy(m.data(), &head, sizeof head);
  std::memcpy(m.data() + sizeof head, data, size);
  return m;
}
template <typename T>
Message number(uint16_t type, T value) { return attribute(type, &value, sizeof value); }
Message text(uint16_t type, const std::string& s) { return attribute(type, s.c_str(), s.size() + 1); }
Message nest(uint16_t type, std::initializer_list<Message> parts) {
  Message body;
  for (const Message& p : parts) body.insert(body.end(), p.begin(), p.end());
  return attribute(type | NLA_F_NESTED, body.data(), body.size());
}

Message qp_message() {
  return nest(RDMA_NLDEV_ATTR_RES_QP,
              {nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY,
                    {number<uint32_t>(RDMA_NLDEV_ATTR_RES_LQPN, 17), number<uint8_t>(RDMA_NLDEV_ATTR_RES_STATE, 3),
                     number<uint32_t>(RDMA_NLDEV_ATTR_RES_PID, 4711),
                     nest(RDMA_NLDEV_ATTR_DRIVER,
                          {text(RDMA_NLDEV_ATTR_DRIVER_STRING, "tx_pkts"),
                           number<uint64_t>(RDMA_NLDEV_ATTR_DRIVER_U64, 1ull << 40),
                           text(RDMA_NLDEV_ATTR_DRIVER_STRING, "rto_ns"),
                           number<uint8_t>(RDMA_NLDEV_ATTR_DRIVER_PRINT_TYPE, 1),
                           number<uint32_t>(RDMA_NLDEV_ATTR_DRIVER_U32, 5),
                           text(RDMA_NLDEV_ATTR_DRIVER_STRING, "data_port"),
                           text(RDMA_NLDEV_ATTR_DRIVER_STRING, "socket"),
                           text(RDMA_NLDEV_ATTR_DRIVER_STRING, "data_port_why"),
                           text(RDMA_NLDEV_ATTR_DRIVER_STRING, "no word of these")})}),
               nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY, {number<uint32_t>(RDMA_NLDEV_ATTR_RES_LQPN, 1)})});
}

TEST(Nldev, Qps) {
  const auto qps = parse_qps(qp_message());
  ASSERT_EQ(1u, qps.size());  // the other one is not usiw's
  EXPECT_EQ(17u, qps[0].qpn);
  EXPECT_EQ(4711u, qps[0].pid);
  EXPECT_EQ(3u, qps[0].state);
  EXPECT_EQ((Values{{"tx_pkts", 1ull << 40}, {"rto_ns", 5}, {"data_port", 2}, {"data_port_why", UINT64_MAX}}),
            qps[0].values);
}

TEST(Nldev, StatisticsInTheKernelsOrder) {
  const auto entry = [](const char* name, uint64_t value) {
    return nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY,
                {text(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name),
                 number(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, value)});
  };
  EXPECT_EQ((Values{{"tx_pkts", 2}, {"rx_pkts", 1}}),
            parse_statistics(nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, {entry("tx_pkts", 2), entry("rx_pkts", 1)})));
}

TEST(Nldev, Devices) {
  Message m = number<uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, 3);
  const Message name = text(RDMA_NLDEV_ATTR_DEV_NAME, "usiw0");
  m.insert(m.end(), name.begin(), name.end());
  EXPECT_EQ(3u, parse_device(m).index);
  EXPECT_EQ("usiw0", parse_device(m).name);
  EXPECT_TRUE(parse_is_usiw(number<uint32_t>(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, USIW_DRIVER_ID)));
  EXPECT_TRUE(parse_is_usiw(number<uint64_t>(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, USIW_DRIVER_ID)));
  EXPECT_FALSE(parse_is_usiw(number<uint32_t>(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, 1)));
  EXPECT_FALSE(parse_is_usiw({}));
}

TEST(Nldev, Ports) {
  Message m = number<uint8_t>(RDMA_NLDEV_ATTR_PORT_STATE, 4);
  const Message name = text(RDMA_NLDEV_ATTR_NDEV_NAME, "eth0");
  m.insert(m.end(), name.begin(), name.end());
  EXPECT_EQ(4u, parse_port(m).state);
  EXPECT_EQ("eth0", parse_port(m).netdev);
}

TEST(Nldev, CutAndDamagedMessages) {
  const Message good = qp_message();
  std::mt19937_64 rng(1);
  for (size_t n = 0; n <= good.size(); ++n) parse_qps(Message(good.begin(), good.begin() + static_cast<ptrdiff_t>(n)));
  for (int i = 0; i < 20'000; ++i) {
    Message bad = good;
    for (int k = 0; k < 3; ++k) bad[rng() % bad.size()] = static_cast<std::byte>(rng());
    parse_qps(bad);
    parse_statistics(bad);
    parse_device(bad);
    parse_is_usiw(bad);
  }
}

}  // namespace
}  // namespace usiw::tools
