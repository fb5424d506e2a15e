// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/launcher/two_hosts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/veth.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "tools/run/host/interface.h"
#include "tools/run/host/rtnetlink.h"

namespace usiw::run {
namespace {

constexpr const char* kDevice[2] = {"usiw-try0", "usiw-try1"};
constexpr int kDeviceTries = 200;
constexpr useconds_t kDevicePauseUs = 10'000;

std::string failed(const std::string& what) { return what + ": " + strerror(errno); }

bool write_file(const char* path, const std::string& text) {
  const Fd fd(open(path, O_WRONLY | O_CLOEXEC));
  return fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

/// Adds the name and the MAC of the device of @p end. Each end always has the same MAC, so that later trials share the
/// tree of their device (entry/sysfs.h). The MAC is locally administered: manufacturers do not assign it.
template <typename Request>
void describe(Request& request, uint8_t end) {
  const uint8_t mac[6] = {2, 0x75, 0x73, 0x69, 0x77, end};
  request.add(IFLA_IFNAME, kDevice[end], strlen(kDevice[end]) + 1);
  request.add(IFLA_ADDRESS, mac, sizeof mac);
}

/// Sets the interface up. Returns an empty string, or the fault.
std::string set_up(Interface& device) {
  if (!device.call(SIOCGIFFLAGS)) return failed(device.r.ifr_name);
  device.r.ifr_flags = static_cast<short>(device.r.ifr_flags | IFF_UP);
  return device.call(SIOCSIFFLAGS) ? "" : failed(device.r.ifr_name);
}

bool set_address(Interface& device, unsigned long request, const char* address) {
  auto& sin = reinterpret_cast<sockaddr_in&>(device.r.ifr_addr);
  sin.sin_family = AF_INET;
  inet_pton(AF_INET, address, &sin.sin_addr);
  return device.call(request);
}

}  // namespace

std::string leave_network() {
  if (unshare(CLONE_NEWNET) == 0) return {};
  const std::string user = std::to_string(geteuid()), group = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return failed("a network namespace");
  write_file("/proc/self/setgroups", "deny");
  if (!write_file("/proc/self/uid_map", "0 " + user + " 1") || !write_file("/proc/self/gid_map", "0 " + group + " 1"))
    return failed("a user namespace");
  return {};
}

std::string connect_hosts(int other) {
  const ifinfomsg link{};
  RtnetlinkRequest request(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, link);
  describe(request, 0);
  const size_t info = request.begin(IFLA_LINKINFO);
  request.add(IFLA_INFO_KIND, "veth", 5);
  const size_t data = request.begin(IFLA_INFO_DATA), peer = request.begin(VETH_INFO_PEER);
  request.append(&link, sizeof link);
  describe(request, 1);
  const auto pid = static_cast<uint32_t>(other);
  request.add(IFLA_NET_NS_PID, &pid, sizeof pid);
  for (const size_t at : {peer, data, info}) request.end(at);
  errno = -request.ask();
  return errno == 0 ? "" : failed("a pair of veth devices");
}

std::string set_up_host(int end) {
  Interface lo("lo"), device(kDevice[end]);
  std::string wrong = set_up(lo);
  for (int tries = 0; tries < kDeviceTries && if_nametoindex(kDevice[end]) == 0; tries++) usleep(kDevicePauseUs);
  if (wrong.empty() &&
      !(set_address(device, SIOCSIFADDR, kHostAddress[end]) && set_address(device, SIOCSIFNETMASK, "255.255.255.0")))
    wrong = failed("an address");
  if (wrong.empty()) wrong = set_up(device);
  for (int tries = 0; tries < kDeviceTries && wrong.empty() && (device.flags() & IFF_RUNNING) == 0; tries++)
    usleep(kDevicePauseUs);
  return wrong;
}

}  // namespace usiw::run
