// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// One QP that connects by verbs alone. It reads a command from each line of stdin and prints one line for each, so that
// a test can lead the two ends of a connection, in two processes, in any order. A command for another QP begins with
// "@" and a name for that QP: "@second new".
//
//   new               a new QP; prints its number
//   init              to INIT
//   rtr QPN INDEX [IP]
//                     to RTR; the peer has the GID of the address IP, or the GID of this index, too
//   try QPN INDEX [IP]
//                     the same; prints the error, if that fails
//   rts [TIMEOUT]     to RTS, with this attribute; without it the time-out is 14
//   sqd, reset, err   to that state
//   destroy           destroys the QP
//   recv, send        posts one work request; a SEND has the next number, which "send" and "received" print
//   sent, received    waits for its completion; prints its status, and the number that has arrived
//   arrived           the same as "received" if it comes in 300 ms; otherwise prints "nothing"
//   nothing [MS]      waits that long, or 300 ms; prints "yes" if nothing has completed
//   state             prints the state that a query reports
//   sink              prints the number in the memory of the receives, without a completion; 0: nothing was written
//   index IP          prints the index of the GID of this address, or "none"
//   event             waits for an event of the QP; prints its name
//   full              takes all descriptors
//   fork HOW          forks a child and prints its process ID. The child exits, destroys the QP and exits, closes all
//                     descriptors, stays with them, or executes sleep(1): HOW is "exits", "destroys", "closes",
//                     "stays" or "execs". The command returns when the child has done that.
//
// Every command that works and has nothing to print prints "ok".
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <vector>

#include "by_verbs.h"

namespace {

constexpr int kSoonMs = 300;

ibv_gid gid_of(const std::string& ip) {
  ibv_gid gid = {};
  if (inet_pton(AF_INET6, ip.c_str(), gid.raw) == 1) return gid;
  gid.raw[10] = gid.raw[11] = 0xff;
  CHECK_EQ(inet_pton(AF_INET, ip.c_str(), gid.raw + 12), 1);
  return gid;
}

std::string index_of(const std::string& ip) {
  const ibv_gid wanted = gid_of(ip);
  std::vector<ibv_gid_entry> table(64);
  const ssize_t count = ibv_query_gid_table(context(), table.data(), table.size(), 0);
  for (ssize_t i = 0; i < count; ++i)
    if (std::memcmp(&table[i].gid, &wanted, sizeof wanted) == 0) return std::to_string(table[i].gid_index);
  return "none";
}

class User {
 public:
  std::string run(std::istringstream& line) {
    std::string what;
    line >> what;
    if (what == "new") {
      qp_ = std::make_unique<OwnQp>();
      memory_ = std::make_unique<Region>(qp_->pd, 2 * sizeof(uint32_t));
      std::memset(memory_->data(), 0, 2 * sizeof(uint32_t));
      return std::to_string(qp_->number());
    }
    if (what == "init")
      qp_->init();
    else if (what == "rtr")
      qp_->must(rtr(line));
    else if (what == "try")
      return std::strerror(rtr(line).apply(qp_->qp));
    else if (what == "rts")
      rts(line);
    else if (what == "reset")
      qp_->reset();
    else if (what == "sqd")
      qp_->must(only_state(IBV_QPS_SQD));
    else if (what == "err")
      qp_->must(only_state(IBV_QPS_ERR));
    else if (what == "recv")
      qp_->recv(1, {memory_->sge(sizeof(uint32_t), sizeof(uint32_t))});
    else if (what == "send")
      return std::to_string(send());
    else if (what == "sent")
      return ibv_wc_status_str(wait_wc(qp_->send_cq, 8 * kWaitMs).status);
    else if (what == "received")
      return received(kWaitMs);
    else if (what == "arrived")
      return received(kSoonMs);
    else if (what == "nothing")
      return nothing(line);
    else if (what == "state")
      return std::to_string(qp_->state());
    else if (what == "sink")
      return std::to_string(sink());
    else if (what == "index")
      return index_of(word(line));
    else if (what == "destroy")
      qp_->end();
    else if (what == "event")
      return event();
    else if (what == "full")
      take_descriptors();
    else if (what == "fork")
      return std::to_string(fork_child(word(line)));
    else
      FAIL("no such command: %s", what.c_str());
    return "ok";
  }

 private:
  static std::string word(std::istringstream& line) {
    std::string text;
    line >> text;
    return text;
  }

  static Change rtr(std::istringstream& line) {
    uint32_t qpn = 0;
    int index = 0;
    line >> qpn >> index;
    const std::string ip = word(line);
    return to_rtr(ip.empty() ? gid_at(index) : gid_of(ip), qpn, index);
  }

  void rts(std::istringstream& line) {
    Change change = to_rts();
    int timeout = 0;
    if (line >> timeout) change.attr.timeout = static_cast<uint8_t>(timeout);
    qp_->must(change);
  }

  uint32_t send() {
    std::memcpy(memory_->data(), &++number_, sizeof number_);
    qp_->send({.wr_id = 2, .sges = {memory_->sge(0, sizeof number_)}});
    return number_;
  }

  /// Waits for a message. Only a wait of kSoonMs may end without one.
  std::string received(int ms) {
    ibv_wc wc;
    try {
      wc = wait_wc(qp_->recv_cq, ms);
    } catch (const tap::Failure&) {
      if (ms == kSoonMs) return "nothing";
      throw;
    }
    return ibv_wc_status_str(wc.status) + std::string(" ") + std::to_string(sink());
  }

  uint32_t sink() const {
    uint32_t number = 0;
    std::memcpy(&number, memory_->data() + sizeof number, sizeof number);
    return number;
  }

  std::string event() {
    pollfd ready = {context()->async_fd, POLLIN, 0};
    CHECK_EQ(poll(&ready, 1, kWaitMs), 1);
    ibv_async_event got;
    CHECK_EQ(ibv_get_async_event(context(), &got), 0);
    CHECK(got.element.qp == qp_->qp);
    const std::string name = ibv_event_type_str(got.event_type);
    ibv_ack_async_event(&got);
    return name;
  }

  void take_descriptors() {
    constexpr rlim_t kLimit = 64;
    const rlimit limit = {kLimit, kLimit};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (dup(0) >= 0) {
    }
  }

  std::string nothing(std::istringstream& line) {
    int ms;
    if (!(line >> ms)) ms = kSoonMs;
    expect_no_wc(qp_->recv_cq, ms);
    expect_no_wc(qp_->send_cq, 0);
    return "yes";
  }

  pid_t fork_child(const std::string& how) {
    int done[2];
    CHECK_CALL(pipe2(done, O_CLOEXEC));
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) be_child(how, done[1]);
    close(done[1]);
    char none;
    CHECK_EQ(read(done[0], &none, 1), 0);  // the child has closed its end
    close(done[0]);
    if (how == "exits" || how == "destroys") CHECK_EQ(waitpid(pid, nullptr, 0), pid);
    return pid;
  }

  [[noreturn]] void be_child(const std::string& how, int done) {
    constexpr unsigned kLifeSeconds = 120;
    alarm(kLifeSeconds);                             // if the test ends early
    if (how == "destroys") ibv_destroy_qp(qp_->qp);  // refused, because the QP belongs to the parent
    if (how == "destroys" || how == "exits") exit(0);
    if (how == "execs") execlp("sleep", "sleep", std::to_string(kLifeSeconds).c_str(), nullptr);
    if (how == "closes") close_range(STDERR_FILENO + 1, ~0U, 0);
    if (how == "stays") close(done);
    for (;;) pause();
  }

  std::unique_ptr<OwnQp> qp_;
  std::unique_ptr<Region> memory_;
  uint32_t number_ = 0;
};

}  // namespace

int main() {
  std::map<std::string, User> users;
  std::string text;
  while (std::getline(std::cin, text)) {
    std::istringstream line(text);
    std::string name;
    if (line.peek() == '@') line >> name;
    try {
      std::cout << users[name].run(line) << std::endl;
    } catch (const tap::Failure& failure) {
      std::cout << "failed: " << failure.what() << std::endl;
      return 1;
    }
  }
  return 0;
}
