/* This host, when nobody measured it: a plain two-core machine as one device.
 * 184 GFLOP/s of 205 peak in fp32 products (Zen 3, AVX2, serial OpenBLAS), 16 GB/s outside the
 * caches, 2 us to start a parallel kernel, messages between threads 5 us and 10 GB/s.  The first
 * two were given to us for such a machine, the others are estimates: none was measured here, so
 * what `weft sim` says of a host that nobody measured is a rough guess. */
#include "cluster/cluster.h"

static double or_else(double x, double other)
{
    return x > 0 ? x : other;
}

weft_status weft_cluster_this_host(const weft_cluster_measured *m, weft_cluster **out)
{
    weft_cluster_measured none = {0};
    if (!m) m = &none;
    weft_text t = {0};
    weft_text_add(&t, "name: this-host\ndevice:\n  - {name: cpu, flops: {f32: ");
    weft_text_put_double(&t, or_else(m->f32_flops, 1.84e11));
    weft_text_add(&t, "}, mem_Bps: ");
    weft_text_put_double(&t, or_else(m->mem_Bps, 1.6e10));
    weft_text_add(
        &t, ", mem_bytes: %lld, launch_s: 2e-06}\nlink:\n  - {name: memory, alpha_s: ",
        m->mem_bytes > 0 ? (long long)m->mem_bytes : 4LL << 30);
    weft_text_put_double(&t, or_else(m->link_alpha_s, 5e-06));
    weft_text_add(&t, ", Bps: ");
    weft_text_put_double(&t, or_else(m->link_Bps, 1e10));
    weft_text_add(&t,
                  "}\nnode:\n  - {name: host, device: cpu, n_device: %d, link: memory}\n",
                  m->n_device > 0 ? m->n_device : 1);
    weft_status st = weft_text_status(&t);
    if (st == WEFT_OK) st = weft_cluster_parse("this-host", t.s, t.n, out);
    weft_text_fini(&t);
    return st;
}
