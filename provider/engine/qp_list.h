// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp_list.h
/// Lists of QPs: what is active, and what waits for a receive work request of a shared receive queue.
#ifndef USIW_ENGINE_QP_LIST_H
#define USIW_ENGINE_QP_LIST_H

namespace usiw {

struct QpContext;

/// Membership of a QP in one list of the engine: circular, so that leaving needs no list.
struct ListHook {
  explicit ListHook(QpContext* qp = nullptr) : owner(qp) {}
  ListHook(const ListHook&) = delete;
  ListHook& operator=(const ListHook&) = delete;

  bool linked() const { return next != this; }
  void unlink() {
    prev->next = next;
    next->prev = prev;
    prev = next = this;
  }

  ListHook* prev = this;
  ListHook* next = this;
  QpContext* owner;  ///< nullptr: the list's own end
};

class QpList {
 public:
  bool empty() const { return !end_.linked(); }
  bool has_one() const { return !empty() && end_.next == end_.prev; }
  /// nullptr at the end.
  QpContext* front() const { return end_.next->owner; }
  const ListHook* begin() const { return end_.next; }
  void push_back(ListHook& hook) {
    if (hook.linked()) return;
    hook.prev = end_.prev;
    hook.next = &end_;
    end_.prev->next = &hook;
    end_.prev = &hook;
  }
  /// Takes over all members of @p other, behind its own.
  void take(QpList& other) {
    if (other.empty()) return;
    end_.prev->next = other.end_.next;
    other.end_.next->prev = end_.prev;
    end_.prev = other.end_.prev;
    end_.prev->next = &end_;
    other.end_.prev = other.end_.next = &other.end_;
  }

 private:
  ListHook end_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_QP_LIST_H
