// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file face_main.cc
/// The program `face`: runs seeds with QPs of the RoCE face, and replays one seed.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "face_run.h"

namespace usiw::sim {
namespace {

using Steady = std::chrono::steady_clock;

struct Options {
  uint64_t first = 1, last = 0, seconds = UINT64_MAX;
  bool trace = false, digest = false, expect_violation = false;
  FaceCuts cuts;
  Mutation mutation = Mutation::kNone;
};

/// Memory that the worker and the program share.
struct Board {
  uint64_t seed, done, failed;
};

[[noreturn]] void usage(const std::string& why) {
  std::fprintf(stderr,
               "%s\n"
               "usage: face --seeds A..B [--time SECONDS]\n"
               "       face --seed N [--trace] [--digest]\n"
               "other: --without FAULT,...  --sessions N  --mutate NAME [--expect-violation]\n",
               why.c_str());
  std::exit(2);
}

unsigned faults_of(const std::string& names) {
  unsigned out = 0;
  for (unsigned f = 0; f < kFaceFaults; ++f)
    if (("," + names + ",").find("," + std::string(face_fault_name(f)) + ",") != std::string::npos) out |= 1u << f;
  return out;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) usage(arg + " needs a value");
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
    } else if (arg == "--time") {
      o.seconds = number();
    } else if (arg == "--trace") {
      o.trace = true;
    } else if (arg == "--digest") {
      o.digest = true;
    } else if (arg == "--expect-violation") {
      o.expect_violation = true;
    } else if (arg == "--without") {
      o.cuts.without = faults_of(value());
    } else if (arg == "--sessions") {
      o.cuts.sessions = number();
    } else if (arg == "--mutate") {
      const std::string v = value();
      for (int m = 0; m < static_cast<int>(Mutation::kMutations); ++m)
        if (v == mutation_name(static_cast<Mutation>(m))) o.mutation = static_cast<Mutation>(m);
      if (o.mutation == Mutation::kNone) usage("no such mutation: " + v);
    } else {
      usage("unknown option " + arg);
    }
  }
  if (o.last < o.first) usage("which seeds?");
  return o;
}

/// Returns true if the seed is good.
bool run_seed(const Options& o, uint64_t seed) {
  const FacePlan plan = make_face_plan(seed, o.cuts);
  FaceRun run(plan, o.mutation, o.trace ? 4'000'000 : 0);
  const bool good = run.go();
  for (const std::string& line : run.w.lines) std::puts(line.c_str());
  if (o.digest) std::printf("digest %016llx\n", ull(run.w.digest));
  const std::string what = summary(plan);
  if (!good && !o.expect_violation)
    std::printf("seed %llu: BROKEN %s: %s (%s)\n", ull(seed), run.w.rule.c_str(), run.w.why.c_str(), what.c_str());
  std::fflush(stdout);
  if (good && o.first == o.last) std::printf("seed %llu: good (%s)\n", ull(seed), what.c_str());
  return good;
}

void work(const Options& o, Board& board) {
  const auto start = Steady::now();
  while (board.seed <= o.last && board.failed < 10) {
    const bool good = run_seed(o, board.seed);
    ++board.seed;
    ++board.done;
    board.failed += !good;
    if (!good && o.expect_violation) return;
    if (Steady::now() - start > std::chrono::seconds(std::min<uint64_t>(o.seconds, 1'000'000))) return;
  }
}

/// Runs all seeds in a child, so that a crash does not hide its seed.
int run_all(const Options& o) {
  void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  Board& board = *static_cast<Board*>(shared);
  board.seed = o.first;
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    work(o, board);
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) {
    std::printf("seed %llu: BROKEN crash: the process died, status 0x%x\n", ull(board.seed),
                static_cast<unsigned>(status));
    ++board.failed;
  }
  std::printf("%llu seeds: %llu failed\n", ull(board.done), ull(board.failed));
  return (board.failed != 0) == o.expect_violation ? 0 : 1;
}

}  // namespace
}  // namespace usiw::sim

int main(int argc, char** argv) {
  using namespace usiw::sim;
  const Options o = parse(argc, argv);
  if (o.first != o.last) return run_all(o);
  return run_seed(o, o.first) != o.expect_violation ? 0 : 1;
}
