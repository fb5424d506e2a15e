// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of tools/run/conn/opcode_filter.h: it and usiw_cm_look() say the same of every header.
#include "tools/run/conn/opcode_filter.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "cm/usiw_cm_input.h"

namespace {

/// The kernel runs the program on what is sent from one end to the other.
class OpcodeFilter : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends_), 0);
    attach(0, UINT32_MAX);
  }
  void TearDown() override {
    close(ends_[0]);
    close(ends_[1]);
  }
  void attach(uint32_t data, uint32_t handshake) {
    auto code = usiw::run::opcode_filter(GetParam(), data, handshake);
    const sock_fprog program{code.size(), code.data()};
    ASSERT_EQ(setsockopt(ends_[1], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
  }
  /// Is a payload of @p len bytes with these opcode and flags let through?
  bool passes(uint16_t opflags, size_t len) {
    uint8_t bytes[8 + USIW_CM_MAX_DATAGRAM + 1] = {};
    uint8_t* payload = bytes + GetParam();
    payload[offsetof(usiw_trp_hdr, opflags)] = static_cast<uint8_t>(opflags >> 8);
    payload[offsetof(usiw_trp_hdr, opflags) + 1] = static_cast<uint8_t>(opflags);
    look_ = usiw_cm_look(payload, static_cast<uint32_t>(len));
    [[maybe_unused]] const ssize_t sent = send(ends_[0], bytes, GetParam() + len, 0);
    return recv(ends_[1], bytes, sizeof bytes, 0) >= 0;
  }
  bool is_the_engine_s() const { return look_ == USIW_CM_LOOK_DATA || look_ == USIW_CM_LOOK_ENGINE; }

  enum usiw_cm_look look_ {};

 private:
  int ends_[2] = {-1, -1};
};

// A socket filter sees the UDP header, one for a group of sockets does not.
INSTANTIATE_TEST_SUITE_P(At, OpcodeFilter, testing::Values(0u, 8u));

TEST_P(OpcodeFilter, agrees_with_the_look_at_every_opcode_and_flag) {
  for (uint32_t opflags = 0; opflags <= UINT16_MAX; opflags++) {
    const bool passed = passes(static_cast<uint16_t>(opflags), sizeof(usiw_trp_hdr));
    ASSERT_NE(passed, is_the_engine_s()) << opflags;
  }
}

TEST_P(OpcodeFilter, agrees_with_the_look_at_every_length) {
  for (uint16_t opcode = 0; opcode < 16; opcode++)
    for (size_t len = 1; len <= USIW_CM_MAX_DATAGRAM + 1; len++)
      for (uint16_t flags : {0, USIW_TRP_F_STRAY}) {
        const bool passed = passes(static_cast<uint16_t>(opcode << USIW_TRP_OPCODE_SHIFT | flags), len);
        ASSERT_NE(passed, is_the_engine_s()) << opcode << " " << len << " " << flags;
      }
}

TEST_P(OpcodeFilter, the_other_way_round) {
  attach(UINT32_MAX, 0);
  EXPECT_TRUE(passes(USIW_TRP_DATA << USIW_TRP_OPCODE_SHIFT, 100));
  EXPECT_FALSE(passes(USIW_TRP_REQ << USIW_TRP_OPCODE_SHIFT, 100));
}

}  // namespace
