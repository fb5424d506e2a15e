// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/launcher/unused_trees.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "tools/run/host/fd.h"
#include "tools/run/host/scratch.h"

namespace usiw::run {
namespace {

constexpr int kDepth = 10;  ///< limit for nested directories; a tree has fewer

/// Opens the directory @p name in @p dir. Does not follow a symbolic link, which could lead out of @p dir.
Fd open_directory(int dir, const char* name) {
  return Fd(openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

std::vector<std::string> names_in(int fd) {
  std::vector<std::string> names;
  DIR* dir = fdopendir(open_directory(fd, ".").release());
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir))
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) names.emplace_back(entry->d_name);
  closedir(dir);
  return names;
}

void remove_contents(int dir, int depth) {
  for (const std::string& name : names_in(dir)) {
    if (unlinkat(dir, name.c_str(), 0) == 0 || depth == 0) continue;
    const Fd fd = open_directory(dir, name.c_str());
    if (fd < 0) continue;
    remove_contents(fd, depth - 1);
    unlinkat(dir, name.c_str(), AT_REMOVEDIR);
  }
}

/// Returns true if @p name is @p prefix and then 16 letters or digits, as a digest has, or six, as mkdtemp(3) makes.
bool is_tree_name(const std::string& name, const std::string& prefix) {
  if (name.compare(0, prefix.size(), prefix) != 0) return false;
  const std::string rest = name.substr(prefix.size());
  return (rest.size() == 16 || rest.size() == 6) &&
         std::ranges::all_of(rest, [](unsigned char c) { return isalnum(c) != 0; });
}

/// The directories of a tree.
constexpr const char* kParts[] = {"class", "dev"};

/// Returns true if the directory belongs to this user, no other user can write to it, and each of its entries has the
/// name of an entry of a tree. Does not read subdirectories.
bool is_tree(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 022) != 0) return false;
  for (const std::string& name : names_in(fd))
    if (std::find(std::begin(kParts), std::end(kParts), name) == std::end(kParts) && name != kTreeLock) return false;
  return true;
}

bool is_old(const struct stat& st) { return time(nullptr) - st.st_mtime >= kTreeKeepS; }

/// Removes a tree if it is old and no process has locked it. Removes the lock file after all other files. A tree
/// without a lock file has no user, so a later usiw-run completes a removal that was interrupted.
void remove_if_unused(int parent, const char* name, int tree) {
  struct stat st;
  const bool has_lock = fstatat(tree, kTreeLock, &st, AT_SYMLINK_NOFOLLOW) == 0;
  if ((!has_lock && fstat(tree, &st) != 0) || !is_old(st)) return;
  const Fd lock(openat(tree, kTreeLock, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (lock < 0) return;
  // A process that begins to use the tree now retries while this lock is held. It then notices that the file is gone,
  // and makes the tree anew.
  if (flock(lock, LOCK_EX | LOCK_NB) == 0 && fstat(lock, &st) == 0 && (!has_lock || is_old(st))) {
    for (const char* part : kParts) {
      if (const Fd inside = open_directory(tree, part); inside >= 0) remove_contents(inside, kDepth);
      unlinkat(tree, part, AT_REMOVEDIR);
    }
    unlinkat(tree, kTreeLock, 0);
    unlinkat(parent, name, AT_REMOVEDIR);
  }
}

}  // namespace

void remove_unused_trees() {
  const std::string place = scratch_directory(), prefix = tree_prefix();
  if (place.empty()) return;
  const Fd parent = open_directory(AT_FDCWD, (place + "/").c_str());
  for (const std::string& name : names_in(parent)) {
    if (!is_tree_name(name, prefix)) continue;
    const Fd tree = open_directory(parent, name.c_str());
    if (tree >= 0 && is_tree(tree)) remove_if_unused(parent, name.c_str(), tree);
  }
}

}  // namespace usiw::run
