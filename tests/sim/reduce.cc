// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "reduce.h"

#include <cstdlib>
#include <sstream>

#include "run.h"

namespace usiw::sim {
namespace {

constexpr size_t kTail = 40;

bool breaks(uint64_t seed, const Cuts& cuts, Mutation mutation, const std::string& rule) {
  const Scenario sc = make_scenario(seed, cuts);
  Run run(sc, mutation, 0);
  return !run.go() && run.w.rule == rule;
}

std::string list(const std::vector<int>& numbers) {
  std::string out;
  for (const int n : numbers) out += (out.empty() ? "" : ",") + std::to_string(n);
  return out;
}

}  // namespace

std::string summary(const Scenario& sc) {
  std::string faults;
  for (unsigned f = 0; f < kFaults; ++f)
    if (sc.has(static_cast<Fault>(f))) faults += (faults.empty() ? "" : ",") + std::string(fault_name(f));
  size_t sessions = 0, ops = 0;
  for (const PairPlan& p : sc.pairs) {
    sessions += p.sessions.size();
    for (const SessionPlan& s : p.sessions) ops += s.lane[0].ops.size() + s.lane[1].ops.size();
  }
  return std::to_string(sc.hosts.size()) + " hosts, " + std::to_string(sc.pairs.size()) + " pairs, " +
         std::to_string(sessions) + " sessions, " + std::to_string(ops) + " work requests, faults: " +
         (faults.empty() ? "none" : faults);
}

Reduced only_run(uint64_t seed, const Cuts& cuts, Mutation mutation) {
  const Scenario sc = make_scenario(seed, cuts);
  Run run(sc, mutation, kTail);
  run.go();
  return {cuts, run.w.rule, run.w.why, summary(sc), {run.w.lines.begin(), run.w.lines.end()}};
}

Reduced reduce(uint64_t seed, const Cuts& start, Mutation mutation) {
  const std::string rule = only_run(seed, start, mutation).rule;
  Cuts best = start;
  const auto attempt = [&](const Cuts& c) {
    if (!breaks(seed, c, mutation, rule)) return false;
    best = c;
    return true;
  };
  const Scenario whole = make_scenario(seed, start);
  // Pairs from the back, so that the numbers of the others stay; then fault kinds, sessions
  // and operations.
  for (int p = static_cast<int>(whole.pairs.size()) - 1; p >= 0; --p) {
    Cuts c = best;
    c.drop_pairs.insert(c.drop_pairs.begin(), p);
    if (c.drop_pairs.size() < whole.pairs.size()) attempt(c);
  }
  for (unsigned f = 0; f < kFaults; ++f) {
    if (!whole.has(static_cast<Fault>(f))) continue;
    Cuts c = best;
    c.without |= bit(f);
    attempt(c);
  }
  for (size_t n = 1; n < 3; ++n) {
    Cuts c = best;
    c.sessions = n;
    if (attempt(c)) break;
  }
  for (size_t n : {0, 1, 2, 3, 5, 8, 13, 21, 34}) {
    Cuts c = best;
    c.ops = n;
    if (attempt(c)) break;
  }
  for (size_t n : {50, 30, 20, 10, 5, 3, 2, 1}) {
    Cuts c = best;
    c.first_op = n;
    if (n < best.ops && attempt(c)) break;
  }
  return only_run(seed, best, mutation);
}

std::string command_of(const Cuts& c, Mutation mutation) {
  std::string out, faults;
  for (unsigned f = 0; f < kFaults; ++f)
    if ((c.without >> f & 1) != 0) faults += (faults.empty() ? "" : ",") + std::string(fault_name(f));
  if (!faults.empty()) out += " --without " + faults;
  if (!c.drop_pairs.empty()) out += " --drop-pairs " + list(c.drop_pairs);
  if (c.sessions != SIZE_MAX) out += " --sessions " + std::to_string(c.sessions);
  if (c.ops != SIZE_MAX) out += " --ops " + std::to_string(c.ops);
  if (c.first_op != 0) out += " --first-op " + std::to_string(c.first_op);
  if (mutation != Mutation::kNone) out += std::string(" --mutate ") + mutation_name(mutation);
  return out;
}

bool parse_cut(const std::string& arg, const std::function<std::string()>& value, Cuts& cuts) {
  std::string item;
  if (arg == "--without") {
    std::stringstream in(value());
    while (std::getline(in, item, ',')) {
      if (item == "added") cuts.without |= kAllAdded;
      for (unsigned f = 0; f < kFaults; ++f)
        if (item == fault_name(f)) cuts.without |= bit(f);
    }
  } else if (arg == "--drop-pairs") {
    std::stringstream in(value());
    while (std::getline(in, item, ',')) cuts.drop_pairs.push_back(std::atoi(item.c_str()));
  } else if (arg == "--sessions") {
    cuts.sessions = std::strtoull(value().c_str(), nullptr, 0);
  } else if (arg == "--ops") {
    cuts.ops = std::strtoull(value().c_str(), nullptr, 0);
  } else if (arg == "--first-op") {
    cuts.first_op = std::strtoull(value().c_str(), nullptr, 0);
  } else {
    return false;
  }
  return true;
}

}  // namespace usiw::sim
