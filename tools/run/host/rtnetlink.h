// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file rtnetlink.h
/// Messages of rtnetlink(7): requests about routes, neighbours and interfaces, and reports that these have changed.
#ifndef USIW_RUN_RTNETLINK_H
#define USIW_RUN_RTNETLINK_H

#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "tools/run/host/fd.h"

namespace usiw::run {

/// Opens a socket that receives the reports of the groups RTMGRP_* in @p groups, and the answers to requests. Returns
/// no descriptor, with errno, if that fails.
inline Fd rtnetlink_socket(uint32_t groups) {
  Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = groups;
  if (fd >= 0 && groups != 0 && bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) return {};
  return fd;
}

/// Copies the attribute @p type to @p out if it has exactly @p len bytes. The attributes of @p message follow a header
/// of @p header_len bytes. Returns false if there is no such attribute.
inline bool get_attribute(const nlmsghdr& message, size_t header_len, uint16_t type, void* out, size_t len) {
  auto* a = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(&message) + NLMSG_SPACE(header_len));
  int left = static_cast<int>(message.nlmsg_len) - static_cast<int>(NLMSG_SPACE(header_len));
  for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
    if (a->rta_type == type && RTA_PAYLOAD(a) == len) {
      std::memcpy(out, RTA_DATA(a), len);
      return true;
    }
  return false;
}

/// A request to rtnetlink: a header of type Header, and attributes, which may be nested. The answer replaces the
/// request in the buffer.
template <typename Header>
class RtnetlinkRequest {
 public:
  RtnetlinkRequest(uint16_t type, uint16_t flags, const Header& header) {
    message().nlmsg_len = NLMSG_HDRLEN;
    message().nlmsg_type = type;
    message().nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    append(&header, sizeof header);
  }
  void append(const void* data, size_t len) {
    const size_t at = NLMSG_ALIGN(message().nlmsg_len);
    std::memcpy(bytes_ + at, data, len);
    message().nlmsg_len = static_cast<uint32_t>(at + len);
  }
  /// Begins an attribute, which contains everything that is added until end(). Returns the argument of end().
  size_t begin(uint16_t type) {
    const rtattr attribute{0, type};
    append(&attribute, sizeof attribute);
    return message().nlmsg_len - sizeof attribute;
  }
  void end(size_t at) {
    reinterpret_cast<rtattr*>(bytes_ + at)->rta_len = static_cast<uint16_t>(message().nlmsg_len - at);
  }
  void add(uint16_t type, const void* data, size_t len) {
    const size_t at = begin(type);
    append(data, len);
    end(at);
  }
  /// Sends the request and receives the answer. Returns 0 or -errno.
  int ask() {
    const Fd fd = rtnetlink_socket(0);
    if (fd < 0 || send(fd, bytes_, message().nlmsg_len, 0) < 0) return -errno;
    const ssize_t n = recv(fd, bytes_, sizeof bytes_, 0);
    if (n < 0) return -errno;
    if (!NLMSG_OK(&message(), static_cast<uint32_t>(n))) return -EIO;
    if (message().nlmsg_type == NLMSG_ERROR) return static_cast<const nlmsgerr*>(NLMSG_DATA(&message()))->error;
    return message().nlmsg_len < NLMSG_LENGTH(sizeof(Header)) ? -EIO : 0;
  }
  const Header& header() { return *static_cast<const Header*>(NLMSG_DATA(&message())); }
  bool get(uint16_t type, void* out, size_t len) { return get_attribute(message(), sizeof(Header), type, out, len); }

 private:
  nlmsghdr& message() { return *reinterpret_cast<nlmsghdr*>(bytes_); }
  alignas(nlmsghdr) char bytes_[8192] = {};
};

}  // namespace usiw::run

#endif  // USIW_RUN_RTNETLINK_H
