// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file socket_ports.h
/// What tests of the socket port have in common.
#ifndef USIW_TESTS_PORT_SOCKET_PORTS_H
#define USIW_TESTS_PORT_SOCKET_PORTS_H

#include <memory>
#include <string>

#include "loopback.h"
#include "port/socket_port.h"

namespace usiw {

/// Runs of the engine until one finds something; 1000: none does.
inline unsigned runs_until_one_comes(NetPort& at) {
  RxBuf buf{};
  unsigned runs = 1;
  while (at.rx({&buf, 1}) == 0 && runs < 1000) ++runs;
  if (runs < 1000) at.rx_free({&buf, 1});
  return runs;
}

/// @p runs of the engine find nothing.
inline void quiet(NetPort& at, unsigned runs) {
  RxBuf buf{};
  for (unsigned i = 0; i < runs; ++i) ASSERT_EQ(0u, at.rx({&buf, 1}));
}

/// Two ports with a socket each, and a path between them.
class SocketPorts : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    int error = 0;
    a = SocketPort::create(kMtu, error);
    b = SocketPort::create(kMtu, error);
    ASSERT_TRUE(a && b);
    int fa = data_socket(GetParam(), port_a), fb = data_socket(GetParam(), port_b);
    path = path_between(GetParam(), port_a, port_b);
    back = path_between(GetParam(), port_b, port_a);
    ASSERT_EQ(0, a->add_flow(path, fa));
    ASSERT_EQ(0, b->add_flow(back, fb));
  }

  bool merged() { return comes_merged(*a, path, *b); }

  std::unique_ptr<SocketPort> a, b;
  uint16_t port_a = 0, port_b = 0;
  Path path{}, back{};
};

/// Of a suite's instances by address family.
inline std::string family(const ::testing::TestParamInfo<bool>& p) { return p.param ? "ipv4" : "ipv6"; }

}  // namespace usiw

#endif  // USIW_TESTS_PORT_SOCKET_PORTS_H
