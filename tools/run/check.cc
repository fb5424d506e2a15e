// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "check.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "host.h"
#include "port/permitted.h"
#include "scratch.h"
#include "settings.h"

namespace usiw::run {
namespace {

constexpr char kProviderSuffix[] = "-rdmav34.so";

bool exists(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

/// By the kernel, or, without /proc, by the path that was executed.
std::string own_path() {
  char buf[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", buf, sizeof buf - 1);
  if (n > 0) return std::string(buf, static_cast<size_t>(n));
  const auto* executed = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return executed != nullptr && realpath(executed, buf) != nullptr ? buf : "";
}

long read_number(const char* path) {
  long value = 0;
  std::ifstream(path) >> value;
  return value;
}

void line(const std::string& what, const std::string& value) { printf("%-12s %s\n", what.c_str(), value.c_str()); }

/// Why raw packets are not used; empty: they are.
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
  if (!packets_permitted()) return "raw packets need CAP_NET_RAW in the network namespace's user namespace";
  return {};
}

/// Which way data goes to which peer, and why: a line for each kind of peer.
void print_ways() {
  const std::string ifname = link_info().ifname;
  const std::string why = no_packets();
  line("this host",
       settings().port == PortWish::kSocket
           ? "UDP sockets, by --port or USIW_PORT"
           : "shared memory to this user's processes in this network namespace, UDP sockets to all others");
  if (why.empty()) {
    line("by " + ifname, "raw packets, to peers that the route reaches by it: CAP_NET_RAW is there");
    line("", "UDP sockets while these do not get there: another route, the link down, a rule in their way");
    line("", "past this host's firewall rules, NAT and IPsec; where these must hold: --port shm");
    line("elsewhere", "UDP sockets, to peers that the route reaches by another interface or a tunnel");
  } else {
    line("elsewhere", "UDP sockets, to all other hosts: " + why);
  }
}

}  // namespace

Parts find_parts() {
  Parts p;
  p.self = own_path();
  std::string here = p.self.substr(0, p.self.rfind('/'));
  std::string installed = here + "/../lib/x86_64-linux-gnu/";
  for (const std::string& dir : {here + "/", installed})
    if (p.library.empty() && exists(dir + "libusiw-run.so")) p.library = dir + "libusiw-run.so";
  const std::string built = here + "/../provider/libusiw";
  if (exists(built + kProviderSuffix)) {
    p.provider = built + kProviderSuffix;
    p.drivers = built;
  } else if (exists(installed + "libibverbs/libusiw" + kProviderSuffix)) {
    p.provider = installed + "libibverbs/libusiw" + kProviderSuffix;
    p.drivers = installed + "libibverbs/libusiw";  // it need not be where libibverbs looks: DESTDIR, another prefix
  }
  if (p.library.empty())
    p.missing =
        "libusiw-run.so is not beside " + p.self + "; build it (make provider) or install it (make install-local)";
  else if (p.provider.empty())
    p.missing =
        "the provider libusiw-rdmav34.so is not there; build it (make provider) or install it (make install-local)";
  else if (dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr)
    p.missing = "libibverbs is not there: apt install libibverbs1 ibverbs-providers librdmacm1";
  return p;
}

std::string check_settings() {
  const std::string& address = settings().address;
  if (Endpoint own; !address.empty() && !(parse_address(address, own) && is_own_address(own)))
    return "--address " + address + " is not an address of this host (see: ip address)";
  if (scratch_directory().empty())
    return std::string("there is no directory to write to for what plays /sys; tried ") + kScratchPlaces;
  if (settings().port == PortWish::kPacket && !packets_permitted())
    return "--port packet needs CAP_NET_RAW, the right to open raw packet sockets; --port auto needs none";
  return {};
}

int check(const Parts& parts) {
  bool good = parts.missing.empty();
  std::string wrong = check_settings();
  usiw_link_info link = link_info();
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  line("library", parts.library.empty() ? "missing" : parts.library);
  line("provider", parts.provider.empty() ? "missing" : parts.provider);
  line("device", settings().device + " on " + link.ifname + (link.up != 0 ? "" : " (down)"));
  line("address", settings().address.empty() ? "the route's; --address fixes it" : settings().address);
  print_ways();
  line("descriptors", "up to " + std::to_string(limit.rlim_max) + "; a connection needs up to four");
  long rmem = read_number("/proc/sys/net/core/rmem_max");
  constexpr long kGoodBuffer = 8 << 20;
  line("buffers", std::to_string(rmem / 1024) + " KiB per socket" +
                      (rmem < kGoodBuffer && geteuid() != 0
                           ? "; more is faster: sysctl -w net.core.rmem_max=8388608 net.core.wmem_max=8388608"
                           : ""));
  if (!parts.missing.empty()) line("problem", parts.missing);
  if (!wrong.empty()) line("problem", wrong);
  good = good && wrong.empty();
  line("result", good ? "usiw-run PROGRAM works here" : "fix the problem above first");
  return good ? 0 : 1;
}

}  // namespace usiw::run
