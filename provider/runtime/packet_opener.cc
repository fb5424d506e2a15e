// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/packet_opener.h"

#include <pthread.h>

#include <utility>

#include "base/quiet_thread.h"

namespace usiw {

int PacketOpener::start(Open open, Done done) {
  if (job_) {
    std::lock_guard hold(job_->lock);
    if (!job_->over) return 0;
  }
  job_ = std::make_shared<Job>();
  job_->open = std::move(open);
  job_->done = std::move(done);
  auto* share = new std::shared_ptr<Job>(job_);
  pthread_t thread;
  if (const int error = start_quiet_thread(thread, run, share); error != 0) {
    delete share;
    job_.reset();
    return error;
  }
  pthread_detach(thread);
  return 0;
}

void* PacketOpener::run(void* share) {
  pthread_setname_np(pthread_self(), "usiw-open");
  const std::unique_ptr<std::shared_ptr<Job>> owned(static_cast<std::shared_ptr<Job>*>(share));
  Job& job = **owned;
  std::string why;
  std::unique_ptr<NetPort> port = job.open(why);
  std::lock_guard hold(job.lock);
  if (!job.forgotten) job.done(std::move(port), why);
  job.over = true;
  return nullptr;
}

void PacketOpener::forget() {
  if (!job_) return;
  std::lock_guard hold(job_->lock);
  job_->forgotten = true;
}

}  // namespace usiw
