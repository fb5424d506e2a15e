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
#include <set>
#include <vector>

#include "cm/usiw_cm_hint.h"
#include "cm/usiw_cm_input.h"
#include "tools/run/conn/opcode_filter.h"
#include "tools/run/conn/shared_port.h"
#include "tools/run/host/clock.h"
#include "tools/run/host/never_destroyed.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/raised_file_limit.h"
#include "tools/run/libc/real.h"

namespace usiw::run {
namespace {

struct Sockets {
  std::set<UdpSocket*> all;
  std::map<uint64_t, UdpSocket*> lingering;  ///< sockets without users, in the order in which they lost their last user
  uint64_t last_lingering = 0;
};

Sockets& sockets() { return never_destroyed<Sockets>(); }

/// Returns the largest permitted number of sockets whose connections all linger. Each such socket has up to two
/// descriptors, so together they have at most a quarter of the descriptors that the process may have.
size_t max_lingering() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return std::max<size_t>(limit.rlim_cur / 8, 1);
}

int set_option(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }

int attach_opcode_filter(int fd, int option, uint32_t data, uint32_t handshake) {
  // With SO_ATTACH_FILTER the BPF program sees the datagram from the UDP header on, with SO_ATTACH_REUSEPORT_CBPF only
  // from the payload on.
  auto code = opcode_filter(option == SO_ATTACH_FILTER ? sizeof(udphdr) : 0, data, handshake);
  const sock_fprog program{code.size(), code.data()};
  return setsockopt(fd, SOL_SOCKET, option, &program, sizeof program) == 0 ? 0 : -errno;
}

/// The set of other sockets that may be bound to the port of a new socket.
enum class Sharing {
  kNobody,
  kOwnData,  ///< only the handshake socket of this process, which the new data socket joins
  kOthers,   ///< the sockets of all processes that request sharing
};

/// Opens a socket and binds it to @p local: the data socket if @p sharing is kOwnData, else the handshake socket. If
/// that fails, returns an empty Fd and sets errno. The handshake socket gets ICMP errors in its error queue, and epoll
/// reports EPOLLERR until the queue is empty. The handshake socket sets SO_REUSEPORT only after bind(2), so that
/// it does not join the SO_REUSEPORT group of another socket. The data socket sets SO_REUSEPORT before bind(2), to join
/// the group of the handshake socket. An IPv6 socket of @p both families also has the port of IPv4.
Fd open_socket(const Endpoint& local, Sharing sharing, bool both = false) {
  const bool data = sharing == Sharing::kOwnData;
  const bool v4 = local.ipv4();
  const int kind = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  Fd fd = out_of_the_way(Fd(with_descriptors([&] { return socket(local.family(), kind, 0); })));
  if (fd < 0) return fd;
  if (v4) set_option(fd, IPPROTO_IP, IP_PKTINFO, 1);
  if (v4 || both) {
    set_option(fd, IPPROTO_IP, IP_RECVERR, !data);  // not for data: the engine itself detects that a peer is gone
    set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, data ? IP_PMTUDISC_WANT : IP_PMTUDISC_DO);
  }
  if (!v4) {
    set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, !both);
    set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);  // also for IPv4 if the socket has both families
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
  const bool done = data ? share() && take_port() : take_port() && share();
  return done ? std::move(fd) : Fd();
}

/// Returns the address to which the socket is bound if @p local has port 0, else @p local.
Endpoint bound_to(int fd, const Endpoint& local) {
  Endpoint bound = local, named;
  sockaddr_storage sa;
  socklen_t len = sizeof sa;
  if (local.port == 0 && getsockname(fd, reinterpret_cast<sockaddr*>(&sa), &len) == 0) {
    endpoint_from(sa, named);
    bound.port = named.port;
  }
  return bound;
}

/// A buffer for the ancillary data of one datagram: its local address, IPv4 or IPv6, and its traffic class or an ICMP
/// error.
union Control {
  cmsghdr align;
  char space[CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(sock_extended_err) + sizeof(sockaddr_in6))];

  /// Adds the item @p info to the ancillary data of @p msg, which is to be sent.
  template <typename Info>
  void add(msghdr& msg, int level, int type, const Info& info) {
    const cmsghdr item = {.cmsg_len = CMSG_LEN(sizeof info), .cmsg_level = level, .cmsg_type = type};
    std::memcpy(space + msg.msg_controllen, &item, sizeof item);
    std::memcpy(space + msg.msg_controllen + CMSG_LEN(0), &info, sizeof info);
    msg.msg_control = this;
    msg.msg_controllen += CMSG_SPACE(sizeof info);
  }
};

/// A datagram from a socket or from its error queue.
struct Incoming {
  sockaddr_storage sender{};  ///< from the error queue: the destination of the datagram
  msghdr msg{};
  Control control;

  /// Receives a datagram by recvmsg(2), without waiting.
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

/// Copies the item of @p level and @p type from the ancillary data of @p msg to @p out. Returns false if there is no
/// such item.
template <typename Info>
bool get_control(msghdr& msg, int level, int type, Info& out) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
    if (c->cmsg_level != level || c->cmsg_type != type) continue;
    std::memcpy(&out, CMSG_DATA(c), sizeof out);
    return true;
  }
  return false;
}

/// Returns the address to which the datagram in @p msg was sent. If the kernel does not report that address, returns
/// @p local, the address of the socket.
Endpoint destination(msghdr& msg, const Endpoint& local) {
  Endpoint to = local;
  in_pktinfo v4;
  in6_pktinfo v6;
  if (get_control(msg, IPPROTO_IP, IP_PKTINFO, v4)) {
    to.addr.s6_addr32[3] = v4.ipi_addr.s_addr;
  } else if (get_control(msg, IPPROTO_IPV6, IPV6_PKTINFO, v6)) {
    to.addr = v6.ipi6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&to.addr)) to.scope = v6.ipi6_ifindex;
  }
  return to;
}

/// Returns what the ICMP message in @p msg, from the error queue, means as an answer to a REQ.
usiw_cm_answer answer_by_icmp(msghdr& msg) {
  sock_extended_err e{};
  if (!get_control(msg, IPPROTO_IP, IP_RECVERR, e)) get_control(msg, IPPROTO_IPV6, IPV6_RECVERR, e);
  if (e.ee_origin == SO_EE_ORIGIN_ICMP) return usiw_cm_icmp4_answer(e.ee_type, e.ee_code);
  if (e.ee_origin == SO_EE_ORIGIN_ICMP6) return usiw_cm_icmp6_answer(e.ee_type, e.ee_code);
  return USIW_CM_ANSWER_NOTHING;
}

}  // namespace

std::shared_ptr<UdpSocket> UdpSocket::open(const Endpoint& local, bool shared, const SocketCalls& calls, int& error) {
  error = cm_thread_start();
  if (error != 0) return nullptr;
  close_spare_descriptors = close_lingering;
  Fd fd = open_socket(local, shared && local.port != 0 ? Sharing::kOthers : Sharing::kNobody);
  if (fd < 0) {
    error = -errno;
    return nullptr;
  }
  const Endpoint bound = bound_to(fd, local);
  // Set SO_REUSEADDR only after bind(2). If it were set before, the kernel could choose a port that other processes
  // already share.
  if (shared && local.port == 0) set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  std::shared_ptr<UdpSocket> s(new UdpSocket(bound, std::move(fd), calls));
  s->shared_ = shared;
  error = s->begin();
  return error == 0 ? s : nullptr;
}

std::shared_ptr<UdpSocket> UdpSocket::open_for_qp(const SocketCalls& calls, int& error) {
  error = cm_thread_start();
  if (error != 0) return nullptr;
  close_spare_descriptors = close_lingering;
  const RaisedFileLimit raised;
  Endpoint local = endpoint_any(false);
  Fd fd = open_socket(local, Sharing::kNobody, true);
  if (fd < 0 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) {
    local = endpoint_any(true);
    fd = open_socket(local, Sharing::kNobody);
  }
  if (fd < 0) {
    error = -errno;
    return nullptr;
  }
  const Endpoint bound = bound_to(fd, local);
  std::shared_ptr<UdpSocket> s(new UdpSocket(bound, std::move(fd), calls));
  s->of_qp_ = true;
  error = s->begin();
  return error == 0 ? s : nullptr;
}

/// Adds the new socket to the list of all, and begins to watch its descriptor. Returns 0 or -errno.
int UdpSocket::begin() {
  sockets().all.insert(this);
  return watch_.start(fd_, CmWatch::kKeepsThread, [this](uint32_t events) {
    const std::shared_ptr<UdpSocket> alive = weak_from_this().lock();
    if (alive && (events & EPOLLERR) != 0) alive->receive_errors();
    if (alive && (events & EPOLLIN) != 0) alive->receive();
  });
}

int UdpSocket::claim() {
  if (!shared_) return 0;
  std::vector<ino_t> own;
  for (const UdpSocket* s : sockets().all)
    for (const int fd : {int{s->fd_}, int{s->data_fd_}})
      if (struct stat about; fd >= 0 && USIW_REAL(fstat)(fd, &about) == 0) own.push_back(about.st_ino);
  const int error = claim_port(fd_, local_, own);
  if (error == 0) shared_ = false;
  return error;
}

std::shared_ptr<UdpSocket> UdpSocket::find(const Endpoint& local) {
  for (UdpSocket* s : sockets().all)
    if (!s->of_qp_ && s->local_ == local && s->local_.ipv4() == local.ipv4()) return s->weak_from_this().lock();
  return nullptr;
}

void UdpSocket::keep(int& users, int change) {
  users += change;
  const bool lingers = ids_ == 0 && conns_ == 0;
  if (lingers == (lingers_since_ != 0)) return;
  if (!lingers) {
    sockets().lingering.erase(lingers_since_);
    lingers_since_ = 0;
    return;
  }
  lingers_since_ = ++sockets().last_lingering;
  sockets().lingering[lingers_since_] = this;
  while (sockets().lingering.size() > max_lingering()) close_longest_lingering();
}

void UdpSocket::close_longest_lingering() {
  const auto it = sockets().lingering.begin();
  const std::shared_ptr<UdpSocket> s = it->second->weak_from_this().lock();
  it->second->lingers_since_ = 0;
  sockets().lingering.erase(it);
  if (s) s->calls_.end_lingering(*s);
}

/// Closes all sockets without users, to free descriptors. Returns false if there was no such socket.
bool UdpSocket::close_lingering() {
  if (sockets().lingering.empty()) return false;
  while (!sockets().lingering.empty()) close_longest_lingering();
  return true;
}

void UdpSocket::close_descriptors() {
  watch_.stop();
  fd_ = {};
  data_fd_ = {};
}

UdpSocket::~UdpSocket() {
  if (lingers_since_ != 0) sockets().lingering.erase(lingers_since_);
  sockets().all.erase(this);
  close_descriptors();
}

/// In a child of fork(): closes the descriptor that the parent's provider has of the data socket of a QP. If the child
/// kept the socket, the port would stay in use when the parent has closed it. The socket would also stay in the
/// SO_REUSEPORT group, where it would get the data of the next connection of the QP. The inode number shows whether the
/// descriptor is still that of the socket.
void UdpSocket::close_lent() {
  struct stat about;
  if (lent_fd_ >= 0 && USIW_REAL(fstat)(lent_fd_, &about) == 0 && S_ISSOCK(about.st_mode) && about.st_ino == lent_ino_)
    close(lent_fd_);
  lent_fd_ = -1;
}

void UdpSocket::abandon_all() {
  for (UdpSocket* s : sockets().all) {
    s->close_descriptors();
    s->close_lent();
  }
  sockets().all.clear();
  sockets().lingering.clear();
}

/// Opens the data socket. Returns 0 or -errno.
int UdpSocket::open_data_socket(Fd& fd) {
  fd = open_socket(local_, Sharing::kOwnData, of_qp_ && !local_.ipv4());
  if (fd < 0) return -errno;
  // The filter returns the index of the socket that gets the datagram: 0 for the handshake socket, 1 for the data
  // socket.
  return attach_opcode_filter(fd_, SO_ATTACH_REUSEPORT_CBPF, 1, 0);
}

int UdpSocket::dup_data_fd() {
  const RaisedFileLimit raised(of_qp_);
  if (of_qp_) {
    // A QP has one connection at a time, so its provider gets the only descriptor.
    Fd fd;
    if (const int error = open_data_socket(fd); error != 0) return error;
    struct stat about;
    lent_fd_ = USIW_REAL(fstat)(fd, &about) == 0 ? int{fd} : -1;
    lent_ino_ = about.st_ino;
    return fd.release();
  }
  if (data_fd_ < 0) {
    Fd fd;
    if (const int error = open_data_socket(fd); error != 0) return error;
    data_fd_ = std::move(fd);
  }
  Fd copy = out_of_the_way(Fd(with_descriptors([&] { return USIW_REAL(fcntl)(data_fd_, F_DUPFD_CLOEXEC, 0); })));
  return copy >= 0 ? copy.release() : -errno;
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
  // sendmsg(2) may return an earlier, pending error of the socket and send nothing. So try again.
  for (int tries = 0; tries < 3; tries++)
    if (sendmsg(fd_, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN) return 0;
  return -errno;
}

// ---- Input, in the thread ---------------------------------------------------------------

void UdpSocket::receive() {
  constexpr int kBurst = 64;
  for (int i = 0; i < kBurst; i++) {
    alignas(8) char data[USIW_CM_MAX_DATAGRAM + 1];
    Incoming in;
    ssize_t n = in.receive(fd_, data, sizeof data, 0);
    if (n < 0 && errno == EAGAIN) return;
    Endpoint from;
    if (n < 0 || endpoint_from(in.sender, from) != 0) continue;
    // The buffer is one byte longer than the longest handshake datagram. So a longer datagram, which recvmsg(2)
    // truncates, is not mistaken for a handshake.
    const auto look = usiw_cm_look(data, static_cast<uint32_t>(n));
    // Limit the rate at which datagrams other than handshakes are handled. Such a datagram may be data of a connection
    // that this port does not have. Or it may show that the server to which a connection has sent its REQ uses another
    // protocol.
    if (look != USIW_CM_LOOK_HANDSHAKE && !usiw_cm_stray_due(&stray_next_us_, now_us())) {
      if (calls_.ignored != nullptr) calls_.ignored(*this);
      continue;
    }
    if (look == USIW_CM_LOOK_DATA) n = sizeof(usiw_trp_hdr);
    calls_.receive(shared_from_this(), {destination(in.msg, local_), from}, data, static_cast<uint32_t>(n));
  }
}

void UdpSocket::receive_errors() {
  for (int i = 0; i < 16; i++) {
    alignas(8) char data[USIW_CM_MAX_DATAGRAM];
    Incoming in;
    ssize_t n = in.receive(fd_, data, sizeof data, MSG_ERRQUEUE);
    if (n < 0) return;
    Endpoint to;
    const usiw_cm_answer answer = answer_by_icmp(in.msg);
    if (answer == USIW_CM_ANSWER_NOTHING || endpoint_from(in.sender, to) != 0) continue;
    calls_.icmp(*this, to, answer, data, static_cast<uint32_t>(n));
  }
}

}  // namespace usiw::run
