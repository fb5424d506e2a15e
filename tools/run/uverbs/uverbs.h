// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs.h
/// /dev/infiniband/uverbs0: contexts and their objects.
///
/// Standard commands are answered over write(2), the older one of the kernel's two ABIs. Every
/// libibverbs speaks it: a method of the ioctl ABI that answers EPROTONOSUPPORT makes it fall back.
/// So there is one way to do each thing. Only the methods that usiw itself adds come by ioctl.
#ifndef USIW_RUN_UVERBS_H
#define USIW_RUN_UVERBS_H

#include <rdma/ib_user_verbs.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "tools/run/conn/event_stream.h"
#include "tools/run/conn/qp.h"
#include "tools/run/conn/stat_page.h"
#include "tools/run/libc/desc_file.h"
#include "tools/run/libc/program_memory.h"

namespace usiw::run {

/// A member of what a device has a limited number of, in all of the process's contexts. [big lock]
template <typename Object>
class Counted {
 public:
  Counted() { ++number_; }
  Counted(const Counted&) { ++number_; }
  ~Counted() { --number_; }
  Counted& operator=(const Counted&) = default;
  static uint32_t number() { return number_; }

 private:
  static inline uint32_t number_ = 0;
};

/// Users of an object are counted by the shared pointers of those that need it: see busy().
struct Pd {
  Counted<Pd> counted{};
};
struct Mr {
  Mr(std::shared_ptr<Pd> of, uint32_t name, uint64_t first, uint64_t bytes, uint32_t rights)
      : pd(std::move(of)), stag(name), start(first), length(bytes), access(rights) {}
  ~Mr();
  std::shared_ptr<Pd> pd;
  uint32_t stag;
  uint64_t start, length;
  uint32_t access;
};
/// What it is bound to is the provider's.
struct Mw {
  Mw(std::shared_ptr<Pd> of, uint32_t name) : pd(std::move(of)), rkey(name) {}
  ~Mw();
  std::shared_ptr<Pd> pd;
  uint32_t rkey;
};
inline uint32_t index_of(uint32_t stag) { return stag >> 8; }
struct Cq {
  uint64_t user_handle;
  uint32_t cqe;
  std::shared_ptr<ChannelFile> channel;
  std::shared_ptr<uint32_t> comp_events = std::make_shared<uint32_t>(0);
  std::shared_ptr<uint32_t> async_events = std::make_shared<uint32_t>(0);
  Counted<Cq> counted{};
};

/// What either command that creates an SRQ asks for.
struct SrqAsked {
  uint64_t user_handle;
  uint32_t pd_handle, max_wr, max_sge;
};
struct Srq {
  Srq(std::shared_ptr<Pd> of, const SrqAsked& asked);
  ~Srq();
  Srq(const Srq&) = delete;
  Srq& operator=(const Srq&) = delete;

  std::shared_ptr<Pd> pd;
  uint64_t user_handle;
  uint32_t max_wr, max_sge;
  uint32_t limit = 0;
  std::shared_ptr<uint32_t> async_events = std::make_shared<uint32_t>(0);
};

/// One command of write(2), decoded.
struct Command {
  int fd;                  ///< of the call: the memfd
  const uint8_t* in;       ///< core structure, then the driver's data
  size_t in_len;           ///< bytes of both
  uint64_t response;       ///< in the program's memory
  size_t out_len;          ///< room there, bytes
  size_t driver_in = 0;    ///< extended commands: bytes of driver data at the end
  size_t driver_out = 0;
  int checked = 0;         ///< what Method::check has returned

  template <typename T>
  const T& core() const {
    return *reinterpret_cast<const T*>(in);
  }
};

class UverbsFile final : public File {
 public:
  ssize_t write(int fd, const void* buf, size_t count) override;
  int ioctl(int fd, unsigned long request, void* arg) override;
  void closed() override;
  dev_t device() const override;
  /// The memfd behind the descriptor; it holds the counters pages, the context's at offset 0.
  static int open();
  /// Of the provider's that has this context.
  const std::shared_ptr<BorrowedEngine>& engine() const { return engine_; }
  /// [big lock] 0 or -errno.
  int cq_event(uint32_t handle, uint32_t kind);

 private:
  using Handler = int (UverbsFile::*)(const Command&);
  struct Method {
    Handler handler;
    size_t request;   ///< least length of the core structure, bytes
    size_t response;  ///< of the core response
    /// Runs before the handler and without the lock: what may wait for a file's page. Null: there is nothing.
    Handler check = nullptr;
  };
  static const Method* find_method(uint32_t command, bool extended);

  template <typename T>
  int respond(const Command& c, const T& response) {
    return copy_to_program(c.response, &response, c.out_len < sizeof response ? c.out_len : sizeof response);
  }

  /// The driver's data behind @p core bytes of a request. As kmod/usiw_verbs.c reads it: what is missing is 0, what is
  /// too much has to be, and @p least bytes have to be there.
  template <typename T>
  static int read_request(const Command& c, size_t core, T& request, size_t least) {
    request = {};
    if (c.in_len < core + least) return -EINVAL;
    const size_t len = c.in_len - core;
    for (size_t i = sizeof request; i < len; i++)
      if (c.in[core + i] != 0) return -EOPNOTSUPP;
    std::memcpy(&request, c.in + core, len < sizeof request ? len : sizeof request);
    return 0;
  }

  // uverbs_context.cc
  int get_context(const Command& c);
  int query_device(const Command& c);
  int query_device_ex(const Command& c);
  int query_port(const Command& c);
  // uverbs_objects.cc
  int alloc_pd(const Command& c);
  int dealloc_pd(const Command& c);
  int create_comp_channel(const Command& c);
  int create_cq(const Command& c);
  int resize_cq(const Command& c);
  int destroy_cq(const Command& c);
  // uverbs_srq.cc
  int new_srq(const Command& c, size_t core, const SrqAsked& asked);
  int create_srq(const Command& c);
  int create_xsrq(const Command& c);
  int modify_srq(const Command& c);
  int query_srq(const Command& c);
  int destroy_srq(const Command& c);
  int srq_event(uint32_t handle, uint32_t kind);
  // uverbs_memory.cc
  int check_reg_mr(const Command& c);
  int check_rereg_mr(const Command& c);
  int reg_mr(const Command& c);
  int rereg_mr(const Command& c);
  int dereg_mr(const Command& c);
  int alloc_mw(const Command& c);
  int dealloc_mw(const Command& c);
  // uverbs_qp.cc
  int create_qp(const Command& c);
  int modify_qp(const Command& c);
  int query_qp(const Command& c);
  int destroy_qp(const Command& c);
  // uverbs_methods.cc
  int open_events(uint64_t attr_at);
  int qp_report(uint32_t handle, const usiw_qp_report& report);

  template <typename T>
  std::shared_ptr<T> find(const std::map<uint32_t, std::shared_ptr<T>>& table, uint32_t handle) const {
    auto it = table.find(handle);
    return it == table.end() ? nullptr : it->second;
  }
  /// Does anybody but the handle table use it?
  template <typename T>
  static bool busy(const std::shared_ptr<T>& object) {
    return object.use_count() > 1;
  }
  /// The error for a handle that is not of the kind wanted: of another kind, or of nothing.
  int no_such(uint32_t handle) const {
    const size_t of_another_kind = pds_.count(handle) + mrs_.count(handle) + mws_.count(handle) + cqs_.count(handle) +
                                   srqs_.count(handle) + qps_.count(handle);
    return of_another_kind != 0 ? -EINVAL : -ENOENT;
  }
  /// A page of the memfd for the counters of a QP, all zeros. 0: there is none, because RLIMIT_FSIZE forbids a longer
  /// file; then the provider counts in memory of its own, which no tool sees.
  uint32_t take_page(int fd);
  void return_page(int fd, Qp& qp);
  void destroy_qp_object(const std::shared_ptr<Qp>& qp);

  const std::shared_ptr<BorrowedEngine> engine_ = std::make_shared<BorrowedEngine>();
  MappedPage shown_;   ///< page 0 of the memfd
  bool open_ = false;  ///< has a context
  uint64_t caps_ = 0;  ///< USIW_CAP_*, agreed
  uint32_t next_handle_ = 0;
  uint32_t pages_ = 0;  ///< of the memfd
  std::vector<uint32_t> free_pages_;
  std::shared_ptr<AsyncFile> async_;
  std::shared_ptr<EventStream> events_;
  std::map<uint32_t, std::shared_ptr<Pd>> pds_;
  std::map<uint32_t, std::shared_ptr<Mr>> mrs_;
  std::map<uint32_t, std::shared_ptr<Mw>> mws_;
  std::map<uint32_t, std::shared_ptr<Cq>> cqs_;
  std::map<uint32_t, std::shared_ptr<Srq>> srqs_;
  std::map<uint32_t, std::shared_ptr<Qp>> qps_;
};

}  // namespace usiw::run

#endif  // USIW_RUN_UVERBS_H
