// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/launcher/two_hosts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "tools/run/host/interface.h"

namespace usiw::run {
namespace {

constexpr const char* kDevice[2] = {"usiw-try0", "usiw-try1"};
constexpr int kDeviceTries = 200;
constexpr useconds_t kDevicePauseUs = 10'000;

std::string failed(const std::string& what) { return what + ": " + strerror(errno); }

bool write_file(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool all = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return all;
}

/// A netlink request with nested attributes.
class Request {
 public:
  explicit Request(uint16_t type) {
    header().nlmsg_len = NLMSG_HDRLEN;
    header().nlmsg_type = type;
    header().nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
  }
  void add(const void* data, size_t size) {
    memcpy(bytes_ + header().nlmsg_len, data, size);
    header().nlmsg_len += static_cast<uint32_t>(NLMSG_ALIGN(size));
  }
  size_t begin(uint16_t type) {
    const size_t at = header().nlmsg_len;
    const nlattr attribute{0, type};
    add(&attribute, sizeof attribute);
    return at;
  }
  void end(size_t at) {
    const auto size = static_cast<uint16_t>(header().nlmsg_len - at);
    memcpy(bytes_ + at, &size, sizeof size);
  }
  void put(uint16_t type, const void* data, size_t size) {
    const size_t at = begin(type);
    add(data, size);
    const auto exact = static_cast<uint16_t>(sizeof(nlattr) + size);
    memcpy(bytes_ + at, &exact, sizeof exact);
  }
  void put_text(uint16_t type, const char* text) { put(type, text, strlen(text) + 1); }
  /// Sends the request. Returns 0 or an errno value.
  int run() {
    const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) return errno;
    struct {
      nlmsghdr header;
      nlmsgerr error;
      char rest[512];
    } answer{};
    int error = EIO;
    if (send(fd, bytes_, header().nlmsg_len, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0)
      error = errno;
    else if (answer.header.nlmsg_type == NLMSG_ERROR)
      error = -answer.error.error;
    close(fd);
    return error;
  }

 private:
  nlmsghdr& header() { return *reinterpret_cast<nlmsghdr*>(bytes_); }
  alignas(nlmsghdr) char bytes_[512] = {};
};

/// Sets a MAC that no interface has and that is always the same, so that both trials of a host share the tree of their
/// device.
void put_mac(Request& request, uint8_t end) {
  const uint8_t mac[6] = {2, 0x75, 0x73, 0x69, 0x77, end};
  request.put(IFLA_ADDRESS, mac, sizeof mac);
}

/// Returns an empty string, or the fault.
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
  Request request(RTM_NEWLINK);
  ifinfomsg link{};
  request.add(&link, sizeof link);
  request.put_text(IFLA_IFNAME, kDevice[0]);
  put_mac(request, 0);
  const size_t info = request.begin(IFLA_LINKINFO);
  request.put_text(IFLA_INFO_KIND, "veth");
  const size_t data = request.begin(IFLA_INFO_DATA), peer = request.begin(VETH_INFO_PEER);
  request.add(&link, sizeof link);
  request.put_text(IFLA_IFNAME, kDevice[1]);
  put_mac(request, 1);
  const auto pid = static_cast<uint32_t>(other);
  request.put(IFLA_NET_NS_PID, &pid, sizeof pid);
  request.end(peer);
  request.end(data);
  request.end(info);
  errno = request.run();
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
