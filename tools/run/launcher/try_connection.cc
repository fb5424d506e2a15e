// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/launcher/try_connection.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tools/run/conn/stat_page.h"
#include "tools/run/host/settings.h"
#include "tools/run/launcher/two_hosts.h"

namespace usiw::run {
namespace {

constexpr unsigned kSeconds = 6;  ///< time limit for each process of a trial; DPDK needs half a second to start
constexpr std::chrono::seconds kGrace(1);  ///< additional time until the trial is killed
constexpr int kNotTriedStatus = 77;
constexpr uint32_t kLength = 256;
constexpr int kRounds = 20, kMoreRounds = 300;

// ---- The trial: two processes, which find librdmacm and libibverbs at run time --------------

/// Prints why the trial failed, and ends the process.
[[noreturn]] void give_up(const std::string& why, int status = 1) {
  printf("%s\n", why.c_str());
  fflush(stdout);
  _exit(status);
}

void must(bool good, const char* what) {
  if (!good) give_up(std::string(what) + ": " + strerror(errno));
}

template <typename Function>
Function* load(void* library, const char* name, Function*) {
  void* found = dlsym(library, name);
  if (found == nullptr) give_up(std::string("there is no ") + name + " in librdmacm or libibverbs");
  return reinterpret_cast<Function*>(found);
}

/// Finds a function of librdmacm or of libibverbs, which is loaded with librdmacm.
#define LIBRARY(function) load(library(), #function, static_cast<decltype(&::function)>(nullptr))

void* library() {
  static void* const handle = dlopen("librdmacm.so.1", RTLD_NOW);
  if (handle == nullptr) give_up(dlerror());
  return handle;
}

struct Message {
  std::array<uint8_t, kLength> in, out;
};

/// One end of a connection.
class End {
 public:
  explicit End(rdma_cm_id* id) : id_(id) {
    mr_ = LIBRARY(ibv_reg_mr)(id->pd, &message_, sizeof message_, IBV_ACCESS_LOCAL_WRITE);
    must(mr_ != nullptr, "ibv_reg_mr");
    receive();
  }
  void receive() { must(rdma_post_recv(id_, nullptr, message_.in.data(), kLength, mr_) == 0, "ibv_post_recv"); }
  void send(uint8_t fill) {
    message_.out.fill(fill);
    must(rdma_post_send(id_, nullptr, message_.out.data(), kLength, mr_, IBV_SEND_SIGNALED) == 0, "ibv_post_send");
    take(id_->send_cq, "SEND");
  }
  /// Waits for a message. Returns false if the receive fails, as it does when the peer disconnects. SIGALRM limits the
  /// time.
  bool received(uint8_t& fill) {
    if (!take(id_->recv_cq, nullptr)) return false;
    fill = message_.in[0];
    for (uint8_t byte : message_.in)
      if (byte != fill) give_up("a message arrived with other bytes than were sent");
    return true;
  }
  /// Returns the port that the connection uses, as the provider shows it in the counters page of the QP.
  PortKind port() const {
    StatPage page{};
    for (uint64_t i = 0; pread(id_->verbs->cmd_fd, &page, sizeof page, stat_page_at(i)) == sizeof page; ++i)
      if (page.mark.kind == static_cast<uint32_t>(StatKind::kQp) && page.mark.qpn == id_->qp->qp_num)
        return static_cast<PortKind>(page.gauges[USIW_GAUGE_PORT]);
    return PortKind::kNone;
  }

 private:
  static bool take(ibv_cq* cq, const char* what) {
    ibv_wc wc;
    int n;
    while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
    }
    if (n > 0 && wc.status == IBV_WC_SUCCESS) return true;
    if (what != nullptr) give_up(std::string(what) + ": " + LIBRARY(ibv_wc_status_str)(wc.status));
    return false;
  }
  rdma_cm_id* const id_;
  ibv_mr* mr_;
  Message message_{};
};

rdma_cm_id* make_id(const std::string& address, const char* port, bool passive) {
  rdma_addrinfo hints{}, *info = nullptr;
  hints.ai_flags = passive ? RAI_PASSIVE : 0;
  hints.ai_port_space = RDMA_PS_TCP;
  if (LIBRARY(rdma_getaddrinfo)(address.c_str(), port, &hints, &info) != 0)
    give_up("no RDMA device was found, or there is no route to " + address + ": " + strerror(errno));
  ibv_qp_init_attr attr{};
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  rdma_cm_id* id = nullptr;
  must(LIBRARY(rdma_create_ep)(&id, info, nullptr, &attr) == 0, "rdma_create_ep");
  return id;
}

/// Listens, sends the port number to the client, and sends back each message.
[[noreturn]] void serve(const std::string& address, int to_client) {
  rdma_cm_id *listener = make_id(address, "0", true), *id = nullptr;
  must(LIBRARY(rdma_listen)(listener, 1) == 0, "rdma_listen");
  const uint16_t port = LIBRARY(rdma_get_src_port)(listener);
  must(write(to_client, &port, sizeof port) == sizeof port, "a pipe");
  must(LIBRARY(rdma_get_request)(listener, &id) == 0, "rdma_get_request");
  End end(id);
  must(LIBRARY(rdma_accept)(id, nullptr) == 0, "rdma_accept");
  for (uint8_t fill = 0; end.received(fill);) {
    end.receive();
    end.send(fill);
  }
  _exit(0);
}

/// Returns true if this process shares memory with the peer, or if that cannot be checked.
bool shares_memory() {
  std::ifstream maps("/proc/self/maps");
  if (!maps.good()) return true;
  for (std::string line; std::getline(maps, line);)
    if (line.find("usiw-shm") != std::string::npos) return true;
  return false;
}

/// Connects to the server, exchanges messages, and checks that the connection uses the port @p kind.
void ask(const std::string& address, uint16_t port, PortKind kind) {
  rdma_cm_id* id = make_id(address, std::to_string(ntohs(port)).c_str(), false);
  End end(id);
  must(LIBRARY(rdma_connect)(id, nullptr) == 0, "rdma_connect");
  bool there = false;
  for (int round = 0; round < kRounds || (!there && round < kMoreRounds); round++) {
    uint8_t fill = 0;
    end.send(static_cast<uint8_t>(round));
    if (!end.received(fill)) give_up("the connection ended");
    if (fill != static_cast<uint8_t>(round)) give_up("a message arrived in place of another one");
    end.receive();
    there = end.port() == kind && (kind != PortKind::kShm || shares_memory());
    if (round >= kRounds) usleep(1000);
  }
  if (!there) give_up("the connection works, but uses another port");
  LIBRARY(rdma_disconnect)(id);
}

// ---- usiw-run --check, which starts the trial ------------------------------------------------

const char* name_of(PortKind kind) {
  return kind == PortKind::kShm ? "shm" : kind == PortKind::kPacket ? "packet" : "socket";
}

/// Executes the trial in a child of `usiw-run --check`. The trial prints to @p output.
[[noreturn]] void become_trial(const Parts& parts, PortKind kind, const std::string& address, int output) {
  const int null = open("/dev/null", O_RDWR);
  dup2(null, 0);
  dup2(output, 1);
  dup2(output, 2);
  set_environment(parts);
  setenv(kRunPortVariable, name_of(kind), 1);
  unsetenv(kFaultsVariable);
  execl(parts.self.c_str(), parts.self.c_str(), kTryArgument, name_of(kind), address.c_str(), nullptr);
  give_up(parts.self + ": " + strerror(errno));
}

/// Returns the last line of a trial's output. If an earlier line begins with "usiw", the first such line follows in
/// parentheses.
std::string reason_in(const std::string& text) {
  std::istringstream lines(text);
  std::string own, last;
  for (std::string line; std::getline(lines, line);) {
    if (own.empty() && line.compare(0, 4, "usiw") == 0) own = line;
    if (!line.empty()) last = line;
  }
  return own.empty() || own == last ? last : last + " (" + own + ")";
}

/// Reads until all writers of the pipe are gone. Returns false if that takes too long.
bool read_all(int fd, std::string& text) {
  using std::chrono::steady_clock;
  const auto limit = steady_clock::now() + std::chrono::seconds(kSeconds) + kGrace;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - steady_clock::now()).count();
    pollfd end{fd, POLLIN, 0};
    if (left <= 0 || poll(&end, 1, static_cast<int>(left)) == 0) return false;
    char part[512];
    const ssize_t n = read(fd, part, sizeof part);
    if (n == 0 || (n < 0 && errno != EINTR)) return true;
    if (n > 0) text.append(part, static_cast<size_t>(n));
  }
}

}  // namespace

int try_connection_main(const std::string& port, const std::string& address) {
  const PortKind kind = port == "shm" ? PortKind::kShm : port == "packet" ? PortKind::kPacket : PortKind::kSocket;
  const bool two_hosts = kind == PortKind::kPacket;
  if (two_hosts)
    if (std::string wrong = leave_network(); !wrong.empty()) give_up(wrong, kNotTriedStatus);
  int to_client[2], to_server[2];
  must(pipe2(to_client, O_CLOEXEC) == 0 && pipe2(to_server, O_CLOEXEC) == 0, "a pipe");
  const auto byte_from = [](int fd) { char byte; return read(fd, &byte, 1) == 1; };
  alarm(kSeconds);
  const pid_t server = fork();
  must(server >= 0, "fork");
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(kSeconds);
    if (two_hosts) {
      if (std::string wrong = leave_network(); !wrong.empty()) give_up(wrong, kNotTriedStatus);
      must(write(to_client[1], "", 1) == 1 && byte_from(to_server[0]), "a pipe");
      if (std::string wrong = set_up_host(1); !wrong.empty()) give_up(wrong, kNotTriedStatus);
    }
    serve(two_hosts ? kHostAddress[1] : address, to_client[1]);
  }
  close(to_client[1]);
  close(to_server[0]);
  const auto server_failed = [server] {
    int status = 0;
    waitpid(server, &status, 0);
    // A server that exits after an error has printed the error, so this process prints nothing.
    _exit(WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1);
  };
  if (two_hosts) {
    if (!byte_from(to_client[0])) server_failed();
    std::string wrong = connect_hosts(server);
    if (wrong.empty()) wrong = set_up_host(0);
    if (!wrong.empty()) give_up(wrong, kNotTriedStatus);
    must(write(to_server[1], "", 1) == 1, "a pipe");
  }
  uint16_t at = 0;
  if (read(to_client[0], &at, sizeof at) != sizeof at) server_failed();
  ask(two_hosts ? kHostAddress[1] : address, at, kind);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return 0;
}

Tried try_connection(const Parts& parts, PortKind kind, const std::string& address) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return {Tried::kFails, strerror(errno)};
  const pid_t pid = fork();
  if (pid == 0) become_trial(parts, kind, address, output[1]);
  close(output[1]);
  std::string text;
  const bool in_time = pid > 0 && read_all(output[0], text);
  close(output[0]);
  if (pid < 0) return {Tried::kFails, strerror(errno)};
  int status = 0;
  if (!in_time) kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  std::string why = reason_in(text);
  if (in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0) return {Tried::kWorks, {}};
  if (in_time && WIFEXITED(status) && WEXITSTATUS(status) == kNotTriedStatus) return {Tried::kNotTried, why};
  if (!in_time || WIFSIGNALED(status))
    why = (WIFSIGNALED(status) && WTERMSIG(status) != SIGALRM && in_time
               ? std::string("the program ended by ") + strsignal(WTERMSIG(status))
               : "no answer within " + std::to_string(kSeconds) + " s") +
          (why.empty() ? "" : "; " + why);
  return {Tried::kFails, why.empty() ? "no reason given" : why};
}

}  // namespace usiw::run
