// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ucm_file.cc
/// The file: decoding of write(2), the table of commands, and the events that wait. The commands are in
/// ucm_commands.cc.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "tools/run/host/big_lock.h"
#include "tools/run/libc/device_numbers.h"
#include "tools/run/libc/program_memory.h"
#include "tools/run/ucm/open_rdma_cm.h"
#include "tools/run/ucm/ucm.h"

namespace usiw::run {

dev_t UcmFile::device() const { return rdma_cm_device(); }

int UcmFile::open() {
  auto file = std::make_shared<UcmFile>();
  file->self_ = file;
  HoldBigLock hold;
  return EventFile::open(file);
}

int open_rdma_cm() { return UcmFile::open(); }

void UcmFile::push(UcmEvent event) {
  events_.push_back(std::move(event));
  set_readable(true);
}

std::vector<UcmEvent> UcmFile::take(const UcmId& id) {
  std::vector<UcmEvent> taken;
  std::erase_if(events_, [&](UcmEvent& e) {
    bool its = e.id.get() == &id || e.child.get() == &id;
    if (its) taken.push_back(e);
    return its;
  });
  if (events_.empty()) set_readable(false);
  return taken;
}

void UcmFile::closed() {
  HoldBigLock hold;
  closed_ = true;
  for (auto& id : ids_of(*this)) id->destroy();
  events_.clear();
}

const UcmFile::Method* UcmFile::find_method(uint32_t command) {
  using F = UcmFile;
  // Indexed by the number of the command.
  static constexpr Method kMethods[] = {
      {RDMA_USER_CM_CMD_CREATE_ID, 0, &F::create_id},
      {RDMA_USER_CM_CMD_DESTROY_ID, 0, &F::destroy_id},
      {RDMA_USER_CM_CMD_BIND_IP, 0, &F::bind_ip},
      {RDMA_USER_CM_CMD_RESOLVE_IP, 0, &F::resolve_ip},
      {RDMA_USER_CM_CMD_RESOLVE_ROUTE, 0, &F::resolve_route},
      {RDMA_USER_CM_CMD_QUERY_ROUTE, 0, &F::query_route},
      {RDMA_USER_CM_CMD_CONNECT, offsetof(rdma_ucm_connect, ece), &F::connect},
      {RDMA_USER_CM_CMD_LISTEN, 0, &F::listen},
      {RDMA_USER_CM_CMD_ACCEPT, offsetof(rdma_ucm_accept, ece), &F::accept},
      {RDMA_USER_CM_CMD_REJECT, 0, &F::reject},
      {RDMA_USER_CM_CMD_DISCONNECT, 0, &F::disconnect},
      {RDMA_USER_CM_CMD_INIT_QP_ATTR, 0, &F::init_qp_attr},
      {RDMA_USER_CM_CMD_GET_EVENT, 0, &F::get_event, true},
      {RDMA_USER_CM_CMD_GET_OPTION, 0, &F::get_option},
      {RDMA_USER_CM_CMD_SET_OPTION, 0, &F::set_option},
      {RDMA_USER_CM_CMD_NOTIFY, 0, &F::notify},
      {RDMA_USER_CM_CMD_JOIN_IP_MCAST, 0, &F::join_ip_mcast},
      {RDMA_USER_CM_CMD_LEAVE_MCAST, 0, &F::leave_mcast},
      {RDMA_USER_CM_CMD_MIGRATE_ID, 0, &F::migrate_id},
      {RDMA_USER_CM_CMD_QUERY, 0, &F::query},
      {RDMA_USER_CM_CMD_BIND, 0, &F::bind},
      {RDMA_USER_CM_CMD_RESOLVE_ADDR, 0, &F::resolve_addr},
      {RDMA_USER_CM_CMD_JOIN_MCAST, 0, &F::join_mcast},
  };
  constexpr auto is_indexed = [] {
    for (size_t i = 0; i < std::size(kMethods); i++)
      if (kMethods[i].command != i) return false;
    return true;
  };
  static_assert(is_indexed());
  return command < std::size(kMethods) ? &kMethods[command] : nullptr;
}

/// A structure that the program has cut off ends in zeros, as rdma_ucm takes it. So most commands have no least size.
ssize_t UcmFile::write(int, const void* buf, size_t count) {
  rdma_ucm_cmd_hdr hdr;
  if (count < sizeof hdr) return -EINVAL;
  int ret = copy_from_program(&hdr, reinterpret_cast<uint64_t>(buf), sizeof hdr);
  if (ret != 0) return ret;
  const Method* method = find_method(hdr.cmd);
  if (method == nullptr || hdr.in + sizeof hdr > count) return -EINVAL;
  Request request{std::vector<uint8_t>(hdr.in), hdr.out};
  ret = copy_from_program(request.in.data(), reinterpret_cast<uint64_t>(buf) + sizeof hdr, request.in.size());
  if (ret != 0) return ret;
  if (method->waits) {
    ret = (this->*method->handler)(request);
  } else {
    HoldBigLock hold;
    if (closed_) return -EBADF;
    if (request.in.size() < method->request_size) return -EINVAL;
    ret = (this->*method->handler)(request);
  }
  return ret != 0 ? ret : static_cast<ssize_t>(count);
}

}  // namespace usiw::run
