// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file memory_port.h
/// A port whose datagrams go to another port of this process through a queue in memory. Some are lost.
#ifndef USIW_TESTS_THREADS_MEMORY_PORT_H
#define USIW_TESTS_THREADS_MEMORY_PORT_H

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/port.h"

namespace usiw {

class MemoryPort final : public Port {
 public:
  static constexpr uint32_t kPayload = 1472;

  ~MemoryPort() override { close(wait_fd); }
  void connect(MemoryPort& peer) { peer_ = &peer; }

  uint32_t max_payload() const override { return kPayload; }
  size_t tx_alloc(std::span<TxBuf> bufs) override {
    for (TxBuf& buf : bufs) {
      auto* bytes = new std::byte[kPayload];
      buf = {.data = bytes, .len = 0, .path = nullptr, .handle = bytes};
    }
    return bufs.size();
  }
  size_t tx(std::span<TxBuf> bufs) override {
    for (const TxBuf& buf : bufs) {
      auto datagram = std::make_unique<Datagram>();
      datagram->bytes.assign(buf.data, buf.data + buf.len);
      if (buf.more_len != 0) datagram->bytes.insert(datagram->bytes.end(), buf.more, buf.more + buf.more_len);
      const FlowKey& flow = buf.path->flow;
      datagram->flow = {flow.remote_addr, flow.local_addr, flow.remote_port, flow.local_port};
      if (++sent_ % kLostOneIn != 0) peer_->arrive(std::move(datagram));
    }
    tx_free(bufs);
    return bufs.size();
  }
  bool takes_references() const override { return true; }
  void tx_free(std::span<TxBuf> bufs) override {
    for (const TxBuf& buf : bufs) delete[] static_cast<std::byte*>(buf.handle);
  }
  size_t rx(std::span<RxBuf> bufs) override {
    std::lock_guard hold(lock_);
    size_t n = 0;
    for (; n < bufs.size() && !queue_.empty(); n++) {
      Datagram* datagram = queue_.front().release();
      queue_.pop_front();
      bufs[n] = {.data = datagram->bytes.data(),
                 .len = static_cast<uint32_t>(datagram->bytes.size()),
                 .flow = datagram->flow,
                 .handle = datagram,
                 .ce = false};
    }
    uint64_t none;
    if (queue_.empty()) [[maybe_unused]] ssize_t got = read(wait_fd, &none, sizeof none);
    return n;
  }
  void rx_free(std::span<RxBuf> bufs) override {
    for (const RxBuf& buf : bufs) delete static_cast<Datagram*>(buf.handle);
  }
  Drops drops() const override { return {}; }

  const int wait_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

 private:
  struct Datagram {
    std::vector<std::byte> bytes;
    FlowKey flow;
  };
  static constexpr unsigned kLostOneIn = 211;
  static constexpr size_t kQueued = 2048;

  void arrive(std::unique_ptr<Datagram> datagram) {
    std::lock_guard hold(lock_);
    if (queue_.size() >= kQueued) return;
    queue_.push_back(std::move(datagram));
    const uint64_t one = 1;
    if (queue_.size() == 1) [[maybe_unused]] ssize_t put = write(wait_fd, &one, sizeof one);
  }

  MemoryPort* peer_ = nullptr;
  unsigned sent_ = 0;
  std::mutex lock_;
  std::deque<std::unique_ptr<Datagram>> queue_;
};

}  // namespace usiw

#endif  // USIW_TESTS_THREADS_MEMORY_PORT_H
