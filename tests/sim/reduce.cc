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

/// A cut that is a number, and its option.
struct Number {
  const char* option;
  size_t Cuts::*value;
};
constexpr Number kNumbers[] = {{"--sessions", &Cuts::sessions}, {"--ops", &Cuts::ops}, {"--first-op", &Cuts::first_op}};

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ",") + word;
  return out;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  std::stringstream in(list);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

std::string names_of(Faults faults) {
  std::vector<std::string> names;
  for (unsigned f = 0; f < kFaults; ++f)
    if ((faults >> f & 1) != 0) names.emplace_back(fault_name(f));
  return join(names);
}

}  // namespace

std::string summary(const Scenario& sc) {
  size_t sessions = 0, ops = 0;
  for (const PairPlan& p : sc.pairs) {
    sessions += p.sessions.size();
    for (const SessionPlan& s : p.sessions) ops += s.lane[0].ops.size() + s.lane[1].ops.size();
  }
  return std::to_string(sc.hosts.size()) + " hosts, " + std::to_string(sc.pairs.size()) + " pairs, " +
         std::to_string(sessions) + " sessions, " + std::to_string(ops) +
         " work requests, faults: " + (sc.faults == 0 ? "none" : names_of(sc.faults));
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
  // First pairs, from the last to the first so that the numbers of the others remain; then kinds of faults, sessions
  // and work requests.
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
  const auto attempt_any = [&](size_t Cuts::*number, std::initializer_list<size_t> values) {
    for (const size_t value : values) {
      Cuts c = best;
      c.*number = value;
      if ((number != &Cuts::first_op || value < best.ops) && attempt(c)) break;
    }
  };
  attempt_any(&Cuts::sessions, {1, 2});
  attempt_any(&Cuts::ops, {0, 1, 2, 3, 5, 8, 13, 21, 34});
  attempt_any(&Cuts::first_op, {50, 30, 20, 10, 5, 3, 2, 1});
  return only_run(seed, best, mutation);
}

std::string command_of(const Cuts& c, Mutation mutation) {
  std::string out;
  std::vector<std::string> pairs;
  for (const int pair : c.drop_pairs) pairs.push_back(std::to_string(pair));
  if (c.without != 0) out += " --without " + names_of(c.without);
  if (!pairs.empty()) out += " --drop-pairs " + join(pairs);
  for (const Number& n : kNumbers)
    if (c.*n.value != Cuts{}.*n.value) out += std::string(" ") + n.option + " " + std::to_string(c.*n.value);
  if (mutation != Mutation::kNone) out += std::string(" --mutate ") + mutation_name(mutation);
  return out;
}

bool parse_cut(const std::string& arg, const std::function<std::string()>& value, Cuts& cuts) {
  if (arg == "--without") {
    for (const std::string& name : split(value())) {
      if (name == "added") cuts.without |= kAllAdded;
      for (unsigned f = 0; f < kFaults; ++f)
        if (name == fault_name(f)) cuts.without |= bit(f);
    }
    return true;
  }
  if (arg == "--drop-pairs") {
    for (const std::string& number : split(value())) cuts.drop_pairs.push_back(std::atoi(number.c_str()));
    return true;
  }
  for (const Number& n : kNumbers) {
    if (arg != n.option) continue;
    cuts.*n.value = std::strtoull(value().c_str(), nullptr, 0);
    return true;
  }
  return false;
}

}  // namespace usiw::sim
