// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of cm/object/usiw_report.h, which the module and usiw-run share.
#include "cm/object/usiw_report.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

namespace {

usiw_qp_report report(uint32_t kind) {
  usiw_qp_report r{};
  r.kind = kind;
  return r;
}

TEST(Report, kind_and_error__in_range) {
  for (uint32_t kind = USIW_REPORT_READY; kind < USIW_REPORT_PORT; kind++) {
    usiw_qp_report r = report(kind);
    EXPECT_TRUE(usiw_report_is_valid(&r, 0)) << kind;
    r.error = -4095;
    EXPECT_TRUE(usiw_report_is_valid(&r, 0)) << kind;
    r.error = -4096;
    EXPECT_FALSE(usiw_report_is_valid(&r, 0)) << kind;
    r.error = 1;
    EXPECT_FALSE(usiw_report_is_valid(&r, 0)) << kind;
  }
  for (uint32_t kind : {uint32_t{USIW_REPORT_READY} - 1, uint32_t{USIW_REPORT_PORT} + 1}) {
    const usiw_qp_report r = report(kind);
    EXPECT_FALSE(usiw_report_is_valid(&r, ~uint64_t{0})) << kind;
  }
}

TEST(Report, event__of_a_qp_or_none) {
  usiw_qp_report r = report(USIW_REPORT_ASYNC);
  for (uint32_t event = 0; event < 100; event++) {
    r.async_event = event;
    EXPECT_EQ(event <= IBV_EVENT_SQ_DRAINED || event == IBV_EVENT_QP_LAST_WQE_REACHED, usiw_report_is_valid(&r, 0) != 0)
        << event;
  }
}

TEST(Report, port__only_by_a_provider_that_reports_ports) {
  usiw_qp_report r = report(USIW_REPORT_PORT);
  EXPECT_FALSE(usiw_report_is_valid(&r, 0));
  EXPECT_TRUE(usiw_report_is_valid(&r, USIW_CAP_PORT_REPORT));
  r.port = USIW_PORT_KIND_MAX;
  EXPECT_FALSE(usiw_report_is_valid(&r, USIW_CAP_PORT_REPORT));
  r.port = USIW_PORT_KIND_MAX - 1;
  r.port_why = USIW_PORT_WHY_MAX;
  EXPECT_FALSE(usiw_report_is_valid(&r, USIW_CAP_PORT_REPORT));
  r = report(USIW_REPORT_READY);
  r.port_why = 1;
  EXPECT_FALSE(usiw_report_is_valid(&r, USIW_CAP_PORT_REPORT));
}

}  // namespace
