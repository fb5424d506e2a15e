/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Version of the module, the provider, the programs and the packages. dkms.conf and packaging/
 * repeat it, because tools of distributions read it there. tests/packaging checks that all are
 * equal.
 *
 * This version does not decide what works together. USIW_ABI_VERSION decides for provider and
 * module, and USIW_WIRE_VERSION for two hosts.
 */
#ifndef USIW_VERSION_H
#define USIW_VERSION_H

#define USIW_VERSION_MAJOR	1
#define USIW_VERSION_MINOR	0
#define USIW_VERSION_PATCH	0

#define USIW_VERSION_TEXT(n)		#n
#define USIW_VERSION_OF(a, b, c)	USIW_VERSION_TEXT(a) "." USIW_VERSION_TEXT(b) "." USIW_VERSION_TEXT(c)
#define USIW_VERSION			USIW_VERSION_OF(USIW_VERSION_MAJOR, USIW_VERSION_MINOR, USIW_VERSION_PATCH)

/* Firmware version that devices report, with 16 bits for each number. */
#define USIW_FW_VER \
	((__u64)USIW_VERSION_MAJOR << 32 | (__u64)USIW_VERSION_MINOR << 16 | (__u64)USIW_VERSION_PATCH)

#endif /* USIW_VERSION_H */
