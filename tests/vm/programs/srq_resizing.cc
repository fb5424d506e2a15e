// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// A server that changes the size of its SRQ all the time, and its peers, for a test that stops it amid that:
//
//   srq_resizing server ADDRESS COUNT     accepts COUNT connections; ends when each peer has said that it has sent all
//   srq_resizing peer FROM TO PORT        sends numbered messages until SIGTERM, and then how many they were
//
// The server ends with 0 if each message of each peer has come once, in order and unchanged; a peer if all have
// succeeded.
#include <atomic>
#include <csignal>
#include <map>
#include <string>
#include <thread>

#include "srq_server.h"

namespace {

constexpr uint32_t kSlot = 16384, kReceives = 32, kSends = 8;

struct Head {
  uint32_t number, last;  ///< of the messages of a peer; the last one says how many came before it
};

volatile std::sig_atomic_t told_to_end = 0;

uint32_t bytes_of(uint32_t number) { return static_cast<uint32_t>(sizeof(Head)) + number * 397 % (kSlot - 64); }

/// Resizes the SRQ until @p over. Returns how often.
unsigned resize_until(ibv_srq* srq, const std::atomic<bool>& over) {
  static constexpr uint32_t kSizes[] = {64, 2000, 33, 500, 4000, 100};
  unsigned times = 0;
  for (; !over; ++times) {
    ibv_srq_attr attr = {}, got = {};
    attr.max_wr = kSizes[times % std::size(kSizes)];
    CHECK_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
    CHECK_EQ(ibv_query_srq(srq, &got), 0);
    CHECK(got.max_wr >= attr.max_wr);
    if (times == 20) say("resizes", times);
  }
  return times;
}

/// Receives from all until each has told of its last message. Returns how many messages came.
unsigned receive(SrqServer& server, size_t peers) {
  std::map<uint32_t, uint32_t> next;  // by QP
  unsigned messages = 0;
  for (size_t ended = 0; ended < peers;) {
    const ibv_wc wc = wait_wc(server.cq(), 4 * kWaitMs);
    if (wc.status != IBV_WC_SUCCESS) FAIL("a receive completed with '%s'", ibv_wc_status_str(wc.status));
    const uint8_t* at = server.at(wc.wr_id);
    Head head;
    CHECK(wc.byte_len >= sizeof head);
    std::memcpy(&head, at, sizeof head);
    uint32_t& expected = next[wc.qp_num];
    CHECK_EQ(head.number, expected);
    ++expected;
    CHECK_EQ(wc.byte_len, bytes_of(head.number));
    const size_t rest = wc.byte_len - sizeof head;
    CHECK_EQ(pattern_mismatch(at + sizeof head, rest, head.number), rest);
    ended += head.last;
    ++messages;
    server.post(wc.wr_id);
  }
  return messages;
}

int serve(const std::string& ip, unsigned count) {
  SrqServer server(ip, count, kReceives, kSlot);
  std::atomic<bool> over = false;
  unsigned resizes = 0;
  std::string wrong;
  std::thread resizer([&] {
    try {
      resizes = resize_until(server.srq(), over);
    } catch (const tap::Failure& failure) {
      wrong = failure.what();
    }
  });
  unsigned messages = 0;
  std::string bad;
  try {
    messages = receive(server, count);
  } catch (const tap::Failure& failure) {
    bad = failure.what();
  }
  over = true;
  resizer.join();
  if (!wrong.empty()) FAIL("%s", wrong.c_str());
  if (!bad.empty()) FAIL("%s", bad.c_str());
  say("resizes", resizes);
  say("messages", messages);
  for (auto& peer : server.peers()) CHECK_CALL(rdma_disconnect(peer->id));
  for (auto& peer : server.peers()) peer->events.expect(RDMA_CM_EVENT_DISCONNECTED);
  return 0;
}

int send_all(const std::string&, const std::string& from, const std::string& to, uint16_t port) {
  std::signal(SIGTERM, [](int) { told_to_end = 1; });
  Endpoint end;
  end.resolve(from, to, port);
  end.create_qp({});
  Region source(end.pd, kSends * kSlot);
  rdma_conn_param param = conn_param({});
  CHECK_CALL(rdma_connect(end.id, &param));
  end.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  say("connected", port);
  uint32_t sent = 0, done = 0;
  for (bool last = false; !last || done < sent;) {
    while (!last && sent - done < kSends) {
      last = told_to_end != 0;
      uint8_t* at = source.data() + sent % kSends * kSlot;
      const Head head = {sent, last};
      std::memcpy(at, &head, sizeof head);
      fill_pattern(at + sizeof head, bytes_of(sent) - sizeof head, sent);
      end.send({.wr_id = sent, .sges = {source.sge(sent % kSends * kSlot, bytes_of(sent))}});
      ++sent;
    }
    const ibv_wc wc = wait_wc(end.send_cq, 4 * kWaitMs);
    if (wc.status != IBV_WC_SUCCESS) FAIL("a SEND completed with '%s'", ibv_wc_status_str(wc.status));
    CHECK_EQ(wc.wr_id, done);
    ++done;
    if (done % 50 == 0) say("sent", done);
  }
  say("all", sent);
  end.events.expect(RDMA_CM_EVENT_DISCONNECTED, 4 * kWaitMs);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return server_or_peer(argc, argv, serve, send_all); }
