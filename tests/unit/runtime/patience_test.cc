// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/patience.h"

#include <gtest/gtest.h>

namespace usiw {
namespace {

TEST(Patience, whole_seconds_between_the_limits) {
  EXPECT_EQ(1u, parse_patience("1"));
  EXPECT_EQ(30u, parse_patience("030"));
  EXPECT_EQ(3600u, parse_patience("3600"));
}

TEST(Patience, anything_else_is_none) {
  for (const char* text : {"", "0", "-1", "3601", "4294967297", "1.5", "10s", " 5", "5 ", "x"})
    EXPECT_EQ(0u, parse_patience(text)) << "'" << text << "'";
}

}  // namespace
}  // namespace usiw
