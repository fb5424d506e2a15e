// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Connected QPs that stay idle, or several clients that send to one server at once.
//
//   many_qps idle SECONDS PORT server QPS | client ADDRESS QPS
//       blocked in event mode; prints "processor=..." (seconds per second) and "peak_kib=..." (VmHWM)
//   many_qps stream SECONDS PORT SIZE server CLIENTS | client ADDRESS
//       each client sends from when all are connected; prints "mb_s=..." of what was acknowledged
//
// One CQ and one buffer for all QPs of a process: what grows with the QPs is the library's.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kResolveMs = 5000;
constexpr std::chrono::milliseconds kGrace(300);  ///< for the other end to have been idle as long
constexpr unsigned kLimitSeconds = 300;
constexpr uint32_t kDepth = 16;

void check(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double processor_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

long peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::atol(line.c_str() + 6);
  return 0;
}

class End {
 public:
  End(double seconds, size_t size, int qps) : seconds_(seconds), size_(size), wanted_(qps), buffer_(size) {
    events_ = rdma_create_event_channel();
    check(events_, "rdma_create_event_channel");
  }

  void serve(uint16_t port) {
    rdma_cm_id* listener;
    sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {INADDR_ANY}, .sin_zero = {}};
    check(rdma_create_id(events_, &listener, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    check(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&here)) == 0, "rdma_bind_addr");
    check(rdma_listen(listener, 1024) == 0, "rdma_listen");
    for (int connected = 0; connected < wanted_;) {
      const auto [type, id, status] = next();
      if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        add(id);
        check(rdma_accept(id, nullptr) == 0, "rdma_accept");
      } else {
        if (type != RDMA_CM_EVENT_ESTABLISHED) {
          std::fprintf(stderr, "%s (%d) with %d QPs\n", rdma_event_str(type), status, connected);
          std::exit(1);
        }
        ++connected;
      }
    }
    for (rdma_cm_id* id : ids_) send(id, 1);   // to all: all are here
    for (int told = 0; told < wanted_;) {   // the first may send meanwhile
      const ibv_wc wc = completion();
      if (wc.opcode == IBV_WC_SEND)
        ++told;
      else
        receive(ids_[wc.wr_id]->qp, wc.wr_id);
    }
  }

  void connect(const char* address, uint16_t port) {
    sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
    check(inet_pton(AF_INET, address, &to.sin_addr) == 1, address);
    for (int i = 0; i < wanted_; ++i) {
      rdma_cm_id* id;
      check(rdma_create_id(events_, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
      check(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), kResolveMs) == 0, "rdma_resolve_addr");
      expect(RDMA_CM_EVENT_ADDR_RESOLVED);
      check(rdma_resolve_route(id, kResolveMs) == 0, "rdma_resolve_route");
      expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
      add(id);
      rdma_conn_param param = {};
      param.retry_count = 7;
      check(rdma_connect(id, &param) == 0, "rdma_connect");
      expect(RDMA_CM_EVENT_ESTABLISHED);
    }
    for (int i = 0; i < wanted_; ++i) check(completion().opcode == IBV_WC_RECV, "start");
  }

  /// Blocks in event mode; nothing comes.
  void idle() {
    check(ibv_req_notify_cq(cq_, 0) == 0, "ibv_req_notify_cq");
    const auto start = Clock::now();
    const double used = processor_seconds();
    pollfd waited = {.fd = completions_->fd, .events = POLLIN, .revents = 0};
    poll(&waited, 1, static_cast<int>(seconds_ * 1000));
    const double elapsed = since(start), processor = processor_seconds() - used;
    if (elapsed < seconds_ / 2) {   // Later than that it is the other end that has ended.
      std::fprintf(stderr, "not idle for more than %.3f s\n", elapsed);
      std::exit(1);
    }
    std::printf("processor=%.6f peak_kib=%ld\n", processor / elapsed, peak_kib());
    std::fflush(stdout);
    std::this_thread::sleep_for(kGrace);
  }

  void stream() {
    const auto start = Clock::now();
    double bytes = 0;
    uint32_t under_way = 0;
    while (since(start) < seconds_ || under_way > 0) {
      for (; under_way < kDepth && since(start) < seconds_; ++under_way) send(ids_[0], size_);
      check(completion().opcode == IBV_WC_SEND, "a message");
      --under_way;
      bytes += static_cast<double>(size_);
    }
    std::printf("mb_s=%.3f\n", bytes / since(start) / 1e6);
    rdma_disconnect(ids_[0]);
  }

  /// Takes what comes until every client has gone.
  void sink() {
    pollfd waited = {.fd = events_->fd, .events = POLLIN, .revents = 0};
    for (int gone = 0; gone < wanted_;) {
      ibv_wc wc[32];
      const int n = ibv_poll_cq(cq_, 32, wc);
      check(n >= 0, "ibv_poll_cq");
      for (int i = 0; i < n; ++i)
        if (wc[i].status == IBV_WC_SUCCESS) receive(ids_[wc[i].wr_id]->qp, wc[i].wr_id);
      if (n == 0 && poll(&waited, 1, 0) == 1 && next().type == RDMA_CM_EVENT_DISCONNECTED) ++gone;
    }
  }

 private:
  struct Event {
    rdma_cm_event_type type;
    rdma_cm_id* id;
    int status;
  };
  Event next() {
    rdma_cm_event* event;
    check(rdma_get_cm_event(events_, &event) == 0, "rdma_get_cm_event");
    const Event out = {event->event, event->id, event->status};
    rdma_ack_cm_event(event);
    return out;
  }
  void expect(rdma_cm_event_type wanted) {
    const Event event = next();
    if (event.type == wanted) return;
    std::fprintf(stderr, "%s (%d) instead of %s with %zu QPs\n", rdma_event_str(event.type), event.status,
                 rdma_event_str(wanted), ids_.size());
    std::exit(1);
  }

  /// Gives the id a QP with receives posted.
  void add(rdma_cm_id* id) {
    if (!pd_) {
      pd_ = ibv_alloc_pd(id->verbs);
      check(pd_, "ibv_alloc_pd");
      mr_ = ibv_reg_mr(pd_, buffer_.data(), buffer_.size(), IBV_ACCESS_LOCAL_WRITE);
      completions_ = ibv_create_comp_channel(id->verbs);
      check(mr_ && completions_, "ibv_reg_mr");
      // Idle QPs have at most one receive and one send under way.
      const int entries = size_ > 1 ? 2 * wanted_ * static_cast<int>(kDepth) : 2 * wanted_;
      cq_ = ibv_create_cq(id->verbs, entries, nullptr, completions_, 0);
      check(cq_, "ibv_create_cq");
    }
    ibv_qp_init_attr attributes = {};
    attributes.send_cq = attributes.recv_cq = cq_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 1;
    attributes.cap = {.max_send_wr = kDepth, .max_recv_wr = kDepth, .max_send_sge = 1, .max_recv_sge = 1,
                      .max_inline_data = 0};
    check(rdma_create_qp(id, pd_, &attributes) == 0, "rdma_create_qp");
    ids_.push_back(id);
    for (uint32_t i = 0; i < (size_ > 1 ? kDepth : 1); ++i) receive(id->qp, ids_.size() - 1);
  }

  ibv_sge all(size_t size) const {
    return {.addr = reinterpret_cast<uintptr_t>(buffer_.data()), .length = static_cast<uint32_t>(size),
            .lkey = mr_->lkey};
  }
  void receive(ibv_qp* qp, uint64_t number) const {
    ibv_sge sge = all(size_);
    ibv_recv_wr wr = {}, *bad;
    wr.wr_id = number;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    check(ibv_post_recv(qp, &wr, &bad) == 0, "ibv_post_recv");
  }
  void send(rdma_cm_id* id, size_t size) const {
    ibv_sge sge = all(size);
    ibv_send_wr wr = {}, *bad;
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    check(ibv_post_send(id->qp, &wr, &bad) == 0, "ibv_post_send");
  }
  ibv_wc completion() const {
    ibv_wc wc;
    int n;
    while ((n = ibv_poll_cq(cq_, 1, &wc)) == 0) {
    }
    check(n == 1, "ibv_poll_cq");
    if (wc.status == IBV_WC_SUCCESS) return wc;
    std::fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
    std::exit(1);
  }

  double seconds_;
  size_t size_;
  int wanted_;
  std::vector<char> buffer_;
  rdma_event_channel* events_;
  ibv_pd* pd_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_comp_channel* completions_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::vector<rdma_cm_id*> ids_;
};

}  // namespace

int main(int argc, char** argv) {
  const bool streaming = argc > 1 && !std::strcmp(argv[1], "stream");
  const int at = streaming ? 5 : 4;
  const bool server = argc == at + 2 && !std::strcmp(argv[at], "server");
  if (!server && argc != 7) {
    std::fprintf(stderr, "usage: many_qps idle SECONDS PORT server QPS | client ADDRESS QPS\n"
                         "       many_qps stream SECONDS PORT SIZE server CLIENTS | client ADDRESS\n");
    return 2;
  }
  const uint16_t port = static_cast<uint16_t>(std::atoi(argv[3]));
  const size_t size = streaming ? std::strtoul(argv[4], nullptr, 10) : 1;
  const int qps = server ? std::atoi(argv[at + 1]) : streaming ? 1 : std::atoi(argv[at + 2]);
  if (qps < 1 || size < 1) return 2;
  rlimit files;   // three for each QP
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  alarm(kLimitSeconds);
  End end(std::strtod(argv[2], nullptr), size, qps);
  if (server)
    end.serve(port);
  else
    end.connect(argv[at + 1], port);
  if (!streaming)
    end.idle();
  else if (server)
    end.sink();
  else
    end.stream();
  return 0;
}
