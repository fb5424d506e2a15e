// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/shm_port.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/machine.h"
#include "loopback.h"

namespace usiw {
namespace {

/// One process of a connection: a port and its socket.
struct End {
  End() {
    int error = 0;
    port = ShmPort::create(kMtu, error);
    fd = data_socket(true, number);
  }
  std::unique_ptr<ShmPort> port;
  int fd;
  uint16_t number;
  Path path{};
};

/// Two ends, installed as a connection is: b, which was asked, first.
class ShmPorts : public ::testing::Test {
 protected:
  void install() {
    a.path = path_between(true, a.number, b.number);
    b.path = path_between(true, b.number, a.number);
    ASSERT_EQ(0, b.port->add_flow(b.path, b.fd));
    ASSERT_EQ(0, a.port->add_flow(a.path, a.fd));
  }
  /// What the progress threads do when their descriptors say so.
  void settle() {
    for (int i = 0; i < 4; i++) {
      b.port->control();
      a.port->control();
    }
  }
  void connect() {
    install();
    settle();
    ASSERT_EQ(1u, a.port->flows_in_memory());
    ASSERT_EQ(1u, b.port->flows_in_memory());
  }
  static bool readable(int fd, int ms = 0) {
    pollfd p{fd, POLLIN, 0};
    return poll(&p, 1, ms) == 1;
  }
  End a, b;
};

TEST_F(ShmPorts, datagrams_go_through_memory_both_ways) {
  connect();
  ASSERT_EQ(3u, send(*a.port, a.path, {14, 1000, kMtu - 28}));
  EXPECT_FALSE(readable(b.port->wait_fd())) << "nothing came by the socket";
  std::vector<Got> got = receive(*b.port, 3);
  ASSERT_EQ(3u, got.size());
  for (size_t i = 0; i < 3; i++) {
    EXPECT_TRUE(got[i].flow == b.path.flow);
    for (std::byte x : got[i].bytes) ASSERT_EQ(static_cast<std::byte>(i), x);
  }
  EXPECT_EQ(kMtu - 28, got[2].bytes.size());
  ASSERT_EQ(1u, send(*b.port, b.path, {50}));
  got = receive(*a.port, 1);
  ASSERT_EQ(1u, got.size());
  EXPECT_TRUE(got[0].flow == a.path.flow);
}

TEST_F(ShmPorts, the_memory_is_there_before_the_first_message) {
  connect();
  // Each mapping of a channel as smaps has it: a line with its name, its Size and then its Rss in KiB.
  std::ifstream maps("/proc/self/smaps");
  std::string line, key;
  size_t size = 0, here = 0;
  while (std::getline(maps, line)) {
    if (line.find("memfd:usiw") == std::string::npos) continue;
    size_t its_size = 0, its_rss = 0;
    while (its_rss == 0 && std::getline(maps, line)) {
      std::istringstream words(line);
      words >> key;
      if (key == "Size:") words >> its_size;
      if (key == "Rss:" && !(words >> its_rss && its_rss != 0)) break;
    }
    size += its_size;
    here += its_rss;
  }
  EXPECT_EQ(2 * (page_size() + 2 * 2 * kShmRingBytes) / 1024, size) << "at each end a page and two rings, each twice";
  EXPECT_EQ(size, here) << "no message is the first one on its page";
}

TEST_F(ShmPorts, until_both_have_agreed_the_sockets_carry_it) {
  install();
  EXPECT_EQ(0u, a.port->flows_in_memory());
  ASSERT_EQ(1u, send(*a.port, a.path, {20}));
  EXPECT_EQ(1u, receive(*b.port, 1).size());
  settle();
  EXPECT_EQ(1u, a.port->flows_in_memory());
  ASSERT_EQ(1u, send(*a.port, a.path, {20}));
  EXPECT_EQ(1u, receive(*b.port, 1).size());
}

TEST_F(ShmPorts, a_peer_without_memory_is_reached_by_its_socket) {
  int error = 0;
  std::unique_ptr<SocketPort> plain = SocketPort::create(kMtu, error);
  a.path = path_between(true, a.number, b.number);
  b.path = path_between(true, b.number, a.number);
  ASSERT_EQ(0, plain->add_flow(b.path, b.fd));
  ASSERT_EQ(0, a.port->add_flow(a.path, a.fd));
  settle();
  EXPECT_EQ(0u, a.port->flows_in_memory());
  ASSERT_EQ(1u, send(*a.port, a.path, {20}));
  EXPECT_EQ(1u, receive(*plain, 1).size());
  ASSERT_EQ(1u, send(*plain, b.path, {20}));
  EXPECT_EQ(1u, receive(*a.port, 1).size());
}

TEST_F(ShmPorts, flows_of_two_processes_share_a_channel) {
  connect();
  uint16_t other = 0;
  int fd = data_socket(true, other);
  Path second = path_between(true, other, b.number), second_back = path_between(true, b.number, other);
  ASSERT_EQ(0, b.port->add_flow(second_back, -1));
  ASSERT_EQ(0, a.port->add_flow(second, fd));
  settle();
  EXPECT_EQ(1u, a.port->channels());
  EXPECT_EQ(1u, b.port->channels());
  EXPECT_EQ(2u, b.port->flows_in_memory());
  ASSERT_EQ(1u, send(*a.port, second, {20}));
  std::vector<Got> got = receive(*b.port, 1);
  ASSERT_EQ(1u, got.size());
  EXPECT_TRUE(got[0].flow == second_back.flow);
  a.port->remove_flow(second);
  EXPECT_EQ(1u, a.port->channels());
  a.port->remove_flow(a.path);
  EXPECT_EQ(0u, a.port->channels()) << "nobody needs it any more";
  settle();
  EXPECT_EQ(0u, b.port->flows_in_memory());
  EXPECT_EQ(0u, b.port->channels());
}

/// On the RoCE face each QP has a port of its own.
TEST_F(ShmPorts, ports_of_two_processes_share_a_channel) {
  connect();
  uint16_t mine = 0, theirs = 0;
  const int fd = data_socket(true, mine), peer_fd = data_socket(true, theirs);
  Path second = path_between(true, mine, theirs), second_back = path_between(true, theirs, mine);
  ASSERT_EQ(0, b.port->add_flow(second_back, peer_fd));
  ASSERT_EQ(0, a.port->add_flow(second, fd));
  settle();
  EXPECT_EQ(1u, a.port->channels());
  EXPECT_EQ(1u, b.port->channels());
  EXPECT_EQ(2u, b.port->flows_in_memory());
  ASSERT_EQ(1u, send(*a.port, second, {20}));
  const std::vector<Got> got = receive(*b.port, 1);
  ASSERT_EQ(1u, got.size());
  EXPECT_TRUE(got[0].flow == second_back.flow);
  a.port->remove_flow(a.path);
  EXPECT_EQ(1u, a.port->channels()) << "the second flow needs it";
  ASSERT_EQ(1u, send(*a.port, second, {21}));
  EXPECT_EQ(1u, receive(*b.port, 1).size());
}

TEST_F(ShmPorts, both_ends_in_one_process) {
  a.path = path_between(true, a.number, b.number);
  b.path = path_between(true, b.number, a.number);
  ASSERT_EQ(0, a.port->add_flow(b.path, b.fd));
  ASSERT_EQ(0, a.port->add_flow(a.path, a.fd));
  settle();
  EXPECT_EQ(2u, a.port->flows_in_memory());
  ASSERT_EQ(1u, send(*a.port, a.path, {20}));
  std::vector<Got> got = receive(*a.port, 1);
  ASSERT_EQ(1u, got.size());
  EXPECT_TRUE(got[0].flow == b.path.flow);
}

TEST_F(ShmPorts, a_sleeping_receiver_is_woken_once) {
  connect();
  ASSERT_TRUE(b.port->arm());
  EXPECT_FALSE(readable(b.port->control_fd()));
  ASSERT_EQ(1u, send(*a.port, a.path, {20}));
  EXPECT_TRUE(readable(b.port->control_fd(), 1000));
  EXPECT_FALSE(b.port->arm()) << "something is there";
  b.port->control();
  EXPECT_FALSE(readable(b.port->control_fd()));
  EXPECT_EQ(1u, receive(*b.port, 1).size());
  ASSERT_EQ(1u, send(*a.port, a.path, {20}));
  EXPECT_FALSE(readable(b.port->control_fd())) << "nobody sleeps";
}

TEST_F(ShmPorts, a_full_ring_takes_less_and_later_more) {
  connect();
  size_t sent = 0, taken;
  do {
    taken = send(*a.port, a.path, std::vector<uint32_t>(32, 9000));
    sent += taken;
  } while (taken == 32 && sent < 10'000);
  EXPECT_GE(sent, 50u);
  EXPECT_LT(sent, 10'000u);
  EXPECT_EQ(sent, receive(*b.port, sent).size());
  EXPECT_EQ(32u, send(*a.port, a.path, std::vector<uint32_t>(32, 9000)));
  EXPECT_EQ(32u, receive(*b.port, 32).size());
}

/// Rings that are never empty leave the sockets their turns.
TEST_F(ShmPorts, busy_rings_do_not_starve_the_sockets) {
  connect();
  int error = 0;
  std::unique_ptr<SocketPort> plain = SocketPort::create(kMtu, error);
  uint16_t number = 0;
  int fd = data_socket(true, number);
  Path path = path_between(true, number, b.number), back = path_between(true, b.number, number);
  ASSERT_EQ(0, plain->add_flow(path, fd));
  auto by_socket = [&](int runs) {
    size_t count = 0;
    EXPECT_EQ(8u, send(*plain, path, std::vector<uint32_t>(8, 20)));
    for (int run = 0; run < runs; run++) {
      EXPECT_EQ(32u, send(*a.port, a.path, std::vector<uint32_t>(32, 20)));
      RxBuf bufs[32];
      const size_t n = b.port->rx(bufs);
      EXPECT_EQ(32u, n) << "the ring is never empty";
      for (size_t i = 0; i < n; i++) count += bufs[i].flow == back.flow;
      b.port->rx_free({bufs, n});
    }
    return count;
  };
  EXPECT_EQ(8u, by_socket(64)) << "of a flow that this end does not know yet";
  ASSERT_EQ(0, b.port->add_flow(back, -1));
  EXPECT_EQ(8u, by_socket(4));
}

// ---- The peer ends ------------------------------------------------------------------------------

TEST_F(ShmPorts, what_a_peer_has_sent_before_its_end_is_received) {
  connect();
  ASSERT_EQ(3u, send(*b.port, b.path, {20, 30, 40}));
  b.port.reset();
  a.port->control();
  EXPECT_EQ(0u, a.port->flows_in_memory());
  EXPECT_EQ(3u, receive(*a.port, 3).size());
  EXPECT_EQ(1u, send(*a.port, a.path, {20})) << "by the socket";
  a.port->arm();
  EXPECT_EQ(0u, a.port->channels());
}

TEST_F(ShmPorts, a_killed_peer_leaves_nothing_behind) {
  a.path = path_between(true, a.number, b.number);
  b.path = path_between(true, b.number, a.number);
  int up[2];
  ASSERT_EQ(0, pipe(up));
  const pid_t child = fork();
  if (child == 0) {
    b.port->add_flow(b.path, b.fd);
    if (write(up[1], "x", 1) != 1) _exit(1);
    for (uint8_t n = 0;; n++) {
      b.port->control();
      send(*b.port, b.path, {100});
      RxBuf bufs[8];
      b.port->rx_free({bufs, b.port->rx(bufs)});
    }
  }
  char byte;
  ASSERT_EQ(1, read(up[0], &byte, 1));
  ASSERT_EQ(0, a.port->add_flow(a.path, a.fd));
  for (int i = 0; i < 1000 && a.port->flows_in_memory() == 0; i++) {
    if (readable(a.port->control_fd(), 10)) a.port->control();
  }
  ASSERT_EQ(1u, a.port->flows_in_memory());
  EXPECT_LE(8u, receive(*a.port, 8).size());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(readable(a.port->control_fd(), 5000));
  a.port->control();
  EXPECT_EQ(0u, a.port->flows_in_memory());
  for (int i = 0; i < 10'000 && a.port->channels() != 0; i++) {  // what was under way is received
    RxBuf bufs[8];
    a.port->rx_free({bufs, a.port->rx(bufs)});
    a.port->arm();
  }
  EXPECT_EQ(0u, a.port->channels());
  // The name is free again.
  const int again = ShmEnd::local(b.path.flow).listen();
  EXPECT_GE(again, 0);
  close(again);
  close(up[0]);
  close(up[1]);
}

// ---- No descriptors ------------------------------------------------------------------------------

TEST_F(ShmPorts, without_descriptors_the_listener_waits) {
  install();
  {
    NoDescriptors none;
    b.port->control();
    EXPECT_FALSE(readable(b.port->control_fd())) << "it would be asked for ever";
  }
  EXPECT_EQ(0u, b.port->channels());
  ASSERT_EQ(1u, send(*a.port, a.path, {20}));
  EXPECT_EQ(1u, receive(*b.port, 1).size()) << "by the socket";
  // When something was closed there may be one.
  Path second = b.path;
  second.flow.remote_port++;
  ASSERT_EQ(0, b.port->add_flow(second, -1));
  EXPECT_FALSE(readable(b.port->control_fd()));
  b.port->remove_flow(second);
  EXPECT_TRUE(readable(b.port->control_fd()));
  settle();
  EXPECT_EQ(1u, a.port->flows_in_memory());
  EXPECT_EQ(1u, b.port->flows_in_memory());
  // And closed it is as if it had never waited.
  b.port->remove_flow(b.path);
  EXPECT_FALSE(readable(b.port->control_fd()));
}

// ---- A child lives on ---------------------------------------------------------------------------

/// Holds every descriptor that this process has now, and does nothing else.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0)
      for (;;) pause();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  const pid_t pid_;
};

TEST_F(ShmPorts, a_listener_that_a_child_holds_is_watched_no_more) {
  a.path = path_between(true, a.number, b.number);
  b.path = path_between(true, b.number, a.number);
  ASSERT_EQ(0, b.port->add_flow(b.path, b.fd));
  Child child;
  b.port->remove_flow(b.path);
  ASSERT_EQ(0, a.port->add_flow(a.path, a.fd)) << "nobody answers: it asks whether the other one listens";
  EXPECT_FALSE(readable(b.port->control_fd()));
  EXPECT_EQ(0u, a.port->channels()) << "refused";
}

TEST_F(ShmPorts, a_channel_that_a_child_holds_ends_all_the_same) {
  connect();
  Child child;
  a.port->remove_flow(a.path);
  ASSERT_EQ(0u, a.port->channels());
  settle();
  EXPECT_EQ(0u, b.port->channels());
  EXPECT_FALSE(readable(a.port->control_fd()));
  EXPECT_FALSE(readable(b.port->control_fd()));
}

// ---- The peer is hostile --------------------------------------------------------------------------

class HostileShmPeer : public ShmPorts {
 protected:
  void SetUp() override {
    a.path = path_between(true, a.number, b.number);
    b.path = path_between(true, b.number, a.number);
    ASSERT_EQ(0, b.port->add_flow(b.path, b.fd));
  }
  void TearDown() override {
    if (peer >= 0) close(peer);
    close(a.fd);
    // The end that was attacked goes on as before.
    EXPECT_EQ(1u, send(*b.port, b.path, {20}));
  }
  void connect_a() {
    ASSERT_EQ(0, a.port->add_flow(a.path, fcntl(a.fd, F_DUPFD_CLOEXEC, 0)));
    settle();
    ASSERT_EQ(1u, a.port->flows_in_memory());
  }
  void dial() {
    sockaddr_un sa;
    const socklen_t len = ShmEnd::local(b.path.flow).name(sa);
    if (peer >= 0) close(peer);
    peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ASSERT_EQ(0, ::connect(peer, reinterpret_cast<sockaddr*>(&sa), len));
  }
  /// With a descriptor unless that is -1, which it closes.
  void say(const void* data, size_t len, int fd) {
    iovec vec{const_cast<void*>(data), len};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    msghdr msg{};
    msg.msg_iov = &vec;
    msg.msg_iovlen = 1;
    if (fd >= 0) {
      msg.msg_control = control;
      msg.msg_controllen = sizeof control;
      cmsghdr* c = CMSG_FIRSTHDR(&msg);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof fd);
      memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    ASSERT_EQ(static_cast<ssize_t>(len), sendmsg(peer, &msg, 0));
    if (fd >= 0) close(fd);
  }
  static int memory(size_t size, int seals) {
    int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(0, ftruncate(fd, static_cast<off_t>(size)));
    EXPECT_EQ(0, fcntl(fd, F_ADD_SEALS, seals));
    return fd;
  }
  void settle_b() {
    for (int i = 0; i < 4; i++) b.port->control();
  }
  const size_t kRightSize = page_size() + 2 * kShmRingBytes;
  static constexpr int kRightSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  ShmMessage flow(uint32_t number) const { return {ShmMessage::kFlow, number, a.path.flow}; }
  int peer = -1;
};

TEST_F(HostileShmPeer, memory_that_could_be_taken_away_is_refused) {
  for (auto [size, seals] : {std::pair{kRightSize, 0},
                             {kRightSize, F_SEAL_GROW | F_SEAL_SEAL},
                             {kRightSize - page_size(), kRightSeals},
                             {kRightSize + page_size(), kRightSeals},
                             {size_t{0}, kRightSeals}}) {
    dial();
    const ShmMessage m = flow(0);
    say(&m, sizeof m, memory(size, seals));
    settle_b();
    EXPECT_EQ(0u, b.port->flows_in_memory()) << size << " " << seals;
    EXPECT_EQ(0u, b.port->channels());
  }
  dial();
  const ShmMessage m = flow(0);
  say(&m, sizeof m, open("/dev/null", O_RDWR | O_CLOEXEC));
  settle_b();
  EXPECT_EQ(0u, b.port->channels());
}

TEST_F(HostileShmPeer, messages_that_make_no_sense_end_the_channel) {
  ShmMessage m = flow(0);
  auto ends = [&](const void* data, size_t len, int fd) {
    dial();
    say(data, len, fd);
    settle_b();
    return b.port->channels() == 0 && b.port->flows_in_memory() == 0;
  };
  EXPECT_TRUE(ends(&m, sizeof m, -1)) << "no memory";
  EXPECT_TRUE(ends(&m, sizeof m - 1, memory(kRightSize, kRightSeals)));
  m.number = ShmChannel::kMaxFlows;
  EXPECT_TRUE(ends(&m, sizeof m, memory(kRightSize, kRightSeals)));
  m.number = UINT32_MAX;
  EXPECT_TRUE(ends(&m, sizeof m, memory(kRightSize, kRightSeals)));
  m = flow(0);
  m.kind = ShmMessage::kFlowOk;
  EXPECT_TRUE(ends(&m, sizeof m, memory(kRightSize, kRightSeals)));
  std::vector<char> longer(1000);
  EXPECT_TRUE(ends(longer.data(), longer.size(), -1));
}

TEST_F(HostileShmPeer, a_descriptor_without_a_message_is_closed) {
  size_t before = 0;
  for (int i = 0; i < 3; i++) {
    dial();
    say("", 0, memory(kRightSize, kRightSeals));
    settle_b();
    EXPECT_EQ(0u, b.port->channels());
    size_t open_now = 0;
    for (int fd = 0; fd < 1024; fd++) open_now += fcntl(fd, F_GETFD) >= 0;
    if (i == 0) before = open_now;
    EXPECT_EQ(before, open_now);
  }
}

TEST_F(HostileShmPeer, second_memory_and_unknown_flows) {
  dial();
  ShmMessage m = flow(0);
  m.flow.local_port++;
  say(&m, sizeof m, memory(kRightSize, kRightSeals));
  settle_b();
  EXPECT_EQ(0u, b.port->flows_in_memory()) << "there is no such flow";
  m = flow(3);
  say(&m, sizeof m, -1);
  settle_b();
  EXPECT_EQ(1u, b.port->flows_in_memory());
  say(&m, sizeof m, memory(kRightSize, kRightSeals));
  settle_b();
  EXPECT_EQ(0u, b.port->channels());
}

TEST_F(HostileShmPeer, a_flow_in_use_is_not_given_away) {
  connect_a();
  dial();
  const ShmMessage m = flow(0);
  say(&m, sizeof m, memory(kRightSize, kRightSeals));
  settle();
  ASSERT_EQ(1u, send(*b.port, b.path, {20}));
  EXPECT_EQ(1u, receive(*a.port, 1).size());
}

/// Whatever stands in the memory: what comes out is a datagram of a flow of this channel, or nothing.
TEST_F(HostileShmPeer, contents_of_the_memory) {
  dial();
  const int fd = memory(kRightSize, kRightSeals);
  auto* at = static_cast<std::byte*>(mmap(nullptr, kRightSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(MAP_FAILED, static_cast<void*>(at));
  const ShmMessage m = flow(5);
  say(&m, sizeof m, fd);
  settle_b();
  ASSERT_EQ(1u, b.port->flows_in_memory());
  // Datagrams of flows that there are not, then one of this flow.
  auto* r = reinterpret_cast<ShmRecord*>(at + page_size());
  for (uint32_t number : {4u, ShmChannel::kMaxFlows, UINT32_MAX, 5u}) {
    r->flow = number;
    r->word = ShmRecord::kComplete | 20;
    r += ShmRecord::size(20) / sizeof *r;
  }
  std::vector<Got> got = receive(*b.port, 4, kShortly);
  ASSERT_EQ(1u, got.size());
  EXPECT_TRUE(got[0].flow == b.path.flow);
  EXPECT_EQ(2u, b.port->drops().malformed);
  // One that is too long: the flow goes on by its socket.
  r->word = ShmRecord::kComplete | 0x7fffff;
  EXPECT_EQ(0u, receive(*b.port, 1, kShortly).size());
  b.port->arm();
  EXPECT_EQ(0u, b.port->flows_in_memory());
  EXPECT_EQ(0u, b.port->channels());
  munmap(at, kRightSize);
}

/// Every header of a ring says "complete", so it is never empty; nothing need be written any more.
class EndlessShmRing : public HostileShmPeer {
 protected:
  void SetUp() override {
    HostileShmPeer::SetUp();
    dial();
    const int fd = memory(kRightSize, kRightSeals);
    at = static_cast<std::byte*>(mmap(nullptr, kRightSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ASSERT_NE(MAP_FAILED, static_cast<void*>(at));
    const ShmMessage m = flow(5);
    say(&m, sizeof m, fd);
    settle_b();
    ASSERT_EQ(1u, b.port->flows_in_memory());
    alarm(60);  // should a call not return
  }
  void TearDown() override {
    alarm(0);
    munmap(at, kRightSize);
    HostileShmPeer::TearDown();
  }
  void fill(uint32_t number) {
    for (size_t unit = 0; unit < kShmRingBytes; unit += kRecordUnit) {
      auto* r = reinterpret_cast<ShmRecord*>(at + page_size() + unit);
      r->flow = number;
      r->word = ShmRecord::kComplete;
    }
  }
  /// Datagrams that come out until the port is quiet, or @p most have.
  size_t drain(size_t most) {
    size_t got = 0;
    for (size_t calls = 0; calls < most && got < most; calls++) {
      RxBuf bufs[32];
      const size_t n = b.port->rx(bufs);
      b.port->rx_free({bufs, n});
      got += n;
      if (n == 0 && b.port->arm()) break;
    }
    return got;
  }
  static constexpr size_t kRecords = kShmRingBytes / kRecordUnit;
  std::byte* at = nullptr;
};

TEST_F(EndlessShmRing, of_no_flow_ends_the_channel) {
  fill(6);
  EXPECT_EQ(0u, drain(4 * kRecords));
  EXPECT_TRUE(b.port->arm());
  EXPECT_EQ(0u, b.port->flows_in_memory());
  EXPECT_EQ(0u, b.port->channels());
}

TEST_F(EndlessShmRing, of_a_peer_that_is_gone_is_received_once) {
  fill(5);
  EXPECT_LE(3 * kRecords, drain(3 * kRecords)) << "it may be that the peer writes all this";
  close(peer);
  peer = -1;
  settle_b();
  EXPECT_GE(kRecords, drain(3 * kRecords));
  EXPECT_TRUE(b.port->arm());
  EXPECT_EQ(0u, b.port->channels());
}

/// As a flow leaves them that ends here while its peer still sends.
TEST_F(EndlessShmRing, a_ring_full_of_a_flow_that_has_ended_is_skipped) {
  fill(6);
  reinterpret_cast<ShmRecord*>(at + page_size() + kShmRingBytes - kRecordUnit)->word = 0;
  EXPECT_EQ(0u, drain(4 * kRecords));
  EXPECT_TRUE(b.port->arm());
  EXPECT_EQ(1u, b.port->flows_in_memory());
}

/// Both rings say that the other end has read what was never written.
TEST_F(HostileShmPeer, a_writer_that_is_lied_to_goes_on_by_the_socket) {
  dial();
  const int fd = memory(kRightSize, kRightSeals);
  auto* at = static_cast<std::byte*>(mmap(nullptr, kRightSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(MAP_FAILED, static_cast<void*>(at));
  const ShmMessage m = flow(0);
  say(&m, sizeof m, fd);
  settle_b();
  for (size_t ring = 0; ring < 2; ring++) reinterpret_cast<ShmRingShared*>(at)[ring].consumed = UINT64_MAX / 2;
  size_t taken = 32;
  for (int i = 0; i < 100 && taken == 32; i++) taken = send(*b.port, b.path, std::vector<uint32_t>(32, 9000));
  EXPECT_LT(taken, 32u);
  EXPECT_EQ(0u, b.port->flows_in_memory());
  EXPECT_EQ(1u, send(*b.port, b.path, {20}));
  munmap(at, kRightSize);
}

}  // namespace
}  // namespace usiw
