/* Devices and networks from CSV. */
#include "estimate/hardware.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "estimate/csv.h"

/* The number in a cell; empty: none. */
static weft_status number(const weft_csv *c, int row, const char *column, double none,
                          double *out)
{
    const char *s = weft_csv_cell(c, row, weft_csv_column(c, column));
    *out          = none;
    if (!*s) return WEFT_OK;
    if (!weft_text_read_double(s, out) || !isfinite(*out) || *out < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s: '%.40s' is no number", c->file,
                         c->line[row], column, s);
    return WEFT_OK;
}

static const char *word(weft_arena *a, const weft_csv *c, int row, const char *column)
{
    return weft_arena_strdup(a, weft_csv_cell(c, row, weft_csv_column(c, column)));
}

static weft_status read_device(weft_hardware *h, const weft_csv *c, int row)
{
    static const char *const peak[][2] = {{"peak_fp32", "f32"},
                                          {"peak_fp16", "f16"},
                                          {"peak_bf16", "bf16"},
                                          {"peak_fp8", "f8_e4m3"},
                                          {"peak_fp4", "f4"}};
    weft_device_kind        *d         = &h->device[row];
    double                   bytes;
    d->name             = word(h->arena, c, row, "name");
    h->default_net[row] = word(h->arena, c, row, "default_net");
    d->rate             = WEFT_ARENA_ARRAY(h->arena, weft_flop_rate, WEFT_COUNT(peak));
    WEFT_TRY(weft_arena_status(h->arena));
    for (size_t i = 0; i < WEFT_COUNT(peak); i++) {
        double flops;
        WEFT_TRY(number(c, row, peak[i][0], 0, &flops));
        if (flops > 0)
            d->rate[d->n_rate++] = (weft_flop_rate){.dtype = peak[i][1], .flops = flops};
    }
    WEFT_TRY(number(c, row, "mem_bytes", 0, &bytes));
    WEFT_TRY(number(c, row, "mem_Bps", 0, &d->mem_Bps));
    d->mem_bytes = bytes < 1e18 ? (int64_t)bytes : 0;
    if (!d->n_rate || d->mem_Bps <= 0 || d->mem_bytes <= 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s:%d: device '%s' needs a peak, mem_bytes and mem_Bps",
                         c->file, c->line[row], d->name);
    return WEFT_OK;
}

static weft_status read_net(weft_hardware *h, const weft_csv *c, int row)
{
    weft_hw_net *n = &h->net[row];
    double       dev, fast;
    n->name       = word(h->arena, c, row, "name");
    n->intra_kind = word(h->arena, c, row, "intra_kind");
    n->inter_kind = word(h->arena, c, row, "inter_kind");
    n->mix        = word(h->arena, c, row, "mix");
    WEFT_TRY(weft_arena_status(h->arena));
    WEFT_TRY(number(c, row, "dev_per_node", 8, &dev));
    WEFT_TRY(number(c, row, "fast_domain", dev, &fast));
    WEFT_TRY(number(c, row, "intra_Bps", 0, &n->intra_Bps));
    WEFT_TRY(number(c, row, "inter_Bps_per_dev", 0, &n->inter_Bps));
    n->dev_per_node = (int)fmin(fmax(dev, 1), 1 << 20);
    n->fast_domain  = (int)fmin(fmax(fast, 1), 1 << 20);
    return WEFT_OK;
}

static weft_status read_file(const char *dir, const char *name, weft_csv **out)
{
    weft_text path = {0};
    weft_text_add(&path, "%s/%s", dir, name);
    weft_status st = weft_text_status(&path);
    if (st == WEFT_OK) st = weft_csv_load(path.s, out);
    weft_text_fini(&path);
    return st;
}

static weft_status fill(weft_hardware *h, const weft_csv *dev, const weft_csv *net)
{
    h->n_device    = dev->n_row;
    h->n_net       = net->n_row;
    h->device      = WEFT_ARENA_ARRAY(h->arena, weft_device_kind, h->n_device + 1);
    h->default_net = WEFT_ARENA_ARRAY(h->arena, const char *, h->n_device + 1);
    h->net         = WEFT_ARENA_ARRAY(h->arena, weft_hw_net, h->n_net + 1);
    WEFT_TRY(weft_arena_status(h->arena));
    for (int i = 0; i < dev->n_row; i++) WEFT_TRY(read_device(h, dev, i));
    for (int i = 0; i < net->n_row; i++) WEFT_TRY(read_net(h, net, i));
    return WEFT_OK;
}

weft_status weft_hardware_load(const char *dir, weft_hardware **out)
{
    weft_csv      *dev = NULL, *net = NULL;
    weft_arena    *a  = NULL;
    weft_hardware *h  = NULL;
    weft_status    st = WEFT_OK;
    WEFT_GO(weft_arena_create(&a));
    h = WEFT_ARENA_NEW(a, weft_hardware);
    WEFT_GO(weft_arena_status(a));
    h->arena = a;
    WEFT_GO(read_file(dir, "hardware.csv", &dev));
    WEFT_GO(read_file(dir, "network.csv", &net));
    WEFT_GO(fill(h, dev, net));
out:
    weft_csv_destroy(dev);
    weft_csv_destroy(net);
    if (st == WEFT_OK)
        *out = h;
    else
        weft_arena_destroy(a);
    return st;
}

weft_status weft_hardware_learn(weft_hardware *h, const weft_cluster *c, int *n)
{
    *n = 0;
    for (int i = 0; i < c->n_device; i++) {
        const weft_device_kind *k  = &c->device[i];
        int                     at = weft_hardware_device(h, k->name);
        if (at < 0 || !k->n_point) continue;
        weft_device_kind *d    = &h->device[at];
        const char       *name = d->name;
        *d                     = *k;
        d->name                = name;
        d->vendor = d->source = "";
        d->point              = NULL;
        d->n_point            = 0;
        d->n_rate             = k->n_rate < 8 ? k->n_rate : 8;

        size_t bytes = sizeof *k->rate * (size_t)(d->n_rate + !d->n_rate);
        d->rate      = weft_arena_memdup(h->arena, k->rate, bytes);
        WEFT_TRY(weft_arena_status(h->arena));
        for (int r = 0; r < d->n_rate; r++)
            d->rate[r].dtype = weft_arena_strdup(h->arena, k->rate[r].dtype);
        ++*n;
    }
    return weft_arena_status(h->arena);
}

void weft_hardware_destroy(weft_hardware *h)
{
    if (h) weft_arena_destroy(h->arena);
}

int weft_hardware_device(const weft_hardware *h, const char *name)
{
    for (int i = 0; i < h->n_device; i++)
        if (!strcmp(h->device[i].name, name)) return i;
    return -1;
}

int weft_hardware_net(const weft_hardware *h, const char *name)
{
    for (int i = 0; i < h->n_net; i++)
        if (!strcmp(h->net[i].name, name)) return i;
    return -1;
}
