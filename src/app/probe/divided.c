/* Hosts whose numbers nobody measured: as found, shared out among ranks. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "probe/probe.h"

/* A kind of devices: one of `local` of a host. */
static void add_device(weft_text *t, const weft_device_kind *d, int local,
                       const char *name)
{
    weft_text_add(t, "  - {name: %s, flops: {f32: ", name);
    weft_text_put_double(t, weft_cluster_flops(d, "f32") / local);
    weft_text_add(t, "}, efficiency: ");
    weft_text_put_double(t, d->efficiency);
    weft_text_add(t, ", mem_Bps: ");
    weft_text_put_double(t, d->mem_Bps / local);
    weft_text_add(t,
                  ", mem_bytes: %lld, launch_s: 2e-06, source: \"as found, shared out "
                  "among ranks; the rest assumed: weft cluster calibrate measures "
                  "it\"}\n",
                  (long long)(d->mem_bytes / local));
}

static const char links[] =
    "link:\n  - {name: memory, alpha_s: 5e-06, Bps: 1e10}\n"
    "  - {name: net, scope: net, alpha_s: 3e-05, Bps: 1.1e9}\nnode:\n";

weft_status weft_probe_unlike(int n_node, const int *local, int n_core,
                              weft_cluster **out)
{
    weft_cluster *found = NULL;
    weft_text     t     = {0};
    char          name[32];
    weft_status   st = WEFT_OK;
    WEFT_GO(weft_probe_processors(n_core, &found));
    const weft_device_kind *d = &found->device[found->node[0].device];
    weft_text_add(&t, "name: here\ndevice:\n");
    for (int i = 0; i < n_node; i++) {
        int k = 0;
        while (local[k] != local[i]) k++;
        snprintf(name, sizeof name, "cpu%d", local[i]);
        if (k == i) add_device(&t, d, local[i], name);
    }
    weft_text_add(&t, "%s", links);
    for (int i = 0; i < n_node; i++)
        weft_text_add(&t,
                      "  - {name: host%d, count: 1, device: cpu%d, n_device: %d%s, net: "
                      "net, n_port: 1}\n",
                      i, local[i], local[i], local[i] > 1 ? ", link: memory" : "");
    WEFT_GO(weft_text_status(&t));
    WEFT_GO(weft_cluster_parse("these hosts", t.s, t.n, out));
out:
    weft_text_fini(&t);
    weft_cluster_destroy(found);
    return st;
}

weft_status weft_probe_divided(int n_node, int local, int n_core, weft_cluster **out)
{
    weft_cluster *found = NULL;
    weft_text     t     = {0};
    weft_status   st    = WEFT_OK;
    WEFT_GO(weft_probe_processors(n_core, &found));
    weft_text_add(&t, "name: here\ndevice:\n");
    add_device(&t, &found->device[found->node[0].device], local, "cpu");
    weft_text_add(&t, "%s  - {name: host, count: %d, device: cpu, n_device: %d", links,
                  n_node, local);
    weft_text_add(&t, "%s%s}\n", local > 1 ? ", link: memory" : "",
                  n_node > 1 ? ", net: net, n_port: 1" : "");
    WEFT_GO(weft_text_status(&t));
    WEFT_GO(weft_cluster_parse("this host", t.s, t.n, out));
out:
    weft_text_fini(&t);
    weft_cluster_destroy(found);
    return st;
}
