// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file model.h
/// The reference model: plain code that knows how work requests have to change memory and completion queues. The rules
/// compare the engine with it. A Lane is one direction of a connection. It has the work requests of the requester, and
/// the receives and the memory of the responder.
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

/// Registered memory, filled with a pattern so that each changed byte is found.
struct Block {
  Block(uint32_t key, uint32_t rights, uint64_t pattern) : stag(key), access(rights), salt(pattern) {}

  /// Reserves @p length bytes, with guard bytes around them that must not change.
  Piece take(uint32_t length);
  /// Reserves each of @p lengths, with guard bytes between them.
  std::vector<Piece> take(const std::vector<uint32_t>& lengths);
  void make();  ///< allocates the memory, after the last take()
  MrAttr attr() const;
  uint64_t iova(uint32_t offset) const { return base() + offset; }
  std::vector<Sge> sges(const std::vector<Piece>& pieces) const;
  std::vector<Sge> raw_sges(const std::vector<Piece>& pieces) const;  ///< with plain addresses, for inline data

  void write(const std::vector<Piece>& pieces, uint64_t data);
  void write_old(const std::vector<Piece>& pieces);  ///< the first pattern
  /// Returns true if all of @p pieces have the pattern @p data.
  bool holds(const std::vector<Piece>& pieces, uint64_t data) const;
  bool untouched(const std::vector<Piece>& pieces) const;
  /// Returns a stretch that no piece of @p used covers and that has changed; nothing if there is none.
  std::optional<Piece> changed_outside(std::vector<Piece> used) const;
  /// Returns true if each byte has either its first value or that of the pattern @p data.
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

/// Returns true if the message carries bytes to a receive.
bool takes_bytes(WrOpcode o);

std::byte pattern_byte(uint64_t salt, uint64_t at);

struct Op {
  const OpPlan* plan;
  uint64_t data;               ///< pattern of its bytes
  std::vector<Piece> local;    ///< in src (SEND, WRITE) or sink (READ, atomic)
  std::vector<Piece> remote;   ///< in recv (SEND), target (WRITE), source or target (READ), words (atomic)
  std::vector<Piece> receive = {};  ///< in recv: the receive that it takes
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  int send_no = -1;            ///< number among those that take a receive; -1: takes none
  uint32_t imm = 0;            ///< with immediate data
  AtomicOperands operands{};   ///< operands, if it is an atomic
  uint64_t found = 0;          ///< the value that an atomic finds if each is done once and in order
  uint64_t posted_at = 0;      ///< ns
  uint16_t refused = 0;        ///< vendor_err of an access by a window of another connection; 0: any
};

/// One binding of a memory window of the responder.
struct Window {
  const WindowPlan* plan;
  uint32_t stag;
  Block* block = nullptr;            ///< the block to which it is bound
  Piece at{};                        ///< the part of the block
  std::vector<Piece> users = {};     ///< the pieces of the work requests that use it
  bool frozen = false;               ///< the responder knows that it is unbound
  std::vector<std::byte> kept = {};  ///< the bytes of the users at that time

  std::vector<std::byte> bytes() const;  ///< the bytes of the users
};

struct LaneEnd {
  size_t posted = 0, completed = 0, succeeded = 0;
  bool failed = false;
  WcStatus error = WcStatus::kSuccess;  ///< the first error that is not a flush
};

class SharedWords;

/// The history of the rights that a QP grants its peer.
class Rights {
 public:
  void become(uint64_t at, uint32_t rights);
  uint32_t now() const;
  bool ever(uint32_t right, uint64_t from) const;    ///< granted at some time since @p from
  bool always(uint32_t right, uint64_t from) const;  ///< granted at all times since @p from

 private:
  template <typename F>
  bool any(uint64_t from, F what) const;
  struct Change {
    uint64_t at;
    uint32_t rights;
  };
  std::vector<Change> changes_;  ///< empty: all rights, always
};

class Lane : Reporter {
 public:
  /// @p first_window: index of the first window, counted after the indices of all regions.
  Lane(World& world, const LanePlan& plan, const SessionPlan& session, char name, uint32_t first_stag,
       uint32_t first_window, uint64_t salt);

  // The requester registers src and sink, the responder the others.
  Block src, sink, recv, target, source, words;

  /// Returns the index of the next work request to post. The caller calls posted() if the engine took it.
  size_t next_send() const { return send.posted; }
  void posted() { ops_[send.posted++].posted_at = w_.clock.now; }
  const Op& op(size_t i) const { return ops_[i]; }
  size_t size() const { return ops_.size(); }
  size_t sends() const { return send_ops_.size(); }
  const Op& recv_op(size_t i) const { return ops_[send_ops_[i]]; }
  Block& block_of(const Op& op) { return is_answered(op.plan->opcode) ? sink : src; }
  /// Returns the block of the responder on which @p opcode works.
  Block& remote_block(WrOpcode opcode);

  /// A completion of the requester, or of the responder. @p connected: the client has not given up its set-up. If it
  /// has, that explains why work requests of the server were flushed.
  void on_send(const Cqe& c, bool connected);
  void on_recv(const Cqe& c, bool connected);
  /// A completion of a receive of an SRQ, whose buffer is @p at in @p b. @p whole: no QP has written to it before.
  void on_shared_recv(const Cqe& c, bool connected, const Block& b, const std::vector<Piece>& at, bool whole);
  /// Memory of the responder may have changed: checks that no byte of a WRITE is placed before its time.
  void check_order();
  /// Memory of the requester may have changed: checks that the last byte of a READ is not placed before the others.
  void check_reads();
  /// The connection is over: checks each byte of each block. @p flushed: all work requests of the requester have
  /// completed. @p received: all receives of the responder have.
  void check_end(bool may_break, bool flushed, bool received);

  /// Returns true if all work requests before @p limit that are to complete with a CQE have done so.
  bool completed_before(size_t limit) const;
  /// Checks that no work request from @p limit on has begun.
  void check_not_begun(size_t limit);

  /// The responder's words, on which contended atomics work. Set before the first post.
  std::shared_ptr<SharedWords> shared_words;
  /// Fills in a contended atomic that is posted now.
  void post_contended(size_t i, Qp::SendWr& wr);
  /// Fills in a work request that names the window @p stag of another connection. @p bound: that one has bound it.
  void post_foreign(size_t i, Qp::SendWr& wr, uint32_t stag, uint64_t addr, bool bound);

  bool done() const { return send.completed == ops_.size() && recv_end.completed == sends(); }
  /// Returns true if no completion of the requester is missing.
  bool settled() const;

  /// The access flags of the responder's QP become @p flags (lane_rights.cc).
  void permit(uint32_t flags, bool connected);

  // ---- Windows of the responder ----

  std::vector<const Window*> first_windows() const;  ///< the first binding of each slot
  uint32_t lent() const { return lent_; }            ///< STag of the window that others use; 0: none
  /// Fills in a bind or an invalidation by the responder (lane_windows.cc).
  void fill_local(const OpPlan& p, Qp::SendWr& wr) const;
  /// The responder knows that @p window is unbound.
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

  /// Returns true if the receive has failed, after checking its status.
  bool failed_recv(const Cqe& c, bool connected);
  /// Checks the completion of the receive of message @p i.
  void check_recv(const Cqe& c, size_t i);
  bool short_recv(size_t i) const { return recv_op(i).plan->wrong == Wrong::kShortRecv; }

  const bool sig_all_, raw_, shared_;
  std::vector<Op> ops_;
  std::vector<size_t> send_ops_;
  size_t verified_ = 0;                ///< the bytes of all work requests before it are in place
  size_t reads_seen_ = 0;              ///< all READs before it are complete
  Piece word_{};                       ///< in words: the word of all atomics that do not contend
  std::vector<uint64_t> word_values_;  ///< its value before the first atomic, and after each
  std::vector<Window> windows_;
  uint32_t lent_ = 0;
  Rights rights_;
  bool no_right_ = false;                            ///< the QP's flags have refused a work request
  size_t accepted_ = 0;                              ///< no change of the flags can refuse a work request before it
  std::vector<std::byte> kept_target_, kept_words_;  ///< contents while the flags forbid changes; empty: they do not
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_MODEL_H
