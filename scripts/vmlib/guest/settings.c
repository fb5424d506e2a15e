// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The settings of the run, as vmlib/guest.py writes them. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init.h"

struct settings settings = { .timeout_ms = 120000, .patience = 1 };

void add(struct list *list, char *value)
{
	if (list->count >= MAX_ITEMS - 1)
		fail("too many settings at %s", value);
	list->item[list->count++] = value;
}

static void apply_setting(char *key, char *value)
{
	static const struct {
		const char *key;
		struct list *list;
	} lists[] = {
		{ "base", &settings.base }, { "late", &settings.late }, { "ko", &settings.ko },
		{ "sysctl", &settings.sysctl }, { "setup", &settings.setup }, { "teardown", &settings.teardown },
		{ "unload", &settings.unload }, { "arg", &settings.arg }, { "env", &settings.env },
	};
	static const struct {
		const char *key;
		const char **value;
	} strings[] = {
		{ "project", &settings.project }, { "modules", &settings.modules }, { "kver", &settings.kver },
		{ "winsize", &settings.winsize }, { "tty", &settings.tty },
	};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		if (!strcmp(key, lists[i].key)) {
			add(lists[i].list, value);
			return;
		}
	}
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
		if (!strcmp(key, strings[i].key)) {
			*strings[i].value = value;
			return;
		}
	}
	if (!strcmp(key, "timeout"))
		settings.timeout_ms = atoi(value) * 1000;
	else if (!strcmp(key, "patience"))
		settings.patience = atoi(value);
	else if (!strcmp(key, "leaks"))
		settings.find_leaks = true;
	else if (!strcmp(key, "probe"))
		settings.probe = true;
	else
		fail("unknown setting %s", key);
}

void read_settings(const char *path)
{
	struct stat info;
	char *text, *at;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &info) < 0)
		fail("%s: %m", path);
	text = malloc(info.st_size + 1);
	if (!text || read(fd, text, info.st_size) != info.st_size)
		fail("%s: cannot read", path);
	text[info.st_size] = 0;
	close(fd);
	for (at = text; at < text + info.st_size; ) {
		char *next = at + strlen(at) + 1;
		char *value = strchr(at, '=');

		if (!value)
			fail("setting without a value: %s", at);
		*value++ = 0;
		apply_setting(at, value);
		at = next;
	}
}
