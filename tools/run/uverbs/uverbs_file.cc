// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_file.cc
/// The file uverbs0: opens it, decodes the commands of write(2), and closes it. The functions at the end are for the
/// provider, which lends its engine to this library by two of them and raises events of a CQ by the third
/// (base/engine_loan.h).
#include "tools/run/uverbs/uverbs.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/engine_loan.h"
#include "base/file_limit.h"
#include "tools/run/host/big_lock.h"
#include "tools/run/libc/device_nodes.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/lent_engine.h"
#include "tools/run/libc/real.h"

namespace usiw::run {

namespace {

/// An open uverbs0. It becomes a context by the command GET_CONTEXT. Its descriptor is a memfd that holds the counters
/// pages. The page of the context is at offset 0.
class UverbsFile final : public File, public UverbsContext {
 public:
  ssize_t write(int fd, const void* buf, size_t count) override;
  int ioctl(int, unsigned long request, void* arg) override { return uverbs_ioctl(*this, request, arg); }
  void closed() override;
  dev_t device() const override { return uverbs_device(); }
};

const UverbsMethod* find_method(uint32_t command, bool extended) {
  if (extended) return command == kQueryDeviceEx.command ? &kQueryDeviceEx : nullptr;
  for (const auto& methods : {kContextMethods, kObjectMethods, kAhMethods, kMemoryMethods, kSrqMethods, kQpMethods})
    for (const UverbsMethod& method : methods)
      if (method.command == command) return &method;
  return nullptr;
}

/// Decodes a command and carries it out. Checks the headers in the kernel's order and with its errors: EINVAL for a
/// header that is malformed or does not fit the length of the command, ENOSPC for structures that are too short,
/// EOPNOTSUPP for a command that the device does not have. Returns @p count, or the -errno of a check or of the command.
ssize_t UverbsFile::write(int fd, const void* buf, size_t count) {
  ib_uverbs_cmd_hdr hdr;
  if (count < sizeof hdr) return -EINVAL;
  std::vector<uint8_t> in(count);
  if (int ret = copy_from_program(in.data(), reinterpret_cast<uint64_t>(buf), count); ret != 0) return ret;
  std::memcpy(&hdr, in.data(), sizeof hdr);
  if ((hdr.command & ~(IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_CMD_COMMAND_MASK)) != 0) return -EINVAL;
  bool extended = (hdr.command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0;
  uint32_t command = hdr.command & IB_USER_VERBS_CMD_COMMAND_MASK;
  const UverbsMethod* method = find_method(command, extended);
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
    c = {fd,
         in.data() + headers,
         count - headers,
         ex.response,
         hdr.out_words * size_t{8},
         ex.provider_in_words * size_t{8},
         ex.provider_out_words * size_t{8}};
  } else {
    if (hdr.in_words * size_t{4} != count) return -EINVAL;
    if (count < method->request + sizeof hdr) return -ENOSPC;
    if (hdr.out_words * size_t{4} < method->response) return -ENOSPC;
    c = {fd, in.data() + sizeof hdr, count - sizeof hdr, 0, hdr.out_words * size_t{4}};
    if (method->response != 0) std::memcpy(&c.response, c.in, sizeof c.response);
  }
  NoCancel no_cancel;
  if (method->check != nullptr) c.checked = method->check(*this, c);
  HoldBigLock hold;
  if (!open && command != IB_USER_VERBS_CMD_GET_CONTEXT) return -EINVAL;
  int ret = method->handler(*this, c);
  return ret < 0 ? ret : static_cast<ssize_t>(count);
}

/// Destroys all objects and ends the connections of the QPs, as the kernel does when the last descriptor is closed.
void UverbsFile::closed() {
  HoldBigLock hold;
  shown.hide();
  while (!qps.empty()) {
    end_qp(*this, *qps.begin()->second);
    qps.erase(qps.begin());
  }
  srqs.clear();
  cqs.clear();
  mws.clear();
  mrs.clear();
  ahs.clear();
  pds.clear();
  if (events) events->shutdown();
}

}  // namespace

int open_uverbs() {
  Fd fd(memfd_create(kCountersMemfd, MFD_CLOEXEC));
  if (fd < 0) return -errno;
  auto file = std::make_shared<UverbsFile>();
  if (!file_install(fd, file)) return -EMFILE;
  if (resize_memory(fd, stat_page_at(1)) == 0) {
    file->pages = 1;
    file->shown = MappedPage(fd, 0);
  }
  return fd.release();
}

}  // namespace usiw::run

// ---- The functions of base/engine_loan.h, which the provider calls directly ----

using namespace usiw::run;

EXPORT bool usiw_run_lend(int cmd_fd, usiw_engine_loan* loan) {
  auto context = std::dynamic_pointer_cast<UverbsFile>(file_of(cmd_fd));
  if (!context) return false;
  auto engine = std::make_unique<std::shared_ptr<LentEngine>>(context->engine);
  HoldBigLock hold;
  if (!(*engine)->lend(*loan)) return false;
  loan->borrower = engine.release();
  return true;
}

EXPORT int usiw_run_cq_event(int cmd_fd, uint32_t cq_handle, uint32_t kind) {
  const std::shared_ptr<File> file = file_of(cmd_fd);
  auto* context = dynamic_cast<UverbsFile*>(file.get());
  if (context == nullptr) return EBADF;
  HoldBigLock hold;
  return -usiw::run::cq_event(*context, cq_handle, kind);
}

EXPORT void usiw_run_take_back(usiw_engine_loan* loan) {
  const std::unique_ptr<std::shared_ptr<LentEngine>> engine(static_cast<std::shared_ptr<LentEngine>*>(loan->borrower));
  (*engine)->take_back();
}
