/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Listeners: the functions that iw_cm calls, and the REQs that reach a listener. */
#ifndef USIW_LISTEN_H
#define USIW_LISTEN_H

struct iw_cm_id;
struct usiw_cm_packet;
struct usiw_rx;
struct usiw_sock;

int usiw_iw_create_listen(struct iw_cm_id *cm_id, int backlog);
int usiw_iw_destroy_listen(struct iw_cm_id *cm_id);
void usiw_listener_request(struct usiw_sock *us, struct usiw_rx *rx,
			   const struct usiw_cm_packet *req, void *answer);

#endif /* USIW_LISTEN_H */
