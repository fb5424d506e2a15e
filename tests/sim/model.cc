// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "model.h"

#include <algorithm>
#include <cstring>

#include "shared_words.h"

namespace usiw::sim {
namespace {

constexpr uint32_t kGuard = 8;

uint64_t pattern_word(uint64_t salt, uint64_t word) {
  uint64_t z = salt + word * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Calls @p run with up to 512 bytes of the pattern at a time, from @p at on. Stops if @p run returns false.
template <typename F>
bool each(uint64_t salt, uint64_t at, uint64_t length, F run) {
  uint64_t words[65];
  while (length != 0) {
    const uint64_t skip = at % 8, n = std::min<uint64_t>(length, 512);
    for (uint64_t i = 0; i * 8 < skip + n; ++i) words[i] = pattern_word(salt, at / 8 + i);
    if (!run(reinterpret_cast<const std::byte*>(words) + skip, n)) return false;
    at += n;
    length -= n;
  }
  return true;
}

void fill(std::byte* at, uint64_t salt, uint64_t from, uint64_t length) {
  each(salt, from, length, [&](const std::byte* p, uint64_t n) {
    std::memcpy(at, p, n);
    at += n;
    return true;
  });
}

bool equal(const std::byte* at, uint64_t salt, uint64_t from, uint64_t length) {
  return each(salt, from, length, [&](const std::byte* p, uint64_t n) {
    const bool same = std::memcmp(at, p, n) == 0;
    at += n;
    return same;
  });
}

const char* op_name(WrOpcode o) {
  static constexpr const char* kNames[] = {"WRITE", "WRITE_IMM", "SEND", "SEND_IMM", "READ",
                                           "CMP_SWAP", "FETCH_ADD", "LOCAL_INV", "BIND_MW", "SEND_INV"};
  return kNames[static_cast<size_t>(o)];
}

bool is_write(WrOpcode o) { return is_tagged(o); }

uint32_t bindable(const LanePlan& plan) { return plan.windows.empty() ? 0u : kAccessMwBind; }

uint64_t load_word(const Block& b, const Piece& at) {
  uint64_t word;
  std::memcpy(&word, b.bytes.data() + at.offset, sizeof word);
  return word;
}

}  // namespace

bool takes_bytes(WrOpcode o) { return takes_receive(o) && !is_tagged(o); }

std::byte pattern_byte(uint64_t salt, uint64_t at) {
  return static_cast<std::byte>(pattern_word(salt, at / 8) >> at % 8 * 8);
}

// ---- Blocks ----

Piece Block::take(uint32_t length) {
  const Piece p{size + kGuard, length};
  size += length + kGuard;
  return p;
}

std::vector<Piece> Block::take(const std::vector<uint32_t>& lengths) {
  std::vector<Piece> out;
  for (const uint32_t n : lengths) out.push_back(take(n));
  return out;
}

void Block::make() {
  size += kGuard;
  bytes.resize(size);
  fill(bytes.data(), salt, 0, size);
}

MrAttr Block::attr() const {
  const uint32_t how = salt % 4 == 0 ? uint32_t{kAccessOnDemand} : 0u;  // makes no difference to the model
  return {stag, pd, access | how, reinterpret_cast<uint64_t>(bytes.data()), bytes.size(), base()};
}

std::vector<Sge> Block::sges(const std::vector<Piece>& pieces) const {
  std::vector<Sge> out;
  for (const Piece& p : pieces) out.push_back({iova(p.offset), p.length, stag});
  return out;
}

std::vector<Sge> Block::raw_sges(const std::vector<Piece>& pieces) const {
  std::vector<Sge> out;
  for (const Piece& p : pieces) out.push_back({reinterpret_cast<uint64_t>(bytes.data()) + p.offset, p.length, 0});
  return out;
}

void Block::write(const std::vector<Piece>& pieces, uint64_t data) {
  uint64_t at = 0;
  for (const Piece& piece : pieces) {
    fill(bytes.data() + piece.offset, data, at, piece.length);
    at += piece.length;
  }
}

void Block::write_old(const std::vector<Piece>& pieces) {
  for (const Piece& p : pieces) fill(bytes.data() + p.offset, salt, p.offset, p.length);
}

bool Block::holds(const std::vector<Piece>& pieces, uint64_t data) const {
  uint64_t at = 0;
  for (const Piece& p : pieces) {
    if (!equal(bytes.data() + p.offset, data, at, p.length)) return false;
    at += p.length;
  }
  return true;
}

bool Block::untouched(const std::vector<Piece>& pieces) const {
  for (const Piece& p : pieces)
    if (!equal(bytes.data() + p.offset, salt, p.offset, p.length)) return false;
  return true;
}

bool Block::mixed(const std::vector<Piece>& pieces, uint64_t data) const {
  if (holds(pieces, data) || untouched(pieces)) return true;  // the usual case, without a look at each byte
  uint64_t at = 0;
  for (const Piece& p : pieces)
    for (uint32_t i = 0; i < p.length; ++i, ++at) {
      const std::byte b = bytes[p.offset + i];
      if (b != pattern_byte(data, at) && b != old_byte(p.offset + i)) return false;
    }
  return true;
}

std::optional<Piece> Block::changed_outside(std::vector<Piece> used) const {
  std::sort(used.begin(), used.end(), [](const Piece& x, const Piece& y) { return x.offset < y.offset; });
  used.push_back({size, 0});
  uint32_t at = 0;
  for (const Piece& p : used) {
    const Piece gap{at, p.offset - at};
    if (!untouched({gap})) return gap;
    at = p.offset + p.length;
  }
  return {};
}

std::byte Block::old_byte(uint32_t offset) const { return pattern_byte(salt, offset); }

// ---- Lane ----

Lane::Lane(World& world, const LanePlan& plan, const SessionPlan& session, char name, uint32_t first_stag,
           uint32_t first_window, uint64_t salt)
    : Reporter(world, std::string("lane ") + name),
      src((first_stag + 0) << 8 | 0x11, 0, salt + 1),
      sink((first_stag + 1) << 8 | 0x22, kAccessLocalWrite, salt + 2),
      recv((first_stag + 2) << 8 | 0x33, kAccessLocalWrite, salt + 3),
      target((first_stag + 3) << 8 | 0x44, kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | bindable(plan),
             salt + 4),
      source((first_stag + 4) << 8 | 0x55, kAccessRemoteRead | bindable(plan), salt + 5),
      words((first_stag + 5) << 8 | 0x66, kAccessLocalWrite | kAccessRemoteAtomic | bindable(plan), salt + 6),
      sig_all_(session.sig_all),
      raw_(world.sc.has(kRaw)),
      shared_(plan.shared) {
  uint64_t data = salt + 1000;
  word_ = words.take(kAtomicBytes);
  for (const OpPlan& p : plan.ops) {
    Op op{.plan = &p, .data = data += 10, .local = {}, .remote = {}};
    op.imm = static_cast<uint32_t>(op.data);
    if (takes_receive(p.opcode)) {
      std::vector<uint32_t> lengths = p.recv;
      if (p.wrong == Wrong::kShortRecv) lengths = {p.size - 1};
      op.receive = recv.take(lengths);
      op.send_no = static_cast<int>(send_ops_.size());
      send_ops_.push_back(ops_.size());
    }
    if (!is_local(p.opcode)) {  // a local one moves no bytes
      op.local = block_of(op).take(p.local);
      op.remote = takes_bytes(p.opcode)
                      ? op.receive
                      : std::vector{is_atomic(p.opcode) ? word_ : remote_block(p.opcode).take(p.size)};
    }
    ops_.push_back(std::move(op));
  }
  for (Block* b : {&src, &sink, &recv, &target, &source, &words}) b->make();
  word_values_ = {load_word(words, word_)};
  for (Op& op : ops_) {
    const OpPlan& p = *op.plan;
    if (is_local(p.opcode)) continue;
    const bool read = p.opcode == WrOpcode::kRdmaRead;
    Block& far = remote_block(p.opcode);
    if (!takes_bytes(p.opcode)) {
      op.remote_addr = far.iova(op.remote[0].offset);
      op.rkey = far.stag;
    }
    if (is_atomic(p.opcode)) {
      plan_atomic(op);
    } else if (read && p.read_of >= 0) {
      const Op& w = ops_[p.read_of];
      op.remote_addr = w.remote_addr;
      op.rkey = w.rkey;
      op.data = w.data;
    } else if (p.size != 0) {
      // The last byte has to change, because the rules of order watch it.
      Block& to = read ? sink : far;
      const auto& pieces = read ? op.local : op.remote;
      for (auto it = pieces.rbegin(); it != pieces.rend(); ++it) {
        if (it->length == 0) continue;
        while (pattern_byte(op.data, p.size - 1) == to.old_byte(it->offset + it->length - 1)) ++op.data;
        break;
      }
    }
    if (read)
      source.write(op.remote, p.read_of >= 0 ? source.salt + 99 : op.data);
    else if (!is_atomic(p.opcode))
      src.write(op.local, op.data);
    switch (p.wrong) {
      case Wrong::kRkey: op.rkey ^= 0x1; break;
      case Wrong::kBounds: op.remote_addr = far.iova(far.size); break;
      case Wrong::kRights:
        op.rkey = recv.stag;
        op.remote_addr = recv.iova(0);
        break;
      default: break;
    }
  }
  make_windows(plan, first_window);
  if (plan.lent) lent_ = (USIW_MAX_MR + first_window + 9) << 8 | 0xa1;  // after those of make_windows()
}

Block& Lane::remote_block(WrOpcode opcode) {
  if (takes_bytes(opcode)) return recv;
  if (is_write(opcode)) return target;
  return is_atomic(opcode) ? words : source;
}

/// Chooses the operands of an atomic, and the value that it finds if all atomics before it were done once.
void Lane::plan_atomic(Op& op) {
  if (op.plan->contended) return;
  const uint64_t now = word_values_.back();
  op.found = now;
  const bool matches = op.data % 20 != 0;
  if (op.plan->opcode == WrOpcode::kFetchAdd)
    op.operands = {op.data | 1, 0};
  else
    op.operands = {matches ? now : ~now, op.data};
  if (op.plan->wrong != Wrong::kNone) return;
  word_values_.push_back(op.plan->opcode == WrOpcode::kFetchAdd ? now + op.operands.compare_add
                         : matches                              ? op.data
                                                                : now);
}

void Lane::post_contended(size_t i, Qp::SendWr& wr) {
  if (shared_words == nullptr) return;  // on a raw wire the peer may not be an end of the scenario
  Op& op = ops_[i];
  op.operands = shared_words->post(op.plan->opcode, op.data * 0x9e3779b97f4a7c15ull + w_.clock.now);
  wr.operands = op.operands;
  wr.remote_addr = shared_words->address(op.plan->opcode);
  wr.rkey = shared_words->block().stag;
}

void Lane::post_foreign(size_t i, Qp::SendWr& wr, uint32_t stag, uint64_t addr, bool bound) {
  Op& op = ops_[i];
  const WrOpcode o = op.plan->opcode;
  if (takes_bytes(o)) {
    op.imm = wr.imm = stag;
  } else if (o == WrOpcode::kLocalInv) {
    wr.imm = stag;
  } else if (o == WrOpcode::kBindMw) {
    wr.rkey = stag;
    wr.imm = 1;
    wr.remote_addr = addr;
    wr.bind = {.length = 1, .access = kAccessRemoteRead, .region = src.stag};
  } else {
    wr.rkey = stag;
    wr.remote_addr = addr;
    const TermCode code = is_write(o) ? bound ? term::kDdpStagNotAssociated : term::kDdpInvalidStag
                          : bound     ? term::kRdmapStagNotAssociated
                                      : term::kRdmapInvalidStag;
    op.refused = vendor_err_of(code);
  }
  if (takes_bytes(o)) op.refused = vendor_err_of(term::kRdmapCannotInvalidate);
}

bool Lane::completed_before(size_t limit) const {
  for (size_t i = send.completed; i < limit; ++i)
    if (ops_[i].plan->signalled || sig_all_) return false;
  return true;
}

void Lane::check_not_begun(size_t limit) {
  if (raw_) return;
  size_t received = 0;
  for (size_t i = 0; i < send.posted; ++i) {
    const Op& op = ops_[i];
    const WrOpcode o = op.plan->opcode;
    if (i < limit) {
      received += takes_receive(o);
      continue;
    }
    const bool none = is_answered(o) ? sink.untouched(op.local) : is_write(o) ? target.untouched(op.remote) : true;
    if (!none) fail("drain", "%s %zu has begun in SQD", op_name(o), i);
  }
  if (recv_end.succeeded > received)
    fail("drain", "%zu messages have been received, %zu were sent before SQD", recv_end.succeeded, received);
}

bool Lane::result_there(const Op& op) const { return load_word(sink, op.local[0]) == op.found; }

/// Checks the word. It has the value after some of the posted atomics in order, at least after all that succeeded.
void Lane::check_word(size_t posted) {
  size_t succeeded = 0, right = 0;
  for (size_t i = 0; i < posted; ++i) {
    if (!is_atomic(ops_[i].plan->opcode) || ops_[i].plan->contended || ops_[i].plan->wrong != Wrong::kNone) continue;
    ++right;
    succeeded += i < send.succeeded;
  }
  const uint64_t word = load_word(words, word_);
  const auto from = word_values_.begin() + static_cast<std::ptrdiff_t>(succeeded);
  const auto to = word_values_.begin() + static_cast<std::ptrdiff_t>(right) + 1;
  if (std::find(from, to, word) == to)
    fail("atomic", "%zu to %zu atomics have been done, and the word is %llx", succeeded, right, ull(word));
}

bool Lane::last_byte_new(const Block& b, const Op& op) const {
  const auto& pieces = op.plan->opcode == WrOpcode::kRdmaRead ? op.local : op.remote;
  for (auto it = pieces.rbegin(); it != pieces.rend(); ++it)
    if (it->length != 0) return b.bytes[it->offset + it->length - 1] == pattern_byte(op.data, op.plan->size - 1);
  return false;
}

/// Checks that the bytes of work request @p i are in place.
void Lane::effect(size_t i, const char* when) {
  if (raw_) return;
  const Op& op = ops_[i];
  bool there = true;
  switch (op.plan->opcode) {
    case WrOpcode::kRdmaRead: there = sink.holds(op.local, op.data); break;
    case WrOpcode::kCompareSwap:
    case WrOpcode::kFetchAdd:
      if (op.plan->contended) return shared_words->done(op.plan->opcode, op.operands, load_word(sink, op.local[0]));
      there = result_there(op);
      break;
    case WrOpcode::kSend:
    case WrOpcode::kSendImm:
    case WrOpcode::kSendInv:
      if (shared_) return;  // its completion shows which buffer of the SRQ it took
      [[fallthrough]];
    default: there = remote_block(op.plan->opcode).holds(op.remote, op.data); break;
  }
  if (!there) fail("bytes", "%s %zu of %u bytes: wrong bytes %s", op_name(op.plan->opcode), i, op.plan->size, when);
}

void Lane::verify_through(size_t i, const char* when) {
  for (; verified_ <= i; ++verified_)
    if (!is_answered(ops_[verified_].plan->opcode) && ops_[verified_].plan->wrong == Wrong::kNone)
      effect(verified_, when);
}

void Lane::check_order() {
  if (raw_) return;
  for (size_t i = verified_; i < send.posted; ++i) {
    const Op& op = ops_[i];
    if (!is_write(op.plan->opcode) || op.plan->size == 0 || op.plan->wrong != Wrong::kNone) continue;
    if (last_byte_new(target, op)) verify_through(i, "behind a last byte that is there");
  }
}

void Lane::check_reads() {
  if (raw_) return;
  while (reads_seen_ < send.completed) ++reads_seen_;
  for (size_t i = reads_seen_; i < send.posted; ++i) {
    const Op& op = ops_[i];
    if (op.plan->opcode != WrOpcode::kRdmaRead || op.plan->size == 0 || op.plan->wrong != Wrong::kNone ||
        op.plan->read_of >= 0)
      continue;
    if (!last_byte_new(sink, op)) break;
    effect(i, "though its last byte is there");
    if (i == reads_seen_) ++reads_seen_;
  }
}

/// True if the plan explains that work request @p i fails with @p status, which is not a flush.
bool Lane::status_allowed(size_t i, WcStatus status) const {
  const Op& op = ops_[i];
  const WrOpcode o = op.plan->opcode;
  switch (status) {
    case WcStatus::kRetryExcErr:
      return w_.sc.may_break();
    case WcStatus::kRemAccessErr:
      if (op.plan->wrong == Wrong::kRkey) return !takes_bytes(o) || o == WrOpcode::kSendInv;
      return op.plan->risky || may_be_refused(i) || op.plan->wrong == Wrong::kBounds ||
             op.plan->wrong == Wrong::kRights || op.plan->wrong == Wrong::kBeyond ||
             op.plan->wrong == Wrong::kUnbound || (op.plan->wrong == Wrong::kForeign && !is_local(o));
    case WcStatus::kMwBindErr:
      return op.plan->wrong == Wrong::kBadBind || (op.plan->wrong == Wrong::kForeign && is_local(o));
    case WcStatus::kLocProtErr:
      return op.plan->wrong == Wrong::kLkey;
    case WcStatus::kRemInvReqErr:
      return op.plan->wrong == Wrong::kShortRecv;
    case WcStatus::kRnrRetryExcErr:
      return takes_receive(o) && (op.plan->wrong == Wrong::kNoRecv || w_.sc.has(kFreeze) || w_.sc.may_break());
    default:
      return false;
  }
}

void Lane::on_send(const Cqe& c, bool connected) {
  const auto i = static_cast<size_t>(c.wr_id & 0xffffffff);
  if (i >= send.posted) return fail("completion", "completion of %zu, never posted", i);
  if (i < send.completed) return fail("completion", "%zu completes again or out of order", i);
  const bool good = c.status == WcStatus::kSuccess;
  for (; send.completed < i; ++send.completed) {
    const Op& op = ops_[send.completed];
    if (op.plan->signalled || sig_all_)
      return fail("completion", "no completion of %zu before that of %zu", send.completed, i);
    if (send.failed) return fail("completion", "%zu was not flushed", send.completed);
    ++send.succeeded;
    check_permitted(send.completed);
    effect(send.completed, "though completed silently");
  }
  const Op& op = ops_[i];
  ++send.completed;
  if (!good) {
    if (c.status != WcStatus::kWrFlushErr) {
      // On a wire with undetected damage the ends may disagree about what is complete, so a flush may come first.
      if (raw_ ? send.error != WcStatus::kSuccess : send.failed)
        fail("status", "%zu: a second error, %d", i, static_cast<int>(c.status));
      send.error = c.status;
      if (!raw_ && !status_allowed(i, c.status))
        fail("status", "%s %zu: status %d", op_name(op.plan->opcode), i, static_cast<int>(c.status));
      if (!raw_ && op.refused != 0 && c.status == WcStatus::kRemAccessErr && c.vendor_err != op.refused)
        fail("status", "%s %zu by a window of another connection: vendor_err %x, expected %x", op_name(op.plan->opcode),
             i, c.vendor_err, op.refused);
    }
    check_refusal(op, c);
    if (!w_.sc.may_break() && connected)
      fail("status", "%s %zu: status %d and nothing that explains it", op_name(op.plan->opcode), i,
           static_cast<int>(c.status));
    send.failed = true;
    return;
  }
  if (send.failed) return fail("status", "%zu succeeds behind an error", i);
  ++send.succeeded;
  if (op.plan->wrong != Wrong::kNone && !raw_)
    return fail("status", "%s %zu succeeds, which it must not", op_name(op.plan->opcode), i);
  check_permitted(i);
  if (c.opcode != operation(op.plan->opcode).completion || c.flags != 0 ||
      (is_answered(op.plan->opcode) && c.byte_len != op.plan->size))
    fail("completion", "%zu: opcode %d, %u bytes", i, static_cast<int>(c.opcode), c.byte_len);
  if (!op.plan->signalled && !sig_all_) fail("completion", "%zu was not signalled", i);
  effect(i, "though completed");
}

void Lane::on_recv(const Cqe& c, bool connected) {
  const auto i = static_cast<size_t>(c.wr_id & 0xffffffff);
  if (i != recv_end.completed || i >= recv_end.posted)
    return fail("completion", "receive %zu completes, expected %zu of %zu", i, recv_end.completed, recv_end.posted);
  ++recv_end.completed;
  if (failed_recv(c, connected)) return;
  ++recv_end.succeeded;
  if (!raw_) check_recv(c, i);
}

void Lane::on_shared_recv(const Cqe& c, bool connected, const Block& b, const std::vector<Piece>& at, bool whole) {
  const size_t i = recv_end.completed;
  if (!shared_ || (i >= sends() && !raw_))
    return fail("completion", "receive %zu of an SRQ completes, of %zu", i, sends());
  ++recv_end.completed;
  if (failed_recv(c, connected)) return;
  ++recv_end.succeeded;
  if (raw_) return;
  check_recv(c, i);
  // The buffer has the bytes of the message, and no byte after them has changed.
  std::vector<Piece> message, rest;
  uint32_t left = takes_bytes(recv_op(i).plan->opcode) ? c.byte_len : 0;
  for (const Piece& p : at) {
    const uint32_t n = std::min(p.length, left);
    message.push_back({p.offset, n});
    rest.push_back({p.offset + n, p.length - n});
    left -= n;
  }
  if (left != 0 || !b.holds(message, recv_op(i).data))
    fail("bytes", "receive %zu of an SRQ, %u bytes: wrong bytes", i, c.byte_len);
  if (whole && !b.untouched(rest)) fail("memory", "receive %zu of an SRQ: bytes behind the message have changed", i);
}

bool Lane::failed_recv(const Cqe& c, bool connected) {
  const size_t i = recv_end.completed - 1;
  if (c.status == WcStatus::kSuccess) {
    if (!recv_end.failed) return false;
    fail("status", "receive %zu succeeds behind an error", i);
    return true;
  }
  if (c.status != WcStatus::kWrFlushErr) {
    const bool expected = c.status == WcStatus::kLocLenErr && i < sends() && short_recv(i);
    if (recv_end.failed || (!expected && !raw_))
      fail("status", "receive %zu: status %d", i, static_cast<int>(c.status));
    recv_end.error = c.status;
  }
  if (!w_.sc.may_break() && connected)
    fail("status", "receive %zu: status %d and nothing that explains it", i, static_cast<int>(c.status));
  recv_end.failed = true;
  return true;
}

void Lane::check_recv(const Cqe& c, size_t i) {
  const size_t at = send_ops_[i];
  if (at >= send.posted) return fail("completion", "receive %zu of what was never sent", i);
  const Op& op = recv_op(i);
  const WrOpcode o = op.plan->opcode;
  if (c.byte_len != op.plan->size || c.opcode != (takes_bytes(o) ? WcOpcode::kRecv : WcOpcode::kRecvRdmaWithImm))
    fail("completion", "receive %zu: %u bytes, sent %u", i, c.byte_len, op.plan->size);
  const bool imm = o == WrOpcode::kSendImm || o == WrOpcode::kRdmaWriteImm, inv = o == WrOpcode::kSendInv;
  if (c.flags != (imm ? kWcWithImm : inv ? kWcWithInv : 0) || c.imm != (imm || inv ? op.imm : 0))
    fail("immediate", "receive %zu: flags %u, immediate data %08x", i, c.flags, c.imm);
  if (op.plan->wrong == Wrong::kForeign) return fail("status", "receive %zu: of what is to be refused", i);
  if (inv) unbound(op.plan->window);
  effect(at, "in a receive that is complete");
  if (at != 0) verify_through(at - 1, "before a receive that is complete");
}

bool Lane::settled() const {
  // Work requests after the last completion may have succeeded silently.
  for (size_t i = send.completed; i < send.posted; ++i)
    if (ops_[i].plan->signalled || sig_all_ || send.failed) return false;
  return true;
}

void Lane::check_block(Block& b, const std::vector<std::vector<Piece>>& used, const char* name) {
  std::vector<Piece> all;
  for (const auto& pieces : used) all.insert(all.end(), pieces.begin(), pieces.end());
  if (const auto gap = b.changed_outside(std::move(all)))
    fail("memory", "a byte of %s between %u and %u has changed", name, gap->offset, gap->offset + gap->length);
}

void Lane::check_end(bool may_break, bool flushed, bool received) {
  if (flushed && !send.failed)
    for (size_t i = send.completed; i < send.posted; ++i) effect(i, "though nothing was flushed");
  std::vector<std::vector<Piece>> in_src, in_sink, in_recv, in_target, in_source;
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    const WrOpcode o = op.plan->opcode;
    const bool known_done = i < send.completed && !send.failed, posted = i < send.posted;
    const bool refused = op.plan->wrong == Wrong::kForeign || must_be_refused(op);
    if (!may_break && !known_done && !(posted && !op.plan->signalled))
      fail("lost", "%s %zu did not complete", op_name(o), i);
    if (o == WrOpcode::kRdmaRead) {
      in_sink.push_back(op.local);
      in_source.push_back(op.remote);
      if (!raw_ && (posted && !refused ? !sink.mixed(op.local, op.data) : !sink.untouched(op.local)))
        fail("memory", "sink of READ %zu holds what nobody has sent", i);
      if (!source.holds(op.remote, op.plan->read_of >= 0 ? source.salt + 99 : op.data))
        fail("memory", "source of READ %zu has changed", i);
      continue;
    }
    if (is_atomic(o)) {
      in_sink.push_back(op.local);
      if (!raw_ && !sink.untouched(op.local) && (!posted || refused || !(op.plan->contended || result_there(op))))
        fail("memory", "result of atomic %zu is what was never there", i);
      continue;
    }
    in_src.push_back(op.local);
    // A WRITE with immediate data writes no byte to the receive, unless damage has made a SEND of it.
    if (raw_ && takes_receive(o) && !takes_bytes(o)) in_recv.push_back(op.receive);
    if (!src.holds(op.local, op.data)) fail("memory", "source of %zu has changed", i);
    if (takes_bytes(o) && shared_) continue;
    Block& b = remote_block(o);
    (takes_bytes(o) ? in_recv : in_target).push_back(op.remote);
    const bool may_be_there = posted && (!takes_bytes(o) || static_cast<size_t>(op.send_no) < recv_end.posted);
    const bool none = (op.plan->wrong == Wrong::kUnbound && op.plan->alone) || (refused && !takes_bytes(o));
    if (!raw_ && (may_be_there && !none ? !b.mixed(op.remote, op.data) : !b.untouched(op.remote)))
      fail("memory", "target of %s %zu holds what nobody has sent", op_name(o), i);
  }
  check_windows();
  check_withheld();
  check_block(src, in_src, "src");
  check_block(sink, in_sink, "sink");
  check_block(recv, in_recv, "recv");
  check_block(source, in_source, "source");
  // A damaged datagram may change memory with remote rights, but no other memory.
  if (!raw_) check_block(target, in_target, "target");
  if (!raw_) check_block(words, {{word_}}, "words");
  if (!raw_) check_word(send.posted);
  if (!raw_ && send.succeeded > 0) {
    size_t sent = 0;
    for (size_t i = 0; i < send.completed && i < send.succeeded; ++i) sent += takes_receive(ops_[i].plan->opcode);
    if (sent > recv_end.succeeded && (shared_ ? received : recv_end.completed == recv_end.posted))
      fail("agree", "%zu that take a receive succeeded, %zu were received", sent, recv_end.succeeded);
  }
}

}  // namespace usiw::sim
