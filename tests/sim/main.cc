// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file main.cc
/// The program `sim`: runs seeds in several processes, reduces what fails, replays one seed.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "reduce.h"
#include "run.h"

namespace usiw::sim {
namespace {

using Steady = std::chrono::steady_clock;

struct Options {
  uint64_t first = 1, last = 0, seconds = 0;
  unsigned jobs = 1;
  bool trace = false, digest = false, no_reduce = false, expect_violation = false;
  Cuts cuts;
  Mutation mutation = Mutation::kNone;
};

const std::map<std::string, bool Options::*> kFlags = {{"--trace", &Options::trace},
                                                       {"--digest", &Options::digest},
                                                       {"--no-reduce", &Options::no_reduce},
                                                       {"--expect-violation", &Options::expect_violation}};

[[noreturn]] void usage(const char* why) {
  std::fprintf(stderr,
               "%s\n"
               "usage: sim --seeds A..B [--jobs N] [--time SECONDS]\n"
               "       sim --seed N [--trace] [--digest] [cuts]\n"
               "cuts:  --without FAULT,...  --drop-pairs N,...  --sessions N  --ops N  --first-op N\n"
               "other: --no-reduce, --mutate NAME [--expect-violation]\n",
               why);
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) usage((arg + " needs a value").c_str());
      return argv[i];
    };
    const auto number = [&] { return std::strtoull(value().c_str(), nullptr, 0); };
    if (arg == "--seed") {
      o.first = o.last = number();
    } else if (arg == "--seeds") {
      const std::string v = value();
      const auto dots = v.find("..");
      if (dots == std::string::npos) usage("--seeds A..B");
      o.first = std::strtoull(v.c_str(), nullptr, 0);
      o.last = std::strtoull(v.c_str() + dots + 2, nullptr, 0);
    } else if (arg == "--jobs") {
      o.jobs = static_cast<unsigned>(number());
    } else if (arg == "--time") {
      o.seconds = number();
    } else if (const auto flag = kFlags.find(arg); flag != kFlags.end()) {
      o.*flag->second = true;
    } else if (arg == "--mutate") {
      const std::string v = value();
      for (int m = 0; m < static_cast<int>(Mutation::kMutations); ++m)
        if (v == mutation_name(static_cast<Mutation>(m))) o.mutation = static_cast<Mutation>(m);
      if (o.mutation == Mutation::kNone) usage(("no such mutation: " + v).c_str());
    } else if (!parse_cut(arg, value, o.cuts)) {
      usage(("unknown option " + arg).c_str());
    }
  }
  if (o.last < o.first || o.jobs == 0) usage("which seeds?");
  return o;
}

/// Memory that the workers share.
struct Board {
  std::atomic<uint64_t> next{0}, done{0}, failed{0};
  std::array<std::atomic<uint64_t>, kTotals> totals{};
  std::atomic<bool> stop{false};
  std::array<std::atomic<uint64_t>, 64> current{};  ///< per worker: the present seed; 0: none
};

int run_one(const Options& o) {
  const Scenario sc = make_scenario(o.first, o.cuts);
  Run run(sc, o.mutation, o.trace ? 4'000'000 : 0);
  const bool good = run.go();
  for (const std::string& line : run.w.lines) std::puts(line.c_str());
  if (o.digest) std::printf("digest %016llx\n", ull(run.w.digest));
  if (good) {
    std::printf("seed %llu: good (%s)\n", ull(o.first), summary(sc).c_str());
    return o.expect_violation ? 1 : 0;
  }
  std::printf("seed %llu: BROKEN %s: %s (%s)\n", ull(o.first), run.w.rule.c_str(), run.w.why.c_str(),
              summary(sc).c_str());
  return o.expect_violation ? 0 : 1;
}

void report(const Options& o, uint64_t seed, const std::string& program) {
  const Reduced r = o.no_reduce ? only_run(seed, o.cuts, o.mutation) : reduce(seed, o.cuts, o.mutation);
  std::printf("seed %llu: BROKEN %s: %s\n", ull(seed), r.rule.c_str(), r.why.c_str());
  std::printf("  reduced to: %s\n  the last that happened:\n", r.summary.c_str());
  for (const std::string& line : r.tail) std::printf("    %s\n", line.c_str());
  std::printf("  replay: %s --seed %llu%s --trace\n", program.c_str(), ull(seed),
              command_of(r.cuts, o.mutation).c_str());
  std::fflush(stdout);
}

void work(const Options& o, Board& board, unsigned me, const std::string& program) {
  while (!board.stop.load()) {
    const uint64_t seed = board.next.fetch_add(1);
    if (seed > o.last) return;
    board.current[me] = seed;
    const Scenario sc = make_scenario(seed, o.cuts);
    Run run(sc, o.mutation, 0);
    const bool good = run.go();
    for (unsigned t = 0; t < kTotals; ++t) board.totals[t] += run.w.totals[t];
    if (!good) {
      const uint64_t n = ++board.failed;
      if (o.expect_violation) {
        std::printf("seed %llu: BROKEN %s: %s\n", ull(seed), run.w.rule.c_str(), run.w.why.c_str());
        std::fflush(stdout);
        board.stop = true;
      } else {
        report(o, seed, program);
        if (n >= 10) board.stop = true;
      }
    }
    board.current[me] = 0;
    ++board.done;
  }
}

int run_many(const Options& o, const std::string& program) {
  void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  Board& board = *new (shared) Board;
  board.next = o.first;
  const auto start = Steady::now();
  const unsigned jobs = std::min(o.jobs, static_cast<unsigned>(board.current.size()));
  std::vector<pid_t> workers(jobs);
  const auto spawn = [&](unsigned i) {
    std::fflush(stdout);
    workers[i] = fork();
    if (workers[i] == 0) {
      work(o, board, i, program);
      std::fflush(stdout);
      _exit(0);
    }
  };
  for (unsigned i = 0; i < jobs; ++i) spawn(i);
  const auto seconds = [&] {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(Steady::now() - start).count());
  };
  for (unsigned running = jobs; running != 0;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid == 0) {
      if (o.seconds != 0 && seconds() >= o.seconds) board.stop = true;
      usleep(20'000);
      continue;
    }
    if (pid < 0) break;
    for (unsigned i = 0; i < jobs; ++i) {
      if (workers[i] != pid) continue;
      if (status == 0) {
        --running;
        continue;
      }
      // A worker that crashes, or that a sanitizer stops, is a failure, too. The others continue.
      const uint64_t seed = board.current[i].exchange(0);
      std::printf("seed %llu: BROKEN crash: the process died, status 0x%x\n  replay: %s --seed %llu%s --trace\n",
                  ull(seed), static_cast<unsigned>(status), program.c_str(), ull(seed),
                  command_of(o.cuts, o.mutation).c_str());
      ++board.done;
      if (++board.failed >= 10) board.stop = true;
      if (seed != 0 && !board.stop)
        spawn(i);
      else
        --running;
    }
  }
  const auto total = [&](Total t) { return ull(board.totals[t]); };
  std::printf("%llu seeds in %llu s: %llu failed; %llu datagrams with a PSN, %llu of them repetitions; "
              "%llu moves to the other port, %llu that came too late; %llu uses of others' windows, %llu of them while "
              "they live; %llu refusals by access flags\n",
              ull(board.done), ull(seconds()), ull(board.failed), total(kSent), total(kRepeated), total(kMoves),
              total(kForbidden), total(kTrespasses), total(kOfLiving), total(kRefusals));
  return (board.failed != 0) == o.expect_violation ? 0 : 1;
}

}  // namespace
}  // namespace usiw::sim

int main(int argc, char** argv) {
  using namespace usiw::sim;
  const Options o = parse(argc, argv);
  if (o.first == o.last && (o.trace || o.digest || o.no_reduce)) return run_one(o);
  return run_many(o, argv[0]);
}
