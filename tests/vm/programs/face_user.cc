// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// One QP that connects by verbs alone. It reads a command from each line of stdin and prints one line for each, so that
// a test can lead the two ends of a connection, in two processes, in any order.
//
//   new               a new QP; prints its number
//   init              to INIT
//   rtr QPN INDEX     to RTR; the peer has the GID of this index, too
//   rts, reset, err   to that state
//   recv, send        posts one work request; a SEND has the next number, which "received" prints
//   sent, received    waits for its completion; prints its status, and the number that has arrived
//   nothing           waits 300 ms; prints "yes" if nothing has completed
//   state             prints the state that a query reports
//
// Every command that works and has nothing to print prints "ok".
#include <cstdio>
#include <iostream>
#include <sstream>

#include "by_verbs.h"

namespace {

class User {
 public:
  std::string run(std::istringstream& line) {
    std::string what;
    line >> what;
    if (what == "new") {
      qp_ = std::make_unique<OwnQp>();
      memory_ = std::make_unique<Region>(qp_->pd, 2 * sizeof(uint32_t));
      return std::to_string(qp_->number());
    }
    if (what == "init")
      qp_->init();
    else if (what == "rtr")
      rtr(line);
    else if (what == "rts")
      qp_->rts();
    else if (what == "reset")
      qp_->reset();
    else if (what == "err")
      qp_->must(only_state(IBV_QPS_ERR));
    else if (what == "recv")
      qp_->recv(1, {memory_->sge(sizeof(uint32_t), sizeof(uint32_t))});
    else if (what == "send")
      send();
    else if (what == "sent")
      return ibv_wc_status_str(wait_wc(qp_->send_cq, 8 * kWaitMs).status);
    else if (what == "received")
      return received();
    else if (what == "nothing")
      return nothing();
    else if (what == "state")
      return std::to_string(qp_->state());
    else
      FAIL("no such command: %s", what.c_str());
    return "ok";
  }

 private:
  void rtr(std::istringstream& line) {
    uint32_t qpn = 0;
    int index = 0;
    line >> qpn >> index;
    qp_->rtr(qpn, index);
  }

  void send() {
    std::memcpy(memory_->data(), &++number_, sizeof number_);
    qp_->send({.wr_id = 2, .sges = {memory_->sge(0, sizeof number_)}});
  }

  std::string received() {
    const ibv_wc wc = wait_wc(qp_->recv_cq);
    uint32_t number = 0;
    std::memcpy(&number, memory_->data() + sizeof number, sizeof number);
    return ibv_wc_status_str(wc.status) + std::string(" ") + std::to_string(number);
  }

  std::string nothing() {
    expect_no_wc(qp_->recv_cq, 300);
    expect_no_wc(qp_->send_cq, 0);
    return "yes";
  }

  std::unique_ptr<OwnQp> qp_;
  std::unique_ptr<Region> memory_;
  uint32_t number_ = 0;
};

}  // namespace

int main() {
  User user;
  std::string text;
  while (std::getline(std::cin, text)) {
    std::istringstream line(text);
    try {
      std::cout << user.run(line) << std::endl;
    } catch (const tap::Failure& failure) {
      std::cout << "failed: " << failure.what() << std::endl;
      return 1;
    }
  }
  return 0;
}
