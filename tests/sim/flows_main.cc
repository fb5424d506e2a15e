// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file flows_main.cc
/// The program `flows`: runs scenarios of many flows and prints one table, or CSV.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/rtt.h"
#include "flows.h"

namespace usiw::sim {
namespace {

[[noreturn]] void usage(const std::string& why) {
  std::fprintf(stderr,
               "%s\n"
               "usage: flows --all [--csv FILE]\n"
               "       flows --scenario NAME[,NAME...] [changes]\n"
               "       flows [changes]           a scenario of one's own, on 10 Gb/s\n"
               "       flows --list\n"
               "changes: --senders N  --buffer PACKETS  --mark PACKETS  --rate MBIT  --access MBIT  --rtt US\n"
               "         --loss PERCENT  --message BYTES  --depth N  --mtu BYTES  --incast  --tcp reno|cubic\n"
               "         --tcps N  --outage MS  --warm MS  --measure MS  --seed N\n"
               "other:   --seeds N: the worst of so many, figure by figure; --csv FILE ('-': standard output)\n",
               why.c_str());
  std::exit(2);
}

struct Options {
  bool all = false, list = false;
  uint64_t seeds = 1;
  std::vector<std::string> names;
  std::string csv;
  std::vector<std::function<void(FlowsPlan&)>> changes;
};

/// An option that changes one number of a plan.
struct Setting {
  std::string_view option;
  void (*set)(FlowsPlan&, double);
  double unit = 1;
};
template <auto kField>
void set(FlowsPlan& p, double n) {
  p.*kField = static_cast<std::remove_reference_t<decltype(p.*kField)>>(n);
}
constexpr Setting kSettings[] = {
    {"--senders", set<&FlowsPlan::senders>},  {"--tcps", set<&FlowsPlan::tcps>},
    {"--buffer", set<&FlowsPlan::buffer>},    {"--mark", set<&FlowsPlan::mark>},
    {"--rate", set<&FlowsPlan::rate>, kMbit}, {"--access", set<&FlowsPlan::access>, kMbit},
    {"--rtt", set<&FlowsPlan::rtt>, kUs},     {"--loss", set<&FlowsPlan::loss>, 0.01},
    {"--message", set<&FlowsPlan::message>},  {"--depth", set<&FlowsPlan::depth>},
    {"--mtu", set<&FlowsPlan::mtu>},          {"--outage", set<&FlowsPlan::outage>, kMs},
    {"--warm", set<&FlowsPlan::warm>, kMs},   {"--measure", set<&FlowsPlan::measure>, kMs},
    {"--seed", set<&FlowsPlan::seed>},
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) usage(arg + " needs a value");
      return argv[i];
    };
    const auto number = [&] {
      const std::string v = value();
      char* end = nullptr;
      const double n = std::strtod(v.c_str(), &end);
      if (v.empty() || *end != 0 || !(n >= 0)) usage(arg + ": " + v + " is no number");
      return n;
    };
    const auto setting = std::ranges::find(kSettings, arg, &Setting::option);
    if (arg == "--all") {
      o.all = true;
    } else if (arg == "--list") {
      o.list = true;
    } else if (arg == "--csv") {
      o.csv = value();
    } else if (arg == "--scenario") {
      std::string v = value();
      for (size_t at; (at = v.find(',')) != std::string::npos; v.erase(0, at + 1)) o.names.push_back(v.substr(0, at));
      o.names.push_back(v);
    } else if (arg == "--incast") {
      o.changes.push_back([](FlowsPlan& p) { p.incast = true; });
    } else if (arg == "--tcp") {
      const std::string v = value();
      if (v != "reno" && v != "cubic") usage("--tcp reno|cubic");
      o.changes.push_back([v](FlowsPlan& p) {
        p.tcp = v == "reno" ? TcpKind::kReno : TcpKind::kCubic;
        if (p.tcps == 0) p.tcps = 1;
      });
    } else if (setting != std::end(kSettings)) {
      o.changes.push_back([setting, n = number() * setting->unit](FlowsPlan& p) { setting->set(p, n); });
    } else if (arg == "--seeds") {
      const double n = number();
      if (n < 1 || n > 1000) usage("1 to 1000 seeds");
      o.seeds = static_cast<uint64_t>(n);
    } else {
      usage("unknown option " + arg);
    }
  }
  return o;
}

/// Hosts have numbers up to 254, and no divisor may be 0.
void sanity(const FlowsPlan& p) {
  if (p.senders < 1 || p.senders > 64 || p.tcps > 60) usage("1 to 64 senders, up to 60 competitors");
  if (p.rate < kMbit || p.buffer < 1 || p.rtt < 2) usage("no such bottleneck");
  if (p.message < 16 || p.message > (1u << 20)) usage("messages of 16 B to 1 MB");
  if (p.depth < 1 || p.depth > 64) usage("1 to 64 messages under way");
  if (p.mtu < 576 || p.mtu > 9000 || p.loss > 0.5) usage("mtu 576 to 9000, loss up to 50 %");
  if (p.warm < kMs || p.measure < kMs || p.measure > 1000 * kSec) usage("a millisecond at least is run and measured");
  if (p.tcps != 0 && p.tcp == TcpKind::kNone) usage("--tcps needs --tcp");
}

/// Returns a figure, followed by whether it meets its target if it has one.
std::string cell(double value, int digits, std::optional<bool> met = {}) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f%s", digits, value, !met ? "" : *met ? " met" : " MISSED");
  return text;
}

struct Row {
  const FlowsPlan& plan;
  FlowsResult r;
};

std::optional<bool> if_wanted(bool wanted, bool met) { return wanted ? std::optional(met) : std::nullopt; }

constexpr std::array kColumns = {"scenario", "goodput %", "Jain", "queue us", "p99", "drops %", "repeated %",
                                 "recovery us", "RTTs", "other"};

std::array<std::string, kColumns.size()> cells(const Row& row) {
  const FlowsPlan& p = row.plan;
  const FlowsResult& r = row.r;
  const double rtt = static_cast<double>(p.rtt) / 1e3;
  const bool trouble = p.outage != 0;  // after a stop, the datagrams in the ring arrive at once
  // Two round trips and one minimal RTO.
  const double soon = 2 * rtt + static_cast<double>(RttEstimator::kMinRtoNs) / 1e3;
  std::string other;
  const auto add = [&](const std::string& text) { other += (other.empty() ? "" : ", ") + text; };
  if (!r.broken.empty()) add("BROKEN " + r.broken);
  if (p.tcps != 0) add("share " + cell(r.share, 0, if_wanted(p.wants_share, r.share >= 25 && r.share <= 75)) + " %");
  if (r.lost >= 0) add("lost " + cell(r.lost, 2, if_wanted(p.wants_loss >= 0, r.lost <= p.wants_loss)) + " %");
  if (p.sink_holds != 0) add("overflow " + cell(r.overflow, 2) + " %");
  if (p.mark != SIZE_MAX) add("marked " + cell(r.marks, 1) + " %");
  if (p.senders > 1 && r.slowest < 50) add("slowest flow " + cell(r.slowest, 0) + " % of its share");
  if (p.wants_life || r.alive < p.senders) {
    add(r.alive == p.senders ? "lives met" : "dead after " + cell(r.died_after, 1) + " s MISSED");
  }
  const bool came = r.recovery_last >= 0;
  return {p.name,
          cell(r.goodput, 1),
          p.senders > 1 ? cell(r.jain, 3, if_wanted(p.wants_jain, r.jain >= 0.95)) : "",
          cell(r.queue_median, 0, if_wanted(p.wants_queue, r.queue_median < 500)),
          cell(r.queue_p99, 0),
          cell(r.drops, 2, if_wanted(p.wants_drops, r.drops <= 1)),
          cell(r.repeats, 2),
          !trouble ? ""
          : came   ? cell(r.recovery_last, 0, if_wanted(p.wants_recovery, r.recovery_last <= soon))
                   : "never",
          trouble && came ? cell(r.recovery_last / rtt, 1) : "",
          other};
}

void print_table(const std::vector<Row>& rows) {
  std::vector<std::array<std::string, kColumns.size()>> lines(1);
  for (size_t i = 0; i < kColumns.size(); ++i) lines[0][i] = kColumns[i];
  for (const Row& row : rows) lines.push_back(cells(row));
  std::array<size_t, kColumns.size()> width{};
  for (const auto& line : lines)
    for (size_t i = 0; i < width.size(); ++i) width[i] = std::max(width[i], line[i].size());
  for (size_t n = 0; n < lines.size(); ++n) {
    std::string text = "|";
    for (size_t i = 0; i < width.size(); ++i)
      text += " " + lines[n][i] + std::string(width[i] - lines[n][i].size(), ' ') + " |";
    std::puts(text.c_str());
    if (n != 0) continue;
    text = "|";
    for (const size_t w : width) text += std::string(w + 2, '-') + "|";
    std::puts(text.c_str());
  }
}

void print_csv(std::FILE* f, const std::vector<Row>& rows) {
  std::fputs("scenario,senders,rate_mbit,rtt_us,buffer,goodput_percent,jain,queue_median_us,queue_p99_us,drops_percent,"
             "overflow_percent,marks_percent,repeated_percent,recovery_first_us,recovery_last_us,tcp_goodput_percent,"
             "share_percent,slowest_percent,goodput_lost_percent,alive,died_after_s,messages\n",
             f);
  for (const Row& row : rows) {
    const FlowsPlan& p = row.plan;
    const FlowsResult& r = row.r;
    std::fprintf(f, "%s,%u,%.0f,%.0f,%zu,", p.name.c_str(), p.senders, static_cast<double>(p.rate) / kMbit,
                 static_cast<double>(p.rtt) / kUs, p.buffer);
    std::fprintf(f, "%.2f,%.4f,%.1f,%.1f,%.3f,%.3f,%.3f,%.3f,%.1f,%.1f,", r.goodput, r.jain, r.queue_median,
                 r.queue_p99, r.drops, r.overflow, r.marks, r.repeats, r.recovery_first, r.recovery_last);
    std::fprintf(f, "%.2f,%.2f,%.2f,%.2f,%.0f,%.3f,%llu\n", r.tcp_goodput, r.share, r.slowest, r.lost, r.alive,
                 r.died_after, static_cast<unsigned long long>(r.messages));
  }
}

Row run_row(const FlowsPlan& p) {
  Row row{p, run_flows(p)};
  if (p.loss == 0) return row;
  FlowsPlan clean = p;
  clean.loss = 0;
  row.r.lost = std::max(0.0, 100 * (1 - row.r.goodput / run_flows(clean).goodput));
  return row;
}

/// Keeps the worse value of each figure.
void worsen(Row& row, const Row& other) {
  FlowsResult& a = row.r;
  const FlowsResult& b = other.r;
  const auto least = [&](auto... f) { ((a.*f = std::min(a.*f, b.*f)), ...); };
  const auto most = [&](auto... f) { ((a.*f = std::max(a.*f, b.*f)), ...); };
  using R = FlowsResult;
  least(&R::goodput, &R::tcp_goodput, &R::jain, &R::slowest, &R::alive, &R::messages);
  most(&R::queue_median, &R::queue_p99, &R::drops, &R::overflow, &R::marks, &R::repeats, &R::lost);
  const auto longest = [](double& x, double y) { x = x < 0 || y < 0 ? -1 : std::max(x, y); };
  longest(a.recovery_first, b.recovery_first);
  longest(a.recovery_last, b.recovery_last);
  if (std::abs(b.share - 50) > std::abs(a.share - 50)) a.share = b.share;
  if (a.died_after == 0 || (b.died_after != 0 && b.died_after < a.died_after)) a.died_after = b.died_after;
  if (a.broken.empty()) a.broken = b.broken;
}

int run(const Options& o) {
  std::vector<FlowsPlan> plans;
  const auto& all = flow_scenarios();
  if (o.list) {
    for (const FlowsPlan& p : all) std::printf("%-16s %s\n", p.name.c_str(), p.what.c_str());
    return 0;
  }
  if (o.all) plans = all;
  for (const std::string& name : o.names) {
    const auto it = std::ranges::find(all, name, &FlowsPlan::name);
    if (it == all.end()) usage("no scenario " + name);
    plans.push_back(*it);
  }
  if (plans.empty()) plans.push_back({.name = "own", .what = "as asked for"});
  for (FlowsPlan& p : plans) {
    for (const auto& change : o.changes) change(p);
    sanity(p);
  }

  std::vector<Row> rows;
  bool good = true;
  for (const FlowsPlan& p : plans) {
    rows.push_back(run_row(p));
    for (uint64_t n = 1; n < o.seeds; ++n) {
      FlowsPlan again = p;
      again.seed += n;
      worsen(rows.back(), run_row(again));
    }
    if (rows.back().r.broken.empty()) continue;
    std::printf("%s: BROKEN %s\n", p.name.c_str(), rows.back().r.broken.c_str());
    good = false;
  }
  if (o.csv == "-") {
    print_csv(stdout, rows);
  } else {
    print_table(rows);
    if (!o.csv.empty()) {
      std::FILE* f = std::fopen(o.csv.c_str(), "w");
      if (f == nullptr) usage("cannot write " + o.csv);
      print_csv(f, rows);
      std::fclose(f);
    }
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace usiw::sim

int main(int argc, char** argv) {
  using namespace usiw::sim;
  return run(parse(argc, argv));
}
