// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs.h
/// The file /dev/infiniband/uverbs0: contexts and their objects.
///
/// The kernel has two ABIs for verbs: commands by write(2), which is the older one, and methods by ioctl(2). This
/// library has the standard commands by write(2) only. A libibverbs with the default build options uses write(2) if a
/// method returns EPROTONOSUPPORT, so one implementation of each command is enough. Only the methods that usiw itself
/// adds come by ioctl(2).
///
/// uverbs_file.cc decodes a command and finds its handler in a table. The source file of each kind of object has such a
/// table.
#ifndef USIW_RUN_UVERBS_H
#define USIW_RUN_UVERBS_H

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

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

/// Counts the objects of type Object in all contexts of the process, because a device has a limited number of them.
/// [big lock]
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

/// A protection domain. A Pd, or an object of another kind below, is in use while another object has a shared pointer
/// to it. UverbsContext::remove() refuses to remove an object in use.
struct Pd {
  Counted<Pd> counted{};
};
/// An address handle, on the RoCE face. It names a peer of datagrams. There are no datagrams yet, so nothing uses the
/// address after CREATE_AH has checked it.
struct Ah {
  std::shared_ptr<Pd> pd;
  Counted<Ah> counted{};
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
/// A memory window. Only the provider knows to which region the window is bound.
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
  int fd;                ///< descriptor of the file, a memfd
  const uint8_t* in;     ///< core structure, then the driver's data
  size_t in_len;         ///< bytes of both
  uint64_t response;     ///< address in the program's memory
  size_t out_len;        ///< space at that address, bytes
  size_t driver_in = 0;  ///< extended commands: bytes of driver data at the end
  size_t driver_out = 0;
  int checked = 0;  ///< result of UverbsMethod::check

  template <typename T>
  const T& core() const {
    return *reinterpret_cast<const T*>(in);
  }
  /// Writes @p value to the response, but at most out_len bytes. Returns 0 or -EFAULT.
  template <typename T>
  int respond(const T& value) const {
    return copy_to_program(response, &value, out_len < sizeof value ? out_len : sizeof value);
  }
  /// Reads the driver's data, which follows @p core bytes of a request, as kmod/usiw_verbs.c reads it. Missing bytes
  /// are 0. Returns 0, -EINVAL for less than @p least bytes, or -EOPNOTSUPP if an additional byte is not 0.
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
  /// Checks the driver's data T of a request. Its comp_mask and reserved must be 0, because the ABI defines no
  /// additions yet.
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
  /// Removes an object from @p table and returns it. Returns null and sets @p error if the table has no such object
  /// (-ENOENT) or if another object uses it (-EBUSY).
  template <typename T>
  static std::shared_ptr<T> remove(std::map<uint32_t, std::shared_ptr<T>>& table, uint32_t handle, int& error) {
    auto it = table.find(handle);
    error = it == table.end() ? -ENOENT : it->second.use_count() > 1 ? -EBUSY : 0;
    if (error != 0) return nullptr;
    std::shared_ptr<T> object = std::move(it->second);
    table.erase(it);
    return object;
  }
  /// Returns the error for a handle that is not in the table of the wanted kind: -EINVAL if an object of another kind
  /// has the handle, -ENOENT if no object has it.
  int no_such(uint32_t handle) const {
    const size_t of_another_kind = pds.count(handle) + ahs.count(handle) + mrs.count(handle) + mws.count(handle) +
                                   cqs.count(handle) + srqs.count(handle) + qps.count(handle);
    return of_another_kind != 0 ? -EINVAL : -ENOENT;
  }

  const std::shared_ptr<LentEngine> engine = std::make_shared<LentEngine>();  ///< has the engine if it is lent
  MappedPage shown;                                                           ///< page 0 of the memfd
  bool open = false;                                                          ///< GET_CONTEXT has succeeded
  uint64_t caps = 0;                                                          ///< USIW_CAP_* that both sides support
  uint32_t next_handle = 0;
  uint32_t pages = 0;  ///< number of pages in the memfd
  std::vector<uint32_t> free_pages;
  std::shared_ptr<AsyncFile> async;
  std::shared_ptr<EventStream> events;
  std::map<uint32_t, std::shared_ptr<Pd>> pds;
  std::map<uint32_t, std::shared_ptr<Ah>> ahs;
  std::map<uint32_t, std::shared_ptr<Mr>> mrs;
  std::map<uint32_t, std::shared_ptr<Mw>> mws;
  std::map<uint32_t, std::shared_ptr<Cq>> cqs;
  std::map<uint32_t, std::shared_ptr<Srq>> srqs;
  std::map<uint32_t, std::shared_ptr<Qp>> qps;
};

int cq_event(UverbsContext& u, uint32_t handle, uint32_t kind);
int srq_event(UverbsContext& u, uint32_t handle, uint32_t kind);
/// Ends the QP's connection, discards the QP's unread events, removes the QP from the table of QP numbers, and releases
/// its PD, CQs and SRQ. The caller removes the QP from u.qps.
void end_qp(UverbsContext& u, Qp& qp);
/// [big lock not held] Carries out a method that usiw adds, which comes by ioctl(2). Returns 0 or -errno.
int uverbs_ioctl(UverbsContext& u, unsigned long request, void* arg);

/// The attributes of an ioctl method.
struct Attributes {
  static constexpr size_t kMost = 8;
  ib_uverbs_attr list[kMost];
  size_t number;
  /// Returns the attribute with this number, or null.
  const ib_uverbs_attr* find(uint16_t id) const {
    for (size_t i = 0; i < number; i++)
      if (list[i].attr_id == id) return &list[i];
    return nullptr;
  }
};
/// [big lock not held] Carries out a method of the device object. Returns 0 or -errno.
int gid_ioctl(uint16_t method, const Attributes& attrs);

/// An entry of a table of commands.
struct UverbsMethod {
  using Handler = int (*)(UverbsContext& u, const Command& c);
  uint32_t command;
  Handler handler;
  size_t request;   ///< least length of the core structure, bytes
  size_t response;  ///< least length of the core response, bytes
  /// Runs before the handler and without the big lock, because it may wait until a page of a file has been read. Null:
  /// there is nothing to check.
  Handler check = nullptr;
};

template <typename Core>
Core core_of(int (*handler)(UverbsContext&, const Command&, const Core&));

/// Returns the table entry for a handler whose last argument is the core structure.
template <auto handler>
constexpr UverbsMethod method(uint32_t command, size_t response = 0, UverbsMethod::Handler check = nullptr) {
  using Core = decltype(core_of(handler));
  return {command, [](UverbsContext& u, const Command& c) { return handler(u, c, c.core<Core>()); }, sizeof(Core),
          response, check};
}

extern const std::span<const UverbsMethod> kContextMethods, kObjectMethods, kAhMethods, kMemoryMethods, kSrqMethods,
    kQpMethods;
extern const UverbsMethod kQueryDeviceEx;  ///< the only extended command

}  // namespace usiw::run

#endif  // USIW_RUN_UVERBS_H
