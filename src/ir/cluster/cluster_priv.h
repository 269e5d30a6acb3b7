/* Private to the room. */
#ifndef WEFT_CLUSTER_PRIV_H
#define WEFT_CLUSTER_PRIV_H

#include "base/doc.h"
#include "cluster/cluster.h"

/* The node that a device is mostly found in. */
typedef struct weft_usual {
    int         n_device;
    const char *link, *net; /* NULL: not said */
    int         n_port;
    const char *domain; /* a switch with a link of its own, over span nodes; NULL */
    int         span;
} weft_usual;

/* Kinds that can be named: a cluster without nodes, usual[i] beside device[i]. */
typedef struct weft_kinds {
    weft_cluster *c;
    weft_usual   *usual;
} weft_kinds;
weft_status weft_cluster__open_kinds(const char *file, weft_kinds *out);
void        weft_cluster__close_kinds(weft_kinds *k);

/* Index by name, or -1. */
int weft_cluster__find_device(const weft_cluster *c, const char *name);
int weft_cluster__find_link(const weft_cluster *c, const char *name);
/* ", did you mean 'x'?" or "", in the arena of c. */
const char *weft_cluster__near_device(weft_cluster *c, const char *name);
const char *weft_cluster__near_link(weft_cluster *c, const char *name, int scope);

/* Building: create, add, freeze (which sets what is derived, and verifies). */
weft_status weft_cluster__create(weft_cluster **out);
weft_status weft_cluster__copy(const weft_cluster *c, weft_cluster **out);
weft_status weft_cluster__add_device(weft_cluster *c, const weft_device_kind *k,
                                     int *out);
weft_status weft_cluster__add_link(weft_cluster *c, const weft_link_kind *k, int *out);
weft_status weft_cluster__add_node(weft_cluster *c, const weft_host_kind *k);
weft_status weft_cluster__add_switch(weft_cluster *c, const weft_switch_kind *k);
weft_status weft_cluster__add_health(weft_cluster *c, const weft_health *h);
weft_status weft_cluster__add_timing(weft_cluster *c, const weft_timing *t);
/* In order, as questions expect them. */
void        weft_cluster__sort_timings(weft_cluster *c);
weft_status weft_cluster__freeze(weft_cluster *c);
/* Nodes as usual[device], of a kind of lib: adds the kinds, the links and the switch they need. */
weft_status weft_cluster__add_usual(weft_cluster *c, const weft_kinds *lib, int device,
                                    int count, int n_device);

/* share.c: the only device of the node becomes that of so many ranks.  Before it is frozen. */
weft_status weft_cluster__share_device(weft_cluster *c, int node, int ranks);

/* A list of kinds, from a document of kinds or of a cluster. */
weft_status weft_cluster__read_kinds(const weft_doc *d, weft_cluster *into,
                                     weft_usual **usual);
/* Groups of a one-line description, added to c; at: where it starts, for messages. */
weft_status weft_cluster__read_line(weft_cluster *c, const weft_kinds *lib,
                                    const char *line, const char *at);
weft_status weft_cluster__parse(const char *file, const char *text, size_t n,
                                const char *kinds, weft_cluster **out);
weft_status weft_cluster__read_paddle(const weft_doc *d, weft_cluster **out);

/* The kind of a node, by its number over all kinds. */
const weft_host_kind *weft_cluster__kind_of_node(const weft_cluster *c, int node);
/* The health of a rank; NULL: well. */
const weft_health *weft_cluster__health_of(const weft_cluster *c, int rank);

extern const char weft_cluster_devices_yaml[], weft_cluster_links_yaml[];

#endif
