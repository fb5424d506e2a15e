// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs.cc
/// The file: decoding of write(2), and its end.
#include "tools/run/uverbs/uverbs.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/file_limit.h"
#include "tools/run/host/big_lock.h"
#include "tools/run/libc/device_numbers.h"
#include "tools/run/libc/real.h"
#include "tools/run/uverbs/open_uverbs.h"

namespace usiw::run {

dev_t UverbsFile::device() const { return uverbs_device(); }

int UverbsFile::open() {
  int fd = memfd_create(kCountersMemfd, MFD_CLOEXEC);
  if (fd < 0) return -errno;
  auto file = std::make_shared<UverbsFile>();
  if (!file_install(fd, file)) {
    USIW_REAL(close)(fd);
    return -EMFILE;
  }
  if (resize_memory(fd, stat_page_at(1)) == 0) {
    file->pages_ = 1;
    file->shown_ = MappedPage(fd, 0);
  }
  return fd;
}

int open_uverbs() { return UverbsFile::open(); }

const UverbsFile::Method* UverbsFile::find_method(uint32_t command, bool extended) {
  using F = UverbsFile;
  // Never destroyed: threads may be here while the process exits.
  static const auto& methods = *new std::map<uint32_t, Method>{
      {IB_USER_VERBS_CMD_GET_CONTEXT,
       {&F::get_context, sizeof(ib_uverbs_get_context), sizeof(ib_uverbs_get_context_resp)}},
      {IB_USER_VERBS_CMD_QUERY_DEVICE,
       {&F::query_device, sizeof(ib_uverbs_query_device), sizeof(ib_uverbs_query_device_resp)}},
      {IB_USER_VERBS_CMD_QUERY_PORT,
       {&F::query_port, sizeof(ib_uverbs_query_port), sizeof(ib_uverbs_query_port_resp)}},
      {IB_USER_VERBS_CMD_ALLOC_PD, {&F::alloc_pd, sizeof(ib_uverbs_alloc_pd), sizeof(ib_uverbs_alloc_pd_resp)}},
      {IB_USER_VERBS_CMD_DEALLOC_PD, {&F::dealloc_pd, sizeof(ib_uverbs_dealloc_pd), 0}},
      {IB_USER_VERBS_CMD_REG_MR,
       {&F::reg_mr, sizeof(ib_uverbs_reg_mr), sizeof(ib_uverbs_reg_mr_resp), &F::check_reg_mr}},
      {IB_USER_VERBS_CMD_REREG_MR,
       {&F::rereg_mr, sizeof(ib_uverbs_rereg_mr), sizeof(ib_uverbs_rereg_mr_resp), &F::check_rereg_mr}},
      {IB_USER_VERBS_CMD_DEREG_MR, {&F::dereg_mr, sizeof(ib_uverbs_dereg_mr), 0}},
      {IB_USER_VERBS_CMD_ALLOC_MW, {&F::alloc_mw, sizeof(ib_uverbs_alloc_mw), sizeof(ib_uverbs_alloc_mw_resp)}},
      {IB_USER_VERBS_CMD_DEALLOC_MW, {&F::dealloc_mw, sizeof(ib_uverbs_dealloc_mw), 0}},
      {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
       {&F::create_comp_channel, sizeof(ib_uverbs_create_comp_channel), sizeof(ib_uverbs_create_comp_channel_resp)}},
      {IB_USER_VERBS_CMD_CREATE_CQ, {&F::create_cq, sizeof(ib_uverbs_create_cq), sizeof(ib_uverbs_create_cq_resp)}},
      {IB_USER_VERBS_CMD_RESIZE_CQ, {&F::resize_cq, sizeof(ib_uverbs_resize_cq), sizeof(ib_uverbs_resize_cq_resp)}},
      {IB_USER_VERBS_CMD_DESTROY_CQ,
       {&F::destroy_cq, sizeof(ib_uverbs_destroy_cq), sizeof(ib_uverbs_destroy_cq_resp)}},
      {IB_USER_VERBS_CMD_CREATE_SRQ,
       {&F::create_srq, sizeof(ib_uverbs_create_srq), sizeof(ib_uverbs_create_srq_resp)}},
      {IB_USER_VERBS_CMD_CREATE_XSRQ,
       {&F::create_xsrq, sizeof(ib_uverbs_create_xsrq), sizeof(ib_uverbs_create_srq_resp)}},
      {IB_USER_VERBS_CMD_MODIFY_SRQ, {&F::modify_srq, sizeof(ib_uverbs_modify_srq), 0}},
      {IB_USER_VERBS_CMD_QUERY_SRQ, {&F::query_srq, sizeof(ib_uverbs_query_srq), sizeof(ib_uverbs_query_srq_resp)}},
      {IB_USER_VERBS_CMD_DESTROY_SRQ,
       {&F::destroy_srq, sizeof(ib_uverbs_destroy_srq), sizeof(ib_uverbs_destroy_srq_resp)}},
      {IB_USER_VERBS_CMD_CREATE_QP, {&F::create_qp, sizeof(ib_uverbs_create_qp), sizeof(ib_uverbs_create_qp_resp)}},
      {IB_USER_VERBS_CMD_MODIFY_QP, {&F::modify_qp, sizeof(ib_uverbs_modify_qp), 0}},
      {IB_USER_VERBS_CMD_QUERY_QP, {&F::query_qp, sizeof(ib_uverbs_query_qp), sizeof(ib_uverbs_query_qp_resp)}},
      {IB_USER_VERBS_CMD_DESTROY_QP,
       {&F::destroy_qp, sizeof(ib_uverbs_destroy_qp), sizeof(ib_uverbs_destroy_qp_resp)}},
  };
  static const auto& extended_methods = *new std::map<uint32_t, Method>{
      {IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
       {&F::query_device_ex, sizeof(ib_uverbs_ex_query_device), offsetof(ib_uverbs_ex_query_device_resp, odp_caps)}},
  };
  const auto& table = extended ? extended_methods : methods;
  auto it = table.find(command);
  return it == table.end() ? nullptr : &it->second;
}

/// Lengths are checked in the kernel's order and with its errors: EINVAL for a header that does
/// not fit what was written, ENOSPC for structures that are too short, EOPNOTSUPP for a command
/// that the device does not have.
ssize_t UverbsFile::write(int fd, const void* buf, size_t count) {
  ib_uverbs_cmd_hdr hdr;
  if (count < sizeof hdr) return -EINVAL;
  std::vector<uint8_t> in(count);
  if (int ret = copy_from_program(in.data(), reinterpret_cast<uint64_t>(buf), count); ret != 0) return ret;
  std::memcpy(&hdr, in.data(), sizeof hdr);
  if ((hdr.command & ~(IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_CMD_COMMAND_MASK)) != 0) return -EINVAL;
  bool extended = (hdr.command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0;
  uint32_t command = hdr.command & IB_USER_VERBS_CMD_COMMAND_MASK;
  const Method* method = find_method(command, extended);
  if (method == nullptr) return -EOPNOTSUPP;

  Command c{};
  if (extended) {
    ib_uverbs_ex_cmd_hdr ex;
    size_t headers = sizeof hdr + sizeof ex;
    if (count < headers) return -EINVAL;
    std::memcpy(&ex, in.data() + sizeof hdr, sizeof ex);
    size_t core_in = hdr.in_words * size_t{8};
    if (core_in + ex.provider_in_words * size_t{8} != count - headers) return -EINVAL;
    if (core_in < method->request) return -ENOSPC;
    if (ex.cmd_hdr_reserved != 0) return -EINVAL;
    if ((ex.response != 0) != (hdr.out_words != 0 || ex.provider_out_words != 0)) return -EINVAL;
    if (hdr.out_words * size_t{8} < method->response) return -ENOSPC;
    c = {fd, in.data() + headers, count - headers, ex.response, hdr.out_words * size_t{8},
         ex.provider_in_words * size_t{8}, ex.provider_out_words * size_t{8}};
  } else {
    if (hdr.in_words * size_t{4} != count) return -EINVAL;
    if (count < method->request + sizeof hdr) return -ENOSPC;
    if (hdr.out_words * size_t{4} < method->response) return -ENOSPC;
    c = {fd, in.data() + sizeof hdr, count - sizeof hdr, 0, hdr.out_words * size_t{4}};
    if (method->response != 0) std::memcpy(&c.response, c.in, sizeof c.response);
  }
  NoCancel no_cancel;
  if (method->check != nullptr) c.checked = (this->*method->check)(c);
  HoldBigLock hold;
  if (!open_ && command != IB_USER_VERBS_CMD_GET_CONTEXT) return -EINVAL;
  int ret = (this->*method->handler)(c);
  return ret < 0 ? ret : static_cast<ssize_t>(count);
}

/// As when a process ends without a word: objects go, connections with them.
void UverbsFile::closed() {
  HoldBigLock hold;
  shown_.hide();
  while (!qps_.empty()) {
    destroy_qp_object(qps_.begin()->second);
    qps_.erase(qps_.begin());
  }
  srqs_.clear();
  cqs_.clear();
  mws_.clear();
  mrs_.clear();
  pds_.clear();
  if (events_) events_->shutdown();
}

}  // namespace usiw::run
