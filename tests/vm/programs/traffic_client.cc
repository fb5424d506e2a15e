// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"
#include "traffic.h"

namespace traffic {
namespace {

constexpr size_t kSlot = kMaxSize + sizeof(Header);

/// A completion that is not a success.
struct Lost : tap::Failure {
  using tap::Failure::Failure;
};

class Connection {
 public:
  Connection(const Arguments& arguments, int number)
      : arguments_(arguments), number_(number) {
    end_.resolve(arguments.from, arguments.to, arguments.port);
    Options options;
    options.send_wr = options.recv_wr = 16;
    options.with_channel = arguments.events;
    options.ird = options.ord = 4;
    end_.create_qp(options);
    rdma_conn_param param = conn_param(options);
    CHECK_CALL(rdma_connect(end_.id, &param));
    const CmEvent established = end_.events.expect(RDMA_CM_EVENT_ESTABLISHED, 2 * kWaitMs);
    CHECK(established.private_data.size() >= sizeof window_);
    std::memcpy(&window_, established.private_data.data(), sizeof window_);
    for (auto* region : {&source_, &back_, &message_, &answer_}) *region = std::make_unique<Region>(end_.pd, kSlot);
  }

  /// One round; false when data came back wrong.
  bool round(uint32_t n) {
    static const uint32_t kShares[] = {1, 7, 100, 3};
    const uint32_t length = arguments_.size / kShares[n % 4] + n % 5;
    const uint64_t seed = (static_cast<uint64_t>(number_) << 40) + n * 2;
    const Header header = {seed, std::min(length, arguments_.size), n, 0};
    fill_pattern(source_->data(), header.length, seed + 1);
    std::memcpy(message_->data(), &header, sizeof header);
    fill_pattern(message_->data() + sizeof header, header.length, seed);
    end_.recv(1, {answer_->sge()});
    const uint32_t piece = header.length / 4 + 1;
    for (uint32_t at = 0; at < header.length; at += piece)
      end_.send({.wr_id = 2,
                 .opcode = IBV_WR_RDMA_WRITE,
                 .flags = 0,
                 .sges = {source_->sge(at, std::min(piece, header.length - at))},
                 .remote_addr = window_.addr + at,
                 .rkey = window_.rkey});
    end_.send({.wr_id = 3, .opcode = IBV_WR_RDMA_READ, .sges = {back_->sge(0, header.length)},
               .remote_addr = window_.addr, .rkey = window_.rkey});
    end_.send({.wr_id = 4, .sges = {message_->sge(0, sizeof header + header.length)}});
    await(end_.send_cq, end_.send_channel, 3);
    await(end_.send_cq, end_.send_channel, 4);
    const ibv_wc wc = await(end_.recv_cq, end_.recv_channel, 1);
    return wc.byte_len == sizeof header + header.length &&
           std::memcmp(answer_->data(), message_->data(), wc.byte_len) == 0 &&
           pattern_mismatch(back_->data(), header.length, seed + 1) == header.length;
  }

  void check_guards() const {
    for (auto* region : {&source_, &back_, &message_, &answer_}) (*region)->check_guards();
  }

  void close() {
    CHECK_CALL(rdma_disconnect(end_.id));
    CmEvent last = end_.events.wait(2 * kWaitMs);
    // Of a bond whose MAC has changed, as often as it has: the connection goes on, and most programs ignore it.
    for (; last.type == RDMA_CM_EVENT_ADDR_CHANGE; last = end_.events.wait(2 * kWaitMs))
      std::printf("address changed\n");
    if (last.type != RDMA_CM_EVENT_DISCONNECTED)
      FAIL("%s (status %d) at the end of a connection", rdma_event_str(last.type), last.status);
  }

 private:
  ibv_wc await(ibv_cq* cq, ibv_comp_channel* channel, uint64_t wr_id) {
    ibv_wc wc = {};
    if (!channel) {
      wc = wait_wc(cq, 60000);
    } else {
      while (ibv_poll_cq(cq, 1, &wc) == 0) {
        CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
        if (ibv_poll_cq(cq, 1, &wc) == 1) break;
        if (!wait_cq_event(channel, 4 * kWaitMs)) FAIL("no completion event in %d ms", 4 * kWaitMs);
      }
    }
    if (wc.status != IBV_WC_SUCCESS)
      throw Lost(std::string("completion status ") + std::to_string(wc.status) + " (" + ibv_wc_status_str(wc.status) +
                 ")");
    CHECK_EQ(wc.wr_id, wr_id);
    return wc;
  }

  const Arguments& arguments_;
  int number_;
  Endpoint end_;
  Window window_ = {};
  std::unique_ptr<Region> source_, back_, message_, answer_;
};

/// A child that ends in one of three ways; the parent's connections must not notice.
void make_child(uint32_t n) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    if (n % 3 == 0) std::exit(0);  // runs destructors and atexit functions
    if (n % 3 == 1) execl("/bin/true", "true", nullptr);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  if (status) FAIL("a forked child ended with wait status 0x%x", status);
}

/// A child that lives on, with all descriptors of its parent, and does nothing.
void leave_child() {
  const pid_t child = fork();
  CHECK(child >= 0);
  while (child == 0) pause();
}

/// SIGUSR1: the time is over, after the round that is under way.
volatile sig_atomic_t over = 0;

void end_by_signal() {
  struct sigaction action = {};
  action.sa_handler = [](int) { over = 1; };
  action.sa_flags = SA_RESTART;
  CHECK_CALL(sigaction(SIGUSR1, &action, nullptr));
}

}  // namespace

int run_client(const Arguments& arguments) {
  const uint32_t rounds = arguments.rounds ? static_cast<uint32_t>(arguments.rounds) : arguments.seconds ? ~0u : 1;
  uint32_t n = 0;
  uint64_t start = tap::now_ms(), last_good = start;
  try {
    end_by_signal();
    std::vector<std::unique_ptr<Connection>> connections;
    for (int i = 0; i < arguments.connections; ++i) connections.push_back(std::make_unique<Connection>(arguments, i));
    if (arguments.child) leave_child();
    std::printf("connected %d\n", arguments.connections);
    start = tap::now_ms();
    const uint64_t ms = static_cast<uint64_t>(arguments.seconds) * 1000 * tap::patience();
    const uint64_t end = ms ? start + ms : ~0ull;
    for (; n < rounds && !over && tap::now_ms() < end; ++n) {
      for (size_t i = 0; i < connections.size(); ++i) {
        if (!connections[i]->round(n)) {
          std::printf("CORRUPT answer in round %u on connection %zu\n", n, i);
          return kCorrupt;
        }
      }
      last_good = tap::now_ms();
      if (arguments.forks && n % 20 == 10) make_child(n / 20);
      if (arguments.pause_ms) usleep(static_cast<useconds_t>(arguments.pause_ms) * 1000);
    }
    for (auto& c : connections) c->check_guards();
    for (auto& c : connections) c->close();
  } catch (const std::exception& e) {
    std::printf("lost: %s; %llu ms after the last good round, after %u rounds\n", e.what(),
                static_cast<unsigned long long>(tap::now_ms() - last_good), n);
    return kLost;
  }
  std::printf("%u rounds on %d connections in %llu ms\n", n, arguments.connections,
              static_cast<unsigned long long>(tap::now_ms() - start));
  return kFine;
}

}  // namespace traffic
