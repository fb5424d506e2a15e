// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* What the parts of process 1 share; see init.c. */
#ifndef USIW_VM_INIT_H
#define USIW_VM_INIT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MAX_ITEMS	256

struct list {
	char *item[MAX_ITEMS];	/* NULL-terminated, for execve */
	int count;
};

/* The settings, one member for each key of /run.conf. */
struct settings {
	struct list base;		/* "base": modules to load before the root is there */
	struct list late;		/* "late": modules to load while the root is mounted */
	struct list ko;			/* "ko": modules by their paths in the root, loaded after the mark */
	struct list sysctl;		/* "sysctl": "path value" */
	struct list setup;		/* "setup": what prints the environment of the topology */
	struct list teardown;		/* "teardown": run after the command */
	struct list unload;		/* "unload": modules to remove after the teardown */
	struct list arg;		/* "arg": the command */
	struct list env;		/* "env" */
	const char *project;		/* "project": absolute path, mounted read-write */
	const char *modules;		/* "modules": absolute path of the tree to see as /lib/modules/VERSION */
	const char *kver;		/* "kver" */
	const char *winsize;		/* "winsize": "rows cols" */
	const char *tty;		/* "tty": device for an interactive command, or unset */
	int timeout_ms;			/* "timeout": seconds, 0 for none */
	int patience;			/* "patience": factor for all other limits, on a slow kernel */
	bool find_leaks;		/* "leaks": have kmemleak look at the end */
	bool probe;			/* "probe": only say that the machine boots */
};

/* settings.c */
extern struct settings settings;
void add(struct list *list, char *value);
void read_settings(const char *path);

/* frames.c: what the host is told */
extern int port_fd;
extern int kmsg_fd;
long now_ms(void);
void flush_frames(void);
void put_frame(char type, const void *data, size_t length);
__attribute__((format(printf, 1, 2))) void status(const char *format, ...);
__attribute__((format(printf, 1, 2))) void diag(const char *format, ...);
__attribute__((noreturn)) void finish(void);
/* Ends the run before the command could start. Also on the console: the port may not exist. */
__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *format, ...);
/* Sends what the kernel has logged since the last call. */
void drain_kmsg(void);

/* machine.c */
void load_module(const char *path, bool required);
void load_modules(const struct list *modules);
void mount_at(const char *source, const char *target, const char *type, unsigned long flags, const char *options);
/* Opens the virtio-serial port to the host; it may show up late where virtio_console is a module. -1: there is none. */
int open_port(void);
void mount_root(void);
void write_file(const char *path, const char *value);
void configure(void);

/* processes.c */
struct run {
	pid_t pid;
	int wait_status;
	bool ended;
	bool timed_out;
	int out, err;		/* read ends of the pipes, -1 when at end of file */
	char *capture;		/* where standard output is kept instead of being sent; may be NULL */
	size_t capture_size, captured;
};

extern int signal_fd;
/*
 * Runs argv to its end or for limit_ms (0: no limit), relaying its output and the kernel's log. After the limit its
 * processes are described in the log, then SIGTERM, then SIGKILL for everything.
 */
void run_command(struct run *run, char **argv, int limit_ms, const char *tty);
/* Kills every process that is left and says which could not be killed. */
void kill_all(void);

#endif
