// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// What each port could do at most, and kernel TCP beside it: a bare ping-pong, or as much as goes in a time.
//
//   bare KIND lat SIZE COUNT PORT server | client ADDRESS      prints "us=MEDIAN p99_us=... avg_us=..." of one way
//   bare KIND bw SIZE SECONDS PORT server [CLIENTS] | client ADDRESS    prints "mb_s=... bytes=..."
//   bare shm lat|bw SIZE COUNT|SECONDS                          two processes and a ring between them
//
// KIND: tcp (polled), tcp-blocking, udp, udp-gso, packet (AF_PACKET on the only device beside lo). The client of tcp
// sends, when all CLIENTS are there, and counts what has arrived for certain. That of the others counts what it gets.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kDatagram = 1472;           ///< payload of UDP in an Ethernet packet
constexpr size_t kMerged = 44 * kDatagram;   ///< the most that goes into one call with GSO
constexpr unsigned kBatch = 32;              ///< datagrams of one system call
constexpr unsigned kLimitSeconds = 60;
constexpr unsigned short kEtherType = 0x88b5;  // for local experiments

void check(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Wanted {
  std::string kind, mode;
  size_t size;
  double amount;  ///< a count or seconds
  uint16_t port;
  bool server;
  const char* address;
  int clients;
};

/// A socket that is connected, or for packets the address that everybody has.
struct Link {
  int fd = -1;
  sockaddr_ll everybody = {};
  bool packet = false, stream = false, blocking = false;

  bool send(const char* data, size_t size) const {
    while (size > 0) {
      const auto* to = packet ? reinterpret_cast<const sockaddr*>(&everybody) : nullptr;
      const ssize_t n = sendto(fd, data, size, MSG_NOSIGNAL, to, packet ? sizeof everybody : 0);
      if (n < 0) return errno == ENOBUFS || errno == ECONNREFUSED;  // a datagram may be lost
      data += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }
  /// A datagram, or so many bytes of a stream; 0 at its end.
  size_t receive(char* data, size_t size) const {
    size_t have = 0;
    do {
      const ssize_t n = recv(fd, data + have, size - have, blocking ? 0 : MSG_DONTWAIT);
      if (n == 0) return 0;
      if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED) return 0;
      if (n > 0) have += static_cast<size_t>(n);
    } while (have == 0 || (stream && have < size));
    return have;
  }
};

int bound(int type, uint16_t port) {
  const int fd = socket(AF_INET, type, 0), one = 1;
  sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {INADDR_ANY}, .sin_zero = {}};
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  check(bind(fd, reinterpret_cast<sockaddr*>(&here), sizeof here) == 0, "bind");
  return fd;
}

void connect_to(int fd, const Wanted& wanted) {
  sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(wanted.port), .sin_addr = {}, .sin_zero = {}};
  check(inet_pton(AF_INET, wanted.address, &to.sin_addr) == 1, wanted.address);
  check(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0, "connect");
}

/// The client's first datagram tells the server where it is.
Link open_datagrams(const Wanted& wanted) {
  Link link;
  const int room = 8 << 20, one = 1;
  if (wanted.kind == "packet") {
    link.packet = true;
    link.fd = socket(AF_PACKET, SOCK_DGRAM, 0);
    link.everybody = {.sll_family = AF_PACKET, .sll_protocol = htons(kEtherType), .sll_ifindex = 0, .sll_hatype = 0,
                      .sll_pkttype = 0, .sll_halen = 6, .sll_addr = {255, 255, 255, 255, 255, 255}};
    struct if_nameindex* all = if_nameindex();
    for (auto* i = all; i && i->if_index; ++i)
      if (std::strcmp(i->if_name, "lo")) link.everybody.sll_ifindex = static_cast<int>(i->if_index);
    check(bind(link.fd, reinterpret_cast<sockaddr*>(&link.everybody), sizeof link.everybody) == 0, "AF_PACKET");
    setsockopt(link.fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one);
    if (wanted.server) bound(SOCK_DGRAM, wanted.port);  // says that this listens
  } else {
    link.fd = wanted.server ? bound(SOCK_DGRAM, wanted.port) : socket(AF_INET, SOCK_DGRAM, 0);
    if (wanted.kind == "udp-gso") {
      const int segment = kDatagram;
      check(setsockopt(link.fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) == 0, "UDP_SEGMENT");
      setsockopt(link.fd, IPPROTO_UDP, UDP_GRO, &one, sizeof one);
    }
  }
  setsockopt(link.fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
  char hello[kMerged] = {};
  if (!wanted.server) {
    if (!link.packet) connect_to(link.fd, wanted);
    link.send(hello, 1);
    return link;
  }
  sockaddr_storage from;
  socklen_t size = sizeof from;
  check(recvfrom(link.fd, hello, sizeof hello, 0, reinterpret_cast<sockaddr*>(&from), &size) > 0, "hello");
  if (!link.packet) check(connect(link.fd, reinterpret_cast<sockaddr*>(&from), size) == 0, "connect");
  return link;
}

std::vector<Link> open_streams(const Wanted& wanted) {
  std::vector<Link> links(static_cast<size_t>(wanted.server ? wanted.clients : 1));
  const int listener = wanted.server ? bound(SOCK_STREAM, wanted.port) : -1;
  if (wanted.server) check(listen(listener, 64) == 0, "listen");
  for (Link& link : links) {
    link.stream = true;
    link.blocking = wanted.kind == "tcp-blocking" || wanted.mode == "bw";
    link.fd = wanted.server ? accept(listener, nullptr, nullptr) : socket(AF_INET, SOCK_STREAM, 0);
    check(link.fd >= 0, "accept");
    if (!wanted.server) connect_to(link.fd, wanted);
    const int one = 1;
    setsockopt(link.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  return links;
}

void tell_rate(double bytes, double seconds) {
  std::printf("mb_s=%.3f bytes=%.0f\n", bytes / seconds / 1e6, bytes);
}

void tell_latency(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  double sum = 0;
  for (const double value : us) sum += value;
  std::printf("us=%.3f p99_us=%.3f avg_us=%.3f\n", us[us.size() / 2], us[us.size() * 99 / 100],
              sum / static_cast<double>(us.size()));
}

/// Half the time of each round trip, by two functions that send and receive a message.
template <class Send, class Receive>
void ping_pong(bool server, size_t count, Send send, Receive receive) {
  std::vector<double> us(count);
  for (double& one : us) {
    const auto start = Clock::now();
    if (!server) check(send(), "send");
    check(receive(), "receive");
    if (server) check(send(), "send");
    one = since(start) * 1e6 / 2;
  }
  if (!server) tell_latency(std::move(us));
}

void latency(const Wanted& wanted) {
  const Link link = wanted.kind.starts_with("tcp") ? open_streams(wanted)[0] : open_datagrams(wanted);
  std::vector<char> out(wanted.size), in(std::max(wanted.size, kMerged));
  ping_pong(wanted.server, static_cast<size_t>(wanted.amount), [&] { return link.send(out.data(), out.size()); },
            [&] { return link.receive(in.data(), link.stream ? wanted.size : in.size()) > 0; });
}

void stream(const Wanted& wanted) {
  std::vector<Link> links = open_streams(wanted);
  std::vector<char> data(wanted.size);
  char byte = 0;
  if (wanted.server) {
    std::vector<std::thread> threads;
    for (const Link& link : links) check(link.send(&byte, 1), "start");
    for (const Link& link : links)
      threads.emplace_back([&link, size = wanted.size] {
        std::vector<char> room(std::max<size_t>(size, 1 << 16));
        while (recv(link.fd, room.data(), room.size(), 0) > 0) {
        }
        link.send(room.data(), 1);
      });
    for (std::thread& thread : threads) thread.join();
    return;
  }
  check(links[0].receive(&byte, 1) == 1, "start");
  const auto start = Clock::now();
  double bytes = 0;
  for (; since(start) < wanted.amount; bytes += static_cast<double>(data.size()))
    check(links[0].send(data.data(), data.size()), "send");
  shutdown(links[0].fd, SHUT_WR);
  check(links[0].receive(&byte, 1) == 1, "the other end has not got it all");
  tell_rate(bytes, since(start));
}

/// The server sends without regard to loss, the client counts.
void blast(const Wanted& wanted) {
  const Link link = open_datagrams(wanted);
  const size_t size = wanted.kind == "udp-gso" ? kMerged : kDatagram;
  std::vector<char> data(kBatch * kMerged);
  std::vector<iovec> pieces(kBatch);
  std::vector<mmsghdr> batch(kBatch);
  for (unsigned i = 0; i < kBatch; ++i) {
    pieces[i] = {&data[i * kMerged], wanted.server ? size : kMerged};
    batch[i].msg_hdr.msg_iov = &pieces[i];
    batch[i].msg_hdr.msg_iovlen = 1;
    if (!link.packet || !wanted.server) continue;
    batch[i].msg_hdr.msg_name = const_cast<sockaddr_ll*>(&link.everybody);
    batch[i].msg_hdr.msg_namelen = sizeof link.everybody;
  }
  const auto start = Clock::now();
  double bytes = 0;
  while (since(start) < wanted.amount) {
    if (wanted.server) {
      sendmmsg(link.fd, batch.data(), wanted.kind == "udp-gso" ? 1 : kBatch, 0);
      continue;
    }
    const int n = recvmmsg(link.fd, batch.data(), kBatch, MSG_DONTWAIT, nullptr);
    for (int i = 0; i < n; ++i) bytes += batch[static_cast<size_t>(i)].msg_len;
  }
  if (!wanted.server) tell_rate(bytes, since(start));
}

/// One direction of the ring: slots that the writer fills and the reader empties, both by copying.
struct Ring {
  static constexpr size_t kSlots = 16, kSlot = 1 << 16;
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) char slots[kSlots][kSlot];

  template <class Ready>
  static void until(Ready ready) {
    for (unsigned i = 1; !ready(); ++i)
      if (i % 1024 == 0) sched_yield();
  }
  bool put(const char* data, size_t size) {
    const uint64_t at = written.load(std::memory_order_relaxed);
    until([&] { return at - read.load(std::memory_order_acquire) < kSlots; });
    std::memcpy(slots[at % kSlots], data, size);
    written.store(at + 1, std::memory_order_release);
    return true;
  }
  bool take(char* data, size_t size) {
    const uint64_t at = read.load(std::memory_order_relaxed);
    until([&] { return written.load(std::memory_order_acquire) > at; });
    std::memcpy(data, slots[at % kSlots], size);
    read.store(at + 1, std::memory_order_release);
    return true;
  }
};

void shared_memory(const Wanted& wanted) {
  void* memory = mmap(nullptr, 2 * sizeof(Ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED && wanted.size <= Ring::kSlot, "a ring for messages of this size");
  Ring* rings = static_cast<Ring*>(memory);
  const pid_t child = fork();
  check(child >= 0, "fork");
  if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool server = child == 0;
  std::vector<char> data(wanted.size);
  Ring &out = rings[server], &in = rings[!server];
  if (wanted.mode == "lat") {
    ping_pong(server, static_cast<size_t>(wanted.amount), [&] { return out.put(data.data(), data.size()); },
              [&] { return in.take(data.data(), data.size()); });
  } else if (server) {
    while (out.put(data.data(), data.size())) {
    }
  } else {
    const auto start = Clock::now();
    double bytes = 0;
    for (; since(start) < wanted.amount; bytes += static_cast<double>(data.size())) in.take(data.data(), data.size());
    tell_rate(bytes, since(start));
    kill(child, SIGKILL);
  }
  if (server) _exit(0);
  waitpid(child, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "", role = argc > 6 ? argv[6] : "";
  if (argc < 5 || (kind != "shm" && role != "server" && (role != "client" || argc < 8))) {
    std::fprintf(stderr, "usage: bare KIND lat|bw SIZE AMOUNT [PORT server [CLIENTS] | PORT client ADDRESS]\n");
    return 2;
  }
  const Wanted wanted = {.kind = kind, .mode = argv[2], .size = std::strtoul(argv[3], nullptr, 10),
                         .amount = std::strtod(argv[4], nullptr),
                         .port = static_cast<uint16_t>(argc > 5 ? std::atoi(argv[5]) : 0), .server = role == "server",
                         .address = argc > 7 ? argv[7] : "", .clients = argc > 7 ? std::atoi(argv[7]) : 1};
  if (wanted.size == 0 || wanted.amount <= 0) return 2;
  alarm(kLimitSeconds);
  if (kind == "shm")
    shared_memory(wanted);
  else if (wanted.mode == "lat")
    latency(wanted);
  else if (kind.starts_with("tcp"))
    stream(wanted);
  else
    blast(wanted);
  return 0;
}
