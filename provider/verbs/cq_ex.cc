// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cq_ex.cc
/// Extended completion queues (ibv_create_cq_ex(3)): the program reads a copy of the oldest completion by functions.
/// From ibv_start_poll() to ibv_end_poll() it is the caller's turn.
#include <cerrno>
#include <ctime>

#include "verbs/cq.h"

using namespace usiw;

namespace {

constexpr uint64_t kTimeFlags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
/// Not: VLANs, flow tags and tag matching, which a connection of iWARP does not have.
constexpr uint64_t kWcFlags = uint64_t{IBV_WC_STANDARD_FLAGS} | kTimeFlags;
constexpr uint32_t kCqFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

VCq& of(ibv_cq_ex* ex) { return *from(ibv_cq_ex_to_cq(ex)); }
const Cqe& shown(ibv_cq_ex* ex) { return of(ex).shown; }

/// [cq.turn] Shows the oldest completion to the program, which may post at once in place of it. So the program sees a
/// copy, and the slot is free.
bool show(VCq& cq) {
  const Cq::Slot* const slot = cq.cq->front();
  cq.shows = slot != nullptr;
  if (slot == nullptr) return false;
  cq.shown = slot->cqe;
  cq.shown_ns = slot->pushed_ns;
  cq.cq->pop();
  cq.ex.wr_id = cq.shown.wr_id;
  cq.ex.status = static_cast<ibv_wc_status>(cq.shown.status);
  return true;
}

int start_poll(ibv_cq_ex* ex, ibv_poll_cq_attr* attr) {
  VCq& cq = of(ex);
  if (attr->comp_mask != 0 || cq.runtime->dead()) return EINVAL;
  cq.turn.lock();
  if (show(cq)) {
    cq.empty_polls = 0;
    return 0;
  }
  const bool overrun = cq.cq->dead();
  if (!turn_of_news(cq)) return overrun ? EOVERFLOW : ENOENT;
  if (show(cq)) return 0;
  cq.turn.unlock();
  return ENOENT;
}

int next_poll(ibv_cq_ex* ex) {
  return show(of(ex)) ? 0 : ENOENT;
}

void end_poll(ibv_cq_ex* ex) {
  VCq& cq = of(ex);
  cq.shows = false;
  cq.turn.unlock();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* ex) { return static_cast<ibv_wc_opcode>(shown(ex).opcode); }
uint32_t read_vendor_err(ibv_cq_ex* ex) { return shown(ex).vendor_err; }
uint32_t read_byte_len(ibv_cq_ex* ex) { return shown(ex).byte_len; }
__be32 read_imm_data(ibv_cq_ex* ex) { return shown(ex).imm; }  // or the STag that was invalidated
uint32_t read_qp_num(ibv_cq_ex* ex) { return shown(ex).qpn; }
unsigned read_wc_flags(ibv_cq_ex* ex) { return shown(ex).flags; }

// A completion of a connection names its own QP only; iWARP has no LIDs and no service levels.
uint32_t read_src_qp(ibv_cq_ex*) { return 0; }
uint32_t read_slid(ibv_cq_ex*) { return 0; }
uint8_t read_sl(ibv_cq_ex*) { return 0; }
uint8_t read_dlid_path_bits(ibv_cq_ex*) { return 0; }

uint64_t now_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

/// Of CLOCK_MONOTONIC, as ibv_query_rt_values_ex() gives it.
uint64_t read_completion_ts(ibv_cq_ex* ex) { return of(ex).shown_ns; }

/// As long ago by the wall clock as it is by the other one.
uint64_t read_completion_wallclock_ns(ibv_cq_ex* ex) {
  const uint64_t pushed = of(ex).shown_ns;
  return pushed != 0 ? now_of(CLOCK_REALTIME) - (now_of(CLOCK_MONOTONIC) - pushed) : 0;
}

/// What was not asked for may be called all the same, and says nothing.
void set_functions(VCq& cq) {
  ibv_cq_ex& ex = cq.ex;
  ex.start_poll = start_poll;
  ex.next_poll = next_poll;
  ex.end_poll = end_poll;
  ex.read_opcode = read_opcode;
  ex.read_vendor_err = read_vendor_err;
  ex.read_byte_len = read_byte_len;
  ex.read_imm_data = read_imm_data;
  ex.read_qp_num = read_qp_num;
  ex.read_src_qp = read_src_qp;
  ex.read_wc_flags = read_wc_flags;
  ex.read_slid = read_slid;
  ex.read_sl = read_sl;
  ex.read_dlid_path_bits = read_dlid_path_bits;
  ex.read_completion_ts = read_completion_ts;
  ex.read_cvlan = [](ibv_cq_ex*) -> uint16_t { return 0; };
  ex.read_flow_tag = [](ibv_cq_ex*) -> uint32_t { return 0; };
  ex.read_tm_info = [](ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; };
  ex.read_completion_wallclock_ns = read_completion_wallclock_ns;
}

/// 0 or why a CQ like this cannot be.
int check(ibv_context* ctx, const ibv_cq_init_attr_ex& attr) {
  if ((attr.wc_flags & ~kWcFlags) != 0) return EOPNOTSUPP;
  constexpr uint32_t kMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if ((attr.comp_mask & ~kMask) != 0) return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 &&
      (attr.parent_domain == nullptr || attr.parent_domain->context != ctx ||
       from(attr.parent_domain)->extends == nullptr))
    return EINVAL;
  if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && (attr.flags & ~kCqFlags) != 0) return EOPNOTSUPP;
  return 0;
}

}  // namespace

extern "C" ibv_cq_ex* usiw_verb_create_cq_ex(ibv_context* ctx, ibv_cq_init_attr_ex* attr) {
  if (const int rc = check(ctx, *attr); rc != 0) {
    errno = rc;
    return nullptr;
  }
  const uint32_t flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : 0;
  VPd* domain = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 ? from(attr->parent_domain) : nullptr;
  VCq* cq = create_cq(ctx, {.cqe = attr->cqe,
                            .channel = attr->channel,
                            .comp_vector = attr->comp_vector,
                            .options = {.timed = (attr->wc_flags & kTimeFlags) != 0,
                                        .ignore_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0},
                            .one_thread = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0,
                            .domain = domain});
  if (cq == nullptr) return nullptr;
  set_functions(*cq);
  return &cq->ex;
}

/// The clock of the completions' time stamps.
extern "C" int usiw_verb_query_rt_values(ibv_context*, ibv_values_ex* values) {
  if ((values->comp_mask & ~uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return EINVAL;
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0) clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
  return 0;
}
