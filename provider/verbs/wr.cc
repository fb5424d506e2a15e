// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file wr.cc
/// ibv_create_qp_ex(3) and the work request API (ibv_wr_post(3)): from ibv_wr_start() on it is the caller's turn, and
/// work requests are written where the engine will find them, which it does only once ibv_wr_complete() hands all of
/// them over at a time.
#include <array>
#include <cerrno>
#include <cstring>

#include "verbs/post.h"

using namespace usiw;

namespace {

VQp& of(ibv_qp_ex* ex) { return *from(&ex->qp_base); }

/// Writes the work request that was begun, with its data.
void add(VQp& qp, std::span<const Sge> sges) {
  Batch& batch = qp.batch;
  if (!batch.begun && batch.error == 0) batch.error = EINVAL;  // data of no work request
  batch.begun = false;
  if (batch.error != 0) return;
  Sge bad;
  if (qp.faults && post_fault_is_due()) [[unlikely]] {
    bad = faulty(sges.empty() ? Sge{1, 1, 0} : sges[0]);
    sges = {&bad, 1};
    batch.wr.flags &= static_cast<uint8_t>(~kWrInline);
  }
  batch.error = qp.qp->prepare(batch.count, batch.wr, sges);
  if (batch.error != 0) return;
  ++batch.count;
  uint64_t bytes = 0;
  for (const Sge& sge : sges) bytes += sge.length;
  batch.small = is_answered(batch.wr.opcode) || bytes <= kSmallBytes;
}

/// Whoever gets no data is complete when the next one begins.
void end_last(VQp& qp) {
  if (qp.batch.begun) add(qp, {});
}

/// What is beyond the opcode and where it goes.
struct Extra {
  uint32_t imm = 0;  ///< as SendWqe has it
  AtomicOperands operands = {0, 0};
};

void begin(ibv_qp_ex* ex, WrOpcode opcode, uint64_t remote_addr, uint32_t rkey, const Extra& extra = {}) {
  constexpr unsigned kFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
  VQp& qp = of(ex);
  end_last(qp);
  // A setter says whether the data is inline, not a flag.
  const unsigned flags = ex->wr_flags & ~unsigned{IBV_SEND_INLINE};
  if ((flags & ~kFlags) != 0 && qp.batch.error == 0) qp.batch.error = EINVAL;
  qp.batch.wr = {.wr_id = ex->wr_id,
                 .opcode = opcode,
                 .flags = static_cast<uint8_t>(flags),
                 .remote_addr = remote_addr,
                 .rkey = rkey,
                 .imm = extra.imm,
                 .operands = extra.operands,
                 .bind = {}};
  qp.batch.begun = true;
}

// ---- Builders ----

void wr_send(ibv_qp_ex* ex) { begin(ex, WrOpcode::kSend, 0, 0); }
void wr_send_imm(ibv_qp_ex* ex, __be32 imm) { begin(ex, WrOpcode::kSendImm, 0, 0, {.imm = imm}); }
void wr_send_inv(ibv_qp_ex* ex, uint32_t rkey) { begin(ex, WrOpcode::kSendInv, 0, 0, {.imm = rkey}); }
void wr_local_inv(ibv_qp_ex* ex, uint32_t rkey) { begin(ex, WrOpcode::kLocalInv, 0, 0, {.imm = rkey}); }
void wr_bind_mw(ibv_qp_ex* ex, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  begin(ex, WrOpcode::kBindMw, 0, 0);
  Batch& batch = of(ex).batch;
  if (batch.error != 0) return;
  batch.error = mw->type != IBV_MW_TYPE_2 ? EINVAL : fill_bind(mw, rkey, *info, batch.wr);
}
void wr_rdma_write(ibv_qp_ex* ex, uint32_t rkey, uint64_t addr) { begin(ex, WrOpcode::kRdmaWrite, addr, rkey); }
void wr_rdma_write_imm(ibv_qp_ex* ex, uint32_t rkey, uint64_t addr, __be32 imm) {
  begin(ex, WrOpcode::kRdmaWriteImm, addr, rkey, {.imm = imm});
}
void wr_rdma_read(ibv_qp_ex* ex, uint32_t rkey, uint64_t addr) { begin(ex, WrOpcode::kRdmaRead, addr, rkey); }
void wr_atomic_cmp_swp(ibv_qp_ex* ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap) {
  begin(ex, WrOpcode::kCompareSwap, addr, rkey, {.operands = {compare, swap}});
}
void wr_atomic_fetch_add(ibv_qp_ex* ex, uint32_t rkey, uint64_t addr, uint64_t add) {
  begin(ex, WrOpcode::kFetchAdd, addr, rkey, {.operands = {add, 0}});
}

// ---- Setters ----

void set_sge(ibv_qp_ex* ex, uint32_t lkey, uint64_t addr, uint32_t length) {
  const Sge sge{addr, length, lkey};
  add(of(ex), {&sge, 1});
}

void set_sge_list(ibv_qp_ex* ex, size_t count, const ibv_sge* list) { add(of(ex), sges_of(list, count)); }

void set_inline_data(ibv_qp_ex* ex, void* addr, size_t length) {
  VQp& qp = of(ex);
  if (length > USIW_MAX_INLINE && qp.batch.error == 0) qp.batch.error = EINVAL;
  const Sge sge{reinterpret_cast<uintptr_t>(addr), static_cast<uint32_t>(length), 0};
  qp.batch.wr.flags |= kWrInline;
  add(qp, {&sge, 1});
}

void set_inline_data_list(ibv_qp_ex* ex, size_t count, const ibv_data_buf* list) {
  std::array<std::byte, USIW_MAX_INLINE> bytes;
  size_t length = 0;
  for (size_t i = 0; i < count; ++i) {
    if (list[i].length == 0) continue;
    if (list[i].length > bytes.size() - length) {
      length = USIW_MAX_INLINE + 1;  // more than there can be
      break;
    }
    std::memcpy(bytes.data() + length, list[i].addr, list[i].length);
    length += list[i].length;
  }
  set_inline_data(ex, bytes.data(), length);
}

// ---- The batch ----

void start(ibv_qp_ex* ex) {
  VQp& qp = of(ex);
  qp.send_turn.lock();
  qp.batch = {};
}

int complete(ibv_qp_ex* ex) {
  VQp& qp = of(ex);
  end_last(qp);
  int rc = qp.batch.error;
  if (rc == 0 && (qp.runtime->dead() || !may_post(qp))) rc = EINVAL;
  bool run = false;
  if (rc == 0 && qp.batch.count != 0) {
    qp.qp->publish(qp.batch.count);
    run = ring(qp, [&] { return qp.batch.count == 1 && qp.batch.small; });
  }
  qp.send_turn.unlock();
  if (run) qp.runtime->progress().posted();
  return rc;
}

/// The slots that were written are no work requests: the next ones are written over them.
void abort(ibv_qp_ex* ex) { of(ex).send_turn.unlock(); }

// ---- Creation ----

struct Builder {
  uint64_t flag;  ///< enum ibv_qp_create_send_ops_flags
  WrOpcode opcode;
  void (*set)(ibv_qp_ex& ex);
};
constexpr Builder kBuilders[] = {
    {IBV_QP_EX_WITH_RDMA_WRITE, WrOpcode::kRdmaWrite, [](ibv_qp_ex& ex) { ex.wr_rdma_write = wr_rdma_write; }},
    {IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, WrOpcode::kRdmaWriteImm,
     [](ibv_qp_ex& ex) { ex.wr_rdma_write_imm = wr_rdma_write_imm; }},
    {IBV_QP_EX_WITH_SEND, WrOpcode::kSend, [](ibv_qp_ex& ex) { ex.wr_send = wr_send; }},
    {IBV_QP_EX_WITH_SEND_WITH_IMM, WrOpcode::kSendImm, [](ibv_qp_ex& ex) { ex.wr_send_imm = wr_send_imm; }},
    {IBV_QP_EX_WITH_RDMA_READ, WrOpcode::kRdmaRead, [](ibv_qp_ex& ex) { ex.wr_rdma_read = wr_rdma_read; }},
    {IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, WrOpcode::kCompareSwap,
     [](ibv_qp_ex& ex) { ex.wr_atomic_cmp_swp = wr_atomic_cmp_swp; }},
    {IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, WrOpcode::kFetchAdd,
     [](ibv_qp_ex& ex) { ex.wr_atomic_fetch_add = wr_atomic_fetch_add; }},
    {IBV_QP_EX_WITH_LOCAL_INV, WrOpcode::kLocalInv, [](ibv_qp_ex& ex) { ex.wr_local_inv = wr_local_inv; }},
    {IBV_QP_EX_WITH_BIND_MW, WrOpcode::kBindMw, [](ibv_qp_ex& ex) { ex.wr_bind_mw = wr_bind_mw; }},
    {IBV_QP_EX_WITH_SEND_WITH_INV, WrOpcode::kSendInv, [](ibv_qp_ex& ex) { ex.wr_send_inv = wr_send_inv; }},
};

/// Of the operations asked for those that the engine has (engine/operations.h).
uint64_t known(uint64_t flags) {
  uint64_t found = 0;
  for (const Builder& b : kBuilders)
    if ((flags & b.flag) != 0 && is_known(b.opcode)) found |= b.flag;
  return found;
}

void set_functions(VQp& qp, uint64_t flags) {
  ibv_qp_ex& ex = qp.ex;
  for (const Builder& b : kBuilders)
    if ((flags & b.flag) != 0) b.set(ex);
  ex.wr_set_sge = set_sge;
  ex.wr_set_sge_list = set_sge_list;
  ex.wr_set_inline_data = set_inline_data;
  ex.wr_set_inline_data_list = set_inline_data_list;
  ex.wr_start = start;
  ex.wr_complete = complete;
  ex.wr_abort = abort;
  qp.faults = usiw_wants_post_fault() != 0;
  usiw_glue_is_qp_ex(&qp.ibv);
}

/// 0 or why a QP like this cannot be.
int check(ibv_context* ctx, const ibv_qp_init_attr_ex& attr) {
  constexpr uint32_t kMask =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if ((attr.comp_mask & ~kMask) != 0) return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr || attr.pd->context != ctx) return EINVAL;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr.create_flags != 0) return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 && known(attr.send_ops_flags) != attr.send_ops_flags)
    return EOPNOTSUPP;
  return 0;
}

}  // namespace

extern "C" ibv_qp* usiw_verb_create_qp_ex(ibv_context* ctx, ibv_qp_init_attr_ex* attr) {
  if (const int rc = check(ctx, *attr); rc != 0) {
    errno = rc;
    return nullptr;
  }
  ibv_qp_init_attr plain{.qp_context = attr->qp_context,
                         .send_cq = attr->send_cq,
                         .recv_cq = attr->recv_cq,
                         .srq = attr->srq,
                         .cap = attr->cap,
                         .qp_type = attr->qp_type,
                         .sq_sig_all = attr->sq_sig_all};
  ibv_qp* qp = usiw_verb_create_qp(attr->pd, &plain);
  if (qp == nullptr) return nullptr;
  attr->cap = plain.cap;
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) set_functions(*from(qp), attr->send_ops_flags);
  return qp;
}
