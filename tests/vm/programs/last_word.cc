// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Two processes, of which one polls the trailing word of WRITEs by the other:
//
//   last_word receive IP                  prints `listening PORT`, serves one sender, prints `torn N of M`
//   last_word send FROM TO PORT COUNT MS  writes messages of each length, COUNT at most, and for so long at most
//
// Every word of a message is the message's number. The receiver polls the last word alone, without a call. When it
// shows the new number, all words in front of it have to. A message is torn where one does not. The receiver answers
// each message by a SEND, and the next one overwrites it. Exit status 0: no message was torn.
#include <sched.h>

#include <cstdio>
#include <cstdlib>

#include "rig.h"

namespace {

constexpr uint32_t kLengths[] = {512, 1400};
constexpr uint32_t kMost = 1400;
constexpr uint64_t kEnd = ~0ull;  ///< in place of a number, behind the last message of a length

struct Window {
  uint64_t addr;
  uint32_t rkey;
};

uint64_t load(const uint64_t* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

enum class Message { kWhole, kTorn, kNone };

/// Waits for message @p number of @p words words. Nothing but loads is between the last word and the others, because a
/// torn message is whole some nanoseconds later.
Message receive(const uint64_t* at, size_t words, uint64_t number) {
  const uint64_t end = tap::now_ms() + static_cast<uint64_t>(kWaitMs);
  uint64_t last;
  for (uint32_t spins = 1; (last = load(at + words - 1)) != number && last != kEnd; ++spins) {
    if (spins % 1000 != 0) continue;
    if (tap::now_ms() > end) FAIL("message %llu has not come", static_cast<unsigned long long>(number));
    sched_yield();
  }
  for (size_t i = 0; i < words; ++i)
    if (load(at + i) != last) return Message::kTorn;
  return last == kEnd ? Message::kNone : Message::kWhole;
}

int receiver(const std::string& ip) {
  Listener listener(ip);
  std::printf("listening %u\n", listener.port());
  std::fflush(stdout);
  const CmEvent request = listener.wait_request(8 * kWaitMs);
  Endpoint end;
  end.adopt(request.id);
  end.create_qp({});
  Region memory(end.pd, kMost), answer(end.pd, 8);
  memory.clear();
  const Window window = {memory.addr(), memory.rkey()};
  rdma_conn_param param = conn_param({});
  param.private_data = &window;
  param.private_data_len = sizeof window;
  CHECK_CALL(rdma_accept(end.id, &param));
  end.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  uint64_t number = 0, torn = 0;
  for (const uint32_t length : kLengths) {
    const auto* const at = reinterpret_cast<const uint64_t*>(memory.data());
    for (Message message = Message::kWhole; message != Message::kNone;) {
      message = receive(at, length / 8, number + 1);
      if (message == Message::kTorn) ++torn;
      if (message != Message::kNone) ++number;
      end.send({.wr_id = number, .sges = {answer.sge()}});
      expect_wc(end.send_cq, number);
    }
  }
  end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  std::printf("torn %llu of %llu\n", static_cast<unsigned long long>(torn), static_cast<unsigned long long>(number));
  return torn == 0 ? 0 : 1;
}

int sender(const std::string& from, const std::string& to, uint16_t port, uint64_t count, uint64_t ms) {
  Endpoint end;
  end.resolve(from, to, port);
  end.create_qp({});
  rdma_conn_param param = conn_param({});
  CHECK_CALL(rdma_connect(end.id, &param));
  const CmEvent established = end.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  Window window;
  CHECK(established.private_data.size() >= sizeof window);
  std::memcpy(&window, established.private_data.data(), sizeof window);
  Region memory(end.pd, kMost), answer(end.pd, 8);
  const auto write = [&](uint64_t number, uint32_t length) {
    end.recv(number, {answer.sge()});
    for (uint32_t at = 0; at < length; at += 8) std::memcpy(memory.data() + at, &number, sizeof number);
    end.send({.wr_id = number, .opcode = IBV_WR_RDMA_WRITE, .sges = {memory.sge(0, length)},
              .remote_addr = window.addr, .rkey = window.rkey});
    expect_wc(end.recv_cq, number);
    expect_wc(end.send_cq, number);
  };
  uint64_t number = 0;
  for (const uint32_t length : kLengths) {
    const uint64_t last = number + count, until = tap::now_ms() + ms;
    while (number < last && tap::now_ms() < until) write(++number, length);
    write(kEnd, length);
  }
  CHECK_CALL(rdma_disconnect(end.id));
  end.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  try {
    if (role == "receive" && argc == 3) return receiver(argv[2]);
    if (role == "send" && argc == 7)
      return sender(argv[2], argv[3], static_cast<uint16_t>(std::atoi(argv[4])), std::strtoull(argv[5], nullptr, 10),
                    std::strtoull(argv[6], nullptr, 10));
  } catch (const tap::Failure& failure) {
    std::printf("%s\n", failure.what());
    return 1;
  }
  std::fprintf(stderr, "usage: %s receive IP | send FROM TO PORT COUNT MS\n", argv[0]);
  return 2;
}
