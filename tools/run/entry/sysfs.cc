// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/entry/sysfs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <climits>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/file_limit.h"
#include "base/quiet_thread.h"
#include "tools/run/host/gid_table.h"
#include "tools/run/host/host.h"
#include "tools/run/host/scratch.h"
#include "tools/run/host/settings.h"
#include "tools/run/libc/device_nodes.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/real.h"
#include "uapi/usiw_version.h"

namespace usiw::run {
namespace {

constexpr const char* kEmulated[] = {"/sys/class/infiniband",    "/sys/class/infiniband_verbs",
                                     "/sys/class/infiniband_cm", "/sys/class/infiniband_mad",
                                     "/sys/class/misc/rdma_cm",  "/dev/infiniband"};
constexpr char kUverbsName[] = "uverbs0", kRdmaCmName[] = "rdma_cm";
/// The part of a path by which to_program_name() sees that the path may be in a tree.
constexpr char kTreeName[] = "/usiw-run-";

/// Returns @p bytes in hexadecimal, two bytes in each group, with colons between the groups.
template <size_t size>
std::string groups_of(const std::array<uint8_t, size>& bytes) {
  std::string text;
  for (size_t i = 0; i < size; i += 2) {
    char group[8];
    snprintf(group, sizeof group, "%s%02x%02x", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
    text += group;
  }
  return text;
}

using Files = std::map<std::string, std::string>;  ///< {path in the tree: contents}

/// Adds the GIDs of the port whose directory is @p port. An RNIC has the MAC as its only GID.
void add_gids(Files& all, const std::string& port, const std::string& ifname) {
  const auto add_type = [&](uint32_t index, const std::string& type) {
    all[port + "gid_attrs/types/" + std::to_string(index)] = type + "\n";
    all[port + "gid_attrs/ndevs/" + std::to_string(index)] = ifname + "\n";
  };
  if (settings().face != FaceKind::kRoce) {
    all[port + "gids/0"] = groups_of(device_mac()) + ":0000:0000:0000:0000:0000\n";
    return add_type(0, "IB/RoCE v1");  // the kernel shows this for iWARP devices
  }
  const std::vector<Gid> gids = gid_table().entries;
  for (uint32_t i = 0; i < gids.size(); i++) {
    all[port + "gids/" + std::to_string(i)] = groups_of(std::bit_cast<std::array<uint8_t, 16>>(gids[i].gid)) + "\n";
    if (gids[i].there)
      add_type(i, "RoCE v2");
    else  // the kernel's file gives EINVAL when it is read, and then libibverbs assumes v1; without a file it fails
      all[port + "gid_attrs/types/" + std::to_string(i)] = "IB/RoCE v1\n";
  }
}

/// Returns the files of the tree.
Files files() {
  const std::string dev = "class/infiniband/" + settings().device + "/";
  const std::string port = dev + "ports/1/", uverbs = "class/infiniband_verbs/uverbs0/";
  usiw_link_info link = link_info();
  std::string abi = std::to_string(USIW_ABI_VERSION) + "\n";
  Files all = {
      {"class/infiniband_verbs/abi_version", "6\n"},
      {uverbs + "abi_version", abi},
      {uverbs + "dev", std::to_string(kUverbsMajor) + ":" + std::to_string(kUverbsMinor) + "\n"},
      {uverbs + "ibdev", settings().device + "\n"},
      // libibverbs finds the provider by this string, so the device may have any name.
      {uverbs + "device/modalias", "rdma_device:Nusiw\n"},
      {dev + "device/modalias", "rdma_device:Nusiw\n"},
      {dev + "device/net/" + link.ifname + "/ifindex", std::to_string(link.ifindex) + "\n"},
      {dev + "node_type", settings().face == FaceKind::kRoce ? "1: CA\n" : "4: RNIC\n"},
      {dev + "node_guid", groups_of(node_guid()) + "\n"},
      {dev + "sys_image_guid", groups_of(node_guid()) + "\n"},
      {dev + "node_desc", "usiw software RNIC\n"},
      {dev + "fw_ver", USIW_VERSION "\n"},
      {port + "state", link.up ? "4: ACTIVE\n" : "1: DOWN\n"},
      {port + "phys_state", link.up ? "5: LinkUp\n" : "3: Disabled\n"},
      {port + "link_layer", "Ethernet\n"},
      {port + "lid", "0x0\n"},
      {port + "lid_mask_count", "0\n"},
      {port + "sm_lid", "0x0\n"},
      {port + "sm_sl", "0\n"},
      {port + "rate", "2.5 Gb/sec (1X SDR)\n"},
      {port + "cap_mask", "0x00010000\n"},
      {port + "pkeys/0", "0xffff\n"},
      {"class/misc/rdma_cm/abi_version", "4\n"},
      {"class/misc/rdma_cm/dev", std::to_string(kRdmaCmMajor) + ":" + std::to_string(kRdmaCmMinor) + "\n"},
      {std::string("dev/infiniband/") + kUverbsName, ""},
      {std::string("dev/infiniband/") + kRdmaCmName, ""},
  };
  add_gids(all, port, link.ifname);
  return all;
}

/// Permissions of the tree. They do not depend on the umask, because a program that changes to another user must still
/// be able to read the tree.
constexpr mode_t kDirectory = 0755, kFile = 0644;

void make_parents(const std::string& path, size_t from) {
  for (size_t slash = path.find('/', from); slash != std::string::npos; slash = path.find('/', slash + 1))
    if (std::string parent = path.substr(0, slash); mkdir(parent.c_str(), 0700) == 0) chmod(parent.c_str(), kDirectory);
}

/// Writes @p text to a draft in the same directory and renames the draft to @p path, so that no process reads half a
/// file. The name of the draft begins with a dot, so that programs which list the directory do not take it for a
/// device.
void make_file(const std::string& path, const std::string& text) {
  size_t name = path.rfind('/') + 1;
  std::string draft = path.substr(0, name) + "." + path.substr(name) + ".XXXXXX";
  int fd = mkostemp(draft.data(), O_CLOEXEC);
  if (fd < 0) return;
  bool whole;
  {
    const NoFileSizeSignal no_signal;
    static bool printed = false;
    errno = ENOSPC;  // a write(2) of a part of the text sets no errno
    whole = USIW_REAL(write)(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (!whole && !std::exchange(printed, true))
      fprintf(stderr, "usiw-run: cannot write %s: %s; the program may not find the device%s\n", path.c_str(),
              strerror(errno), errno == EFBIG ? " (raise ulimit -f)" : "");
  }
  fchmod(fd, kFile);
  USIW_REAL(close)(fd);
  // An incomplete draft is removed. Other processes share the tree, and nobody would complete a file that exists.
  if (!whole || rename(draft.c_str(), path.c_str()) != 0) unlink(draft.c_str());
}

/// Makes those files of @p all that the tree @p root does not have.
void fill(const std::string& root, const std::map<std::string, std::string>& all) {
  for (auto& [name, text] : all) {
    std::string path = root + "/" + name;
    if (USIW_REAL(access)(path.c_str(), F_OK) == 0) continue;
    make_parents(path, root.size() + 1);
    make_file(path, text);
  }
}

/// Returns true if the directory belongs to this user and no other user can write to it.
bool is_own_directory(const std::string& path) {
  struct stat st;
  return USIW_REAL(lstat)(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
         (st.st_mode & 022) == 0;
}

constexpr int kHoldTries = 500;
constexpr unsigned kHoldPauseUs = 2000;

/// Makes the directory of a tree and locks the tree (shared) until this process and its forked children have ended or
/// closed the descriptor of the lock, which @p lock gets. unused_trees.cc removes the old trees that no process has
/// locked. No other user can open the lock file. Returns false if the directory is not this user's, or if it cannot be
/// made or locked.
bool hold(const std::string& root, Fd& lock) {
  const std::string path = root + "/" + kTreeLock;
  for (int tries = 0; tries < kHoldTries; tries++) {
    mkdir(root.c_str(), 0700);
    if (!is_own_directory(root)) return false;
    Fd fd(USIW_REAL(open)(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd < 0 && errno != ENOENT) return false;
    struct stat mine, there;
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0 && USIW_REAL(fstat)(fd, &mine) == 0 &&
        USIW_REAL(lstat)(path.c_str(), &there) == 0 &&
        mine.st_ino == there.st_ino) {  // otherwise the file was removed before this process locked it
      futimens(fd, nullptr);
      lock = out_of_the_way(std::move(fd));
      return true;
    }
    usleep(kHoldPauseUs);
  }
  return false;
}

/// Makes a tree of the files @p all and returns its path. @p lock gets the descriptor of its lock. The name has the
/// user and a digest of the contents, so a user's processes with the same device share a tree. Each process makes the
/// files that are missing, because another process may still be making the tree, or a cleaner may have removed a part
/// of it.
std::string make_tree(const Files& all, Fd& lock) {
  NoCancel no_cancel;  // the caller may be stat(2), which is no cancellation point
  size_t digest = 0;
  for (auto& [name, text] : all)
    digest = digest * 1000003 + std::hash<std::string>()(name + "=" + text);
  const std::string place = scratch_directory();
  // The path without symbolic links, as getcwd(2) returns it. to_program_name() compares paths with it.
  char real_place[PATH_MAX];
  const char* usable = place.empty() ? "/tmp" : place.c_str();
  const char* named = USIW_REAL(realpath)(usable, real_place);
  const std::string base = std::string(named != nullptr ? named : usable) + "/" + tree_prefix();
  char hex[20];
  snprintf(hex, sizeof hex, "%016zx", digest);

  std::string root = base + hex;
  if (!hold(root, lock)) {  // another user has a directory of this name, or the directory cannot be made or locked
    root = base + "XXXXXX";
    if (mkdtemp(root.data()) == nullptr) {
      fprintf(stderr, "usiw-run: cannot make a directory %s: %s\n", root.c_str(), strerror(errno));
      return root;
    }
    hold(root, lock);
  }
  chmod(root.c_str(), kDirectory);
  fill(root, all);
  return root;
}

/// Returns true if @p path is @p place or below it.
bool is_within(const std::string& path, const std::string& place) {
  return path.compare(0, place.size(), place) == 0 && (path.size() == place.size() || path[place.size()] == '/');
}

bool is_emulated(const std::string& path) {
  return std::ranges::any_of(kEmulated, [&](const char* place) { return is_within(path, place); });
}

/// Returns true if ".." after @p path removes the last part of @p path. That is so in the emulated directories and
/// above them, because no part of such a path is a symbolic link.
bool has_plain_parent(const std::string& path) {
  return std::ranges::any_of(kEmulated,
                             [&](const char* place) { return is_within(path, place) || is_within(place, path); });
}

const char* last_part(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

/// Returns true if the absolute @p path may lead to an emulated directory: its first part besides "." and ".." is "sys"
/// or "dev". Allocates no memory, so a signal handler may open other paths.
bool may_be_emulated(const char* path) {
  for (;;) {
    path += strspn(path, "/");
    const size_t len = strcspn(path, "/");
    if (len == 0) return false;
    if (len > 2 || strspn(path, ".") < len)
      return len == 3 && (strncmp(path, "sys", 3) == 0 || strncmp(path, "dev", 3) == 0);
    path += len;
  }
}

/// Returns the absolute @p path without "//", "." and "..", or an empty string if only the kernel knows where ".."
/// leads. A "." or "/" at the end becomes one "/", by which the kernel still sees that the part before it must be a
/// directory.
std::string without_detours(const char* path) {
  std::string out;
  for (const char* part = path; *part != '\0';) {
    part += strspn(part, "/");
    const size_t len = strcspn(part, "/");
    if (len == 2 && strncmp(part, "..", 2) == 0) {
      if (!has_plain_parent(out)) return {};
      out.resize(out.empty() ? 0 : out.rfind('/'));
    } else if (len != 0 && !(len == 1 && *part == '.')) {
      out.append("/").append(part, len);
    }
    part += len;
  }
  if (const char* last = last_part(path); *last == '\0' || strcmp(last, ".") == 0) out += '/';
  return out;
}

/// Returns true if this process can open another descriptor. Otherwise it cannot make the tree.
bool has_descriptor() {
  const int fd = USIW_REAL(open)("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) USIW_REAL(close)(fd);
  return fd >= 0 || (errno != EMFILE && errno != ENFILE);
}

/// A path that does not exist, for a process that has no descriptor left to make a tree.
constexpr char kNowhere[] = "/proc/usiw-run-has-no-descriptor";

/// Returns the path of the tree, and makes the tree if it does not exist. If the process has no descriptor left to make
/// it, returns a path that does not exist.
const std::string& tree() {
  static std::atomic<const std::string*> root;
  const auto is_there = [](const std::string* made) {
    return made != nullptr && USIW_REAL(access)((*made + "/class").c_str(), F_OK) == 0 &&
           USIW_REAL(access)((*made + "/dev/infiniband/" + kUverbsName).c_str(), F_OK) == 0;
  };
  // A program that closes all its descriptors has released the lock of the tree, so the tree may have been removed.
  if (!is_there(root.load(std::memory_order_acquire))) {
    std::lock_guard hold_making(making_tree());
    static const std::string& nowhere = *new std::string(kNowhere);
    if (!has_descriptor()) return nowhere;
    if (!is_there(root.load(std::memory_order_relaxed))) {
      const NoCancel no_cancel;
      Fd lock;
      root.store(new std::string(make_tree(files(), lock)),
                 std::memory_order_release);  // other threads may still read the old one
      lock.release();
    }
  }
  return *root.load(std::memory_order_acquire);
}

/// The directory of the port in a tree.
std::string port_directory() { return "class/infiniband/" + settings().device + "/ports/1/"; }

/// Closes @p fd if it is the descriptor of the lock of the tree @p root. A program that has closed all its descriptors
/// may have another file with this number.
void close_lock(int fd, const std::string& root) {
  struct stat open, there;
  if (fd >= 0 && USIW_REAL(fstat)(fd, &open) == 0 && USIW_REAL(lstat)((root + "/" + kTreeLock).c_str(), &there) == 0 &&
      open.st_dev == there.st_dev && open.st_ino == there.st_ino)
    USIW_REAL(close)(fd);
}

/// Returns the path of a tree that has only the files of GIDs, as these are now. On the RoCE face they follow the
/// addresses of the interface. As in tree(), the tree may have been removed, and the process may have no descriptor.
std::string gid_tree() {
  static std::string& root = *new std::string;
  static uint64_t made_of = 0;
  static int lock = -1;
  const NoCancel no_cancel;
  const uint64_t changes = gid_table().changes;
  std::lock_guard hold_making(making_tree());
  const bool is_there = !root.empty() &&
                        USIW_REAL(access)((root + "/" + port_directory() + "gids/0").c_str(), F_OK) == 0;
  if (is_there && made_of == changes) return root;
  if (!has_descriptor()) return kNowhere;
  Files all;
  add_gids(all, port_directory(), link_info().ifname);
  Fd new_lock;
  const std::string made = make_tree(all, new_lock);
  close_lock(lock, root);
  lock = new_lock.release();
  root = made;
  made_of = changes;
  return root;
}

/// Returns true if the file is one of those that follow the addresses of the interface.
bool is_of_gid(const std::string& plain) {
  return settings().face == FaceKind::kRoce &&
         (plain.find("/gids/") != std::string::npos || plain.find("/gid_attrs/") != std::string::npos);
}

/// The prefix that paths in the tree lack: "/sys/class/x" is "class/x" there, but "/dev/x" is "dev/x".
constexpr char kSys[] = "/sys";

}  // namespace

std::mutex& making_tree() {
  static std::mutex& making = *new std::mutex;
  return making;
}

std::string emulated(const char* path) {
  // Every emulated path contains "infiniband" or "rdma_cm". All other paths cost only the search for these words.
  if (path == nullptr || path[0] != '/' ||
      (strstr(path, "infiniband") == nullptr && strstr(path, kRdmaCmName) == nullptr) || !may_be_emulated(path))
    return {};
  const std::string plain = without_detours(path);
  if (!is_emulated(plain)) return plain;  // only passes through, such as /dev/infiniband/../null
  return (is_of_gid(plain) ? gid_tree() : tree()) + (is_within(plain, kSys) ? plain.substr(sizeof kSys - 1) : plain);
}

void to_program_name(char* path) {
  if (strstr(path, kTreeName) == nullptr) return;
  const std::string& root = tree();
  if (!is_within(path, root)) return;
  const std::string below = path + root.size();
  strcpy(path, (is_within(below, "/dev") ? below : kSys + below).c_str());
}

bool is_empty(const char* path) { return path == nullptr || *path == '\0'; }

bool may_be_node(const char* path) {
  const char* name = path != nullptr ? last_part(path) : "";
  return strcmp(name, kUverbsName) == 0 || strcmp(name, kRdmaCmName) == 0;
}

Node node_of(const char* path, dev_t device, ino_t inode) {
  if (!may_be_node(path)) return Node::kNone;
  const char* name = last_part(path);
  struct stat own;
  if (USIW_REAL(lstat)((tree() + "/dev/infiniband/" + name).c_str(), &own) != 0 || own.st_dev != device ||
      own.st_ino != inode)
    return Node::kNone;
  return strcmp(name, kUverbsName) == 0 ? Node::kUverbs : Node::kRdmaCm;
}

Node node_at(int dir, const char* path) {
  const int before = errno;
  struct stat st;
  const Node node = may_be_node(path) && USIW_REAL(fstatat)(dir, path, &st, 0) == 0 && S_ISREG(st.st_mode)
                        ? node_of(path, st.st_dev, st.st_ino)
                        : Node::kNone;
  errno = before;
  return node;
}

}  // namespace usiw::run
