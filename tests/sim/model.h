// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file model.h
/// The reference: what a program of work requests has to do to memory and to completion
/// queues, in plain code. A Lane is one direction of a connection: the work requests of the
/// requester, the receives and the memory of the responder.
#ifndef USIW_TESTS_SIM_MODEL_H
#define USIW_TESTS_SIM_MODEL_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "scenario.h"
#include "world.h"

namespace usiw::sim {

/// A stretch of a block: bytes [offset, offset + length).
struct Piece {
  uint32_t offset, length;
};

/// Registered memory full of a pattern, so that every byte that changes is noticed.
struct Block {
  Block(uint32_t key, uint32_t rights, uint64_t pattern) : stag(key), access(rights), salt(pattern) {}

  /// Room for @p length bytes with some bytes around it that nobody may touch.
  Piece take(uint32_t length);
  /// Room for each of @p lengths, apart from each other.
  std::vector<Piece> take(const std::vector<uint32_t>& lengths);
  void make();  ///< all is taken: the memory comes into being
  MrAttr attr() const;
  uint64_t iova(uint32_t offset) const { return base() + offset; }
  std::vector<Sge> sges(const std::vector<Piece>& pieces) const;
  std::vector<Sge> raw_sges(const std::vector<Piece>& pieces) const;  ///< addresses in this process: inline

  void write(const std::vector<Piece>& pieces, uint64_t data);
  void write_old(const std::vector<Piece>& pieces);  ///< as they were
  /// All of @p pieces hold the pattern @p data.
  bool holds(const std::vector<Piece>& pieces, uint64_t data) const;
  bool untouched(const std::vector<Piece>& pieces) const;
  /// A stretch that no piece of @p used covers and that has changed; nothing if there is none.
  std::optional<Piece> changed_outside(std::vector<Piece> used) const;
  /// Every byte is either the old one or the new one.
  bool mixed(const std::vector<Piece>& pieces, uint64_t data) const;
  std::byte old_byte(uint32_t offset) const;

  const uint32_t stag, access;
  const uint64_t salt;
  uint32_t pd = kPd;
  uint32_t size = 0;
  std::vector<std::byte> bytes;

 private:
  uint64_t base() const { return uint64_t{stag} << 24; }
};

/// A message with bytes for a receive.
bool takes_bytes(WrOpcode o);

std::byte pattern_byte(uint64_t salt, uint64_t at);

struct Op {
  const OpPlan* plan;
  uint64_t data;               ///< pattern of the bytes that it moves
  std::vector<Piece> local;    ///< in src (SEND, WRITE) or sink (READ, atomic)
  std::vector<Piece> remote;   ///< in recv (SEND), target (WRITE), source or target (READ), words (atomic)
  std::vector<Piece> receive = {};  ///< in recv: of the receive that it takes
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  int send_no = -1;            ///< what takes a receive: how many such are before it
  uint32_t imm = 0;            ///< with immediate data
  AtomicOperands operands{};   ///< atomic ...
  uint64_t found = 0;          ///< ... and what it finds, being done once and in its turn
  uint64_t posted_at = 0;      ///< ns
  uint16_t refused = 0;        ///< by a window of another connection: the vendor_err that it must fail with; 0: any
};

/// A memory window of the responder, as it is bound once.
struct Window {
  const WindowPlan* plan;
  uint32_t stag;
  Block* block = nullptr;  ///< whose memory it is bound to ...
  Piece at{};              ///< ... from where to where
  std::vector<Piece> users = {};  ///< what is there of those that go by it
  bool frozen = false;     ///< it is known to be unbound ...
  std::vector<std::byte> kept = {};  ///< ... and what they had by then

  std::vector<std::byte> bytes() const;  ///< of the users
};

struct LaneEnd {
  size_t posted = 0, completed = 0, succeeded = 0;
  bool failed = false;
  WcStatus error = WcStatus::kSuccess;  ///< the first one that is not a flush
};

class SharedWords;

/// What a QP leaves its peer, from when on.
class Rights {
 public:
  void become(uint64_t at, uint32_t rights);
  uint32_t now() const;
  bool ever(uint32_t right, uint64_t from) const;    ///< at some time since @p from
  bool always(uint32_t right, uint64_t from) const;  ///< at all times since then

 private:
  template <typename F>
  bool any(uint64_t from, F what) const;
  struct Change {
    uint64_t at;
    uint32_t rights;
  };
  std::vector<Change> changes_;  ///< none: all rights, always
};

class Lane {
 public:
  /// @p first_window: index of the first window, behind those of all regions.
  Lane(World& world, const LanePlan& plan, const SessionPlan& session, char name, uint32_t first_stag,
       uint32_t first_window, uint64_t salt);

  // Blocks of the requester and of the responder, to be registered there.
  Block src, sink, recv, target, source, words;

  /// Next work request or receive to post; its index. The caller says how it went.
  size_t next_send() const { return send.posted; }
  void posted() { ops_[send.posted++].posted_at = w_.clock.now; }
  const Op& op(size_t i) const { return ops_[i]; }
  size_t size() const { return ops_.size(); }
  size_t sends() const { return send_ops_.size(); }
  const Op& recv_op(size_t i) const { return ops_[send_ops_[i]]; }
  Block& block_of(const Op& op) { return is_answered(op.plan->opcode) ? sink : src; }

  /// @p connected: the client has not given up on its set-up, which explains the flush of what the
  /// server had posted by then.
  void on_send(const Cqe& c, bool connected);
  void on_recv(const Cqe& c, bool connected);
  /// The same of a receive of an SRQ, at @p at of @p b. @p whole: nobody has written to it before.
  void on_shared_recv(const Cqe& c, bool connected, const Block& b, const std::vector<Piece>& at, bool whole);
  /// Memory of the responder has perhaps changed: is what is there allowed to be there yet?
  void check_order();
  /// Memory of the requester has perhaps changed: the end of a READ is not there before the rest.
  void check_reads();
  /// Nothing comes any more: every byte of every block. @p flushed: the requester has seen
  /// the end of its QP. @p received: and the responder the end of its own.
  void check_end(bool may_break, bool flushed, bool received);

  /// All that are told of by completions and are before @p limit have succeeded.
  bool completed_before(size_t limit) const;
  /// Of those from @p limit on nothing has been done.
  void check_not_begun(size_t limit);

  /// The words that contended atomics work on: the responder's. Before anything is posted.
  std::shared_ptr<SharedWords> shared_words;
  /// What a contended atomic does, being posted now.
  void post_contended(size_t i, Qp::SendWr& wr);
  /// The same of one that names the window @p stag of another connection. @p bound: and that one has bound it.
  void post_foreign(size_t i, Qp::SendWr& wr, uint32_t stag, uint64_t addr, bool bound);

  bool done() const { return send.completed == ops_.size() && recv_end.completed == sends(); }
  /// No completion of the requester is missing.
  bool settled() const;

  /// The responder's QP has the access flags @p flags from here on (lane_rights.cc).
  void permit(uint32_t flags, bool connected);

  // ---- Windows, of the responder ----

  const std::vector<Window>& windows() const { return windows_; }
  std::vector<const Window*> first_windows() const;  ///< the first one of each slot
  uint32_t lent() const { return lent_; }            ///< STag of the one that others use; 0: there is none
  /// A work request of the responder (lane_windows.cc): what its slot says.
  void fill_local(const OpPlan& p, Qp::SendWr& wr) const;
  /// The responder knows that it is.
  void unbound(int window);

  LaneEnd send, recv_end;

 private:
  void effect(size_t i, const char* when);
  void verify_through(size_t i, const char* when);
  bool last_byte_new(const Block& b, const Op& op) const;
  bool status_allowed(size_t i, WcStatus status) const;
  void plan_atomic(Op& op);
  void make_windows(const LanePlan& plan, uint32_t first_index);
  void check_windows();
  bool must_be_refused(const Op& op) const;
  bool may_be_refused(size_t i) const;
  void check_permitted(size_t i);
  void check_refusal(const Op& op, const Cqe& c);
  void check_withheld();
  bool result_there(const Op& op) const;
  void check_word(size_t posted);
  void check_block(Block& b, const std::vector<std::vector<Piece>>& used, const char* name);

  /// A receive has failed, with this status or a flush; false: it has not.
  bool failed_recv(const Cqe& c, bool connected);
  /// What it says of message @p i.
  void check_recv(const Cqe& c, size_t i);
  bool short_recv(size_t i) const { return recv_op(i).plan->wrong == Wrong::kShortRecv; }

  World& w_;
  const bool sig_all_, raw_, shared_;
  const char name_;
  std::vector<Op> ops_;
  std::vector<size_t> send_ops_;
  size_t verified_ = 0;       ///< everything before it is known to be in place
  size_t reads_seen_ = 0;     ///< READs before it are complete
  Piece word_{};              ///< in words: what all atomics work on
  std::vector<uint64_t> word_values_;  ///< what is there before the first, and behind each
  std::vector<Window> windows_;
  uint32_t lent_ = 0;
  Rights rights_;
  bool no_right_ = false;  ///< a work request was refused by the QP's flags
  size_t accepted_ = 0;  ///< work requests before it are not refused any more, whatever the flags become
  std::vector<std::byte> kept_target_, kept_words_;  ///< as it is while it may not be changed; empty: it may
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_MODEL_H
