// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Flows that differ in nothing but their link, by sockets and by shared memory.
#include "links.h"

#include <memory>
#include <set>

#include "port/shm_port.h"
#include "port/socket_port.h"

namespace usiw {
namespace {

using Address = std::array<uint8_t, 16>;

TEST(LinkMark, is_another_one_for_each_link_and_goes_without_trace) {
  Address plain{};
  inet_pton(AF_INET6, "fe80::1:2:3:4", plain.data());
  std::set<Address> seen{plain};
  for (uint32_t link : {1u, 2u, 3u, 255u, 256u, 65536u, 0x7fffffffu, 0xffffffffu}) {
    Address marked = plain;
    put_link(marked.data(), link);
    EXPECT_TRUE(seen.insert(marked).second) << link;
    EXPECT_FALSE(is_link_local(marked.data()));
    EXPECT_FALSE(is_mapped_ipv4(marked.data()));
    take_link(marked.data());
    EXPECT_EQ(plain, marked);
  }
}

TEST(LinkMark, only_addresses_of_the_usual_form_are_a_link_s) {
  for (const auto& [text, yes] : {std::pair{"fe80::1", true}, {"fe80::", true}, {"fe80:1::1", false},
                                  {"fe80:0:0:1::1", false}, {"fec0::1", false}, {"::1", false}, {"ff02::1", false}}) {
    Address a;
    inet_pton(AF_INET6, text, a.data());
    EXPECT_EQ(yes, is_link_local(a.data())) << text;
  }
}

/// Two ports and two flows between them, of the same addresses and ports, one by each link. Parameters: which link's
/// device each port has, and whether the sockets are bound to all addresses, or one to each link.
template <typename SomePort>
class Links {
 public:
  Links(uint32_t unmarked_a, uint32_t unmarked_b, bool bound_to_all) {
    int error = 0;
    a = SomePort::create(kMtu, error, unmarked_a);
    b = SomePort::create(kMtu, error, unmarked_b);
    uint16_t port_a = 0, port_b = 0;
    for (int i = 0; i < 2; i++) {
      const uint32_t link = if_nametoindex(kLinks[i]);
      const bool socket = i == 0 || !bound_to_all;
      const int fa = socket ? link_local_socket(bound_to_all ? 0 : link, port_a) : -1;
      const int fb = socket ? link_local_socket(bound_to_all ? 0 : link, port_b) : -1;
      there[i] = link_path(link, unmarked_a, port_a, port_b);
      back[i] = link_path(link, unmarked_b, port_b, port_a);
      EXPECT_EQ(0, b->add_flow(back[i], fb));
      EXPECT_EQ(0, a->add_flow(there[i], fa));
    }
  }
  void each_gets_its_own() {
    for (int i : {0, 1, 1, 0}) {
      ASSERT_EQ(2u, send(*a, there[i], {50, 60}));
      std::vector<Got> got = receive(*b, 2);
      ASSERT_EQ(2u, got.size()) << kLinks[i];
      for (const Got& g : got) EXPECT_TRUE(g.flow == back[i].flow) << kLinks[i];
      ASSERT_EQ(1u, send(*b, back[i], {70}));
      got = receive(*a, 1);
      ASSERT_EQ(1u, got.size());
      EXPECT_TRUE(got[0].flow == there[i].flow) << kLinks[i];
    }
  }

  std::unique_ptr<SomePort> a, b;
  Path there[2], back[2];
};

class TwoLinks : public ::testing::TestWithParam<std::tuple<int, int, bool>> {
 protected:
  void SetUp() override {
    if (!make_two_links()) GTEST_SKIP() << "needs root";
  }
  /// 2: none of them.
  static uint32_t link(int i) { return i < 2 ? if_nametoindex(kLinks[i]) : 77; }
};

INSTANTIATE_TEST_SUITE_P(Of, TwoLinks, testing::Combine(testing::Values(0, 1, 2), testing::Values(0, 1, 2),
                                                        testing::Bool()));

TEST_P(TwoLinks, sockets_tell_them_apart) {
  const auto [unmarked_a, unmarked_b, all] = GetParam();
  Links<SocketPort> links(link(unmarked_a), link(unmarked_b), all);
  links.each_gets_its_own();
}

TEST_P(TwoLinks, memory_tells_them_apart) {
  const auto [unmarked_a, unmarked_b, all] = GetParam();
  Links<ShmPort> links(link(unmarked_a), link(unmarked_b), all);
  for (int i = 0; i < 4; i++) {
    links.b->control();
    links.a->control();
  }
  EXPECT_EQ(2u, links.a->flows_in_memory());
  EXPECT_EQ(2u, links.b->flows_in_memory());
  links.each_gets_its_own();
}

/// What comes by a link where the connection is not must not be taken for the connection's.
TEST_P(TwoLinks, a_flow_of_one_link_gets_nothing_by_the_other) {
  const auto [unmarked_a, unmarked_b, all] = GetParam();
  if (!all) return;  // else the kernel sees to it
  Links<SocketPort> links(link(unmarked_a), link(unmarked_b), all);
  for (int i = 0; i < 2; i++) {
    links.b->remove_flow(links.back[1 - i]);
    ASSERT_EQ(1u, send(*links.a, links.there[1 - i], {50}));
    for (const Got& got : receive(*links.b, 1, kShortly)) EXPECT_FALSE(got.flow == links.back[i].flow) << kLinks[i];
    ASSERT_EQ(0, links.b->add_flow(links.back[1 - i], -1));
  }
}

/// A netdev that puts several datagrams into one frame may do so with those that another connection of the socket hears
/// as raw packets. A veth device does not, unless it is told to.
TEST(Merging, beside_raw_packets_only_while_the_netdev_merges_nothing) {
  if (!make_two_links()) GTEST_SKIP() << "needs root";
  int error = 0;
  uint16_t from = 0, to = 0;
  auto a = SocketPort::create(kMtu, error), b = SocketPort::create(kMtu, error, if_nametoindex("d0"));
  const int fa = data_socket(true, from), fb = data_socket(true, to);
  Path path = path_between(true, from, to), back = path_between(true, to, from), other = path_between(true, to, 9);
  ASSERT_EQ(0, a->add_flow(path, fa));
  ASSERT_EQ(0, b->add_flow(back, fb));
  ASSERT_EQ(0, b->add_flow(other, -1));
  b->sends(other, false);
  path.merge = true;
  EXPECT_FALSE(comes_merged(*a, path, *b));
  b->merges(back, true);
  EXPECT_TRUE(comes_merged(*a, path, *b));
  ASSERT_EQ(0, std::system("ethtool -K d0 gro on"));
  b->merges(back, true);
  EXPECT_FALSE(comes_merged(*a, path, *b));
  ASSERT_EQ(0, std::system("ethtool -K d0 gro off"));
  b->merges(back, true);
  EXPECT_TRUE(comes_merged(*a, path, *b));
}

}  // namespace
}  // namespace usiw
