// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/launcher/check.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "port/permitted.h"
#include "tools/run/host/host.h"
#include "tools/run/host/interface.h"
#include "tools/run/host/scratch.h"
#include "tools/run/host/settings.h"
#include "tools/run/launcher/parts.h"
#include "tools/run/launcher/try_connection.h"

namespace usiw::run {
namespace {

void line(const std::string& what, const std::string& value) { printf("%-12s %s\n", what.c_str(), value.c_str()); }

/// Returns why raw packets are not used, or an empty string if they are.
std::string no_packets() {
  const usiw_link_info link = link_info();
  switch (settings().port) {
    case PortWish::kShm:
    case PortWish::kSocket:
      return "by --port or USIW_PORT";
    default:
      break;
  }
  if (std::to_array(link.mac) == std::array<uint8_t, 6>{}) return std::string(link.ifname) + " is not an Ethernet";
  if (!kPacketPortIsOrdered) return "DPDK's port for raw packets needs an x86 processor";
  if (!packets_permitted()) return "raw packets need CAP_NET_RAW in the network namespace's user namespace";
  return {};
}

/// Prints which port data uses to each kind of peer, and why.
void print_ways() {
  const std::string ifname = link_info().ifname;
  const std::string why = no_packets();
  line("this host",
       settings().port == PortWish::kSocket
           ? "UDP sockets, by --port or USIW_PORT"
           : "shared memory to this user's processes in this network namespace, UDP sockets to all others");
  if (why.empty()) {
    line("by " + ifname, "raw packets, to peers whose route leaves by it; CAP_NET_RAW permits them");
    line("", "UDP sockets while raw packets do not arrive: another route, the link down, a firewall rule");
    line("", "raw packets bypass this host's firewall rules, NAT and IPsec; --port shm avoids them");
    line("elsewhere", "UDP sockets, to peers whose route leaves by another interface or a tunnel");
  } else {
    line("elsewhere", "UDP sockets, to all other hosts: " + why);
  }
}

/// Returns why the provider cannot be used with the libibverbs of this host, or an empty string if it can.
std::string misfit(const std::string& provider) {
  if (dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL) != nullptr && dlopen(provider.c_str(), RTLD_NOW) != nullptr)
    return {};
  return std::string("the provider does not fit this host's rdma-core: ") + dlerror() + "; " + kRdmaCoreVersions;
}

/// Returns the size in bytes of the receive buffer that a data socket gets if it asks for @p wanted bytes.
int receive_buffer(int wanted) {
  const Fd fd = udp_socket_of_any_family();
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &wanted, sizeof wanted) != 0)
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &wanted, sizeof wanted);
  int got = 0;
  socklen_t len = sizeof got;
  getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &got, &len);
  return got / 2;  // the kernel doubles the value for its own overhead
}

/// Makes a connection by each port that print_ways() promises. Returns an empty string, or the faults.
std::string try_ports(const Parts& parts) {
  if ((Interface("lo").flags() & IFF_UP) == 0)
    return "lo is down, and no program reaches another one on this host; run: ip link set lo up";
  Endpoint v4;
  const bool has_v4 = parse_address("127.0.0.1", v4) && is_own_address(v4);
  const std::string address = !settings().address.empty() ? settings().address : has_v4 ? "127.0.0.1" : "::1";
  struct Port {
    PortKind kind;
    const char* name;
    bool promised;
  };
  const Port ports[] = {{PortKind::kShm, "shared memory", settings().port != PortWish::kSocket},
                        {PortKind::kSocket, "UDP sockets", true},
                        {PortKind::kPacket, "raw packets", no_packets().empty()}};
  std::string wrong, last_why;
  for (const Port& port : ports) {
    if (!port.promised) continue;
    const Tried tried = try_connection(parts, port.kind, address);
    const std::string name = port.name;
    if (tried.outcome == Tried::kFails && tried.why == last_why)
      wrong += "; so did one by " + name;
    else if (tried.outcome == Tried::kFails)
      wrong += (wrong.empty() ? "" : "; ") + ("a connection by " + name + " failed: " + tried.why);
    else
      line("tried", tried.outcome == Tried::kWorks
                        ? "a connection by " + name + " works"
                        : "no connection by " + name + ", because this failed: " + tried.why);
    last_why = tried.why;
  }
  return wrong;
}

}  // namespace

std::string check_settings() {
  const std::string& address = settings().address;
  if (Endpoint own; !address.empty() && !(parse_address(address, own) && is_own_address(own)))
    return "--address " + address + " is not an address of this host (see: ip address)";
  if (scratch_directory().empty())
    return std::string("no directory to write to for the tree that emulates /sys; set TMPDIR to one (tried ") +
           kScratchPlaces + ")";
  if (settings().port == PortWish::kPacket && !kPacketPortIsOrdered)
    return "--port packet needs an x86 processor, for DPDK's port; use --port auto";
  if (settings().port == PortWish::kPacket && !packets_permitted())
    return "--port packet needs CAP_NET_RAW, the right to open raw packet sockets; --port auto needs none";
  return {};
}

int check(const Parts& parts) {
  signal(SIGCHLD, SIG_DFL);  // if the parent ignored SIGCHLD, waitpid(2) would get no exit status
  bool good = parts.missing.empty();
  std::string wrong = check_settings();
  usiw_link_info link = link_info();
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  line("library", parts.library.empty() ? "missing" : parts.library);
  line("provider", parts.provider.empty() ? "missing" : parts.provider);
  line("device", settings().device + " on " + link.ifname + (link.up != 0 ? "" : " (down)"));
  line("address", settings().address.empty() ? "chosen by the route; --address sets it" : settings().address);
  print_ways();
  line("descriptors", "up to " + std::to_string(limit.rlim_max) + "; a connection needs up to four");
  constexpr int kGoodBuffer = 8 << 20;
  const int buffer = receive_buffer(kGoodBuffer);
  line("buffers", std::to_string(buffer / 1024) + " KiB per socket");
  if (buffer < kGoodBuffer)
    line("warning", "net.core.rmem_max is small, so sockets of servers with many connections lose datagrams; as root: "
                    "sysctl -w net.core.rmem_max=8388608 net.core.wmem_max=8388608");
  if (good && wrong.empty()) wrong = misfit(parts.provider);
  if (good && wrong.empty()) wrong = try_ports(parts);
  if (!parts.missing.empty()) line("problem", parts.missing);
  if (!wrong.empty()) line("problem", wrong);
  good = good && wrong.empty();
  line("result", good ? "usiw-run PROGRAM works here" : "fix the problem above first");
  return good ? 0 : 1;
}

}  // namespace usiw::run
