// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sysfs.h
/// Emulates the directories in which programs find RDMA devices: /sys/class/infiniband*, /sys/class/misc/rdma_cm and
/// /dev/infiniband.
///
/// A tree in a directory for temporary files has the files that programs read in the emulated directories. If a call
/// names a path in an emulated directory, libc gets the path of the same file in the tree. So descriptors, directory
/// streams and working directories are ordinary ones, and relative paths need no translation. This library still
/// changes two kinds of answers. A device node is an empty file in the tree, and the program must see a character
/// device. And getcwd(2) and realpath(3) must return the path that the program knows.
#ifndef USIW_RUN_SYSFS_H
#define USIW_RUN_SYSFS_H

#include <sys/types.h>

#include <mutex>
#include <string>

namespace usiw::run {

enum class Node { kNone, kUverbs, kRdmaCm };

/// Returns the path that libc's function gets in place of @p path: a path in the tree, or @p path without "." and ".."
/// if it only passes through an emulated directory. Returns an empty string if @p path can stay, as every relative path
/// can. The first call that needs the tree makes the tree.
std::string emulated(const char* path);

/// The path to pass to libc's function in place of the program's path.
class Path {
 public:
  explicit Path(const char* path) : in_tree_(emulated(path)), path_(in_tree_.empty() ? path : in_tree_.c_str()) {}
  Path(const Path&) = delete;
  operator const char*() const { return path_; }

 private:
  const std::string in_tree_;
  const char* const path_;
};

/// Replaces a path in the tree, which the kernel has returned, with the path that the program knows. The new path is
/// shorter, so there is space for it. Other paths stay as they are.
void to_program_name(char* path);
/// Returns true if @p path is "" or null. The function is not inline: libc declares that its functions get no null
/// pointer, so a compiler would remove the check from them.
bool is_empty(const char* path);
/// Returns true if the last part of @p path is the name of a device node. Costs no system call.
bool may_be_node(const char* path);
/// Returns which device node a file is, or kNone if it is none. The name at the end of @p path, @p device and @p inode
/// identify the file.
Node node_of(const char* path, dev_t device, ino_t inode);
/// Returns which device node is at @p path, or kNone. @p path is relative to @p dir as for openat(2).
Node node_at(int dir, const char* path);

/// Returns the lock under which the tree is made. No thread holds this lock and the big lock at the same time, except
/// around fork().
std::mutex& making_tree();

}  // namespace usiw::run

#endif  // USIW_RUN_SYSFS_H
