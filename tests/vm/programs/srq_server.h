// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file srq_server.h
/// A server whose connections share a receive queue, for programs that are killed or stopped.
#ifndef USIW_TESTS_SRQ_SERVER_H
#define USIW_TESTS_SRQ_SERVER_H

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "rig.h"

/// A line for the test that drives this process.
inline void say(const char* text, unsigned number) {
  std::printf("%s %u\n", text, number);
  std::fflush(stdout);
}

/// The main() of such a program: `server ADDRESS COUNT` or, with the role of a peer, `ROLE FROM TO PORT`.
inline int server_or_peer(int argc, char** argv, int (*server)(const std::string& ip, unsigned count),
                          int (*peer)(const std::string& role, const std::string& from, const std::string& to,
                                      uint16_t port)) {
  try {
    const std::string role = argc > 1 ? argv[1] : "";
    if (role == "server" && argc == 4) return server(argv[2], static_cast<unsigned>(std::stoi(argv[3])));
    if (argc == 5) return peer(role, argv[2], argv[3], static_cast<uint16_t>(std::stoi(argv[4])));
    return 2;
  } catch (const tap::Failure& failure) {
    std::printf("%s\n", failure.what());
    return 1;
  }
}

class SrqServer {
 public:
  /// Says where it listens and accepts @p count connections. All of @p receives, each with a slot of @p slot bytes, are
  /// posted with the first.
  SrqServer(const std::string& ip, unsigned count, uint32_t receives, uint32_t slot) : slot_(slot) {
    Listener listener(ip);
    say("listening", listener.port());
    while (peers_.size() < count) {
      auto& peer = *peers_.emplace_back(std::make_unique<Endpoint>());
      peer.adopt(listener.wait_request(4 * kWaitMs).id);
      if (!options_.srq) create(peer.id->verbs, receives);
      peer.create_qp(options_);
      rdma_conn_param param = conn_param(options_);
      CHECK_CALL(rdma_accept(peer.id, &param));
      peer.events.expect(RDMA_CM_EVENT_ESTABLISHED);
    }
  }

  void post(uint64_t number) {
    ibv_sge sge = memory_->sge(number * slot_, slot_);
    ibv_recv_wr wr = {.wr_id = number, .next = nullptr, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK_EQ(ibv_post_srq_recv(options_.srq, &wr, &bad), 0);
  }
  /// The bytes of the receive with that wr_id.
  const uint8_t* at(uint64_t number) const { return memory_->data() + number * slot_; }
  ibv_srq* srq() const { return options_.srq; }
  ibv_cq* cq() const { return options_.cq; }
  const std::vector<std::unique_ptr<Endpoint>>& peers() const { return peers_; }

 private:
  void create(ibv_context* context, uint32_t receives) {
    ibv_pd* const pd = pd_of(context);
    ibv_srq_init_attr attr = {};
    attr.attr.max_wr = receives;
    attr.attr.max_sge = 1;
    options_.srq = ibv_create_srq(pd, &attr);
    options_.cq = ibv_create_cq(context, 1024, nullptr, nullptr, 0);
    CHECK(options_.srq && options_.cq);
    memory_ = std::make_unique<Region>(pd, size_t{receives} * slot_);
    for (uint64_t i = 0; i < receives; ++i) post(i);
  }

  const uint32_t slot_;
  Options options_;
  std::unique_ptr<Region> memory_;
  std::vector<std::unique_ptr<Endpoint>> peers_;
};

#endif  // USIW_TESTS_SRQ_SERVER_H
