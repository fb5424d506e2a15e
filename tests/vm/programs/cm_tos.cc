// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// RDMA_OPTION_ID_TOS: the field is in every datagram of the connection, of the handshake and of data, as a packet
// socket sees it on the wire. (usiw's own wire.) The two bits of ECN are the engine's: ECT(0) in what it sends, sooner
// or later, and nothing in the handshake.
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

#include "cm_tools.h"
#include "uapi/usiw_wire.h"

namespace {

/// What has been seen of one UDP port: by direction and opcode the traffic classes.
class Tap {
 public:
  explicit Tap(uint16_t port)
      : port_(htons(port)), fd_(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL))) {
    if (fd_ < 0) FAIL("a packet socket: %s", std::strerror(errno));
  }
  ~Tap() { close(fd_); }
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;

  /// Takes what has come.
  void look() {
    alignas(8) char packet[256];
    for (ssize_t n; (n = recv(fd_, packet, sizeof packet, MSG_DONTWAIT)) > 0;) see(packet, static_cast<size_t>(n));
  }
  /// The classes of what goes to the port, or comes from there, with this opcode.
  const std::set<int>& classes(bool to_port, int opcode) { return seen_[to_port][opcode]; }
  /// The engine has said that some of its datagrams may be marked.
  bool ect() const { return ect_; }

 private:
  void see(const char* packet, size_t len) {
    const int version = len > 40 ? packet[0] >> 4 & 15 : 0;
    size_t at;
    int tos;
    if (version == 4) {
      const auto& ip = *reinterpret_cast<const iphdr*>(packet);
      if (ip.protocol != IPPROTO_UDP) return;
      at = ip.ihl * 4;
      tos = ip.tos;
    } else if (version == 6) {
      const auto& ip = *reinterpret_cast<const ip6_hdr*>(packet);
      if (ip.ip6_nxt != IPPROTO_UDP) return;
      at = sizeof ip;
      tos = static_cast<int>(ntohl(ip.ip6_flow) >> 20 & 255);
    } else {
      return;
    }
    udphdr udp;
    if (len < at + sizeof udp + sizeof(usiw_trp_hdr)) return;
    std::memcpy(&udp, packet + at, sizeof udp);
    if (udp.dest != port_ && udp.source != port_) return;
    const int opcode = static_cast<uint8_t>(packet[at + sizeof udp + 8]) >> 4;
    constexpr int kEcn = 3, kEct0 = 2;
    if ((tos & kEcn) == kEct0 && (opcode == USIW_TRP_DATA || opcode == USIW_TRP_SACK)) {
      ect_ = true;
      tos &= ~kEcn;
    }
    seen_[udp.dest == port_][opcode].insert(tos);
  }

  const uint16_t port_;
  const int fd_;
  std::set<int> seen_[2][16];
  bool ect_ = false;
};

void set_tos(rdma_cm_id* id, uint8_t value) {
  CHECK_CALL(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, sizeof value));
}

void check_only(Tap& tap, bool to_port, int opcode, int tos) {
  tap.look();
  const std::set<int>& seen = tap.classes(to_port, opcode);
  if (seen.empty()) FAIL("no datagram %s the listener with opcode %d", to_port ? "to" : "from", opcode);
  if (seen.size() != 1 || *seen.begin() != tos)
    FAIL("opcode %d %s the listener with class %#x (%zu different) instead of %#x", opcode, to_port ? "to" : "from",
         *seen.begin(), seen.size(), tos);
}

/// @p wanted of a connection whose ends have set @p listener's and @p client's.
void check_connection(const std::string& from_ip, const std::string& to_ip, uint8_t listener_tos, uint8_t client_tos) {
  EventChannel events;
  Endpoint listener, client, server;
  listener.id = events.create_id();
  set_tos(listener.id, listener_tos);
  CHECK_CALL(rdma_bind_addr(listener.id, Address(to_ip, 0).get()));
  CHECK_CALL(rdma_listen(listener.id, 4));
  set_tos(listener.id, 0x40);  // too late for this listener
  const uint16_t port = ntohs(rdma_get_src_port(listener.id));
  Tap tap(port);
  const Address from(from_ip, 0), to(to_ip, port);
  resolve(client, &from, to);
  set_tos(client.id, client_tos);
  client.create_qp({});
  rdma_conn_param param = conn_param({});
  CHECK_CALL(rdma_connect(client.id, &param));
  set_tos(client.id, 0x40);  // too late as well
  server.adopt(events.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  set_tos(server.id, 0x60);  // of a request it is nobody's: rdma_cm keeps it for itself
  server.create_qp({});
  CHECK_CALL(rdma_accept(server.id, &param));
  client.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  server.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  for (size_t length : {10, 60000}) greet(client, server, length);
  const int c = client_tos & 0xfc, l = listener_tos & 0xfc;  // without ECN's bits
  check_only(tap, true, USIW_TRP_REQ, c);
  check_only(tap, false, USIW_TRP_ACCEPT, l);
  check_only(tap, true, USIW_TRP_CONFIRM, c);
  check_only(tap, true, USIW_TRP_DATA, c);
  check_only(tap, false, USIW_TRP_DATA, l);
  check_only(tap, true, USIW_TRP_SACK, c);
  check_only(tap, false, USIW_TRP_SACK, l);
  if (!tap.ect()) FAIL("no datagram of the engine that may be marked");
  CHECK_CALL(rdma_disconnect(client.id));
  server.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  client.events.expect(RDMA_CM_EVENT_DISCONNECTED);

  Endpoint refused;
  resolve(refused, &from, to);
  set_tos(refused.id, client_tos);
  refused.create_qp({});
  CHECK_CALL(rdma_connect(refused.id, &param));
  const CmEvent request = events.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  CHECK_CALL(rdma_reject(request.id, nullptr, 0));
  refused.events.expect(RDMA_CM_EVENT_REJECTED);
  check_only(tap, false, USIW_TRP_REJECT, l);
  CHECK_CALL(rdma_destroy_id(request.id));
}

}  // namespace

CASE(tos_ipv4, "tos/ipv4-on-every-datagram", .core = true) {
  check_connection(site_a().ip, site_b().ip, 0x28, 0xb8);
  check_connection(site_a().ip, site_b().ip, 0, 0x20);
  check_connection(site_a().ip, site_b().ip, 0xff, 0);
}

CASE(tos_ipv6, "tos/ipv6-on-every-datagram") {
  check_connection(ip6_of("A"), ip6_of("B"), 0x28, 0xb8);
  check_connection(ip6_of("A"), ip6_of("B"), 0, 0xff);
}
