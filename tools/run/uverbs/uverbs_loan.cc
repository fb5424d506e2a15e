// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_loan.cc
/// The functions of base/engine_loan.h. The provider calls them in place of a system call on its uverbs file.
#include <cerrno>
#include <memory>

#include "base/engine_loan.h"
#include "tools/run/host/big_lock.h"
#include "tools/run/libc/borrowed.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/real.h"
#include "tools/run/uverbs/uverbs.h"

using namespace usiw::run;

EXPORT bool usiw_run_lend(int cmd_fd, usiw_engine_loan* loan) {
  auto context = std::dynamic_pointer_cast<UverbsFile>(file_of(cmd_fd));
  if (!context) return false;
  auto borrower = std::make_unique<std::shared_ptr<BorrowedEngine>>(context->engine());
  HoldBigLock hold;
  if (!(*borrower)->take(*loan)) return false;
  loan->borrower = borrower.release();
  return true;
}

EXPORT int usiw_run_cq_event(int cmd_fd, uint32_t cq_handle, uint32_t kind) {
  const std::shared_ptr<File> file = file_of(cmd_fd);
  auto* context = dynamic_cast<UverbsFile*>(file.get());
  if (context == nullptr) return EBADF;
  HoldBigLock hold;
  return -context->cq_event(cq_handle, kind);
}

EXPORT void usiw_run_take_back(usiw_engine_loan* loan) {
  const std::unique_ptr<std::shared_ptr<BorrowedEngine>> borrower(
      static_cast<std::shared_ptr<BorrowedEngine>*>(loan->borrower));
  (*borrower)->give_back();
}
