// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/stat_page.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

namespace usiw::run {
namespace {

void store(uint32_t& where, uint32_t value) { std::atomic_ref(where).store(value, std::memory_order_release); }

}  // namespace

MappedPage::MappedPage(int fd, uint32_t page) {
  void* at = mmap(nullptr, sizeof(StatPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, stat_page_at(page));
  if (at != MAP_FAILED) page_.reset(static_cast<StatPage*>(at));
}

void MappedPage::Unmap::operator()(StatPage* page) const { munmap(page, sizeof *page); }

/// Completes the mark, whose other fields the caller has set. Writes the kind last, so a reader that sees the kind also
/// sees the other fields.
void MappedPage::show(StatKind kind) {
  page_->mark.magic = kStatMagic;
  page_->mark.pid = static_cast<uint32_t>(getpid());
  store(page_->mark.kind, static_cast<uint32_t>(kind));
}

void MappedPage::show_context(const char* device) {
  if (page_ == nullptr) return;
  snprintf(page_->mark.device, sizeof page_->mark.device, "%s", device);
  show(StatKind::kContext);
}

void MappedPage::show_qp(uint32_t qpn) {
  if (page_ == nullptr) return;
  page_->mark.qpn = qpn;
  show(StatKind::kQp);
  let_go();
}

void MappedPage::set_state(uint32_t state) {
  if (page_ == nullptr) return;
  store(page_->mark.state, state);
  let_go();
}

void MappedPage::set_accepted() {
  if (page_ == nullptr) return;
  std::atomic_ref(page_->retired[0]).store(1, std::memory_order_release);
  let_go();
}

void MappedPage::count_ignored() {
  if (page_ == nullptr) return;
  std::atomic_ref(page_->mark.ignored).fetch_add(1, std::memory_order_relaxed);
  let_go();
}

/// Drops the page table entry of this mapping, because the provider has its own mapping of the same page. The memfd
/// keeps the contents, and the next access maps the page again.
void MappedPage::let_go() { madvise(page_.get(), sizeof(StatPage), MADV_DONTNEED); }

void MappedPage::retire(const MappedPage& qp) {
  if (page_ == nullptr || qp.page_ == nullptr) return;
  for (uint32_t i = 0; i < USIW_CNT_MAX; i++)
    page_->retired[i] += std::atomic_ref(qp.page_->counters[i]).load(std::memory_order_relaxed);
}

void MappedPage::hide() {
  if (page_ != nullptr) store(page_->mark.kind, static_cast<uint32_t>(StatKind::kNone));
}

}  // namespace usiw::run
