// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of cm/object/usiw_limits.h, which the module, usiw-run and the provider share.
#include "cm/object/usiw_limits.h"

#include <gtest/gtest.h>

namespace {

TEST(Limits, qpn__management_and_multicast_are_left_out) {
  EXPECT_EQ(USIW_QPN_FIRST, 2u);
  EXPECT_LT(USIW_QPN_LAST, 0xffffffu);
}

TEST(Limits, stag__index_and_key_do_not_meet) {
  EXPECT_EQ(usiw_stag(1, 0xffffff00u), 0x100u);
  EXPECT_EQ(usiw_stag(USIW_MR_INDEX_LAST, 0xffffffffu) >> USIW_STAG_KEY_BITS, USIW_MR_INDEX_LAST);
  EXPECT_NE(usiw_stag(USIW_MR_INDEX_FIRST, 0), 0u);
}

TEST(Limits, stag__another_key_each_time) {
  for (uint32_t random : {0u, 1u, 254u, 255u, 256u, 0xffffffffu}) {
    const uint32_t stag = usiw_stag(7, 0xff);
    EXPECT_NE(usiw_stag_renewed(stag, random), stag) << random;
    EXPECT_EQ(usiw_stag_renewed(stag, random) >> USIW_STAG_KEY_BITS, 7u) << random;
  }
}

// Windows and regions have different indices, and all of them fit into an STag.
TEST(Limits, stag__windows_have_their_own_indices) {
  EXPECT_GT(USIW_MW_INDEX_FIRST, USIW_MR_INDEX_LAST);
  EXPECT_EQ(USIW_MW_INDEX_LAST - USIW_MW_INDEX_FIRST + 1, uint32_t{USIW_MAX_MW});
  EXPECT_EQ(usiw_stag(USIW_MW_INDEX_LAST, 0) >> USIW_STAG_KEY_BITS, USIW_MW_INDEX_LAST);
}

TEST(Limits, region__longer_than_can_be_or_of_all_addresses) {
  EXPECT_EQ(usiw_check_region(0, ~uint64_t{0}, USIW_ACCESS_ON_DEMAND), 0);
  EXPECT_EQ(usiw_check_region(1, ~uint64_t{0}, USIW_ACCESS_ON_DEMAND), -EINVAL);
  EXPECT_EQ(usiw_check_region(0, ~uint64_t{0} - 1, USIW_ACCESS_ON_DEMAND), -EINVAL);
  EXPECT_EQ(usiw_check_region(0, ~uint64_t{0}, 0), -EINVAL);  // longer than USIW_MAX_MR_SIZE
  EXPECT_EQ(usiw_check_region(0, USIW_MAX_MR_SIZE, 0), 0);
  EXPECT_EQ(usiw_check_region(0, USIW_MAX_MR_SIZE + 1, 0), -EINVAL);
  EXPECT_EQ(usiw_check_region(4096, 1, USIW_ACCESS_ON_DEMAND | USIW_ACCESS_HUGETLB), 0);
  EXPECT_EQ(usiw_check_region(0, 0, USIW_ACCESS_REMOTE_ATOMIC), -EINVAL);
}

TEST(Limits, rereg_and_windows) {
  EXPECT_EQ(usiw_check_rereg(0), -EINVAL);
  for (uint32_t flags = 1; flags <= USIW_REREG_KNOWN; flags++) EXPECT_EQ(usiw_check_rereg(flags), 0) << flags;
  EXPECT_EQ(usiw_check_rereg(USIW_REREG_KNOWN + 1), -EOPNOTSUPP);
  EXPECT_EQ(usiw_check_mw_type(0), -EINVAL);
  EXPECT_EQ(usiw_check_mw_type(1), 0);
  EXPECT_EQ(usiw_check_mw_type(2), 0);
  EXPECT_EQ(usiw_check_mw_type(3), -EINVAL);
}

TEST(Limits, access) {
  EXPECT_EQ(usiw_check_access(0), 0);
  EXPECT_EQ(usiw_check_access(USIW_ACCESS_KNOWN), 0);
  EXPECT_EQ(usiw_check_access(USIW_ACCESS_REMOTE_WRITE), -EINVAL);
  EXPECT_EQ(usiw_check_access(USIW_ACCESS_REMOTE_READ), 0);
  for (uint32_t bit = 1; bit != 0; bit <<= 1) {
    if ((USIW_ACCESS_KNOWN & bit) == 0) {
      EXPECT_EQ(usiw_check_access(USIW_ACCESS_LOCAL_WRITE | bit), -EOPNOTSUPP) << bit;
    }
  }
  EXPECT_TRUE(usiw_access_writes(USIW_ACCESS_LOCAL_WRITE));
  EXPECT_FALSE(usiw_access_writes(USIW_ACCESS_REMOTE_READ | USIW_ACCESS_OPTIONAL));
}

TEST(Limits, qp__each_capability_at_its_limit_and_beyond) {
  const uint32_t limit[] = {USIW_MAX_QP_WR, USIW_MAX_QP_WR, USIW_MAX_SGE, USIW_MAX_SGE, USIW_MAX_INLINE};
  for (int which = -1; which < 5; which++) {
    uint32_t v[5];
    for (int i = 0; i < 5; i++) v[i] = limit[i] + (i == which ? 1 : 0);
    EXPECT_EQ(usiw_check_qp_caps(v[0], v[1], v[2], v[3], v[4]), which < 0 ? 0 : -EINVAL) << which;
  }
}

TEST(Limits, cq_and_depths) {
  EXPECT_EQ(usiw_check_cqe(0), -EINVAL);
  EXPECT_EQ(usiw_check_cqe(1), 0);
  EXPECT_EQ(usiw_check_cqe(USIW_MAX_CQE), 0);
  EXPECT_EQ(usiw_check_cqe(USIW_MAX_CQE + 1u), -EINVAL);
  EXPECT_EQ(usiw_check_depths(USIW_MAX_IRD, USIW_MAX_ORD), 0);
  EXPECT_EQ(usiw_check_depths(USIW_MAX_IRD + 1u, 0), -EINVAL);
  EXPECT_EQ(usiw_check_depths(0, USIW_MAX_ORD + 1u), -EINVAL);
}

}  // namespace
