/* What the ranks of a membership run on, as all of them know it: how many GPUs there are, in which
 * order gradients are summed on them, and whether ranks of one kind compute with the same kernels.
 *
 * (1) Ranks that share a GPU count as one GPU, by the device's own id: local numbers say nothing
 *     where each rank sees one GPU alone.
 * (2) Kernels are compared among ranks of one kind of device.  reduction: invariant promises the
 *     same bits wherever a batch is computed, so it is refused with unlike ones; fixed promises
 *     them for the same devices and libraries, and warns. */
#include <stdio.h>
#include <string.h>

#include "kernel/kernel.h"
#include "plugin/plugin.h"
#include "session/session_priv.h"

/* ---- who runs where ---- */

static void describe_device(const weft_session *s, weft_session__card *c)
{
    weft_device_facts f = {0};
    snprintf(c->kind, sizeof c->kind, "%s", s->device->kernels);
    snprintf(c->kernels, sizeof c->kernels, "%s", weft_kernel_set_id(s->device->kernels));
    if (s->device->facts && s->device->facts(s->device, &f) == WEFT_OK)
        snprintf(c->gpu, sizeof c->gpu, "%s", f.id);
}

/* What other ranks send is text. */
static weft_status check_card(weft_session__card *c, int rank)
{
    if (memchr(c->kind, 0, sizeof c->kind) && memchr(c->gpu, 0, sizeof c->gpu) &&
        memchr(c->kernels, 0, sizeof c->kernels) && c->kind[0])
        return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_PEER, "rank %d failed: it does not say what it runs on",
                     rank);
}

static bool is_first_of_gpu(const weft_session__devices *d, int rank)
{
    for (int r = 0; r < rank; r++)
        if (!strcmp(d->card[r].gpu, d->card[rank].gpu)) return false;
    return true;
}

void weft_session__count_devices(weft_session__devices *d)
{
    d->n_cpu = d->n_gpu = 0;
    for (int r = 0; r < d->n; r++)
        if (!d->card[r].gpu[0])
            d->n_cpu++;
        else if (is_first_of_gpu(d, r))
            d->n_gpu++;
}

weft_status weft_session__gather_devices(weft_session *s)
{
    weft_session__devices *d    = &s->now->devices;
    weft_session__card     mine = {{0}, {0}, {0}};
    int                    n    = s->now->comm ? s->now->comm->world : 1;
    describe_device(s, &mine);
    d->card = WEFT_ARENA_ARRAY(s->now->arena, weft_session__card, n);
    WEFT_TRY(weft_arena_status(s->now->arena));
    WEFT_TRY(weft_session__gather(s, &mine, sizeof mine, d->card));
    for (int r = 0; r < n; r++) WEFT_TRY(check_card(&d->card[r], r));
    d->n = n;
    weft_session__count_devices(d);
    return WEFT_OK;
}

/* ---- without ranks ---- */

/* GPU of a local rank that names none: as weft_session_open_device() gives them. */
static int find_number(const weft_job *j, int n_before, int n_gpu)
{
    return j->share_gpu ? n_before % (n_gpu > 0 ? n_gpu : 1) : n_before;
}

weft_status weft_session__expect_devices(const weft_job *j, int world, int local,
                                         weft_session__devices *out)
{
    const weft_plugin *p;
    int  n_gpu = 0, n_before = 0, n = local > 0 ? local : world > 0 ? world : 1;
    bool used[WEFT_SESSION__MAX_RANK] = {false};
    *out                              = (weft_session__devices){.n = world};
    if (strcmp(j->device, "cpu") != 0 && weft_plugin_open("cuda", &p) == WEFT_OK &&
        p->count(&n_gpu) != WEFT_OK)
        n_gpu = 0;
    for (int r = 0; r < n && r < WEFT_SESSION__MAX_RANK; r++) {
        weft_job_device d;
        WEFT_TRY(weft_job_parse_device(j->file, j->device, r, n, &d));
        if (!strcmp(d.name, "cpu") || (!strcmp(d.name, "auto") && !n_gpu)) {
            out->n_cpu++;
            continue;
        }
        int number = d.number >= 0 ? d.number : find_number(j, n_before, n_gpu);
        n_before++;
        if (number < WEFT_SESSION__MAX_RANK && !used[number]) out->n_gpu++;
        if (number < WEFT_SESSION__MAX_RANK) used[number] = true;
    }
    int hosts = world > n ? (world + n - 1) / n : 1;
    out->n_cpu *= hosts;
    out->n_gpu *= hosts;
    return WEFT_OK;
}

/* ---- what follows from it ---- */

void weft_session__resolve_reduction(weft_session *s)
{
    const weft_session__devices *d = &s->now->devices;
    if (strcmp(s->job.reduction, "auto") != 0 || s->job.plan_file || s->started) return;
    s->by_devices = weft_reduction_on(WEFT_REDUCTION_AUTO, d->n_cpu, d->n_gpu) ==
                    WEFT_REDUCTION_FIXED;
    /* invariant: the planner may still take fixed, where nothing else fits */
    if (s->by_devices) s->job.reduction = weft_reduction_name(WEFT_REDUCTION_FIXED);
}

/* The first rank whose kernels are not those of an earlier one of its kind, which is *other; 0:
 * there is none. */
static int find_unlike(const weft_session__devices *d, int *other)
{
    for (int r = 1; r < d->n; r++)
        for (*other = 0; *other < r; ++*other)
            if (!strcmp(d->card[r].kind, d->card[*other].kind) &&
                strcmp(d->card[r].kernels, d->card[*other].kernels) != 0)
                return r;
    return 0;
}

weft_status weft_session__compare_kernels(weft_session *s)
{
    const weft_session__devices *d = &s->now->devices;
    int                          other, r = find_unlike(d, &other);
    if (!r) return WEFT_OK;
    const weft_session__card *a = &d->card[other], *b = &d->card[r];
    if (!weft_job_is_invariant(&s->job)) {
        weft_say_warn(&s->say,
                      "ranks on %s have unlike kernels: rank %d has %s, rank %d has %s; "
                      "bits depend on which rank computes what",
                      a->kind, other, a->kernels, r, b->kernels);
        return WEFT_OK;
    }
    return weft_session__refuse(
        s,
        WEFT_FAIL(WEFT_ERR_ARG,
                  "ranks on %s have unlike kernels: rank %d has %s, rank %d has %s; "
                  "reduction: invariant needs the same ones: install the same libraries "
                  "and weft on like devices, or set reduction=fixed",
                  a->kind, other, a->kernels, r, b->kernels));
}

/* "2 GPUs and 3 ranks on CPUs" */
static const char *print_devices(const weft_session__devices *d, char *text, size_t bytes)
{
    int n = 0;
    if (d->n_gpu)
        n = snprintf(text, bytes, "%d GPU%s%s", d->n_gpu, d->n_gpu > 1 ? "s" : "",
                     d->n_cpu ? " and " : "");
    if (d->n_cpu)
        snprintf(text + n, bytes - (size_t)n, "%d rank%s on CPUs", d->n_cpu,
                 d->n_cpu > 1 ? "s" : "");
    return text;
}

/* Of a rank's gradient sums, one for each of its lanes. */
static double count_sum_bytes(const weft_session *s, int lanes)
{
    const weft_strategy *y     = &s->now->plan->strategy;
    double               parts = (double)y->pp * (y->tp > 1 ? y->tp : 1);
    return 4.0 * (double)weft_model_weights(s->now->made.model) / parts * lanes;
}

const char *weft_session__print_size(double bytes, char *text, size_t n)
{
    static const char *const unit[] = {"bytes", "KB", "MB", "GB", "TB"};
    size_t                   k      = 0;
    for (; bytes >= 1000 && k + 1 < WEFT_COUNT(unit); k++) bytes /= 1000;
    snprintf(text, n, "%.3g %s", bytes, unit[k]);
    return text;
}

void weft_session__say_reduction(weft_session *s)
{
    char devices[80] = "", size[32];
    if (s->now->n_rank < 2 || !s->now->plan) return;
    int         dp    = s->now->plan->strategy.dp > 1 ? s->now->plan->strategy.dp : 1;
    int         lanes = ((int)s->job.lanes + dp - 1) / dp;
    bool        fixed = s->now->plan->of.reduction == WEFT_REDUCTION_FIXED;
    const char *by    = s->by_devices ? "auto, " : "";
    print_devices(&s->now->devices, devices, sizeof devices);
    weft_session__print_size(count_sum_bytes(s, lanes), size, sizeof size);
    if (fixed)
        weft_say_info(
            &s->say,
            "reduction: fixed (%s%s): the same bits for this plan, sums in the "
            "order of the plan and the devices; reduction=invariant would give the "
            "same bits for any dp and pp, at %s of gradient sums a rank, sums "
            "after all terms have been moved",
            by, devices, size);
    else
        weft_say_info(&s->say,
                      "reduction: invariant (%s): the same bits for any dp and pp, at %d "
                      "lane%s or %s of gradient sums a rank; reduction=fixed sums in the "
                      "order of the plan and the devices",
                      devices, lanes, lanes > 1 ? "s" : "", size);
}
