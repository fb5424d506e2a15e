// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sim.h
/// Two connection machines, each with a model of its engine, its application and its
/// kernel around it, joined by a wire that loses, repeats and reorders, in virtual time.
/// Everything follows from the seed.
#ifndef USIW_TESTS_CM_SIM_H
#define USIW_TESTS_CM_SIM_H

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "cm/usiw_cm.h"
#include "tests/support/cm_contract.h"

namespace cmsim {

struct Config {
  uint64_t seed = 0;
  double loss = 0;              ///< share of datagrams lost
  double dup = 0;               ///< share sent twice
  uint64_t max_delay_us = 1000; ///< uniform from 0: reorders
  double trouble = 0;           ///< share of runs' engines and applications that misbehave
  double cut = 0;               ///< chance that the wire is cut for good at some time
  double junk = 0;              ///< random calls per run, without rhyme or reason
  bool kernel_sees_data = true; ///< false: a port that takes data away from the kernel
};

/// What became of a run.
struct Outcome {
  std::string broken;  ///< "" or the first rule that was broken
  bool established = false;   ///< both ends were, at the same time
  bool both_established_at_end = false;
  bool rejected = false;
  bool timed_out = false;     ///< an end ended with -ETIMEDOUT
  bool excused = false;       ///< half-open, but every RESET (or SHUTDOWN) was lost
  uint64_t end_us = 0;
};

class Sim {
 public:
  explicit Sim(const Config& config) : cfg_(config), rng_(config.seed) {}
  Outcome run();

 private:
  /// One usiw_cm_conn with the engine's and the application's side of it.
  struct Object {
    int host;
    usiw_cm_conn c{};
    Contract contract;
    bool dead = false;
    bool engine_knows = false;    ///< the engine answers for this connection
    bool engine_over = false;     ///< ... and has reported its end
    bool shutdown_acked = false;
    uint64_t armed_us = 0;        ///< timer event that is on its way
  };
  struct Event {
    uint64_t at_us;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& o) const {
      return at_us != o.at_us ? at_us > o.at_us : order > o.order;
    }
  };
  using Bytes = std::vector<uint8_t>;

  void at(uint64_t delay_us, std::function<void()> what);
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(rng_) < p; }
  uint64_t upto(uint64_t n) { return rng_() % (n + 1); }

  void send(int host, const Bytes& bytes);
  void deliver(int host, const Bytes& bytes);
  void deliver_data(int host, const Bytes& bytes, uint8_t opcode);
  void deliver_stray(int host, const Bytes& bytes);
  void send_data(Object& o, uint8_t opcode);
  void new_request(const usiw_cm_packet& pkt);

  void act(Object& o, uint32_t actions);
  void install(Object& o);
  void shut_down(Object& o, int tries);
  void application(Object& o);
  void junk_call(Object& o);
  void arm(Object& o);
  void check_both();
  void check_end();
  void fail(const std::string& what);

  Config cfg_;
  std::mt19937_64 rng_;
  uint64_t now_ = 1'000'000;
  uint64_t order_ = 0;
  uint64_t cut_us_ = UINT64_MAX;
  std::priority_queue<Event> events_;
  std::vector<std::unique_ptr<Object>> objects_;
  Object* live_[2] = {nullptr, nullptr};  ///< the object of the 4-tuple at each host
  unsigned resets_sent_[2] = {0, 0}, resets_arrived_[2] = {0, 0};
  bool given_up_ = false;  ///< an engine's SHUTDOWN was never acknowledged
  Outcome out_;
};

}  // namespace cmsim

#endif  // USIW_TESTS_CM_SIM_H
