/* What a placement costs.
 *
 * An axis' groups talk at once.  Each message loads the link of its sender and its receiver and,
 * between islands, the ports of both nodes, at every switch it passes.  The axis takes as long as
 * the most loaded of these.
 * Latency is left out: it does not choose between placements of one job but for groups of very
 * few bytes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "place/place_priv.h"

int weft_place_n_rank(const weft_place_job *j)
{
    int64_t n = 1;
    for (int i = 0; i < j->n_axis; i++) {
        if (j->axis[i].size < 1) return 0;
        n *= j->axis[i].size;
        if (n > 1 << 24) return 0;
    }
    return (int)n;
}

static weft_status allocate(weft_place_table *t, int n_rank)
{
    weft_arena *a = t->arena;
    int         n = t->n_device;
    t->usable     = WEFT_ARENA_ARRAY(a, int, n);
    t->node       = WEFT_ARENA_ARRAY(a, int, n);
    t->island     = WEFT_ARENA_ARRAY(a, int, n);
    t->alike      = WEFT_ARENA_ARRAY(a, int, n);
    t->speed      = WEFT_ARENA_ARRAY(a, double, n);
    t->own_Bps    = WEFT_ARENA_ARRAY(a, double, n);
    t->port_Bps   = WEFT_ARENA_ARRAY(a, double, n);
    t->dev_in     = WEFT_ARENA_ARRAY(a, double, n);
    t->dev_out    = WEFT_ARENA_ARRAY(a, double, n);
    t->node_Bps   = WEFT_ARENA_ARRAY(a, double, t->n_node);
    t->node_in    = WEFT_ARENA_ARRAY(a, double, t->n_node * t->n_level);
    t->node_out   = WEFT_ARENA_ARRAY(a, double, t->n_node * t->n_level);
    t->taper      = WEFT_ARENA_ARRAY(a, double, t->n_level);
    t->member     = WEFT_ARENA_ARRAY(a, int, n_rank);
    return weft_arena_status(a);
}

/* The first node of the widest switch with a link of the devices' own. */
static int island_of(const weft_cluster *c, int node)
{
    for (int i = c->n_switch - 1; i >= 0; i--)
        if (c->sw[i].link >= 0) return c->sw[i].span ? node - node % c->sw[i].span : 0;
    return node;
}

static double reached(const weft_cluster *c, int link)
{
    return link < 0 ? INFINITY : c->link[link].Bps * c->link[link].share;
}

static void fill_device(weft_place_table *t, const weft_device_run *r, int d,
                        const char *dtype, int class)
{
    const weft_cluster *c = t->c;
    t->node[d]            = weft_cluster_node(c, d, NULL);
    t->island[d]          = island_of(c, t->node[d]);
    t->speed[d] = weft_cluster_flops(r->device, dtype) * r->device->efficiency * r->speed;
    t->own_Bps[d]           = reached(c, r->node->link) * r->link;
    t->port_Bps[d]          = reached(c, r->node->net) * r->link;
    t->node_Bps[t->node[d]] = reached(c, r->node->net) * r->node->n_port;
    for (int i = 0; i < c->n_switch; i++)
        if (c->sw[i].link >= 0)
            t->own_Bps[d] = fmin(t->own_Bps[d], reached(c, c->sw[i].link) * r->link);
    /* alike: of one node and one run */
    t->alike[d] =
        d && t->node[d] == t->node[d - 1] && d > r->first ? t->alike[d - 1] : class;
    if (!r->cordoned) t->usable[t->n_usable++] = d;
}

weft_status weft_place__open(const weft_place_job *j, const weft_cluster *c,
                             weft_place_table *t)
{
    weft_device_run r;
    int             n_rank = weft_place_n_rank(j), class = 0;
    const char     *dtype = j->dtype ? j->dtype : "f32";
    memset(t, 0, sizeof *t);
    if (!n_rank || j->n_axis > WEFT_PLACE_MAX_AXIS)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "placement: axes are to have 1 rank or more, and "
                         "there are at most %d of them",
                         WEFT_PLACE_MAX_AXIS);
    if (n_rank > weft_cluster_usable(c))
        return WEFT_FAIL(WEFT_ERR_NOFIT,
                         "cluster %s has %d usable devices, the mesh needs %d", c->name,
                         weft_cluster_usable(c), n_rank);
    WEFT_TRY(weft_arena_create(&t->arena));
    t->c           = c;
    t->n_device    = weft_cluster_count(c);
    t->n_node      = weft_cluster_n_node(c);
    t->n_level     = c->n_switch + 1;
    weft_status st = allocate(t, n_rank);
    if (st != WEFT_OK) {
        weft_place__close(t);
        return st;
    }
    for (int i = 0; i < t->n_level; i++) {
        double own  = i < c->n_switch ? c->sw[i].taper : 1;
        t->taper[i] = i ? fmin(t->taper[i - 1], own) : own;
    }
    for (int at = 0; weft_cluster_next_run(c, &at, &r);)
        for (int d = r.first; d < r.first + r.n; d++)
            fill_device(t, &r, d, dtype, class ++);
    return WEFT_OK;
}

void weft_place__close(weft_place_table *t)
{
    weft_arena_destroy(t->arena);
    t->arena = NULL;
}

static int level_of(const weft_cluster *c, int a, int b)
{
    int i = 0;
    while (i < c->n_switch && c->sw[i].span && a / c->sw[i].span != b / c->sw[i].span)
        i++;
    return i;
}

static void send(weft_place_table *t, int a, int b, double bytes)
{
    int na = t->node[a], nb = t->node[b];
    if (t->island[a] == t->island[b]) {
        t->dev_out[a] += bytes / t->own_Bps[a];
        t->dev_in[b] += bytes / t->own_Bps[b];
        return;
    }
    int level = level_of(t->c, na, nb);
    t->dev_out[a] += bytes / t->port_Bps[a];
    t->dev_in[b] += bytes / t->port_Bps[b];
    t->node_out[na * t->n_level + level] += bytes;
    t->node_in[nb * t->n_level + level] += bytes;
}

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void sort(int *x, int n)
{
    if (n > 32) {
        qsort(x, (size_t)n, sizeof *x, by_number);
        return;
    }
    for (int i = 1; i < n; i++)
        for (int k = i, v; k > 0 && x[k - 1] > x[k]; k--)
            v = x[k], x[k] = x[k - 1], x[k - 1] = v;
}

static void talk(const weft_place_axis *x, weft_place_table *t)
{
    int *m = t->member, n = x->size;
    if (x->pattern == WEFT_PLACE_ALL) {
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++)
                if (i != k) send(t, m[i], m[k], x->bytes / (n - 1));
        return;
    }
    bool ring = x->pattern == WEFT_PLACE_RING;
    if (ring) sort(m, n); /* devices of a node stand together */
    for (int i = 0; i + 1 < n; i++) send(t, m[i], m[i + 1], x->bytes);
    if (ring && n > 1) send(t, m[n - 1], m[0], x->bytes);
}

/* The most loaded part, in seconds; loads are cleared. */
static double settle(weft_place_table *t, const int *device, int n_rank, double *sum)
{
    double worst = 0;
    for (int i = 0; i < n_rank; i++) {
        int d = device[i], node = t->node[d];
        worst = fmax(worst, fmax(t->dev_out[d], t->dev_in[d]));
        *sum += t->dev_out[d] + t->dev_in[d];
        t->dev_out[d] = t->dev_in[d] = 0;
        double *out                  = &t->node_out[node * t->n_level],
               *in                   = &t->node_in[node * t->n_level];
        double passes_out = 0, passes_in = 0;
        for (int l = t->n_level - 1; l >= 0;
             l--) { /* what passes level l passes those within */
            passes_out += out[l];
            passes_in += in[l];
            worst  = fmax(worst,
                          fmax(passes_out, passes_in) / (t->node_Bps[node] * t->taper[l]));
            out[l] = in[l] = 0;
        }
    }
    return worst;
}

/* Groups in which work is split evenly run at their slowest member's pace; between them shares
 * follow speed. */
static double compute_s(const weft_place_job *j, const weft_place_table *t,
                        const int *device, int n_rank)
{
    double sum = 0;
    int    stride[WEFT_PLACE_MAX_AXIS], s = 1;
    if (!(j->flops > 0)) return 0;
    for (int a = j->n_axis - 1; a >= 0; a--) stride[a] = s, s *= j->axis[a].size;
    for (int r = 0; r < n_rank; r++) {
        bool first = true;
        for (int a = 0; a < j->n_axis; a++)
            if (j->axis[a].even && r / stride[a] % j->axis[a].size) first = false;
        if (!first) continue;
        double slowest = INFINITY;
        int    n = 1, digit[WEFT_PLACE_MAX_AXIS] = {0};
        for (int a = 0; a < j->n_axis; a++)
            if (j->axis[a].even) n *= j->axis[a].size;
        for (int k = 0; k < n; k++) {
            int at = r;
            for (int a = 0; a < j->n_axis; a++) at += digit[a] * stride[a];
            slowest = fmin(slowest, t->speed[device[at]]);
            for (int a = j->n_axis - 1; a >= 0; a--) {
                if (!j->axis[a].even) continue;
                if (++digit[a] < j->axis[a].size) break;
                digit[a] = 0;
            }
        }
        sum += slowest * n;
    }
    return sum > 0 ? j->flops / sum : INFINITY;
}

void weft_place__price(const weft_place_job *j, weft_place_table *t, const int *device,
                       weft_place_seconds *out)
{
    int n_rank = weft_place_n_rank(j), stride = n_rank;
    memset(out, 0, sizeof *out);
    out->compute_s = out->total_s = compute_s(j, t, device, n_rank);
    for (int a = 0; a < j->n_axis; a++) {
        const weft_place_axis *x = &j->axis[a];
        stride /= x->size;
        if (x->size == 1 || !(x->bytes > 0)) continue;
        for (int r = 0; r < n_rank; r++) {
            if (r / stride % x->size) continue; /* r is the first of its group */
            for (int k = 0; k < x->size; k++) t->member[k] = device[r + k * stride];
            talk(x, t);
        }
        out->axis_s[a] = settle(t, device, n_rank, &out->even_s);
        out->total_s += out->axis_s[a];
    }
}

bool weft_place__better(const weft_place_seconds *a, const weft_place_seconds *b)
{
    if (a->total_s < b->total_s * (1 - 1e-12)) return true;
    return a->total_s <= b->total_s * (1 + 1e-12) && a->even_s < b->even_s * (1 - 1e-12);
}

weft_status weft_place_price(const weft_place_job *j, const weft_cluster *c,
                             const int *device, weft_place_seconds *out)
{
    weft_place_table t;
    int              n = weft_place_n_rank(j);
    WEFT_TRY(weft_place__open(j, c, &t));
    weft_status st   = WEFT_OK;
    bool       *seen = WEFT_ARENA_ARRAY(t.arena, bool, t.n_device);
    WEFT_GO(weft_arena_status(t.arena));
    for (int i = 0; i < t.n_usable; i++) seen[t.usable[i]] = true;
    for (int i = 0; i < n; i++) {
        if (device[i] < 0 || device[i] >= t.n_device || !seen[device[i]])
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG,
                              "placement: rank %d on device %d, which is not there, not "
                              "usable or taken",
                              i, device[i]));
        seen[device[i]] = false;
    }
    weft_place__price(j, &t, device, out);
out:
    weft_place__close(&t);
    return st;
}
