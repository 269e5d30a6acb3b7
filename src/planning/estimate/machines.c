/* The machines that a row names: "a100-80g" on one network, or "v100-16g*12+t4*4" on a mix. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "estimate/estimate.h"
#include "estimate/estimate_priv.h"

enum {
    MAX_PART = 16
};

typedef struct part {
    char name[64];
    int  count;
} part;

/* "a*3+b*1" into parts; a count left out is 0.  Stops at any of the characters in end. */
static int read_parts(const char *s, const char *end, part *out)
{
    int n = 0;
    while (*s && !strchr(end, *s) && n < MAX_PART) {
        size_t len = strcspn(s, "*+|"), keep = len < 63 ? len : 63;
        memcpy(out[n].name, s, keep);
        out[n].name[keep] = 0;
        out[n].count      = 0;
        s += len;
        if (*s == '*') {
            char *rest;
            long  x      = strtol(s + 1, &rest, 10);
            out[n].count = x > 0 && x < 1 << 24 ? (int)x : 0;
            s            = rest;
        }
        n++;
        if (*s != '+') break;
        s++;
    }
    return n;
}

/* ---- networks ---- */

void weft_estimate_fabric(const weft_cost_constants *k, const weft_hw_net *n,
                          int per_node, weft_cost_fabric *f)
{
    int    domain = n ? n->fast_domain : per_node;
    double in     = n && n->intra_Bps > 0 ? n->intra_Bps : 1.2e10;
    double out    = n && n->inter_Bps > 0 ? n->inter_Bps : 3e9;
    f->domain     = domain;
    /* fewer devices used in a node than it has: the node's wires are shared by those */
    if (n && domain == n->dev_per_node && per_node < domain) f->domain = per_node;
    weft_cost_constants_link(k, n ? n->intra_kind : "pcie", in, &f->in);
    weft_cost_constants_link(k, n ? n->inter_kind : "ethernet", out, &f->out);
}

/* The network of one device kind: the row's, or the node type of a mix whose name begins like the
 * device's, or the device's usual one. */
static const weft_hw_net *net_for(const weft_hardware *h, const weft_config *c,
                                  int device)
{
    int  i = weft_hardware_net(h, c->net);
    part p[MAX_PART];
    if (i >= 0 && h->net[i].mix[0]) {
        int n = read_parts(h->net[i].mix, "", p);
        for (int a = 0; a < n; a++) {
            size_t len = strcspn(p[a].name, "_");
            int    at  = weft_hardware_net(h, p[a].name);
            if (at >= 0 && !strncmp(p[a].name, h->device[device].name, len))
                return &h->net[at];
        }
    }
    if (i < 0 || h->net[i].mix[0]) i = weft_hardware_net(h, h->default_net[device]);
    return i < 0 ? NULL : &h->net[i];
}

/* ---- devices ---- */

static weft_status add_device(const weft_hardware *h, const weft_cost_constants *k,
                              const weft_config *c, const char *name,
                              weft_estimate__machines *out, int *at)
{
    int i = weft_hardware_device(h, name);
    if (i < 0) return WEFT_FAIL(WEFT_ERR_ARG, "device '%s' is not in hardware.csv", name);
    for (*at = 0; *at < out->n; ++*at)
        if (!strcmp(out->device[*at].name, name)) return WEFT_OK;
    if (out->n == WEFT_COST_MAX_DEVICE)
        return WEFT_FAIL(WEFT_ERR_ARG, "more than %d kinds of device",
                         WEFT_COST_MAX_DEVICE);
    weft_device_kind *d = &out->device[out->n];
    *d                  = h->device[i];
    d->rate             = out->rate[out->n];
    memcpy(d->rate, h->device[i].rate, sizeof(*d->rate) * (size_t)d->n_rate);
    weft_cost_constants_device(k, d);
    out->known =
        out->known && weft_cost_kind_fitted(k, WEFT_COST_DEVICE,
                                            weft_cost_kind_of(k, WEFT_COST_DEVICE, name));
    weft_estimate_fabric(k, net_for(h, c, i), c->dev_per_node, &out->fabric[out->n]);
    *at = out->n++;
    return WEFT_OK;
}

/* Which kinds each stage has: as stage_hw says, else ranks in the order of hw, stage after stage.
 */
static weft_status place_stages(const weft_hardware *h, const weft_cost_constants *k,
                                const weft_config *c, const part *hw, int n_hw,
                                weft_estimate__machines *out)
{
    int         per = c->tp * c->cp * c->dp, at, kind = 0, left = hw[0].count;
    const char *s = c->stage_hw;
    for (int i = 0; i < c->pp; i++) {
        if (*s) {
            part p[MAX_PART];
            int  n = read_parts(s, "|", p);
            for (int a = 0; a < n; a++) {
                WEFT_TRY(add_device(h, k, c, p[a].name, out, &at));
                out->stage[i] |= (uint8_t)(1 << at);
            }
            s += strcspn(s, "|");
            s += *s == '|';
            continue;
        }
        for (int need = per; need > 0;) {
            int take = left < need && kind + 1 < n_hw ? left : need;
            if (take > 0) {
                WEFT_TRY(add_device(h, k, c, hw[kind].name, out, &at));
                out->stage[i] |= (uint8_t)(1 << at);
            }
            need -= take;
            left -= take;
            if (left <= 0 && kind + 1 < n_hw) left = hw[++kind].count;
        }
    }
    return WEFT_OK;
}

weft_status weft_estimate__machines_of(const weft_hardware       *h,
                                       const weft_cost_constants *k, const weft_config *c,
                                       weft_estimate__machines *out)
{
    part p[MAX_PART];
    int  n = read_parts(c->hw, "", p), at;
    memset(out, 0, sizeof(*out));
    out->known = true;
    if (!n) return WEFT_FAIL(WEFT_ERR_ARG, "hw: missing");
    if (c->pp > 4096) return WEFT_FAIL(WEFT_ERR_ARG, "pp: more than 4096 stages");
    for (int i = 0; i < n; i++) WEFT_TRY(add_device(h, k, c, p[i].name, out, &at));
    WEFT_TRY(place_stages(h, k, c, p, n, out));
    return WEFT_OK;
}

/* ---- precisions ---- */

static bool has(const weft_device_kind *d, const char *dtype)
{
    for (int i = 0; i < d->n_rate; i++)
        if (!strcmp(d->rate[i].dtype, dtype)) return true;
    return false;
}

const char *weft_estimate__half_of(const weft_device_kind *d, const char *precision)
{
    if (!strcmp(precision, "fp32")) return "f32";
    if (strcmp(precision, "fp16") && has(d, "bf16")) return "bf16";
    return has(d, "f16") ? "f16" : has(d, "bf16") ? "bf16" : "f32";
}

const char *weft_estimate__dtype_of(const weft_device_kind *d, const char *precision)
{
    if (!strcmp(precision, "fp4") && has(d, "f4")) return "f4";
    if ((!strcmp(precision, "fp4") || !strcmp(precision, "fp8")) && has(d, "f8_e4m3"))
        return "f8_e4m3";
    return weft_estimate__half_of(d, precision);
}
