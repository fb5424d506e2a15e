// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/nldev.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/gauge_words.h"
#include "uapi/usiw_abi.h"

namespace usiw::tools {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kAlign = 4;
constexpr size_t kReceiveBytes = 1 << 18;
constexpr int kAnswerSeconds = 5;

size_t aligned(size_t n) { return (n + kAlign - 1) & ~(kAlign - 1); }

/// Calls @p take(type, payload) for each attribute; stops at the first that does not fit.
template <typename Take>
void for_each_attribute(Bytes bytes, Take take) {
  while (bytes.size() >= sizeof(nlattr)) {
    nlattr head;
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.nla_len < sizeof head || head.nla_len > bytes.size()) return;
    take(static_cast<int>(head.nla_type & NLA_TYPE_MASK), bytes.subspan(sizeof head, head.nla_len - sizeof head));
    bytes = bytes.subspan(std::min(bytes.size(), aligned(head.nla_len)));
  }
}

uint64_t number(Bytes payload) {
  uint64_t value = 0;
  std::memcpy(&value, payload.data(), std::min(sizeof value, payload.size()));
  return value;
}

std::string text(Bytes payload) {
  const auto* p = reinterpret_cast<const char*>(payload.data());
  return {p, std::find(p, p + payload.size(), '\0')};
}

void put(std::vector<std::byte>& out, uint16_t type, const void* data, size_t size) {
  const nlattr head{static_cast<uint16_t>(sizeof(nlattr) + size), type};
  const size_t at = out.size();
  out.resize(at + aligned(head.nla_len));
  std::memcpy(out.data() + at, &head, sizeof head);
  std::memcpy(out.data() + at + sizeof head, data, size);
}

std::vector<std::byte> about(const Device& device) {
  std::vector<std::byte> out;
  put(out, RDMA_NLDEV_ATTR_DEV_INDEX, &device.index, sizeof device.index);
  return out;
}

void parse_driver_table(Bytes table, Values& out) {
  std::string name;
  for_each_attribute(table, [&](int type, Bytes payload) {
    switch (type) {
      case RDMA_NLDEV_ATTR_DRIVER_STRING:  // a name, or the word that is the value of the name before
        if (name.empty()) {
          name = text(payload);
          break;
        }
        out.emplace_back(name, gauge_value(name, text(payload)));
        name.clear();
        break;
      case RDMA_NLDEV_ATTR_DRIVER_U32:
      case RDMA_NLDEV_ATTR_DRIVER_U64:
        if (!name.empty()) out.emplace_back(std::move(name), number(payload));
        name.clear();
        break;
    }
  });
}

}  // namespace

Device parse_device(Bytes attributes) {
  Device device;
  for_each_attribute(attributes, [&](int type, Bytes payload) {
    if (type == RDMA_NLDEV_ATTR_DEV_INDEX) device.index = static_cast<uint32_t>(number(payload));
    if (type == RDMA_NLDEV_ATTR_DEV_NAME) device.name = text(payload);
  });
  return device;
}

bool parse_is_usiw(Bytes attributes) {
  bool is_usiw = false;
  for_each_attribute(attributes, [&](int type, Bytes payload) {
    if (type == RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID) is_usiw = number(payload) == USIW_DRIVER_ID;
  });
  return is_usiw;
}

Values parse_statistics(Bytes attributes) {
  Values out;
  for_each_attribute(attributes, [&](int type, Bytes table) {
    if (type != RDMA_NLDEV_ATTR_STAT_HWCOUNTERS) return;
    for_each_attribute(table, [&](int, Bytes entry) {
      std::string name;
      uint64_t value = 0;
      for_each_attribute(entry, [&](int field, Bytes payload) {
        if (field == RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME) name = text(payload);
        if (field == RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE) value = number(payload);
      });
      if (!name.empty()) out.emplace_back(std::move(name), value);
    });
  });
  return out;
}

std::vector<QpInfo> parse_qps(Bytes attributes) {
  std::vector<QpInfo> out;
  for_each_attribute(attributes, [&](int type, Bytes table) {
    if (type != RDMA_NLDEV_ATTR_RES_QP) return;
    for_each_attribute(table, [&](int, Bytes entry) {
      QpInfo qp;
      for_each_attribute(entry, [&](int field, Bytes payload) {
        switch (field) {
          case RDMA_NLDEV_ATTR_RES_LQPN: qp.qpn = static_cast<uint32_t>(number(payload)); break;
          case RDMA_NLDEV_ATTR_RES_PID: qp.pid = static_cast<uint32_t>(number(payload)); break;
          case RDMA_NLDEV_ATTR_RES_STATE: qp.state = static_cast<uint8_t>(number(payload)); break;
          case RDMA_NLDEV_ATTR_DRIVER: parse_driver_table(payload, qp.values); break;
        }
      });
      if (!qp.values.empty()) out.push_back(std::move(qp));  // others are the kernel's own
    });
  });
  return out;
}

Nldev::~Nldev() {
  if (fd_ >= 0) close(fd_);
}

int Nldev::open() {
  fd_ = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
  if (fd_ < 0) return errno;
  const timeval limit{kAnswerSeconds, 0};
  if (setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0) return errno;
  return 0;
}

int Nldev::ask(uint16_t command, bool dump, Bytes attributes, const Take& take) {
  nlmsghdr head{};
  head.nlmsg_len = static_cast<uint32_t>(sizeof head + attributes.size());
  head.nlmsg_type = static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
  head.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | (dump ? NLM_F_DUMP : NLM_F_ACK));
  head.nlmsg_seq = ++sequence_;
  std::vector<std::byte> request(head.nlmsg_len);
  std::memcpy(request.data(), &head, sizeof head);
  if (!attributes.empty()) std::memcpy(request.data() + sizeof head, attributes.data(), attributes.size());
  if (send(fd_, request.data(), request.size(), 0) < 0) return errno;

  std::vector<std::byte> buffer(kReceiveBytes);
  for (;;) {
    const ssize_t n = recv(fd_, buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    Bytes rest(buffer.data(), static_cast<size_t>(n));
    while (rest.size() >= sizeof head) {
      std::memcpy(&head, rest.data(), sizeof head);
      if (head.nlmsg_len < sizeof head || head.nlmsg_len > rest.size()) return EBADMSG;
      const Bytes payload = rest.subspan(sizeof head, head.nlmsg_len - sizeof head);
      rest = rest.subspan(std::min(rest.size(), aligned(head.nlmsg_len)));
      if (head.nlmsg_seq != sequence_) continue;
      if (head.nlmsg_type == NLMSG_DONE) return 0;
      if (head.nlmsg_type == NLMSG_ERROR)
        return payload.size() < 4 ? EBADMSG : -static_cast<int>(number(payload.first(4)));
      take(payload);
    }
  }
}

int Nldev::devices(std::vector<Device>& out) {
  std::vector<Device> all;
  if (int rc = ask(RDMA_NLDEV_CMD_GET, true, {}, [&](Bytes m) { all.push_back(parse_device(m)); }); rc != 0)
    return rc;
  for (const Device& device : all) {
    std::vector<std::byte> question = about(device);
    put(question, RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs", sizeof "uverbs");
    bool is_usiw = false;
    // An error: it has gone meanwhile, or it has no uverbs.
    ask(RDMA_NLDEV_CMD_GET_CHARDEV, false, question, [&](Bytes m) { is_usiw |= parse_is_usiw(m); });
    if (is_usiw) out.push_back(device);
  }
  return 0;
}

int Nldev::statistics(const Device& device, Values& out) {
  std::vector<std::byte> question = about(device);
  const uint32_t port = 1;
  put(question, RDMA_NLDEV_ATTR_PORT_INDEX, &port, sizeof port);
  return ask(RDMA_NLDEV_CMD_STAT_GET, false, question, [&](Bytes m) { out = parse_statistics(m); });
}

int Nldev::qps(const Device& device, std::vector<QpInfo>& out) {
  return ask(RDMA_NLDEV_CMD_RES_QP_GET, true, about(device), [&](Bytes m) {
    for (QpInfo& qp : parse_qps(m)) out.push_back(std::move(qp));
  });
}

}  // namespace usiw::tools
