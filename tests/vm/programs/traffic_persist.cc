// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Traffic that goes on whatever happens to the connections: each has a thread that connects, sends, verifies, and
// after an error connects again. What may happen to a connection is told from what never may: wrong data, a
// completion that is missing, doubled, out of order or of an unexpected status, a call or a wait that does not end.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "rig.h"
#include "traffic.h"

namespace traffic {
namespace {

constexpr int kTickMs = 250;
constexpr uint32_t kInFlight = 3;  ///< rounds; the server has kReceives receives
constexpr uint32_t kSendsPerRound = 4;
static_assert(kInFlight <= kReceives);

volatile sig_atomic_t stopping;
std::atomic<bool> device_removed{false};

/// The connection cannot go on, or could not be made; an allowed outcome.
struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The device has gone. The process ends: whoever started it starts another one.
struct Gone : std::runtime_error {
  Gone() : std::runtime_error("device removed") {}
};

std::mutex outcomes_lock;
std::map<std::string, int> outcomes;  ///< how connections ended, and how often

void count_outcome(const std::string& what) {
  const std::lock_guard<std::mutex> hold(outcomes_lock);
  ++outcomes[what];
}

/// What a thread does at the moment, and how long it may take. Time counts only while the process runs: it may be
/// stopped for seconds from outside.
class Watch {
 public:
  void begin(const char* what, int seconds) {
    what_ = what;
    ticks_ = seconds * static_cast<int>(tap::patience()) * 1000 / kTickMs;
  }
  void end() { ticks_ = -1; }
  /// The name of the step that takes too long, or null.
  const char* tick() {
    int left = ticks_;
    if (left < 0) return nullptr;
    if (left == 0) return what_;
    ticks_.compare_exchange_strong(left, left - 1);
    return nullptr;
  }

 private:
  std::atomic<const char*> what_{""};
  std::atomic<int> ticks_{-1};
};

/// A step of @p seconds at most, while it lives.
class Step {
 public:
  Step(Watch& watch, const char* what, int seconds) : watch_(watch) { watch_.begin(what, seconds); }
  ~Step() { watch_.end(); }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

 private:
  Watch& watch_;
};

constexpr int kCallSeconds = 40;      ///< a call into verbs or rdma_cm
constexpr int kWaitSeconds = 60;      ///< a completion: the peer may be stopped, and RNR and keep-alive have their time
constexpr int kConnectSeconds = 110;  ///< UNREACHABLE, with PENDING; see docs/protocol.md

/// Work requests of one queue complete in their order, each once.
class Expected {
 public:
  explicit Expected(const char* queue) : queue_(queue) {}
  void post(uint64_t wr_id) { due_.push_back(wr_id); }
  void complete(const ibv_wc& wc) {
    if (due_.empty())
      FAIL("%s: a completion of %llu (%s), and nothing is outstanding", queue_,
           static_cast<unsigned long long>(wc.wr_id), ibv_wc_status_str(wc.status));
    if (due_.front() != wc.wr_id)
      FAIL("%s: completion of %llu, and %llu is due", queue_, static_cast<unsigned long long>(wc.wr_id),
           static_cast<unsigned long long>(due_.front()));
    due_.pop_front();
  }
  bool empty() const { return due_.empty(); }
  size_t size() const { return due_.size(); }

 private:
  const char* queue_;
  std::deque<uint64_t> due_;
};

class Link {
 public:
  Link(const Arguments& arguments, int number, Watch& watch, uint64_t& verified)
      : arguments_(arguments), number_(number), watch_(watch), verified_(verified) {}

  void connect() {
    resolve();
    Options options;
    options.send_wr = kSendsPerRound * kInFlight;
    options.recv_wr = kInFlight;
    options.send_sge = options.recv_sge = 1;
    options.with_channel = arguments_.events;
    options.ird = options.ord = 4;
    {
      Step step(watch_, "creating the QP", kCallSeconds);
      try {
        // Not pd_of(): librdmacm closes a device that has gone, and the next one's context may have its address.
        if (!(pd_ = ibv_alloc_pd(end_.id->verbs))) FAIL("ibv_alloc_pd: %s", std::strerror(errno));
        options.pd = pd_;
        end_.create_qp(options);
        for (auto& slot : slots_) slot = std::make_unique<Slot>(end_.pd, arguments_.size);
      } catch (const tap::Failure&) {
        if (errno != EIO && errno != ENODEV) throw;
        throw Broken("the device goes");
      }
    }
    {
      Step step(watch_, "rdma_connect", kCallSeconds);
      rdma_conn_param param = conn_param(options);
      if (rdma_connect(end_.id, &param)) call_failed("rdma_connect");
    }
    const CmEvent event = next_event("the answer to connect", kConnectSeconds);
    if (event.type != RDMA_CM_EVENT_ESTABLISHED) refused(event);
    CHECK(event.private_data.size() >= sizeof window_);
    std::memcpy(&window_, event.private_data.data(), sizeof window_);
    CHECK(window_.size >= arguments_.size * kInFlight);
  }

  /// Keeps rounds in flight until the program is to stop; then waits for those that are.
  void run() {
    uint32_t posted = 0, done = 0;
    while (!stopping || done < posted) {
      while (!stopping && posted < done + kInFlight) post(posted++);
      await_round();
      verify(done++);
      ++verified_;
      if (arguments_.pause_ms) usleep(static_cast<useconds_t>(arguments_.pause_ms) * 1000);
    }
  }

  /// After an error: every work request completes once, and the end is told.
  void end_of_broken() {
    {
      Step step(watch_, "the flush of what was posted", kWaitSeconds);
      while (!sends_.empty() || !receives_.empty())
        if (!poll_once(true)) wait_a_little();
    }
    for (;;) {
      const CmEvent event = next_event("the event of the connection's end", kWaitSeconds);
      if (event.type == RDMA_CM_EVENT_DISCONNECTED) break;
    }
    poll_once(true);  // nothing may come any more: Expected says so
    check_guards();
  }

  void end_in_order() {
    {
      Step step(watch_, "rdma_disconnect", kCallSeconds);
      if (rdma_disconnect(end_.id)) call_failed("rdma_disconnect");
    }
    const CmEvent event = next_event("DISCONNECTED", kWaitSeconds);
    if (event.type != RDMA_CM_EVENT_DISCONNECTED) refused(event);
    check_guards();
  }

  /// The id goes last: librdmacm may close the device with it.
  void destroy() {
    {
      Step step(watch_, "destroying the QP", kCallSeconds);
      end_.destroy_qp();
    }
    {
      Step step(watch_, "ibv_dereg_mr", kCallSeconds);
      for (auto& slot : slots_) slot.reset();
    }
    Step step(watch_, "destroying PD, CQs and id", kCallSeconds);
    if (pd_ && ibv_dealloc_pd(pd_)) std::printf("ibv_dealloc_pd failed\n");
    pd_ = nullptr;
    end_.destroy();
  }

 private:
  /// Memory of one round in flight.
  struct Slot {
    Slot(ibv_pd* pd, uint32_t size)
        : source(pd, size), back(pd, size), message(pd, size + sizeof(Header)), answer(pd, size + sizeof(Header)) {}
    Region source, back, message, answer;
    Header header = {};
  };

  void resolve() {
    sockaddr_in source = ipv4(arguments_.from, 0), target = ipv4(arguments_.to, arguments_.port);
    Step step(watch_, "resolving", kCallSeconds);
    end_.id = end_.events.create_id();
    if (rdma_resolve_addr(end_.id, reinterpret_cast<sockaddr*>(&source), reinterpret_cast<sockaddr*>(&target), 2000))
      call_failed("rdma_resolve_addr");
    CmEvent event = next_event("ADDR_RESOLVED", kCallSeconds);
    if (event.type != RDMA_CM_EVENT_ADDR_RESOLVED) refused(event);
    if (rdma_resolve_route(end_.id, 2000)) call_failed("rdma_resolve_route");
    event = next_event("ROUTE_RESOLVED", kCallSeconds);
    if (event.type != RDMA_CM_EVENT_ROUTE_RESOLVED) refused(event);
  }

  [[noreturn]] void call_failed(const char* call) {
    switch (errno) {
      case ENODEV: case EADDRNOTAVAIL: case ENETUNREACH: case EHOSTUNREACH: case ENETDOWN: case ETIMEDOUT: case EIO:
        throw Broken(std::string(call) + ": " + std::strerror(errno));
      default: FAIL("%s: %s", call, std::strerror(errno));
    }
  }

  [[noreturn]] static void refused(const CmEvent& event) {
    switch (event.type) {
      case RDMA_CM_EVENT_ADDR_ERROR: case RDMA_CM_EVENT_ROUTE_ERROR: case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE: case RDMA_CM_EVENT_REJECTED: case RDMA_CM_EVENT_DISCONNECTED:
        throw Broken(rdma_event_str(event.type));
      default: FAIL("unexpected event %s (status %d)", rdma_event_str(event.type), event.status);
    }
  }

  CmEvent next_event(const char* what, int seconds) {
    Step step(watch_, what, seconds);
    while (!end_.events.ready(kTickMs)) {
    }
    CmEvent event = end_.events.wait();
    if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) throw Gone();
    return event;
  }

  void post(uint32_t n) {
    Slot& slot = *slots_[n % kInFlight];
    static const uint32_t kShares[] = {1, 7, 100, 3};
    const uint32_t share = arguments_.size / kShares[n / kInFlight % 4];
    const uint32_t length = share > 5 ? share - n % 5 : share + 1;
    const uint64_t seed = (static_cast<uint64_t>(getpid()) << 44) + (static_cast<uint64_t>(number_) << 40) + n * 2;
    slot.header = {seed, length, n, static_cast<uint64_t>(n % kInFlight) * arguments_.size};
    fill_pattern(slot.source.data(), length, seed + 1);
    std::memcpy(slot.message.data(), &slot.header, sizeof slot.header);
    fill_pattern(slot.message.data() + sizeof(Header), length, seed);
    slot.back.clear();
    slot.answer.clear();
    const uint64_t at = window_.addr + slot.header.at;
    const uint64_t id = static_cast<uint64_t>(n) * kSendsPerRound;
    const uint32_t half = length / 2;
    receives_.post(n);
    end_.recv(n, {slot.answer.sge()});
    send({.wr_id = id,
          .opcode = IBV_WR_RDMA_WRITE,
          .sges = {slot.source.sge(0, half)},
          .remote_addr = at,
          .rkey = window_.rkey});
    send({.wr_id = id + 1,
          .opcode = IBV_WR_RDMA_WRITE,
          .sges = {slot.source.sge(half, length - half)},
          .remote_addr = at + half,
          .rkey = window_.rkey});
    send({.wr_id = id + 2,
          .opcode = IBV_WR_RDMA_READ,
          .sges = {slot.back.sge(0, length)},
          .remote_addr = at,
          .rkey = window_.rkey});
    send({.wr_id = id + 3, .sges = {slot.message.sge(0, sizeof(Header) + length)}});
  }

  void send(const SendWr& wr) {
    sends_.post(wr.wr_id);
    end_.send(wr);
  }

  /// The sends of the oldest round and its answer.
  void await_round() {
    Step step(watch_, "the completions of a round", kWaitSeconds);
    const size_t left = receives_.size() - 1;
    while (receives_.size() > left || sends_.size() > left * kSendsPerRound)
      if (!poll_once(false)) wait_a_little();
  }

  void verify(uint32_t n) {
    const Slot& slot = *slots_[n % kInFlight];
    const uint32_t length = slot.header.length;
    if (answer_bytes_[n % kInFlight] != sizeof(Header) + length)
      FAIL("the answer of round %u has %u bytes", n, answer_bytes_[n % kInFlight]);
    if (std::memcmp(slot.answer.data(), slot.message.data(), sizeof(Header) + length))
      FAIL("wrong data in the answer of round %u", n);
    const size_t wrong = pattern_mismatch(slot.back.data(), length, slot.header.seed + 1);
    if (wrong != length) FAIL("wrong data in the READ of round %u, byte %zu of %u", n, wrong, length);
  }

  /// Takes what has completed; true if there was something.
  bool poll_once(bool broken) {
    bool found = false;
    ibv_wc wc[8];
    for (int n; (n = ibv_poll_cq(end_.send_cq, 8, wc)) != 0; found = true) take(wc, n, sends_, "send queue");
    for (int n; (n = ibv_poll_cq(end_.recv_cq, 8, wc)) != 0; found = true) take(wc, n, receives_, "receive queue");
    if (!failure_.empty() && !broken) throw Broken(failure_);
    return found;
  }

  void take(const ibv_wc* wc, int n, Expected& expected, const char* queue) {
    if (n < 0) FAIL("%s: ibv_poll_cq returned %d", queue, n);
    for (int i = 0; i < n; ++i) {
      expected.complete(wc[i]);
      std::string& failed = &expected == &sends_ ? sends_failed_ : receives_failed_;
      if (wc[i].status == IBV_WC_SUCCESS) {
        if (!failed.empty()) FAIL("%s: success behind '%s'", queue, failed.c_str());
        if (&expected == &receives_) answer_bytes_[wc[i].wr_id % kInFlight] = wc[i].byte_len;
        continue;
      }
      if (!is_connection_error(wc[i].status) || (!failed.empty() && wc[i].status != IBV_WC_WR_FLUSH_ERR))
        FAIL("%s: status '%s' of %llu behind '%s'", queue, ibv_wc_status_str(wc[i].status),
             static_cast<unsigned long long>(wc[i].wr_id), failed.c_str());
      failed = ibv_wc_status_str(wc[i].status);
      if (failure_.empty() || wc[i].status != IBV_WC_WR_FLUSH_ERR) failure_ = failed;
    }
  }

  void wait_a_little() {
    if (!arguments_.events) {
      sched_yield();
      return;
    }
    CHECK_EQ(ibv_req_notify_cq(end_.send_cq, 0), 0);
    CHECK_EQ(ibv_req_notify_cq(end_.recv_cq, 0), 0);
    ibv_wc wc;
    // What came before the request to be told raises no event; it is taken next time.
    if (peek(end_.send_cq, wc, sends_, "send queue") || peek(end_.recv_cq, wc, receives_, "receive queue")) return;
    pollfd fds[] = {{end_.send_channel->fd, POLLIN, 0}, {end_.recv_channel->fd, POLLIN, 0}};
    // Without a time-out: an event that does not come is a hang.
    poll(fds, 2, -1);
    for (int i = 0; i < 2; ++i)
      if (fds[i].revents) take_event(i ? end_.recv_channel : end_.send_channel);
  }

  static void take_event(ibv_comp_channel* channel) {
    ibv_cq* cq;
    void* context;
    if (ibv_get_cq_event(channel, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
    else if (errno != EIO)
      FAIL("ibv_get_cq_event: %s", std::strerror(errno));  // EIO: the device is gone; the flush comes all the same
  }

  bool peek(ibv_cq* cq, ibv_wc& wc, Expected& expected, const char* queue) {
    const int n = ibv_poll_cq(cq, 1, &wc);
    if (n) take(&wc, n, expected, queue);
    return n != 0;
  }

  void check_guards() const {
    for (const auto& slot : slots_)
      for (const Region* region : {&slot->source, &slot->back, &slot->message, &slot->answer}) region->check_guards();
  }

  const Arguments& arguments_;
  int number_;
  Watch& watch_;
  uint64_t& verified_;
  Endpoint end_;
  ibv_pd* pd_ = nullptr;
  Window window_ = {};
  std::unique_ptr<Slot> slots_[kInFlight];
  uint32_t answer_bytes_[kInFlight] = {};
  Expected sends_{"send queue"}, receives_{"receive queue"};
  std::string failure_, sends_failed_, receives_failed_;
};

/// One connection after the other.
void persist(const Arguments& arguments, int number, Watch& watch, Progress& progress) {
  while (!stopping && !device_removed) {
    Link link(arguments, number, watch, progress.verified[number]);
    bool connected = false;
    try {
      link.connect();
      connected = true;
      ++progress.connects[number];
      link.run();
      link.end_in_order();
    } catch (const Broken& e) {
      count_outcome((connected ? "connected: " : "connecting: ") + std::string(e.what()));
      ++progress.failures[number];
      try {
        if (connected) link.end_of_broken();
      } catch (const Gone&) {
        device_removed = true;
      }
    } catch (const Gone&) {
      device_removed = true;
    }
    link.destroy();
    if (!stopping && !device_removed) usleep(100000);
  }
}

/// Threads with their places in the kernel, for a hang.
void print_stacks() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream stack(task.path() / "stack");
    std::printf("thread %s:\n", task.path().filename().c_str());
    for (std::string line; std::getline(stack, line);) std::printf("  %s\n", line.c_str());
  }
}

Progress& map_progress(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK(fd >= 0);
  CHECK_EQ(ftruncate(fd, sizeof(Progress)), 0);
  void* at = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(at != MAP_FAILED);
  close(fd);
  return *static_cast<Progress*>(at);
}

}  // namespace

int run_persist(const Arguments& arguments) {
  if (arguments.size * kInFlight > kMaxSize || arguments.connections > kMaxPersist || arguments.progress.empty())
    return kUsage;
  struct sigaction action = {};
  action.sa_handler = [](int) { stopping = 1; };
  sigaction(SIGTERM, &action, nullptr);
  Progress& progress = map_progress(arguments.progress);
  std::vector<Watch> watches(static_cast<size_t>(arguments.connections));
  std::vector<std::thread> threads;
  std::atomic<int> running{arguments.connections};
  std::atomic<int> status{kFine};
  for (int i = 0; i < arguments.connections; ++i)
    threads.emplace_back([&, i] {
      try {
        persist(arguments, i, watches[static_cast<size_t>(i)], progress);
      } catch (const std::exception& e) {
        std::printf("FORBIDDEN on connection %d: %s\n", i, e.what());
        status = kCorrupt;
        stopping = 1;
      }
      --running;
    });
  std::printf("running\n");
  while (running) {
    usleep(kTickMs * 1000);
    for (size_t i = 0; i < watches.size(); ++i) {
      const char* what = watches[i].tick();
      if (!what) continue;
      std::printf("HANG on connection %zu: %s\n", i, what);
      print_stacks();
      std::fflush(nullptr);
      _exit(kHang);
    }
  }
  for (auto& thread : threads) thread.join();
  for (const auto& [what, times] : outcomes) std::printf("%s: %d\n", what.c_str(), times);
  if (status == kFine && device_removed) {
    std::printf("device removed\n");
    return kGone;
  }
  return status;
}

}  // namespace traffic
