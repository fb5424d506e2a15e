// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Misbehaves on demand, so that the harness can be tested: insmod faults.ko kind=... */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/smp.h>

static char *kind = "";
module_param(kind, charp, 0);

static void spin_without_interrupts(void *unused)
{
	local_irq_disable();
	for (;;)
		cpu_relax();
}

static int __init faults_init(void)
{
	if (!strcmp(kind, "warn"))
		WARN(1, "on demand\n");
	else if (!strcmp(kind, "warning"))
		pr_warn("a message at warning level\n");
	else if (!strcmp(kind, "info"))
		pr_info("a message at info level\n");
	else if (!strcmp(kind, "oops"))
		*(volatile int *)8 = 1;
	else if (!strcmp(kind, "hang"))
		on_each_cpu(spin_without_interrupts, NULL, 1);
	else if (!strcmp(kind, "unkillable"))
		for (;;)
			msleep(1000000);
	return -ECANCELED;	/* nothing to unload */
}
module_init(faults_init);

MODULE_DESCRIPTION("Faults on demand for the guest harness");
MODULE_LICENSE("Dual BSD/GPL");
