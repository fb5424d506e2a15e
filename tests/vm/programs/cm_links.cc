// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Two connections at a time whose addresses and ports are the same, on two links: only the link tells them apart.
//
//   serve PORT                                accepts two, and answers what comes by each
//   serve PORT N                              accepts one, and answers what the client sends by its Nth, 0 or 1
//   connect PORT FROM TO FROM TO              two, both from one port, then messages by both in turn, verified
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cm_tools.h"

namespace {

constexpr size_t kMessage = 100000;
constexpr int kRounds = 20;

uint64_t seed(int connection, int round) { return static_cast<uint64_t>(connection) * 1000 + round; }

/// Of the connections those in [first, behind) are this server's.
void serve(uint16_t port, int first, int behind) {
  Endpoint both[2];
  const std::span<Endpoint> ends = std::span(both).subspan(0, static_cast<size_t>(behind - first));
  EventChannel events;
  rdma_cm_id* const id = events.create_id();
  CHECK_CALL(rdma_bind_addr(id, Address("::", port).get()));
  CHECK_CALL(rdma_listen(id, static_cast<int>(ends.size())));
  std::printf("listening\n");
  std::fflush(stdout);
  rdma_conn_param param = conn_param({});
  for (Endpoint& end : ends) {
    end.adopt(events.expect(RDMA_CM_EVENT_CONNECT_REQUEST, 8 * kWaitMs).id);
    end.create_qp({});
    CHECK_CALL(rdma_accept(end.id, &param));
    end.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
  CHECK_EQ(rdma_get_dst_port(ends.front().id), rdma_get_dst_port(ends.back().id));
  std::vector<std::unique_ptr<Region>> memory;
  for (Endpoint& end : ends) {
    memory.push_back(std::make_unique<Region>(end.pd, kMessage));
    end.recv(1, {memory.back()->sge()});
  }
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < ends.size(); ++i) {
      expect_wc(ends[i].recv_cq, 1);
      memory[i]->check(seed(first + static_cast<int>(i), round), 0, kMessage);
      ends[i].send({.wr_id = 2, .sges = {memory[i]->sge()}});
      expect_wc(ends[i].send_cq, 2);
      if (round + 1 < kRounds) ends[i].recv(1, {memory[i]->sge()});
    }
  for (Endpoint& end : ends) end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  rdma_destroy_id(id);
}

void connect_both(uint16_t port, char** addresses) {
  Endpoint ends[2];
  uint16_t own = 0;
  rdma_conn_param param = conn_param({});
  for (int i = 0; i < 2; ++i) {
    Endpoint& end = ends[i];
    end.id = end.events.create_id();
    CHECK_CALL(rdma_bind_addr(end.id, Address(addresses[2 * i], own).get()));
    own = ntohs(rdma_get_src_port(end.id));
    resolve(end, nullptr, Address(addresses[2 * i + 1], port));
    end.create_qp({});
    CHECK_CALL(rdma_connect(end.id, &param));
    end.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
  Region out(ends[0].pd, kMessage), out2(ends[1].pd, kMessage), in(ends[0].pd, kMessage), in2(ends[1].pd, kMessage);
  Region *const messages[] = {&out, &out2}, *const answers[] = {&in, &in2};
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 2; ++i) {
      ends[i].recv(1, {answers[i]->sge()});
      messages[i]->fill(seed(i, round));
      ends[i].send({.wr_id = 2, .sges = {messages[i]->sge()}});
    }
    for (int i = 0; i < 2; ++i) {
      expect_wc(ends[i].send_cq, 2);
      expect_wc(ends[i].recv_cq, 1);
      answers[i]->check(seed(i, round), 0, kMessage);
    }
  }
  for (Endpoint& end : ends) CHECK_CALL(rdma_disconnect(end.id));
  for (Endpoint& end : ends) end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string role = argc > 1 ? argv[1] : "";
    if (role == "serve" && argc == 3)
      serve(static_cast<uint16_t>(std::stoi(argv[2])), 0, 2);
    else if (role == "serve" && argc == 4)
      serve(static_cast<uint16_t>(std::stoi(argv[2])), std::stoi(argv[3]), std::stoi(argv[3]) + 1);
    else if (role == "connect" && argc == 7)
      connect_both(static_cast<uint16_t>(std::stoi(argv[2])), argv + 3);
    else
      FAIL("see the head of this file for the arguments");
  } catch (const tap::Failure& failure) {
    std::printf("%s\n", failure.what());
    return 1;
  }
  return 0;
}
