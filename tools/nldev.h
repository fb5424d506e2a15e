// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file nldev.h
/// Reads devices, their counters and their QPs by RDMA netlink, which is the protocol of the rdma(8) tool.
#ifndef USIW_TOOLS_NLDEV_H
#define USIW_TOOLS_NLDEV_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

struct nl_msg;
struct nl_sock;

namespace usiw::tools {

/// Names and values of counters and gauges, in the kernel's order.
using Values = std::vector<std::pair<std::string, uint64_t>>;

struct Device {
  uint32_t index = 0;
  std::string name;
};

struct PortInfo {
  std::string netdev;
  uint8_t state = 0;  ///< enum ib_port_state
};

struct QpInfo {
  uint32_t qpn = 0;
  uint32_t pid = 0;   ///< in this process's PID namespace; 0: not known
  uint8_t state = 0;  ///< enum ib_qp_state
  Values values = {};
};

// ---- Decoders of messages. @p attributes is the payload after struct nlmsghdr, and is not trusted. ----

Device parse_device(std::span<const std::byte> attributes);
PortInfo parse_port(std::span<const std::byte> attributes);
bool parse_is_usiw(std::span<const std::byte> attributes);
Values parse_statistics(std::span<const std::byte> attributes);
std::vector<QpInfo> parse_qps(std::span<const std::byte> attributes);

class Nldev {
 public:
  Nldev();

  // Each call returns 0 or an errno value.
  int open();
  int devices(std::vector<Device>& out);  ///< usiw's devices
  int port(const Device& device, PortInfo& out);
  int statistics(const Device& device, Values& out);
  int qps(const Device& device, std::vector<QpInfo>& out);

 private:
  using Take = std::function<void(std::span<const std::byte>)>;
  int ask(nl_msg* request, const Take& take);

  std::unique_ptr<nl_sock, void (*)(nl_sock*)> socket_;
};

}  // namespace usiw::tools

#endif  // USIW_TOOLS_NLDEV_H
