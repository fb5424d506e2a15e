# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The emulated parts of /sys and /dev, as shells, tools and programs for an old libc see them."""

import os
import subprocess

import pytest

from compiling import compile_c


def shell(usiw_run, script, by="sh"):
    """Lines that a script prints; it must succeed."""
    return usiw_run([by, "-c", script]).expect(0).splitlines()


def build(tmp_path, source, *options):
    """A C program, built with the machine's compiler."""
    (tmp_path / "p.c").write_text(source)
    return compile_c(tmp_path / "p", tmp_path / "p.c", *options)


OLD_STAT = """\
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#define OLD(name, glibc) __asm__(".symver old" #name "," #name "@GLIBC_" glibc)
OLD(__xstat, "2.2.5"); OLD(__lxstat, "2.2.5"); OLD(__fxstat, "2.2.5"); OLD(__fxstatat, "2.4");
OLD(__xstat64, "2.2.5"); OLD(__lxstat64, "2.2.5"); OLD(__fxstat64, "2.2.5"); OLD(__fxstatat64, "2.4");
typedef struct stat S;
int old__xstat(int, const char *, S *), old__xstat64(int, const char *, S *);
int old__lxstat(int, const char *, S *), old__lxstat64(int, const char *, S *);
int old__fxstat(int, int, S *), old__fxstat64(int, int, S *);
int old__fxstatat(int, int, const char *, S *, int), old__fxstatat64(int, int, const char *, S *, int);
int main(int argc, char **argv) {
  for (; *++argv;) {
    S new, old[8];
    int result = stat(*argv, &new), fd = open(*argv, O_RDONLY), results[] = {
      old__xstat(1, *argv, old), old__xstat64(1, *argv, old + 1),
      old__lxstat(1, *argv, old + 2), old__lxstat64(1, *argv, old + 3),
      old__fxstatat(1, AT_FDCWD, *argv, old + 4, 0), old__fxstatat64(1, AT_FDCWD, *argv, old + 5, 0),
      old__fxstat(1, fd, old + 6), old__fxstat64(1, fd, old + 7)};
    for (int i = 0; i < 8; i++)
      if (results[i] != result || (result == 0 && (old[i].st_mode != new.st_mode || old[i].st_rdev != new.st_rdev)))
        printf("%s: %d: not what stat(2) says\\n", *argv, i);
    printf("%s: %d %o\\n", *argv, result, result == 0 ? new.st_mode & S_IFMT : 0);
  }
  S s;
  printf("version 9: %d\\n", old__xstat(9, "/", &s));
}
"""


def test_program_built_against_an_old_libc(usiw_run, tmp_path):
    """Before glibc 2.33 stat(2) and its relatives were functions of other names."""
    program = build(tmp_path, OLD_STAT)
    kinds = {
        "/sys/class/infiniband": "0 40000",
        "/sys/class/infiniband/usiw0/node_guid": "0 100000",
        "/dev/infiniband/uverbs0": "0 20000",
        "/dev/infiniband/rdma_cm": "0 20000",
        "/dev/infiniband/none": "-1 0",
        "/dev/null": "0 20000",
        "/etc/passwd": "0 100000",
    }
    assert usiw_run([program, *kinds]).expect(0).splitlines() == \
        [*(f"{path}: {kind}" for path, kind in kinds.items()), "version 9: -1"]


def test_ibstatus(usiw_run):
    """A shell script, which changes to the directory of the devices."""
    out = usiw_run(["/usr/sbin/ibstatus"]).expect(0)
    assert "Infiniband device 'usiw0' port 1 status:" in out and "4: ACTIVE" in out
    assert "unknown" not in out and "No such" not in out


@pytest.mark.parametrize("by", ["sh", "bash"])
def test_shell_in_the_directories(usiw_run, by):
    """Where it is, what it finds there by relative names and patterns, and what its children find."""
    place = "/sys/class/infiniband/usiw0/ports"
    assert shell(usiw_run, f"cd {place} && pwd && pwd -P && /bin/pwd && cd 1/.. && pwd && cat */state", by) == \
        [place] * 4 + ["4: ACTIVE"]
    script = "echo /sys/class/infiniband/*/ports/*/sta* && cd /sys//class/infiniband/. && echo *"
    assert shell(usiw_run, script, by) == ["/sys/class/infiniband/usiw0/ports/1/state", "usiw0"]
    assert shell(usiw_run, "cd /sys/class/infiniband && cd .. && pwd && ls -d /sys/class/infiniband/../net/lo", by) == \
        ["/sys/class", "/sys/class/infiniband/../net/lo"]


@pytest.mark.parametrize("by", ["sh", "bash"])
def test_shell_and_device_nodes(usiw_run, by):
    """They are character devices that everybody may read and write, by whatever name."""
    for node in ("/dev/infiniband/uverbs0", "/dev//infiniband/./rdma_cm"):
        script = f"[ -c {node} ] && [ -r {node} ] && [ -w {node} ] && ! [ -x {node} ] && : <> {node} && echo yes"
        assert shell(usiw_run, script, by) == ["yes"]
    assert shell(usiw_run, "[ -d /dev/infiniband ] && ! [ -e /dev/infiniband/none ] && cd /dev/infiniband && echo * && "
                 "[ -c uverbs0 ] && : <> ./rdma_cm && stat -c '%F %t %T' uverbs0", by) == \
        ["rdma_cm uverbs0", "character special file e7 c0"]


def test_ls(usiw_run):
    assert usiw_run(["ls", "/dev/infiniband"]).expect(0).split() == ["rdma_cm", "uverbs0"]
    for where in ("/dev/infiniband", "/dev/infiniband/"):
        nodes = usiw_run(["ls", "-l", where]).expect(0)
        assert "231, 192" in nodes and "10, 122" in nodes and nodes.count("crw-rw-rw-") == 2
    for where in ("/sys/class/infiniband", "/sys/class/infiniband/"):
        out = usiw_run(["ls", "-lZa", where]).expect(0)
        assert "usiw0" in out and "cannot" not in out and "No such" not in out
    assert "ports/1/gids:" in usiw_run(["ls", "-R", "/sys/class/infiniband"]).expect(0)


def test_find_grep_and_copy(usiw_run, tmp_path):
    nodes = usiw_run(["find", "/dev/infiniband", "-type", "c"]).expect(0).split()
    assert sorted(nodes) == ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"]
    find = ["find", "/sys/class/infiniband/", "-name", "state", "-execdir", "cat", "{}", ";"]
    assert usiw_run(find).expect(0) == "4: ACTIVE\n"
    assert "usiw0/ports/1/state" in usiw_run(["grep", "-r", "ACTIVE", "/sys/class/infiniband"]).expect(0)
    usiw_run(["cp", "-r", "/sys/class/infiniband", tmp_path / "copy"]).expect(0)
    assert (tmp_path / "copy/usiw0/ports/1/state").read_text() == "4: ACTIVE\n"


def test_real_paths(usiw_run):
    place = "/sys/class/infiniband/usiw0"
    assert usiw_run(["realpath", f"{place}/../usiw0/ports"]).expect(0) == f"{place}/ports\n"
    assert usiw_run(["readlink", "-f", f"{place}/ports/1"]).expect(0) == f"{place}/ports/1\n"


def test_descriptors_of_directories(usiw_run):
    """What is opened, asked and listed relative to one."""
    program = """\
import os, stat
dir = os.open("/dev/infiniband", os.O_RDONLY | os.O_DIRECTORY)
node = os.open("uverbs0", os.O_RDWR, dir_fd=dir)
print([stat.filemode(st.st_mode) for st in (os.fstat(node), os.stat("rdma_cm", dir_fd=dir))], sorted(os.listdir(dir)))
os.fchdir(dir)
print(os.getcwd(), [each.is_file() for each in os.scandir(dir)])
print([path for path, _, files in os.walk("/sys/class/infiniband_verbs") if "ibdev" in files])
"""
    assert usiw_run(["/usr/bin/python3", "-c", program]).expect(0).splitlines() == [
        "['crw-rw-rw-', 'crw-rw-rw-'] ['rdma_cm', 'uverbs0']", "/dev/infiniband [False, False]",
        "['/sys/class/infiniband_verbs/uverbs0']"
    ]


NO_PATH = """\
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
int main(void) {
  const char *volatile none = NULL;
  const int fd = open("/dev/infiniband/uverbs0", O_RDWR);
  struct stat st;
  struct statx x;
  int ret = fstatat(fd, none, &st, AT_EMPTY_PATH);
  printf("%d %o\\n", ret, ret == 0 ? st.st_mode & 0170000 : 0);
  ret = statx(fd, none, AT_EMPTY_PATH, STATX_TYPE, &x);
  printf("%d %o\\n", ret, ret == 0 ? x.stx_mode & 0170000 : 0);
}
"""


def test_a_null_pointer_for_an_empty_path(usiw_run, tmp_path):
    """It means the descriptor since Linux 6.11; before, it is an error."""
    kernel = tuple(int(part) for part in os.uname().release.split(".")[:2])
    program = build(tmp_path, NO_PATH, "-O1", "-Wno-nonnull")
    answer = "0 20000" if kernel >= (6, 11) else "-1 0"
    assert usiw_run([program]).expect(0).splitlines() == [answer, answer]


IN_HANDLER = """\
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
static volatile int opened;
static const char *path;
static void handle(int sig) {
  const int fd = open(path, O_RDONLY);
  if (fd >= 0) close(fd);
  opened += sig == SIGALRM;
}
int main(int argc, char **argv) {
  const struct itimerval often = {{0, 200}, {0, 200}};
  struct sigaction act = {.sa_handler = handle};
  path = argv[argc - 1];
  sigaction(SIGALRM, &act, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  while (opened < 4000) {
    void *volatile some[40];
    for (int i = 0; i < 40; i++) some[i] = malloc(2000 + i * 100);
    for (int i = 0; i < 40; i++) free(some[i]);
  }
}
"""


def test_files_of_the_program_with_such_names(usiw_run, tmp_path):
    """A file of its own may be opened in a signal handler, whatever its name: no memory is allocated."""
    path = tmp_path / "infiniband" / "a name that is longer than a short string.log"
    path.parent.mkdir()
    path.touch()
    usiw_run([build(tmp_path, IN_HANDLER), path]).expect(0, 30)


def test_a_dot_at_the_end_of_a_path(usiw_run, tmp_path):
    """What is before it is a directory, and followed if it is a symbolic link."""
    (tmp_path / "infiniband").symlink_to(tmp_path)
    script = f"readlink {tmp_path}/infiniband/. || stat -c %F {tmp_path}/infiniband/.; cd /dev/infiniband/.; pwd -P"
    assert shell(usiw_run, script) == ["directory", "/dev/infiniband"]
    assert usiw_run(["cat", "/sys/class/infiniband/usiw0/node_desc/."]).wait() == 1


LIBC = """\
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
int main(int argc, char **argv) {
  glob_t found = {0};
  if (glob("/sys/class/infiniband/*/ports/1/stat?", 0, NULL, &found) == 0) puts(found.gl_pathv[0]);
  globfree(&found);
  struct dirent **list;
  printf("%d\\n", scandir("/sys/class/infiniband", &list, NULL, alphasort));
  puts(realpath("/sys/class/infiniband/usiw0/", NULL));
  int flags = argc > 1 ? O_RDWR : O_RDONLY;
  printf("%d\\n", open("/dev/infiniband/uverbs0", flags) >= 0);
  printf("%d\\n", openat(AT_FDCWD, "/sys/class/infiniband/usiw0/node_desc", flags) >= 0);
  struct statx x;
  printf("%o\\n", statx(0, "", AT_EMPTY_PATH, STATX_MODE, &x) == 0 ? x.stx_mode & 0170000 : 0);
}
"""


@pytest.mark.parametrize("option", ["-D_FORTIFY_SOURCE=2", "-D_FILE_OFFSET_BITS=64"])
def test_calls_inside_of_libc(usiw_run, tmp_path, option):
    """glob, scandir and realpath call others inside of libc; _FORTIFY_SOURCE makes others of open and openat,
    _FILE_OFFSET_BITS of most."""
    program = build(tmp_path, LIBC, "-O2", "-U_FORTIFY_SOURCE", option)
    assert usiw_run([program], stdin=subprocess.DEVNULL).expect(0).splitlines() == [
        "/sys/class/infiniband/usiw0/ports/1/state", "3", "/sys/class/infiniband/usiw0", "1", "1", "20000"
    ]
