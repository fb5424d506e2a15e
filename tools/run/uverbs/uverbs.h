// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs.h
/// /dev/infiniband/uverbs0: contexts and their objects.
///
/// Standard commands are answered over write(2), the older one of the kernel's two ABIs. Every libibverbs speaks it: a
/// method of the ioctl ABI that answers EPROTONOSUPPORT makes libibverbs fall back to it. So there is one way to do
/// each thing. Only the methods that usiw itself adds come by ioctl.
///
/// uverbs_file.cc decodes a command and finds its handler in the tables, one of which is in the source of each kind of
/// object.
#ifndef USIW_RUN_UVERBS_H
#define USIW_RUN_UVERBS_H

#include <rdma/ib_user_verbs.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tools/run/conn/event_stream.h"
#include "tools/run/conn/qp.h"
#include "tools/run/conn/stat_page.h"
#include "tools/run/libc/desc_file.h"
#include "tools/run/libc/program_memory.h"

namespace usiw::run {

/// Counts the objects of a kind in all contexts of the process, since a device has a limited number of them. [big lock]
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

/// An object is in use if another one has a shared pointer to it: UverbsContext::remove().
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
/// The provider knows the region to which a window is bound.
struct Mw {
  Mw(std::shared_ptr<Pd> of, uint32_t name) : pd(std::move(of)), rkey(name) {}
  ~Mw();
  std::shared_ptr<Pd> pd;
  uint32_t rkey;
};
struct Cq {
  uint64_t user_handle;
  uint32_t cqe;
  std::shared_ptr<ChannelFile> channel;
  std::shared_ptr<uint32_t> comp_events = std::make_shared<uint32_t>(0);
  std::shared_ptr<uint32_t> async_events = std::make_shared<uint32_t>(0);
  Counted<Cq> counted{};
};

struct Srq {
  std::shared_ptr<Pd> pd;
  uint64_t user_handle;
  uint32_t max_wr, max_sge;
  uint32_t limit = 0;
  std::shared_ptr<uint32_t> async_events = std::make_shared<uint32_t>(0);
  Counted<Srq> counted{};
};

/// One command of write(2), decoded.
struct Command {
  int fd;                ///< descriptor of the call: the memfd
  const uint8_t* in;     ///< core structure, then the driver's data
  size_t in_len;         ///< bytes of both
  uint64_t response;     ///< address in the program's memory
  size_t out_len;        ///< space there, bytes
  size_t driver_in = 0;  ///< extended commands: bytes of driver data at the end
  size_t driver_out = 0;
  int checked = 0;  ///< result of UverbsMethod::check

  template <typename T>
  const T& core() const {
    return *reinterpret_cast<const T*>(in);
  }
  /// Writes a response, as far as the program has space for it. Returns 0 or -EFAULT.
  template <typename T>
  int respond(const T& value) const {
    return copy_to_program(response, &value, out_len < sizeof value ? out_len : sizeof value);
  }
  /// Reads the driver's data, which follows @p core bytes of a request, as kmod/usiw_verbs.c reads it: missing bytes
  /// are 0, additional bytes have to be 0, and at least @p least bytes have to be there.
  template <typename T>
  int read_driver_data(size_t core, T& request, size_t least = 0) const {
    request = {};
    if (in_len < core + least) return -EINVAL;
    const size_t len = in_len - core;
    for (size_t i = sizeof request; i < len; i++)
      if (in[core + i] != 0) return -EOPNOTSUPP;
    std::memcpy(&request, in + core, len < sizeof request ? len : sizeof request);
    return 0;
  }
  /// Checks driver's data T of a request, which has no additions to the protocol yet.
  template <typename T>
  int check_driver_data(size_t core) const {
    T request;
    const int error = read_driver_data(core, request);
    return error != 0 ? error : request.comp_mask != 0 ? -EOPNOTSUPP : request.reserved != 0 ? -EINVAL : 0;
  }
};

/// The context of an open uverbs0, and its objects. All [big lock].
struct UverbsContext {
  template <typename T>
  static std::shared_ptr<T> find(const std::map<uint32_t, std::shared_ptr<T>>& table, uint32_t handle) {
    auto it = table.find(handle);
    return it == table.end() ? nullptr : it->second;
  }
  /// Removes an object that no other one uses, and returns it. Returns null, and sets @p error, if that fails.
  template <typename T>
  static std::shared_ptr<T> remove(std::map<uint32_t, std::shared_ptr<T>>& table, uint32_t handle, int& error) {
    auto it = table.find(handle);
    error = it == table.end() ? -ENOENT : it->second.use_count() > 1 ? -EBUSY : 0;
    if (error != 0) return nullptr;
    std::shared_ptr<T> object = std::move(it->second);
    table.erase(it);
    return object;
  }
  /// Returns the error for a handle that is not of the kind wanted: it is of another kind, or of nothing.
  int no_such(uint32_t handle) const {
    const size_t of_another_kind = pds.count(handle) + mrs.count(handle) + mws.count(handle) + cqs.count(handle) +
                                   srqs.count(handle) + qps.count(handle);
    return of_another_kind != 0 ? -EINVAL : -ENOENT;
  }

  const std::shared_ptr<LentEngine> engine = std::make_shared<LentEngine>();  ///< the provider's
  MappedPage shown;                                                           ///< page 0 of the memfd
  bool open = false;                                                          ///< has a context
  uint64_t caps = 0;                                                          ///< USIW_CAP_*, agreed
  uint32_t next_handle = 0;
  uint32_t pages = 0;  ///< number of pages in the memfd
  std::vector<uint32_t> free_pages;
  std::shared_ptr<AsyncFile> async;
  std::shared_ptr<EventStream> events;
  std::map<uint32_t, std::shared_ptr<Pd>> pds;
  std::map<uint32_t, std::shared_ptr<Mr>> mrs;
  std::map<uint32_t, std::shared_ptr<Mw>> mws;
  std::map<uint32_t, std::shared_ptr<Cq>> cqs;
  std::map<uint32_t, std::shared_ptr<Srq>> srqs;
  std::map<uint32_t, std::shared_ptr<Qp>> qps;
};

int cq_event(UverbsContext& u, uint32_t handle, uint32_t kind);
int srq_event(UverbsContext& u, uint32_t handle, uint32_t kind);
/// Ends the QP's connection, and takes the QP out of the tables of others.
void end_qp(UverbsContext& u, Qp& qp);
/// [big lock not held] The methods that come by ioctl.
int uverbs_ioctl(UverbsContext& u, unsigned long request, void* arg);

/// A command of write(2).
struct UverbsMethod {
  using Handler = int (*)(UverbsContext& u, const Command& c);
  uint32_t command;
  Handler handler;
  size_t request;   ///< least length of the core structure, bytes
  size_t response;  ///< least length of the core response, bytes
  /// Runs before the handler, without the lock, because it may wait for a page of a file. Null: there is nothing to
  /// check.
  Handler check = nullptr;
};

template <typename Core>
Core core_of(int (*handler)(UverbsContext&, const Command&, const Core&));

/// The entry of a table for a handler that gets the core structure as its last argument.
template <auto handler>
constexpr UverbsMethod method(uint32_t command, size_t response = 0, UverbsMethod::Handler check = nullptr) {
  using Core = decltype(core_of(handler));
  return {command, [](UverbsContext& u, const Command& c) { return handler(u, c, c.core<Core>()); }, sizeof(Core),
          response, check};
}

extern const std::span<const UverbsMethod> kContextMethods, kObjectMethods, kMemoryMethods, kSrqMethods, kQpMethods;
extern const UverbsMethod kQueryDeviceEx;  ///< the only extended command

}  // namespace usiw::run

#endif  // USIW_RUN_UVERBS_H
