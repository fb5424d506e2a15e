// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file reduce.h
/// Reduces a failing scenario: leaves out parts as long as it still breaks the same rule.
#ifndef USIW_TESTS_SIM_REDUCE_H
#define USIW_TESTS_SIM_REDUCE_H

#include <functional>
#include <string>
#include <vector>

#include "scenario.h"
#include "world.h"

namespace usiw::sim {

struct Reduced {
  Cuts cuts;
  std::string rule, why, summary;
  std::vector<std::string> tail;  ///< the last lines of the trace
};

Reduced only_run(uint64_t seed, const Cuts& cuts, Mutation mutation);
Reduced reduce(uint64_t seed, const Cuts& cuts, Mutation mutation);

/// Converts cuts to options of the program, and an option to a cut. parse_cut() returns false if @p arg is not such an
/// option.
std::string command_of(const Cuts& cuts, Mutation mutation);
bool parse_cut(const std::string& arg, const std::function<std::string()>& value, Cuts& cuts);
/// Returns one line about the contents of a scenario.
std::string summary(const Scenario& sc);

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_REDUCE_H
