// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file run.h
/// One scenario from beginning to end. Run has the hosts with their kernels and processes. Its programs connect, post,
/// poll, disconnect, fail and come back. Run checks the rules that concern both ends of a connection.
#ifndef USIW_TESTS_SIM_RUN_H
#define USIW_TESTS_SIM_RUN_H

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "kernel.h"
#include "model.h"
#include "process.h"
#include "watch.h"

namespace usiw::sim {

class Run;
struct Attempt;

struct Machine {
  int side;
  std::unique_ptr<Kernel> kernel;    ///< nullptr: the host is down
  std::unique_ptr<Process> process;  ///< nullptr: no process runs
  uint32_t next_qpn = 1;
};

/// One end of one attempt to connect: a program's QP and cm_id.
class End final : public CmUser, public std::enable_shared_from_this<End>, Reporter {
 public:
  End(Run& run, Attempt* attempt, int which, Machine& machine);

  void start_client();
  void start_server(uint32_t conn_id);
  void on_reply(int status, std::span<const uint8_t> pd) override;
  void on_established() override;
  void on_disconnected(int status) override;
  void on_closed() override;

  void on_cqe(const Cqe& c);
  void on_shared_cqe(const Cqe& c, const SharedQueue::Buffer& b);
  void close();
  void process_died();
  void describe(std::string& out) const;
  bool set_up_holds() const;  ///< neither end has given up the handshake

  bool established = false;  ///< the program knows that it is connected
  bool over = false;         ///< the program is done with this end
  bool flushed = false;      ///< its QP has ended and all work requests have completed
  int status = 0;            ///< status of the event that ended the connection
  int machine_closes = 0, machine_disconnects = 0, machine_opens = 0;
  int failures = 0;  ///< error of the connection attempt
  uint32_t qpn = 0;

 private:
  /// Calls @p what in @p ns, unless the process has ended by then.
  void later(uint64_t ns, void (End::*what)());
  bool shared() const;  ///< it takes its receives from the host's SRQ
  uint32_t pd() const;
  bool flushed_recvs() const;
  void make_qp();
  void post_recvs();
  void wake_send();
  LentWindows* others_windows(WrOpcode opcode) const;
  bool looks_for_window(const OpPlan& p);
  const LentWindows::Window* fill_foreign(size_t i, Qp::SendWr& wr);
  void wake_waiting();
  bool may_post(const OpPlan& p) const;
  void permit(uint32_t access, bool connected);
  void pause(const PausePlan& p);
  void drained();
  void resume();
  std::array<Block*, 6> blocks() const;  ///< the blocks of both lanes that it registers
  void register_memory();
  void remove_memory();
  void wake_recv();
  void opened();
  void begin_work();
  void resume_sending();
  void gone();
  void try_finish(uint64_t since);
  void finish();
  Lane* out() const;
  Lane* in() const;
  Qp* qp() const;

  Run& run_;
  Attempt* attempt_;  ///< nullptr: the connection of an old REQ
  const int which_;
  Machine& machine_;
  Process* process_;
  LifeOf life_;
  bool gone_ = false, closing_ = false, sending_ = false, no_qp_ = false;
  bool waiting_ = false;  ///< the next work request waits for a completion or a message
  bool paused_ = false, asked_ = false, drained_ = false;  ///< in SQD; SQ_DRAINED is due; has come
  size_t pause_limit_ = 0;                                 ///< work requests posted before the pause
  unsigned looked_ = 0;                                    ///< attempts to find a window of another connection
  uint64_t pause_length_ = 0;
  size_t local_done_ = 0;  ///< work requests before it have succeeded, and their effect on windows is recorded
  uint64_t stall_ = 2'000;
  friend class Run;
};

struct Attempt {
  uint32_t id;
  size_t pair;
  const SessionPlan* plan;
  FlowKey flow;  ///< the client's
  std::unique_ptr<Lane> lane[2];
  std::shared_ptr<End> end[2];
  bool requested = false, finished = false, rejected = false;
  int tries;
};

class Run {
 public:
  Run(const Scenario& scenario, Mutation mutation, size_t trace_lines);
  /// Returns whether no rule was broken. w.rule and w.why have the broken one.
  bool go();

  World w;
  Watch watch;
  std::vector<Machine> machines;
  Attempt* attempt(uint32_t id) const { return id < attempts_.size() ? attempts_[id].get() : nullptr; }
  void attempt_progress(Attempt& a);
  void end_is_over(Attempt* a);
  void ghost(std::shared_ptr<End> e) { ghosts_.push_back(std::move(e)); }
  uint32_t take_stags() { return (next_stag_ += 10) - 10; }
  uint32_t take_windows() { return (next_window_ += 10) - 10; }

 private:
  void on_request(Machine& m, uint32_t conn_id, std::span<const uint8_t> pd);
  void serve(Machine& m, uint32_t conn_id, uint32_t attempt_id);
  void start_process(Machine& m);
  End* end_of(const Process& p, uint32_t qpn) const;
  void on_cqe(Process& p, const Cqe& c);
  void start_session(size_t pair);
  void start_attempt(size_t pair, int tries);
  void finish_attempt(Attempt& a);
  void tell_mtu();
  void incident(const Incident& i, bool on);
  void incident(const Incident& i, Machine& m, bool on);
  void lose_port(Machine& m, uint64_t value);
  void restore_ports(Machine& m);
  void kill(Machine& m);
  void arrivals();
  bool step();
  void check_orders(int side);
  bool all_over() const;
  void check_final();
  void mutate(Datagram& d);
  std::string state() const;

  std::vector<std::unique_ptr<Attempt>> attempts_;
  std::vector<std::shared_ptr<End>> ends_;  ///< every end ever made, because kernels and processes have their addresses
  std::vector<std::shared_ptr<End>> ghosts_;
  std::vector<size_t> session_;                   ///< per pair: the present session
  std::vector<std::shared_ptr<End>> old_client_;  ///< per pair: the client whose QP the next session may use again
  size_t pairs_over_ = 0, incidents_open_ = 0;
  uint32_t next_stag_ = 16, next_window_ = 0;
  WireFaults faults_;
  Life life_ = std::make_shared<int>(0);
  friend class End;
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_RUN_H
