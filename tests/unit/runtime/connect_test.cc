// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file connect_test.cc
/// The order of reports about a new connection. One thread installs the connection and reports that it is READY. Another
/// thread may drive the engine meanwhile, and may find that the peer has closed. The kernel ignores that report if it
/// precedes READY, and the connection would never end.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/context.h"
#include "runtime/kernel_methods.h"
#include "runtime/runtime.h"
#include "uapi/usiw_wire.h"

namespace {

/// The kernel: keeps the reports, and holds the first one up until go_on().
class Kernel {
 public:
  void report(uint32_t kind) {
    std::unique_lock lock(lock_);
    kinds_.push_back(kind);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !stopped_; });
  }
  void wait_for_report() {
    std::unique_lock lock(lock_);
    changed_.wait(lock, [&] { return !kinds_.empty(); });
  }
  void go_on() {
    std::lock_guard lock(lock_);
    stopped_ = false;
    changed_.notify_all();
  }
  std::vector<uint32_t> kinds() {
    std::lock_guard lock(lock_);
    return kinds_;
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<uint32_t> kinds_;
  bool stopped_ = true;
};
Kernel* kernel = nullptr;

}  // namespace

// ---- In place of kernel_methods.cc and rdma_core/commands.c ----

namespace usiw {
int kernel_event_file(int) { return -ENODEV; }
int kernel_cq_event(int, uint32_t, usiw_cq_event_kind) { return 0; }
int kernel_srq_event(int, uint32_t, usiw_srq_event_kind) { return 0; }
int kernel_qp_report(int, uint32_t, const usiw_qp_report& report) {
  kernel->report(report.kind);
  return 0;
}
}  // namespace usiw

extern "C" int usiw_cmd_query_qp(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*) { return 0; }

namespace usiw {
namespace {

constexpr uint32_t kOwnPsn = 1000, kPeerPsn = 2000;

/// A UDP socket at 127.0.0.1, and its port.
struct Socket {
  Socket() {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(0, bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address));
    socklen_t len = sizeof address;
    EXPECT_EQ(0, getsockname(fd, reinterpret_cast<sockaddr*>(&address), &len));
  }
  void connect_to(const Socket& other) {
    EXPECT_EQ(0, connect(fd, reinterpret_cast<const sockaddr*>(&other.address), sizeof other.address));
  }
  sockaddr_in address{};
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
};

usiw_event connect_event(const Socket& own, const Socket& peer) {
  usiw_event event{};
  event.type = USIW_EVENT_CONNECT;
  event.qpn = 1;
  event.conn_id = 7;
  usiw_conn_info& conn = event.conn;
  for (__u8* address : {conn.local_addr, conn.remote_addr}) {
    address[10] = address[11] = 0xff;
    std::memcpy(address + 12, &own.address.sin_addr, 4);
  }
  conn.local_port = own.address.sin_port;
  conn.remote_port = peer.address.sin_port;
  conn.flags = USIW_CONN_F_SOCKET | USIW_CONN_F_LOCAL;
  conn.snd_psn = kOwnPsn;
  conn.rcv_psn = kPeerPsn;
  conn.snd_window = USIW_TRP_FIRST_WINDOW;
  conn.mtu = 1500;
  conn.hop_limit = 64;
  conn.data_fd = own.fd;
  return event;
}

void send_shutdown(const Socket& peer) {
  usiw_trp_hdr header{};
  header.psn = htonl(kPeerPsn);
  header.ack_psn = htonl(kOwnPsn);
  header.opflags = htons(USIW_TRP_SHUTDOWN << USIW_TRP_OPCODE_SHIFT | USIW_TRP_F_ACK_REQ);
  ASSERT_EQ(send(peer.fd, &header, sizeof header, 0), ssize_t{sizeof header});
}

TEST(Connect, the_end_of_a_connection_is_not_reported_before_READY) {
  Kernel own_kernel;
  kernel = &own_kernel;
  usiw_link_info link{};
  link.ifindex = 1;
  link.mtu = 1500;
  Runtime runtime("usiw_test", link, USIW_PORT_SOCKET);
  usiw_context device{};
  usiw_alloc_ucontext_resp resp{};
  resp.caps = USIW_CAP_PORT_REPORT;
  Context context(&device.ibv, -1, eventfd(0, EFD_CLOEXEC), resp);
  context.runtime = &runtime;
  device.state = &context;

  VCq completions{};
  completions.cq = runtime.hold()->cq_create(16, &completions);
  VQp qp{};
  qp.context = &context;
  qp.runtime = &runtime;
  qp.ibv.qp_num = 1;
  qp.connected.qp = qp.peer_closed.qp = qp.sends_by.qp = &qp;
  QpAttr attr{};
  attr.qpn = 1;
  attr.send_cq = attr.recv_cq = completions.cq;
  attr.max_send_wr = attr.max_recv_wr = attr.max_send_sge = attr.max_recv_sge = 1;
  attr.owner = &qp;
  qp.qp = runtime.hold()->qp_create(attr);
  ASSERT_NE(qp.qp, nullptr);
  runtime.add_qp(qp);

  Socket own, peer;
  own.connect_to(peer);
  peer.connect_to(own);
  std::thread installs([&] { runtime.on_event(context, connect_event(own, peer)); });
  own_kernel.wait_for_report();  // the report of the port precedes READY
  send_shutdown(peer);
  std::atomic<bool> acknowledged{false};
  std::thread drives([&] {
    const EngineGate::Held held = runtime.hold();
    while (!acknowledged) held->progress();
  });
  pollfd answer = {.fd = peer.fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(1, poll(&answer, 1, 10'000)) << "SHUTDOWN is not acknowledged";
  acknowledged = true;
  own_kernel.go_on();
  drives.join();
  installs.join();
  EXPECT_EQ(own_kernel.kinds(), (std::vector<uint32_t>{USIW_REPORT_PORT, USIW_REPORT_READY, USIW_REPORT_PEER_CLOSED}));
  runtime.remove_qp(qp);
  const EngineGate::Held held = runtime.hold();
  held->qp_destroy(qp.qp);
  held->cq_destroy(completions.cq);
  close(peer.fd);
}

}  // namespace
}  // namespace usiw
