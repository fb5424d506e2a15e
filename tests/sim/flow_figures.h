// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file flow_figures.h
/// The published figures (figures.txt), and the check whether a run reaches them.
#ifndef USIW_TESTS_SIM_FLOW_FIGURES_H
#define USIW_TESTS_SIM_FLOW_FIGURES_H

#include <string>
#include <vector>

#include "flows.h"

namespace usiw::sim {

struct Figure {
  std::string scenario, name;
  std::string published;  ///< as written in the documents
  bool higher = false;    ///< a higher value is better

  /// The value of the figure in a run.
  double measured(const FlowsResult& r) const;
  /// "", or what is wrong: @p measured is worse than the published value by more than a fifth.
  std::string judge(double measured) const;
};

struct Figures {
  uint64_t seeds = 1;  ///< the worst value of so many seeds is published
  std::vector<Figure> all;

  /// Reads the file. A line that makes no sense ends the program.
  static Figures read(const std::string& path);
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_FLOW_FIGURES_H
