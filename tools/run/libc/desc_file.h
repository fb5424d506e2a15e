// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file desc_file.h
/// The files from which a program reads events of uverbs: async events, and those of a completion channel.
#ifndef USIW_RUN_DESC_FILE_H
#define USIW_RUN_DESC_FILE_H

#include <rdma/ib_user_verbs.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "tools/run/libc/event_file.h"

namespace usiw::run {

/// A file with a queue of events. Each read(2) takes one of them, which is a Desc.
template <typename Desc>
class DescFile : public EventFile {
 public:
  using EventFile::EventFile;
  ssize_t read(int, void* buf, size_t count) override {
    return wait_for([&]() -> ssize_t {
      if (queue_.empty()) return -EAGAIN;
      if (count < sizeof(Desc)) return -EINVAL;
      std::memcpy(buf, &queue_.front().desc, sizeof(Desc));
      if (std::shared_ptr<uint32_t> read_events = queue_.front().read_events) ++*read_events;
      queue_.pop_front();
      if (queue_.empty()) set_readable(false);
      return sizeof(Desc);
    });
  }
  /// [big lock] Adds an event. @p read_events counts the events that the program has read about one object. The
  /// pointer also identifies the object for purge().
  void push(const Desc& desc, std::shared_ptr<uint32_t> read_events) {
    queue_.push_back({desc, std::move(read_events)});
    set_readable(true);
  }
  /// [big lock] Drops the unread events of the object with this @p read_events, because the object goes away.
  void purge(const std::shared_ptr<uint32_t>& read_events) {
    std::erase_if(queue_, [&](const Entry& e) { return e.read_events == read_events; });
    if (queue_.empty()) set_readable(false);
  }

 private:
  struct Entry {
    Desc desc;
    std::shared_ptr<uint32_t> read_events;
  };
  std::deque<Entry> queue_;
};

class AsyncFile final : public DescFile<ib_uverbs_async_event_desc> {};
class ChannelFile final : public DescFile<ib_uverbs_comp_event_desc> {
 public:
  explicit ChannelFile(std::shared_ptr<LentEngine> engine) : DescFile(std::move(engine)) {}
};

}  // namespace usiw::run

#endif  // USIW_RUN_DESC_FILE_H
