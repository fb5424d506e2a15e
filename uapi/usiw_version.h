/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The version of usiw: of the module, the provider, the programs and the packages. dkms.conf and packaging/ have it once
 * more, because others read them; tests/packaging holds them all to this one.
 *
 * It says nothing of who works together with whom: for that there are USIW_ABI_VERSION (provider and module) and
 * USIW_WIRE_VERSION (two hosts).
 */
#ifndef USIW_VERSION_H
#define USIW_VERSION_H

#define USIW_VERSION_MAJOR	1
#define USIW_VERSION_MINOR	0
#define USIW_VERSION_PATCH	0

#define USIW_VERSION_TEXT(n)		#n
#define USIW_VERSION_OF(a, b, c)	USIW_VERSION_TEXT(a) "." USIW_VERSION_TEXT(b) "." USIW_VERSION_TEXT(c)
#define USIW_VERSION			USIW_VERSION_OF(USIW_VERSION_MAJOR, USIW_VERSION_MINOR, USIW_VERSION_PATCH)

/* As devices report it: 16 bits each. */
#define USIW_FW_VER \
	((__u64)USIW_VERSION_MAJOR << 32 | (__u64)USIW_VERSION_MINOR << 16 | (__u64)USIW_VERSION_PATCH)

#endif /* USIW_VERSION_H */
