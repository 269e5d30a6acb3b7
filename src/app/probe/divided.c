/* Hosts whose numbers nobody measured: as found, shared out among ranks. */
#include <string.h>

#include "base/text.h"
#include "probe/probe.h"

weft_status weft_probe_divided(int n_node, int local, int n_core, weft_cluster **out)
{
    weft_cluster *found = NULL;
    weft_text     t     = {0};
    weft_status   st    = WEFT_OK;
    WEFT_GO(weft_probe_processors(n_core, &found));
    const weft_device_kind *d     = &found->device[found->node[0].device];
    double                  flops = weft_cluster_flops(d, "f32"), Bps = d->mem_Bps;
    weft_text_add(&t, "name: here\ndevice:\n  - {name: cpu, flops: {f32: ");
    weft_text_put_double(&t, flops / local);
    weft_text_add(&t, "}, efficiency: ");
    weft_text_put_double(&t, d->efficiency);
    weft_text_add(&t, ", mem_Bps: ");
    weft_text_put_double(&t, Bps / local);
    weft_text_add(&t,
                  ", mem_bytes: %lld, launch_s: 2e-06, source: \"as found, shared out "
                  "among ranks; the rest assumed: weft cluster calibrate measures "
                  "it\"}\nlink:\n  - {name: memory, alpha_s: "
                  "5e-06, Bps: 1e10}\n  - {name: net, scope: net, alpha_s: 3e-05, Bps: "
                  "1.1e9}\nnode:\n  - {name: host, count: %d, device: cpu, n_device: %d",
                  (long long)(d->mem_bytes / local), n_node, local);
    weft_text_add(&t, "%s%s}\n", local > 1 ? ", link: memory" : "",
                  n_node > 1 ? ", net: net, n_port: 1" : "");
    WEFT_GO(weft_text_status(&t));
    WEFT_GO(weft_cluster_parse("this host", t.s, t.n, out));
out:
    weft_text_fini(&t);
    weft_cluster_destroy(found);
    return st;
}
