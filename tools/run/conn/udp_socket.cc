// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/udp_socket.h"

#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/udp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "cm/usiw_cm_hint.h"
#include "cm/usiw_cm_input.h"
#include "tools/run/conn/cm_thread.h"
#include "tools/run/conn/conn.h"
#include "tools/run/conn/opcode_filter.h"
#include "tools/run/conn/packets.h"
#include "tools/run/conn/shared_port.h"
#include "tools/run/host/clock.h"
#include "tools/run/libc/descriptors.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/real.h"

namespace usiw::run {
namespace {

std::map<uint64_t, UdpSocket*>& all_sockets() {
  static auto& sockets = *new std::map<uint64_t, UdpSocket*>;
  return sockets;
}
uint64_t g_next_serial = 1;

/// Those that only lingering connections hold, the longest first.
std::map<uint64_t, UdpSocket*>& lingering_sockets() {
  static auto& sockets = *new std::map<uint64_t, UdpSocket*>;
  return sockets;
}
uint64_t g_next_lingering = 1;

/// How many of them there may be: a socket has two descriptors, so a quarter of what the process may have.
size_t max_lingering() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return std::max<size_t>(limit.rlim_cur / 8, 1);
}

int set_option(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }

int attach_opcode_filter(int fd, int option, uint32_t data, uint32_t handshake) {
  // A socket filter also sees the UDP header; one for a group of sockets does not.
  auto code = opcode_filter(option == SO_ATTACH_FILTER ? sizeof(udphdr) : 0, data, handshake);
  const sock_fprog program{code.size(), code.data()};
  return setsockopt(fd, SOL_SOCKET, option, &program, sizeof program) == 0 ? 0 : -errno;
}

/// Who may be bound to a port beside a new socket: nobody; sockets of this process, one of which is there (the new one
/// is for data); anybody's who shares it, too.
enum class Sharing { kNobody, kOwnData, kOthers };

/// A socket that is bound to @p local, or -errno. The handshake's gets ICMP's errors into its error queue, which
/// somebody has to empty (epoll reports it until then), and shares its port once it has it. One for @p data comes to a
/// shared port.
int open_socket(const Endpoint& local, Sharing sharing) {
  const bool data = sharing == Sharing::kOwnData;
  bool v4 = local.ipv4();
  const int kind = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  int fd = fd_out_of_the_way(with_descriptors([&] { return socket(v4 ? AF_INET : AF_INET6, kind, 0); }));
  if (fd < 0) return fd;
  if (v4) {
    set_option(fd, IPPROTO_IP, IP_PKTINFO, 1);
    set_option(fd, IPPROTO_IP, IP_RECVERR, !data);  // the engine finds out by itself who is gone
    set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, data ? IP_PMTUDISC_WANT : IP_PMTUDISC_DO);
  } else {
    set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    set_option(fd, IPPROTO_IPV6, IPV6_RECVERR, !data);
    set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, data ? IPV6_PMTUDISC_WANT : IPV6_PMTUDISC_DO);
  }
  const auto share = [&] { return set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1) == 0; };
  if (sharing == Sharing::kOthers) set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  const auto take_port = [&] {
    sockaddr_storage sa;
    socklen_t len = endpoint_to(local, sa);
    return bind(fd, reinterpret_cast<sockaddr*>(&sa), len) == 0;
  };
  if (data ? share() && take_port() : take_port() && share()) return fd;
  const int error = -errno;
  USIW_REAL(close)(fd);
  return error;
}

/// Ancillary data: the local address of a datagram, for both families, and its traffic class or an error.
union Control {
  cmsghdr align;
  char space[CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(sock_extended_err) + sizeof(sockaddr_in6))];

  /// One more item, for sending @p msg.
  template <typename Info>
  void add(msghdr& msg, int level, int type, const Info& info) {
    const cmsghdr item = {.cmsg_len = CMSG_LEN(sizeof info), .cmsg_level = level, .cmsg_type = type};
    std::memcpy(space + msg.msg_controllen, &item, sizeof item);
    std::memcpy(space + msg.msg_controllen + CMSG_LEN(0), &info, sizeof info);
    msg.msg_control = this;
    msg.msg_controllen += CMSG_SPACE(sizeof info);
  }
};

/// One datagram out of a socket, or out of its error queue.
struct Incoming {
  sockaddr_storage sender{};  ///< of the error queue: who the datagram was for
  msghdr msg{};
  Control control;

  /// recvmsg(2) without waiting.
  ssize_t receive(int fd, char* data, size_t size, int flags) {
    iovec vec{data, size};
    msg.msg_name = &sender;
    msg.msg_namelen = sizeof sender;
    msg.msg_iov = &vec;
    msg.msg_iovlen = 1;
    msg.msg_control = &control;
    msg.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(fd, &msg, flags | MSG_DONTWAIT);
    msg.msg_iov = nullptr;
    return n;
  }
};

/// The address that a datagram was sent to; @p local as bound if the kernel does not say.
Endpoint destination(msghdr& msg, const Endpoint& local) {
  Endpoint to = local;
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(c), sizeof info);
      to.addr.s6_addr32[3] = info.ipi_addr.s_addr;
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(c), sizeof info);
      to.addr = info.ipi6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&to.addr)) to.scope = info.ipi6_ifindex;
    }
  }
  return to;
}

/// What ICMP in the error queue means as an answer to a REQ.
usiw_cm_heard heard_by_icmp(msghdr& msg) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
    if ((c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_RECVERR) &&
        (c->cmsg_level != IPPROTO_IPV6 || c->cmsg_type != IPV6_RECVERR))
      continue;
    sock_extended_err e;
    std::memcpy(&e, CMSG_DATA(c), sizeof e);
    if (e.ee_origin == SO_EE_ORIGIN_ICMP) return usiw_cm_icmp4_heard(e.ee_type, e.ee_code);
    if (e.ee_origin == SO_EE_ORIGIN_ICMP6) return usiw_cm_icmp6_heard(e.ee_type, e.ee_code);
  }
  return USIW_CM_HEARD_NOTHING;
}

}  // namespace

std::shared_ptr<UdpSocket> UdpSocket::open(const Endpoint& local, bool shared, int& error) {
  error = cm_thread_start();
  if (error != 0) return nullptr;
  close_spare_descriptors = close_lingering;
  int fd = open_socket(local, shared && local.port != 0 ? Sharing::kOthers : Sharing::kNobody);
  if (fd < 0) {
    error = fd;
    return nullptr;
  }
  Endpoint bound = local, named;
  sockaddr_storage sa;
  socklen_t len = sizeof sa;
  if (local.port == 0 && getsockname(fd, reinterpret_cast<sockaddr*>(&sa), &len) == 0) {
    endpoint_from(sa, named);
    bound.port = named.port;
  }
  // Not before: the kernel would choose a port that is shared already.
  if (shared && local.port == 0) set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  std::shared_ptr<UdpSocket> s(new UdpSocket(bound, fd));
  s->shared_ = shared;
  s->serial_ = g_next_serial++;
  error = cm_thread_watch(fd, s->serial_);
  if (error != 0) return nullptr;
  all_sockets()[s->serial_] = s.get();
  return s;
}

int UdpSocket::claim() {
  if (!shared_) return 0;
  std::vector<ino_t> own;
  for (auto& [serial, s] : all_sockets())
    for (int fd : {s->fd_, s->data_fd_})
      if (struct stat about; fd >= 0 && USIW_REAL(fstat)(fd, &about) == 0) own.push_back(about.st_ino);
  const int error = claim_port(fd_, local_, own);
  if (error == 0) shared_ = false;
  return error;
}

std::shared_ptr<UdpSocket> UdpSocket::find(const Endpoint& local) {
  for (auto& [serial, s] : all_sockets())
    if (s->local_ == local && s->local_.ipv4() == local.ipv4()) return s->weak_from_this().lock();
  return nullptr;
}

void UdpSocket::keep(int& users, int change) {
  users += change;
  const bool lingers = ids_ == 0 && conns_ == 0;
  if (lingers == (lingers_since_ != 0)) return;
  if (!lingers) {
    lingering_sockets().erase(lingers_since_);
    lingers_since_ = 0;
    return;
  }
  lingers_since_ = g_next_lingering++;
  lingering_sockets()[lingers_since_] = this;
  while (lingering_sockets().size() > max_lingering()) close_longest_lingering();
}

void UdpSocket::close_longest_lingering() {
  auto it = lingering_sockets().begin();
  std::shared_ptr<UdpSocket> s = it->second->weak_from_this().lock();
  it->second->lingers_since_ = 0;
  lingering_sockets().erase(it);
  if (s) conns_end_lingering(*s);
}

/// Closes all sockets that only lingering connections hold. Returns false if there was none.
bool UdpSocket::close_lingering() {
  if (lingering_sockets().empty()) return false;
  while (!lingering_sockets().empty()) close_longest_lingering();
  return true;
}

UdpSocket::~UdpSocket() {
  if (lingers_since_ != 0) lingering_sockets().erase(lingers_since_);
  all_sockets().erase(serial_);
  USIW_REAL(close)(fd_);
  if (data_fd_ >= 0) USIW_REAL(close)(data_fd_);
  if (!sockets_open()) cm_thread_kick();
}

bool sockets_open() { return !all_sockets().empty(); }

void sockets_abandon() {
  for (auto& [serial, s] : all_sockets()) {
    USIW_REAL(close)(s->fd_);
    if (s->data_fd_ >= 0) USIW_REAL(close)(s->data_fd_);
    s->fd_ = s->data_fd_ = -1;
  }
  all_sockets().clear();
  lingering_sockets().clear();
  admissions_abandon();
}

int UdpSocket::dup_data_fd() {
  if (data_fd_ < 0) {
    int fd = open_socket(local_, Sharing::kOwnData);
    if (fd < 0) return fd;
    // Of the two sockets on the port, which one gets it.
    if (int error = attach_opcode_filter(fd_, SO_ATTACH_REUSEPORT_CBPF, 1, 0); error != 0) {
      USIW_REAL(close)(fd);
      return error;
    }
    data_fd_ = fd;
  }
  return fd_out_of_the_way(with_descriptors([&] { return USIW_REAL(fcntl)(data_fd_, F_DUPFD_CLOEXEC, 0); }));
}

int UdpSocket::ignore_data() { return attach_opcode_filter(fd_, SO_ATTACH_FILTER, 0, UINT32_MAX); }

int UdpSocket::send(const Endpoint& from, const Endpoint& to, uint8_t tos, const void* data, size_t len) {
  sockaddr_storage sa;
  Control control{};
  iovec vec{const_cast<void*>(data), len};
  msghdr msg{};
  msg.msg_namelen = endpoint_to(to, sa);
  msg.msg_name = &sa;
  msg.msg_iov = &vec;
  msg.msg_iovlen = 1;
  if (from.ipv4()) {
    in_pktinfo info{};
    info.ipi_spec_dst.s_addr = from.addr.s6_addr32[3];
    control.add(msg, IPPROTO_IP, IP_PKTINFO, info);
    if (tos != 0) control.add(msg, IPPROTO_IP, IP_TOS, int{tos});
  } else {
    in6_pktinfo info{};
    info.ipi6_addr = from.addr;
    info.ipi6_ifindex = from.scope;
    control.add(msg, IPPROTO_IPV6, IPV6_PKTINFO, info);
    if (tos != 0) control.add(msg, IPPROTO_IPV6, IPV6_TCLASS, int{tos});
  }
  // A pending error of the socket is reported in place of sending: once more.
  for (int tries = 0; tries < 3; tries++)
    if (sendmsg(fd_, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN) return 0;
  return -errno;
}

// ---- The thread's side ------------------------------------------------------------------

void UdpSocket::receive() {
  constexpr int kBurst = 64;
  for (int i = 0; i < kBurst; i++) {
    alignas(8) char data[USIW_CM_MAX_DATAGRAM + 1];
    Incoming in;
    ssize_t n = in.receive(fd_, data, sizeof data, 0);
    if (n < 0 && errno == EAGAIN) return;
    Endpoint from;
    if (n < 0 || endpoint_from(in.sender, from) != 0) continue;
    switch (usiw_cm_look(data, static_cast<uint32_t>(n))) {  // one byte longer than any of the handshake: cut off
      case USIW_CM_LOOK_HANDSHAKE:
        break;
      case USIW_CM_LOOK_DATA:  // no connection has ever been installed at this port
        if (!usiw_cm_stray_due(&stray_next_us_, now_us())) continue;
        n = sizeof(usiw_trp_hdr);
        break;
      default:  // it may show that the server of a waiting connection is no usiw
        if (!usiw_cm_stray_due(&stray_next_us_, now_us())) continue;
        break;
    }
    conn_receive(shared_from_this(), {destination(in.msg, local_), from}, data, static_cast<uint32_t>(n));
  }
}

void UdpSocket::receive_errors() {
  for (int i = 0; i < 16; i++) {
    alignas(8) char data[USIW_CM_MAX_DATAGRAM];
    Incoming in;
    ssize_t n = in.receive(fd_, data, sizeof data, MSG_ERRQUEUE);
    if (n < 0) return;
    Endpoint to;
    const usiw_cm_heard heard = heard_by_icmp(in.msg);
    if (heard == USIW_CM_HEARD_NOTHING || endpoint_from(in.sender, to) != 0) continue;
    conn_icmp(*this, to, heard, data, static_cast<uint32_t>(n));
  }
}

void UdpSocket::ready(uint64_t serial, uint32_t events) {
  auto it = all_sockets().find(serial);
  if (it == all_sockets().end()) return;
  std::shared_ptr<UdpSocket> s = it->second->weak_from_this().lock();
  if (s == nullptr) return;
  if ((events & EPOLLERR) != 0) s->receive_errors();
  if ((events & EPOLLIN) != 0) s->receive();
}

}  // namespace usiw::run
