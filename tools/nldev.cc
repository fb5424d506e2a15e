// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/nldev.h"

#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "tools/gauge_words.h"
#include "uapi/usiw_abi.h"

namespace usiw::tools {
namespace {

using Bytes = std::span<const std::byte>;
/// The attributes of one level of a message, indexed by type. Null: the message does not have the attribute.
using Attributes = std::array<nlattr*, RDMA_NLDEV_ATTR_MAX>;

constexpr int kAnswerSeconds = 5;

Attributes parse(Bytes bytes) {
  Attributes out{};
  auto* first = reinterpret_cast<nlattr*>(const_cast<std::byte*>(bytes.data()));
  nla_parse(out.data(), RDMA_NLDEV_ATTR_MAX - 1, first, static_cast<int>(bytes.size()), nullptr);
  return out;
}

Bytes payload(const nlattr* attribute) {
  return {static_cast<const std::byte*>(nla_data(attribute)), static_cast<size_t>(nla_len(attribute))};
}

/// Calls @p take(attribute) for each attribute in @p table, which may be null.
template <typename Take>
void for_each_in(const nlattr* table, Take take) {
  if (table == nullptr) return;
  nlattr* entry;
  int rest;
  nla_for_each_nested(entry, table, rest) take(entry);
}

/// Returns the number in @p attribute, which has 8 to 64 bits. Returns 0 if @p attribute is null.
uint64_t number(const nlattr* attribute) {
  uint64_t value = 0;
  nla_memcpy(&value, attribute, sizeof value);
  return value;
}

/// Returns the string in @p attribute, whose NUL at the end may be missing. Returns an empty string if @p attribute is
/// null.
std::string text(const nlattr* attribute) {
  if (attribute == nullptr) return {};
  const auto* p = static_cast<const char*>(nla_data(attribute));
  return {p, strnlen(p, static_cast<size_t>(nla_len(attribute)))};
}

Values parse_driver_table(const nlattr* table) {
  Values out;
  std::string name;
  for_each_in(table, [&](const nlattr* entry) {
    const int type = nla_type(entry);
    const bool is_text = type == RDMA_NLDEV_ATTR_DRIVER_STRING;  // a name, or the value of the previous name
    if (!is_text && type != RDMA_NLDEV_ATTR_DRIVER_U32 && type != RDMA_NLDEV_ATTR_DRIVER_U64) return;
    if (is_text && name.empty()) {
      name = text(entry);
      return;
    }
    if (!name.empty()) out.emplace_back(name, is_text ? gauge_value(name, text(entry)) : number(entry));
    name.clear();
  });
  return out;
}

/// Returns the errno value of the system call that failed inside libnl, because libnl's own codes are coarser. Returns
/// @p other if no system call failed. The caller clears errno before it calls libnl.
int failure(int other) { return errno != 0 ? errno : other; }

using Request = std::unique_ptr<nl_msg, decltype(&nlmsg_free)>;

Request request(int command, int flags, const Device* device = nullptr) {
  Request out(nlmsg_alloc_simple(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), flags), nlmsg_free);
  if (out == nullptr) throw std::bad_alloc();
  if (device != nullptr) nla_put_u32(out.get(), RDMA_NLDEV_ATTR_DEV_INDEX, device->index);
  return out;
}

Request request_of_port(int command, const Device& device) {
  Request out = request(command, NLM_F_ACK, &device);
  nla_put_u32(out.get(), RDMA_NLDEV_ATTR_PORT_INDEX, 1);
  return out;
}

/// State that the callbacks of one request share.
struct Answer {
  const std::function<void(Bytes)>& take;
  uint32_t sequence;
  int error = 0;  ///< errno value from the kernel
  bool complete = false;
};

/// Skips messages that answer an earlier request, for which ask() no longer waits.
int check_sequence(nl_msg* message, void* answer) {
  return nlmsg_hdr(message)->nlmsg_seq == static_cast<Answer*>(answer)->sequence ? NL_OK : NL_SKIP;
}

int take_message(nl_msg* message, void* answer) {
  const nlmsghdr* head = nlmsg_hdr(message);
  static_cast<Answer*>(answer)->take(
      {static_cast<const std::byte*>(nlmsg_data(head)), static_cast<size_t>(nlmsg_datalen(head))});
  return NL_OK;
}

int take_end(nl_msg*, void* answer) {
  static_cast<Answer*>(answer)->complete = true;
  return NL_OK;
}

int take_error(sockaddr_nl*, nlmsgerr* e, void* answer) {
  static_cast<Answer*>(answer)->error = -e->error;
  return NL_STOP;
}

}  // namespace

Device parse_device(Bytes attributes) {
  const Attributes a = parse(attributes);
  return {static_cast<uint32_t>(number(a[RDMA_NLDEV_ATTR_DEV_INDEX])), text(a[RDMA_NLDEV_ATTR_DEV_NAME])};
}

PortInfo parse_port(Bytes attributes) {
  const Attributes a = parse(attributes);
  return {text(a[RDMA_NLDEV_ATTR_NDEV_NAME]), static_cast<uint8_t>(number(a[RDMA_NLDEV_ATTR_PORT_STATE]))};
}

bool parse_is_usiw(Bytes attributes) {
  return number(parse(attributes)[RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID]) == USIW_DRIVER_ID;
}

Values parse_statistics(Bytes attributes) {
  Values out;
  for_each_in(parse(attributes)[RDMA_NLDEV_ATTR_STAT_HWCOUNTERS], [&](const nlattr* entry) {
    const Attributes a = parse(payload(entry));
    std::string name = text(a[RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME]);
    if (!name.empty()) out.emplace_back(std::move(name), number(a[RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE]));
  });
  return out;
}

std::vector<QpInfo> parse_qps(Bytes attributes) {
  std::vector<QpInfo> out;
  for_each_in(parse(attributes)[RDMA_NLDEV_ATTR_RES_QP], [&](const nlattr* entry) {
    const Attributes a = parse(payload(entry));
    QpInfo qp{static_cast<uint32_t>(number(a[RDMA_NLDEV_ATTR_RES_LQPN])),
              static_cast<uint32_t>(number(a[RDMA_NLDEV_ATTR_RES_PID])),
              static_cast<uint8_t>(number(a[RDMA_NLDEV_ATTR_RES_STATE])),
              parse_driver_table(a[RDMA_NLDEV_ATTR_DRIVER])};
    if (!qp.values.empty()) out.push_back(std::move(qp));  // a QP without values is being destroyed
  });
  return out;
}

Nldev::Nldev() : socket_(nl_socket_alloc(), nl_socket_free) {
  if (socket_ == nullptr) throw std::bad_alloc();
  nl_socket_disable_auto_ack(socket_.get());
}

int Nldev::open() {
  errno = 0;
  if (nl_connect(socket_.get(), NETLINK_RDMA) != 0) return failure(EIO);
  const timeval limit{kAnswerSeconds, 0};
  const int fd = nl_socket_get_fd(socket_.get());
  return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 ? 0 : errno;
}

int Nldev::ask(nl_msg* message, const Take& take) {
  nl_sock* socket = socket_.get();
  errno = 0;
  if (nl_send_auto(socket, message) < 0) return failure(EIO);
  Answer answer{take, nlmsg_hdr(message)->nlmsg_seq};
  nl_socket_modify_cb(socket, NL_CB_SEQ_CHECK, NL_CB_CUSTOM, check_sequence, &answer);
  nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, take_message, &answer);
  nl_socket_modify_cb(socket, NL_CB_ACK, NL_CB_CUSTOM, take_end, &answer);
  nl_socket_modify_cb(socket, NL_CB_FINISH, NL_CB_CUSTOM, take_end, &answer);
  nl_socket_modify_err_cb(socket, NL_CB_CUSTOM, take_error, &answer);
  while (!answer.complete) {
    errno = 0;
    if (nl_recvmsgs_default(socket) < 0) return answer.error != 0 ? answer.error : failure(EBADMSG);
  }
  return 0;
}

int Nldev::devices(std::vector<Device>& out) {
  std::vector<Device> all;
  const Request every = request(RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
  if (int rc = ask(every.get(), [&](Bytes m) { all.push_back(parse_device(m)); }); rc != 0) return rc;
  for (const Device& device : all) {
    const Request chardev = request(RDMA_NLDEV_CMD_GET_CHARDEV, NLM_F_ACK, &device);
    nla_put_string(chardev.get(), RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs");
    bool is_usiw = false;
    // If this request fails, the device does not count as usiw's. It may have gone meanwhile, or have no uverbs.
    ask(chardev.get(), [&](Bytes m) { is_usiw |= parse_is_usiw(m); });
    if (is_usiw) out.push_back(device);
  }
  return 0;
}

int Nldev::port(const Device& device, PortInfo& out) {
  const Request about = request_of_port(RDMA_NLDEV_CMD_PORT_GET, device);
  return ask(about.get(), [&](Bytes m) { out = parse_port(m); });
}

int Nldev::statistics(const Device& device, Values& out) {
  const Request counters = request_of_port(RDMA_NLDEV_CMD_STAT_GET, device);
  return ask(counters.get(), [&](Bytes m) { out = parse_statistics(m); });
}

int Nldev::qps(const Device& device, std::vector<QpInfo>& out) {
  const Request qps = request(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP, &device);
  return ask(qps.get(), [&](Bytes m) {
    for (QpInfo& qp : parse_qps(m)) out.push_back(std::move(qp));
  });
}

}  // namespace usiw::tools
