// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file preload.cc
/// Handlers of fork(). A child inherits the parent's descriptors and a copy of this library's memory, but the
/// connections are still the parent's. As with the module, the child cannot use them. The child must send nothing for
/// them, so it forgets the parent's files, ids, connections, QPs and sockets.
#include <pthread.h>

#include "tools/run/conn/admission.h"
#include "tools/run/conn/cm_thread.h"
#include "tools/run/conn/conn.h"
#include "tools/run/conn/packets.h"
#include "tools/run/conn/qp.h"
#include "tools/run/conn/udp_socket.h"
#include "tools/run/conn/watch.h"
#include "tools/run/face/face.h"
#include "tools/run/entry/sysfs.h"
#include "tools/run/host/big_lock.h"
#include "tools/run/host/gid_table.h"
#include "tools/run/libc/file.h"
#include "tools/run/ucm/ucm_id.h"

namespace usiw::run {
namespace {

int g_cancel_state;  ///< [big lock] cancel state of the thread that forks, before the fork

/// Takes every lock of this library. Otherwise a lock that another thread holds would stay locked in the child, which
/// does not have that thread.
void before_fork() {
  int state;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);  // as in HoldBigLock
  making_tree().lock();
  big_lock().lock();
  gid_table_lock().lock();
  g_cancel_state = state;
  files_lock();
}
void after_fork_parent() {
  const int state = g_cancel_state;
  files_unlock();
  gid_table_lock().unlock();
  big_lock().unlock();
  making_tree().unlock();
  pthread_setcancelstate(state, nullptr);
}
void after_fork_child() {
  files_abandon();
  cm_thread_abandon();  // before the sockets, because the child shares the epoll set with the parent
  ids_abandon();
  Conn::abandon_all();
  qps_abandon();
  Face::abandon_all();
  UdpSocket::abandon_all();
  Admission::abandon_all();
  packets_abandon();
  watch_abandon();
  after_fork_parent();
}

__attribute__((constructor)) void begin() { pthread_atfork(before_fork, after_fork_parent, after_fork_child); }

}  // namespace
}  // namespace usiw::run
