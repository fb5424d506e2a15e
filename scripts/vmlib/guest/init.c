// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Process 1 of a test guest: makes a root file system out of the host's, runs the set-up and one command, and reports
 * everything over one virtio-serial port.
 *
 * It is one static program and not a script because under TCG every exec costs 0.1 s or more.
 *
 * Settings come from /run.conf in the initramfs: NUL-terminated "key=value" strings, see vmlib/guest.py for the keys.
 *
 * What it sends is a sequence of frames { u8 type, u32 length (little endian), payload }, in the order of events:
 *   'O' / 'E'  standard output / standard error of the command
 *   'K'        one record of /dev/kmsg
 *   'D'        diagnostics for the log
 *   'L'        one report of kmemleak
 *   'S'        a status line; the last one is "done"
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init.h"

/* Takes over lines KEY=VALUE or KEY='VALUE' of the topology script into the environment. */
static void take_environment(char *text)
{
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *value = strchr(line, '=');
		size_t length = strlen(line);

		if (!value)
			continue;
		if (value[1] == '\'' && line[length - 1] == '\'') {
			line[length - 1] = 0;
			memmove(value + 1, value + 2, strlen(value + 2) + 1);
		}
		add(&settings.env, line);
	}
}

static void report_end(const char *what, const struct run *run)
{
	if (!run->ended)
		status("%s unkillable", what);
	else if (WIFSIGNALED(run->wait_status))
		status("%s signal %d", what, WTERMSIG(run->wait_status));
	else
		status("%s exit %d", what, WEXITSTATUS(run->wait_status));
}

static void run_setup(void)
{
	static char text[16384];
	struct run run = { .capture = text, .capture_size = sizeof(text) - 1 };

	run_command(&run, settings.setup.item, 60000 * settings.patience, NULL);
	if (run.timed_out || !WIFEXITED(run.wait_status) || WEXITSTATUS(run.wait_status)) {
		report_end("setup", &run);
		fail("the topology could not be made");
	}
	text[run.captured] = 0;
	take_environment(text);
}

static void run_teardown(void)
{
	struct run run = { 0 };

	if (settings.teardown.count) {
		run_command(&run, settings.teardown.item, 30000 * settings.patience, NULL);
		report_end("teardown", &run);
	}
	for (int i = 0; i < settings.unload.count; i++) {
		if (syscall(SYS_delete_module, settings.unload.item[i], O_NONBLOCK))
			status("unload %s: %m", settings.unload.item[i]);
	}
}

/* Sends each report of kmemleak, which takes only what is older than 5 s for lost. */
static void send_leaks(void)
{
	static const char path[] = "/sys/kernel/debug/kmemleak", start[] = "unreferenced object";
	static char text[65536];
	size_t used = 0;
	ssize_t n;
	int fd;

	sleep(6);
	write_file(path, "scan");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && used < sizeof(text) - 1 &&
	       (n = read(fd, text + used, sizeof(text) - 1 - used)) > 0)
		used += n;
	if (fd >= 0)
		close(fd);
	text[used] = 0;
	for (char *at = strstr(text, start), *next; at; at = next) {
		next = strstr(at + 1, start);
		put_frame('L', at, next ? (size_t)(next - at) : strlen(at));
		flush_frames();
	}
	write_file(path, "clear");
	status("leaks scanned");
}

int main(void)
{
	struct run run = { 0 };
	sigset_t mask;
	pid_t loader;

	mount_at("devtmpfs", "/dev", "devtmpfs", 0, "mode=0755");
	mount_at("proc", "/proc", "proc", 0, NULL);
	mount_at("sysfs", "/sys", "sysfs", 0, NULL);
	/* The kernel found no /dev/console in the initramfs. */
	for (int fd = 0; fd < 3; fd++)
		dup2(open("/dev/console", O_RDWR), fd);
	read_settings("/run.conf");
	load_modules(&settings.base);
	port_fd = open_port();
	if (port_fd < 0)
		fail("no virtio-serial port");
	status("boot %ld", now_ms());
	if (settings.probe)
		finish();

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signal_fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
	loader = fork();
	if (!loader) {
		load_modules(&settings.late);
		_exit(0);
	}
	mount_root();
	configure();
	waitpid(loader, NULL, 0);
	kmsg_fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	drain_kmsg();
	status("root %ld", now_ms());

	for (int i = 0; i < settings.ko.count; i++)
		load_module(settings.ko.item[i], true);
	if (settings.setup.count)
		run_setup();
	drain_kmsg();
	status("ready %ld", now_ms());

	run_command(&run, settings.arg.item, settings.timeout_ms, settings.tty);
	report_end(run.timed_out ? "late" : "command", &run);
	kill_all();
	if (settings.find_leaks)
		send_leaks();
	run_teardown();
	if (settings.find_leaks && settings.unload.count)
		send_leaks();
	usleep(50000);	/* for what the kernel still has to say */
	drain_kmsg();
	sync();
	status("end %ld", now_ms());
	finish();
}
