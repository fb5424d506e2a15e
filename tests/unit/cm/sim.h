// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sim.h
/// Drives a pair of connections (tests/support/cm_pair.h) in virtual time. Each end has a model of its engine and of
/// its application, and the wire loses, repeats and reorders datagrams. Everything follows from the seed.
#ifndef USIW_TESTS_CM_SIM_H
#define USIW_TESTS_CM_SIM_H

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "tests/support/cm_pair.h"

namespace cmsim {

using cmpair::Datagram;
using cmpair::End;

struct Config {
  uint64_t seed = 0;
  double loss = 0;              ///< share of datagrams lost
  double dup = 0;               ///< share sent twice
  uint64_t max_delay_us = 1000;  ///< delays are uniform from 0, so datagrams are reordered
  double trouble = 0;            ///< share of engines and applications that misbehave
  double cut = 0;                ///< probability that the wire is cut for good at some time
  double junk = 0;               ///< random calls for each end, whether they make sense or not
  bool kernel_sees_data = true;  ///< false: the kernel does not see what the port receives
};

/// Result of a run.
struct Outcome {
  std::string broken;        ///< the first rule that was broken; "": none
  bool established = false;  ///< both ends were ESTABLISHED at the same time
  bool both_established_at_end = false;
  bool rejected = false;
  bool timed_out = false;  ///< the status of an end was -ETIMEDOUT
  bool excused = false;    ///< one end was left, but every RESET (or SHUTDOWN) of the other was lost
  uint64_t end_us = 0;
};

class Sim : cmpair::Pair {
 public:
  explicit Sim(const Config& config) : Pair(1'000'000), cfg_(config), rng_(config.seed) { lied_ = cfg_.junk > 0; }
  Outcome run();

 private:
  /// An end with the state of its engine.
  struct Object : End {
    bool engine_knows = false;    ///< the engine answers for this connection
    bool engine_over = false;     ///< the engine has reported the end of the connection
    bool shutdown_acked = false;
    uint64_t armed_us = 0;  ///< time of the timer event that is queued
  };
  struct Event {
    uint64_t at_us;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& o) const {
      return at_us != o.at_us ? at_us > o.at_us : order > o.order;
    }
  };

  void at(uint64_t delay_us, std::function<void()> what);
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(rng_) < p; }
  uint64_t upto(uint64_t n) { return rng_() % (n + 1); }

  static Object& object(End& end) { return static_cast<Object&>(end); }
  Object* live(int side) { return static_cast<Object*>(live_[side]); }

  void fail(const std::string& what) override;
  void send(int side, const Datagram& bytes) override;
  std::unique_ptr<End> make_end() override { return std::make_unique<Object>(); }
  cmpair::Parameters responder() override;
  void engine(End& end, uint32_t actions) override;
  void acted(End& end, uint32_t actions) override;
  void requested(End& end) override { application(object(end)); }

  void deliver(int side, const Datagram& bytes);
  void deliver_data(int side, const Datagram& bytes, uint8_t opcode);
  void deliver_stray(int side, const Datagram& bytes);
  void send_data(Object& o, uint8_t opcode);

  void install(Object& o);
  void shut_down(Object& o, int tries);
  void application(Object& o);
  void junk_call(Object& o);
  void arm(Object& o);
  void check_half_open();

  Config cfg_;
  std::mt19937_64 rng_;
  uint64_t order_ = 0;
  uint64_t cut_us_ = UINT64_MAX;
  std::priority_queue<Event> events_;
  unsigned resets_sent_[2] = {0, 0}, resets_arrived_[2] = {0, 0};
  bool given_up_ = false;  ///< an engine's SHUTDOWN was never acknowledged
  Outcome out_;
};

}  // namespace cmsim

#endif  // USIW_TESTS_CM_SIM_H
