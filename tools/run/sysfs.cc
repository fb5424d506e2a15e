// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "sysfs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "file.h"
#include "host.h"
#include "base/file_limit.h"
#include "base/quiet_thread.h"
#include "real.h"
#include "scratch.h"
#include "settings.h"

namespace usiw::run {
namespace {

constexpr char kDevDir[] = "/dev/infiniband";
constexpr const char* kClasses[] = {"infiniband", "infiniband_verbs", "infiniband_cm", "infiniband_mad",
                                    "misc/rdma_cm"};
/// As on a host with the module, where uverbs0 is the first device.
constexpr unsigned kUverbsMajor = 231, kUverbsMinor = 192, kRdmaCmMajor = 10, kRdmaCmMinor = 122;

std::string gid_text() {
  std::array<uint8_t, 6> m = device_mac();
  char text[64];
  snprintf(text, sizeof text, "%02x%02x:%02x%02x:%02x%02x:0000:0000:0000:0000:0000\n", m[0], m[1], m[2], m[3],
           m[4], m[5]);
  return text;
}

std::string guid_text() {
  std::array<uint8_t, 8> g = node_guid();
  char text[64];
  snprintf(text, sizeof text, "%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", g[0], g[1], g[2], g[3], g[4], g[5], g[6],
           g[7]);
  return text;
}

/// {path below class/: content}
std::map<std::string, std::string> files() {
  const std::string dev = "infiniband/" + settings().device + "/";
  const std::string port = dev + "ports/1/", uverbs = "infiniband_verbs/uverbs0/";
  usiw_link_info link = link_info();
  std::string abi = std::to_string(USIW_ABI_VERSION) + "\n";
  return {
      {"infiniband_verbs/abi_version", "6\n"},
      {uverbs + "abi_version", abi},
      {uverbs + "dev", std::to_string(kUverbsMajor) + ":" + std::to_string(kUverbsMinor) + "\n"},
      {uverbs + "ibdev", settings().device + "\n"},
      // Matched by the provider whatever the device is called.
      {uverbs + "device/modalias", "rdma_device:Nusiw\n"},
      {dev + "device/modalias", "rdma_device:Nusiw\n"},
      {dev + "device/net/" + link.ifname + "/ifindex", std::to_string(link.ifindex) + "\n"},
      {dev + "node_type", "4: RNIC\n"},
      {dev + "node_guid", guid_text()},
      {dev + "sys_image_guid", guid_text()},
      {dev + "node_desc", "usiw software RNIC\n"},
      {dev + "fw_ver", ""},
      {port + "state", link.up ? "4: ACTIVE\n" : "1: DOWN\n"},
      {port + "phys_state", link.up ? "5: LinkUp\n" : "3: Disabled\n"},
      {port + "link_layer", "Ethernet\n"},
      {port + "lid", "0x0\n"},
      {port + "sm_lid", "0x0\n"},
      {port + "rate", "2.5 Gb/sec (1X SDR)\n"},
      {port + "cap_mask", "0x00010000\n"},
      {port + "gids/0", gid_text()},
      {port + "pkeys/0", "0xffff\n"},
      {port + "gid_attrs/types/0", "IB/RoCE v1\n"},  // what the kernel says of iWARP devices
      {port + "gid_attrs/ndevs/0", std::string(link.ifname) + "\n"},
      {"misc/rdma_cm/abi_version", "4\n"},
      {"misc/rdma_cm/dev", std::to_string(kRdmaCmMajor) + ":" + std::to_string(kRdmaCmMinor) + "\n"},
  };
}

/// Whatever the umask: a program that gives up its user still looks here.
constexpr mode_t kDirectory = 0755, kFile = 0644;

void make_parents(const std::string& path, size_t from) {
  for (size_t slash = path.find('/', from); slash != std::string::npos; slash = path.find('/', slash + 1))
    if (std::string parent = path.substr(0, slash); mkdir(parent.c_str(), 0700) == 0) chmod(parent.c_str(), kDirectory);
}

/// Made beside its place and renamed, so that nobody reads the half of it; a name with a dot in front
/// is no device to those who list a directory.
void make_file(const std::string& path, const std::string& text) {
  size_t name = path.rfind('/') + 1;
  std::string draft = path.substr(0, name) + "." + path.substr(name) + ".XXXXXX";
  int fd = mkostemp(draft.data(), O_CLOEXEC);
  if (fd < 0) return;
  {
    const NoFileSizeSignal no_signal;
    static bool said = false;
    const ssize_t n = USIW_REAL(write)(fd, text.data(), text.size());
    if (n != static_cast<ssize_t>(text.size()) && !std::exchange(said, true))
      fprintf(stderr, "usiw-run: cannot write %s: %s; the program may not find the device%s\n", path.c_str(),
              strerror(errno), errno == EFBIG ? " (raise ulimit -f)" : "");
  }
  fchmod(fd, kFile);
  USIW_REAL(close)(fd);
  if (rename(draft.c_str(), path.c_str()) != 0) unlink(draft.c_str());
}

/// Makes what is not there.
void fill(const std::string& root, const std::map<std::string, std::string>& all) {
  for (auto& [name, text] : all) {
    std::string path = root + "/class/" + name;
    if (USIW_REAL(access)(path.c_str(), F_OK) == 0) continue;
    make_parents(path, root.size() + 1);
    make_file(path, text);
  }
}

/// That nobody else can write to.
bool is_own_directory(const std::string& path) {
  struct stat st;
  return USIW_REAL(lstat)(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
         (st.st_mode & 022) == 0;
}

constexpr int kHoldTries = 500;
constexpr unsigned kHoldPauseUs = 2000;

/// Locks the tree for as long as this process (or a child of its fork) lives: unused_trees.cc removes those that nobody
/// has locked. The lock is of a file that no other user can open. False: there is no locking it.
bool hold(const std::string& root) {
  const std::string path = root + "/" + kTreeLock;
  for (int tries = 0; tries < kHoldTries; tries++) {
    mkdir(root.c_str(), 0700);
    if (!is_own_directory(root)) return false;
    const int fd = USIW_REAL(open)(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat mine, there;
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0 && USIW_REAL(fstat)(fd, &mine) == 0 &&
        USIW_REAL(lstat)(path.c_str(), &there) == 0 &&
        mine.st_ino == there.st_ino) {  // else it was removed before it was locked
      futimens(fd, nullptr);
      fd_out_of_the_way(fd);
      return true;
    }
    if (fd >= 0) USIW_REAL(close)(fd);
    usleep(kHoldPauseUs);
  }
  return false;
}

/// The tree's name is a digest of what it holds: processes that mean the same device share it. Whoever
/// uses it makes what is missing first, because another process may be making it now, or something
/// that cleans up may have taken a part of it.
std::string make_tree() {
  NoCancel no_cancel;  // stat(2) may be what asks for it, which does not expect that
  std::map<std::string, std::string> all = files();
  size_t digest = 0;
  for (auto& [name, text] : all)
    digest = digest * 1000003 + std::hash<std::string>()(name + "=" + text);
  const std::string place = scratch_directory();
  const std::string base = (place.empty() ? "/tmp" : place) + "/" + tree_prefix();
  char hex[20];
  snprintf(hex, sizeof hex, "%016zx", digest);

  std::string root = base + hex;
  if (!hold(root)) {  // somebody else took the name, or there is no making one here
    root = base + "XXXXXX";
    if (mkdtemp(root.data()) == nullptr) {
      fprintf(stderr, "usiw-run: cannot make a directory %s: %s\n", root.c_str(), strerror(errno));
      return root;
    }
    hold(root);
  }
  chmod(root.c_str(), kDirectory);
  fill(root, all);
  return root;
}

bool begins_with(const char* path, const std::string& prefix) {
  return strncmp(path, prefix.c_str(), prefix.size()) == 0 &&
         (path[prefix.size()] == '/' || path[prefix.size()] == '\0');
}

}  // namespace

Node node_of(const char* path) {
  if (path == nullptr || path[0] != '/' || path[1] != 'd' || !begins_with(path, kDevDir)) return Node::kOther;
  const char* name = path + sizeof kDevDir - 1;
  if (strcmp(name, "/uverbs0") == 0) return Node::kUverbs;
  if (strcmp(name, "/rdma_cm") == 0) return Node::kRdmaCm;
  return Node::kAbsent;
}

dev_t uverbs_device() { return makedev(kUverbsMajor, kUverbsMinor); }
dev_t rdma_cm_device() { return makedev(kRdmaCmMajor, kRdmaCmMinor); }

bool is_played(const char* path) {
  if (path == nullptr || strncmp(path, "/sys/class/", 11) != 0) return false;
  for (const char* c : kClasses)
    if (begins_with(path, std::string("/sys/class/") + c)) return true;
  return false;
}

std::string played(const char* path) {
  static std::mutex making;
  static std::atomic<const std::string*> root;
  const auto is_there = [](const std::string* tree) {
    return tree != nullptr && USIW_REAL(access)((*tree + "/class").c_str(), F_OK) == 0;
  };
  // A program that closes all its descriptors has let go of the lock.
  if (!is_there(root.load(std::memory_order_acquire))) {
    std::lock_guard hold_making(making);
    if (!is_there(root.load(std::memory_order_relaxed)))
      root.store(new std::string(make_tree()), std::memory_order_release);  // others may still read the one before
  }
  return *root.load(std::memory_order_acquire) + (path + 4);  // behind "/sys"
}

}  // namespace usiw::run
