// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "flow_figures.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

namespace usiw::sim {

namespace {

/// A figure may be worse than published by this factor.
constexpr double kSlack = 1.2;

const std::map<std::string, double FlowsResult::*> kFields = {
    {"goodput", &FlowsResult::goodput},
    {"jain", &FlowsResult::jain},
    {"queue_us", &FlowsResult::queue_median},
    {"drops", &FlowsResult::drops},
    {"overflow", &FlowsResult::overflow},
    {"share", &FlowsResult::share},
    {"recovery_ms", &FlowsResult::recovery_last},
    {"lost", &FlowsResult::lost},
    {"alive", &FlowsResult::alive},
};

[[noreturn]] void bad(const std::string& path, unsigned line, const std::string& why) {
  std::fprintf(stderr, "%s:%u: %s\n", path.c_str(), line, why.c_str());
  std::exit(2);
}

}  // namespace

double Figure::measured(const FlowsResult& r) const {
  const double value = r.*kFields.at(name);
  return name == "recovery_ms" && value >= 0 ? value / 1e3 : value;
}

std::string Figure::judge(double measured) const {
  const double value = std::strtod(published.c_str(), nullptr);
  // A relative slack of a published 0 would be 0, so every value that rounds to 0 passes.
  const size_t point = published.find('.');
  double half = 0.5;
  for (size_t i = point; i != std::string::npos && i + 1 < published.size(); ++i) half /= 10;
  const bool good =
      measured >= 0 && (higher ? measured * kSlack >= value : measured <= (value != 0 ? value * kSlack : half));
  if (good) return {};
  std::ostringstream out;
  out << name << " is " << measured << ", published is " << published;
  return out.str();
}

Figures Figures::read(const std::string& path) {
  std::ifstream in(path);
  if (!in) bad(path, 0, "cannot be read");
  Figures f;
  unsigned number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string first;
    if (!(words >> first)) continue;
    if (first == "seeds") {
      if (!(words >> f.seeds) || f.seeds < 1 || f.seeds > 1000) bad(path, number, "1 to 1000 seeds");
      continue;
    }
    Figure one;
    std::string better, rest;
    one.scenario = first;
    if (!(words >> one.name >> one.published >> better) || words >> rest) bad(path, number, "four words are expected");
    if (!kFields.contains(one.name)) bad(path, number, "no figure " + one.name);
    if (better != "higher" && better != "lower") bad(path, number, "better is higher or lower");
    one.higher = better == "higher";
    f.all.push_back(one);
  }
  return f;
}

}  // namespace usiw::sim
