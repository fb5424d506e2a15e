// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// A listener of the server, and REQs of other hosts.
#pragma once

#include "fixture.h"

namespace kuser {

class Listen : public Connected {
 protected:
  /// Returns a REQ as a host at 198.51.100.N would send it.
  mock_datagram request(u8 host, u16 port = 9000) {
    usiw_cm_conn c{};
    mock_datagram d{};
    EXPECT_EQ(usiw_cm_init_active(&c, isn_ + host, 4, 4, 1500, 64, nullptr, 0), 0);
    usiw_cm_connect(&c, mock_now_us);
    d.from = ipv4("198.51.100.0");
    d.from.s6_addr[15] = host;
    d.from_port = cpu_to_be16(port);
    d.to = ipv4("192.0.2.2");
    d.to_port = cpu_to_be16(kPort);
    d.len = usiw_cm_build(&c, d.data);
    return d;
  }
  void arrive(u8 host, u16 port = 9000) {
    deliver(request(host, port));
    mock_run();
  }
  void arrive_all(u8 first, u8 last) {
    for (u8 host = first; host <= last; host++) arrive(host);
  }
  static void deliver(const mock_datagram& d) { mock_deliver(&d, 64); }
  /// Returns the last byte of the address that sent the latest request that iw_cm got.
  u8 latest() const { return host_of(*listener.requests.back()); }
  static u8 host_of(const CmId& request) {
    const sockaddr_storage& ss = request.id.m_remote_addr;
    return ntohl(reinterpret_cast<const sockaddr_in*>(&ss)->sin_addr.s_addr) & 0xff;
  }
  usiw_listener* state() const { return static_cast<usiw_listener*>(listener.id.provider_data); }
  /// The same with the ISN of the PENDING, as an honest host repeats it at once.
  void arrive_proven(u8 host, u16 port = 9000) {
    drop_sent();
    mock_datagram req = request(host, port), pending;
    deliver(req);
    mock_run();
    if (!mock_take(&pending)) return;  // a slot was free for one without a proof
    EXPECT_EQ(pending.data[8] >> 4, USIW_TRP_ACCEPT);
    memcpy(req.data + 4, pending.data, 4);
    deliver(req);
    mock_run();
  }
  /// Fills the backlog by hosts 10 to 13.
  void fill() {
    for (u8 host = 10; host <= 13; host++) arrive_proven(host);
    ASSERT_EQ(listener.requests.size(), 4u);
    drop_sent();
  }
  void drop_sent() {
    mock_datagram d;
    while (mock_take(&d)) {
    }
  }

 private:
  static inline u32 next_isn = 100;
  const u32 isn_ = next_isn += 1000;  ///< the module remembers requests, and all tests share it
};

}  // namespace kuser
