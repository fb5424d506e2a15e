// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/shm_port.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/link_local.h"

namespace usiw {
namespace {

/// While no flow goes by its socket only what a peer sends that has given its channel up comes by the sockets, or what
/// another port cannot hear, and a thread that sleeps is woken by it: one look at them in so many runs.
constexpr size_t kLooksPerSocketLook = 32;
/// More processes than these meet by sockets.
constexpr size_t kMaxChannels = 1024;
/// More records of no flow in a row than a ring can hold are not what a flow that has ended left behind.
constexpr uint32_t kStraysMost = kShmRingBytes / kRecordUnit;

FlowKey reversed(const FlowKey& f) { return {f.remote_addr, f.local_addr, f.remote_port, f.local_port}; }

}  // namespace

/// The key, in words that another process understands: no mark; link-local addresses, both, with their interface.
FlowKey ShmPort::Flow::told() const {
  FlowKey out = key;
  if (marked) take_link(out.local_addr.data());
  for (auto* addr : {&out.local_addr, &out.remote_addr})
    if (is_link_local(addr->data())) std::memcpy(addr->data() + 4, &link, sizeof link);
  return out;
}

std::unique_ptr<ShmPort> ShmPort::create(uint32_t mtu, int& error, uint32_t unmarked) {
  std::unique_ptr<SocketPort> sockets = SocketPort::create(mtu, error, unmarked);
  if (!sockets) return nullptr;
  std::unique_ptr<ShmPort> port(new ShmPort(std::move(sockets)));
  port->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (port->epoll_ >= 0) return port;
  error = errno;
  return nullptr;
}

ShmPort::~ShmPort() {
  for (Listener& l : listeners_) stop_listening(l);
  channels_.clear();
  if (epoll_ >= 0) close(epoll_);
}

Port::Drops ShmPort::drops() const {
  Drops d = inner_->drops();
  d.malformed += malformed_;
  return d;
}

/// A flow in memory has its share of the ring. Nothing is lost where a ring is full, but what does not fit has been
/// built in vain.
uint32_t ShmPort::share(Path& path, uint32_t len, uint64_t now) {
  ShmChannel* channel = channel_of(path);
  if (channel == nullptr) return inner_->share(path, len, now);
  return static_cast<uint32_t>(kShmRingBytes / ShmRecord::size(len)) / channel->shares.users(path.counted, now);
}

// ---- Sending ----------------------------------------------------------------------------------

/// A tag may be out of date: a connection that has ended still answers repetitions.
inline ShmChannel* ShmPort::channel_of(const Path& path) const {
  if (path.tag >= flows_.size()) return nullptr;
  const Flow& f = flows_[path.tag];
  return f.in_memory && f.key == path.flow ? f.channel : nullptr;
}

size_t ShmPort::tx(std::span<TxBuf> bufs) {
  size_t done = 0;
  bool pushed = false;
  while (done < bufs.size()) {
    ShmChannel* channel = channel_of(*bufs[done].path);
    size_t end = done + 1;  // as many as go the same way
    while (end < bufs.size() && channel_of(*bufs[end].path) == channel) end++;
    std::span<TxBuf> run = bufs.subspan(done, end - done);
    size_t taken = 0;
    if (channel == nullptr) {
      taken = inner_->tx(run);
    } else {
      for (const TxBuf& b : run) {
        if (!channel->push(flows_[b.path->tag].number, {b.data, b.len}, {b.more, b.more_len})) break;
        taken++;
      }
      channel->dirty = pushed = true;
      inner_->tx_free(run);
      if (channel->over()) leave(*channel);
    }
    done += taken;
    if (taken < run.size()) {
      inner_->tx_free(bufs.subspan(end));
      break;
    }
  }
  if (pushed)
    for (auto& c : channels_) {
      if (c->dirty && c->wake_wanted()) c->wake();
      c->dirty = false;
    }
  return done;
}

// ---- Receiving --------------------------------------------------------------------------------

size_t ShmPort::rx(std::span<RxBuf> bufs) {
  // A ring that is never empty fills burst after burst: the sockets have the first turn as often as it has.
  const bool sockets_first = ++looks_ >= (on_sockets_ != 0 ? std::min(channels_.size() + 1, kLooksPerSocketLook)
                                                           : kLooksPerSocketLook);
  size_t got = sockets_first ? look_at_sockets(bufs) : 0;
  for (size_t i = 0; i < channels_.size() && got < bufs.size(); i++) {
    ShmChannel& channel = *channels_[(first_ + i) % channels_.size()];
    if (channel.ready()) got += receive(channel, bufs.subspan(got));
  }
  first_++;
  if (!sockets_first && got < bufs.size() && (on_sockets_ != 0 || channels_.empty()))
    got += look_at_sockets(bufs.subspan(got));
  return got;
}

size_t ShmPort::look_at_sockets(std::span<RxBuf> bufs) {
  looks_ = 0;
  return inner_->rx(bufs);
}

/// Copies what the ring holds: from here on it cannot change any more. Looks at no more records than
/// there is room for: the ring of a hostile peer may never be empty.
size_t ShmPort::receive(ShmChannel& channel, std::span<RxBuf> bufs) {
  size_t n = 0;
  for (size_t looks = 0; looks < bufs.size() && channel.ready(); looks++) {
    TxBuf room;
    if (inner_->tx_alloc({&room, 1}) == 0) break;  // stays in the ring
    uint32_t len = 0, number = 0;
    const bool popped = channel.pop(room.data, len, number);
    const uint32_t tag = popped ? channel.flow_at(number) : ShmChannel::kNoFlow;
    if (tag == ShmChannel::kNoFlow) {  // of a flow that has ended, or of none that there ever was
      if (!popped || number >= ShmChannel::kMaxFlows) malformed_++;
      inner_->tx_free({&room, 1});
      if (++channel.strays > kStraysMost) channel.end();
      continue;
    }
    channel.strays = 0;
    bufs[n++] = {room.data, len, flows_[tag].key, room.handle, false};
  }
  return n;
}

bool ShmPort::arm() {
  sweep();
  bool quiet = inner_->arm();
  for (auto& c : channels_) quiet = c->arm() && quiet;
  looks_ = kLooksPerSocketLook;
  return quiet;
}

// ---- Flows ------------------------------------------------------------------------------------

int ShmPort::add_flow(Path& path, int fd) {
  if (int error = inner_->add_flow(path, fd); error != 0) return error;
  if (free_flows_.empty()) {
    free_flows_.push_back(static_cast<uint32_t>(flows_.size()));
    flows_.emplace_back();
    free_flows_.reserve(flows_.size());
  }
  path.tag = free_flows_.back();
  free_flows_.pop_back();
  Flow& f = flows_[path.tag];
  f.key = path.flow;
  f.marked = path.marked;
  f.link = path.scope;
  f.used = true;
  count(f);
  if (!path.other_host) offer(path.tag);
  return 0;
}

void ShmPort::remove_flow(const Path& path) {
  inner_->remove_flow(path);
  const Flow f = flows_[path.tag];
  flows_[path.tag] = {};
  free_flows_.push_back(path.tag);
  if (f.on_socket) on_sockets_--;
  for (auto& c : channels_) {
    if (c.get() == f.channel && c->flow_at(f.number) == path.tag) c->set_flow(f.number, ShmChannel::kNoFlow);
    if (c->over()) c->forget(path.tag);
    // The end that connected ends a channel that nobody needs any more.
    if (c->connected_here() && c->flows() == 0) c->end();
  }
  sweep();
  resume_listening();
  if (!f.listens) return;
  auto l = std::find_if(listeners_.begin(), listeners_.end(),
                        [&](const Listener& o) { return o.end == ShmEnd::local(f.told()); });
  if (--l->users != 0) return;
  stop_listening(*l);
  listeners_.erase(l);
}

/// The socket may live on in a child of fork(): epoll would go on to watch it, and peers to find it.
void ShmPort::stop_listening(const Listener& listener) {
  unwatch(listener.fd);
  shutdown(listener.fd, SHUT_RDWR);
  close(listener.fd);
}

/// Asks the peer's process, if there is one of this user here, to use memory for the flow; else
/// this end is the first to be installed, and waits to be asked.
void ShmPort::offer(uint32_t tag) {
  const ShmEnd peer = ShmEnd::remote(flows_[tag].told());
  for (auto& c : channels_)
    if (c->connected_here() && !c->over() && c->peer() == peer && offer_by(*c, tag)) return;
  std::unique_ptr<ShmChannel> fresh;
  if (channels_.size() < kMaxChannels) fresh = ShmChannel::connect(peer, max_payload());
  if (fresh && offer_by_process(fresh->process(), tag)) return;
  if (!fresh || !fresh->begin()) return listen_for(flows_[tag]);
  if (!watch(fresh->fd())) return;
  if (offer_by(*fresh, tag))
    channels_.push_back(std::move(fresh));
  else
    unwatch(fresh->fd());
}

/// Offers the flow by a channel to the process, which may have been made for another port of it. On the RoCE face each
/// QP has a port of its own, and not each needs memory of its own. Returns false if there is no such channel.
bool ShmPort::offer_by_process(pid_t process, uint32_t tag) {
  if (process == 0) return false;
  for (auto& c : channels_)
    if (c->connected_here() && !c->over() && c->process() == process && offer_by(*c, tag)) return true;
  return false;
}

bool ShmPort::offer_by(ShmChannel& channel, uint32_t tag) {
  Flow& f = flows_[tag];
  const uint32_t number = channel.free_number();
  if (number == ShmChannel::kNoFlow || !channel.send({ShmMessage::kFlow, number, f.told()})) return false;
  channel.set_flow(number, tag);  // the peer may send by it as soon as it has answered
  f.channel = &channel;
  f.number = number;
  return true;
}

void ShmPort::listen_for(Flow& flow) {
  const ShmEnd end = ShmEnd::local(flow.told());
  auto l = std::find_if(listeners_.begin(), listeners_.end(), [&](const Listener& o) { return o.end == end; });
  if (l == listeners_.end()) {
    const int fd = end.listen();
    if (fd < 0) return;  // the flow stays on its socket
    if (!watch(fd)) {
      close(fd);
      return;
    }
    l = listeners_.insert(l, {end, fd, 0, false});
  }
  l->users++;
  flow.listens = true;
}

void ShmPort::sends(Path& path, bool yes) {
  inner_->sends(path, yes);
  flows_[path.tag].sends = yes;
  count(flows_[path.tag]);
}

void ShmPort::count(Flow& flow) {
  const bool on_socket = flow.used && flow.sends && !flow.in_memory;
  if (on_socket != flow.on_socket) on_socket ? on_sockets_++ : on_sockets_--;
  flow.on_socket = on_socket;
}

void ShmPort::attach(Flow& flow) {
  flow.in_memory = true;
  count(flow);
}

/// Nothing more goes by this channel; what it holds may still be received.
void ShmPort::leave(ShmChannel& channel) {
  for (Flow& f : flows_) {
    if (f.channel != &channel) continue;
    f.in_memory = false;
    f.channel = nullptr;
    count(f);
  }
}

// ---- Agreement --------------------------------------------------------------------------------

bool ShmPort::watch(int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  return epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0;
}

/// Before the descriptor is closed: epoll watches what is behind it.
void ShmPort::unwatch(int fd) { epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr); }

void ShmPort::control() {
  epoll_event ready[16];
  const int n = epoll_wait(epoll_, ready, 16, 0);
  for (int i = 0; i < n; i++) {
    const int fd = ready[i].data.fd;
    auto c = std::find_if(channels_.begin(), channels_.end(), [&](auto& o) { return o->fd() == fd; });
    if (c != channels_.end())
      read_messages(**c);
    else
      accept_from(fd);
  }
  sweep();
}

void ShmPort::accept_from(int listener) {
  int error = 0;
  for (int burst = 0; error == 0 && burst < 16; burst++) {
    std::unique_ptr<ShmChannel> channel = ShmChannel::accept(listener, max_payload(), error);
    if (channel && channels_.size() < kMaxChannels && watch(channel->fd())) channels_.push_back(std::move(channel));
  }
  if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS) return;
  // The peer goes on waiting, and its flows by their sockets; epoll would tell of it all the time.
  for (Listener& l : listeners_)
    if (l.fd == listener) l.paused = true;
  unwatch(listener);
}

/// Something was closed: who waits may be let in now.
void ShmPort::resume_listening() {
  for (Listener& l : listeners_)
    if (l.paused) l.paused = !watch(l.fd);
}

void ShmPort::read_messages(ShmChannel& channel) {
  for (int burst = 0; burst < 64; burst++) {
    ShmMessage message;
    switch (channel.receive(message)) {
      case ShmChannel::Got::kNothing:
        return;
      case ShmChannel::Got::kWake:
        break;
      case ShmChannel::Got::kMessage:
        on_message(channel, message);
        break;
      case ShmChannel::Got::kEnd:
        channel.end();
        return;
    }
  }
}

void ShmPort::on_message(ShmChannel& channel, const ShmMessage& message) {
  if (message.kind == ShmMessage::kFlowOk) {
    const uint32_t tag = channel.flow_at(message.number);
    if (tag != ShmChannel::kNoFlow && flows_[tag].told() == message.flow) attach(flows_[tag]);
    return;
  }
  const FlowKey key = reversed(message.flow);
  for (uint32_t tag = 0; tag < flows_.size(); tag++) {
    Flow& f = flows_[tag];
    if (!f.used || f.channel != nullptr || !(f.told() == key)) continue;
    if (!channel.send({ShmMessage::kFlowOk, message.number, message.flow})) return;
    channel.set_flow(message.number, tag);
    f.channel = &channel;
    f.number = message.number;
    attach(f);
    return;
  }
}

/// Takes leave of channels that are over, and forgets those that are empty, too.
void ShmPort::sweep() {
  for (auto& c : channels_)
    if (c->over()) {
      c->end();
      leave(*c);
      unwatch(c->fd());
    }
  if (std::erase_if(channels_, [](auto& c) { return c->over() && !c->ready(); }) != 0) resume_listening();
}

}  // namespace usiw
