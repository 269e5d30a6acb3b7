/* The operator graph of a model, no layer folded into another: sharding of every operator,
 * lowering and prices under each way to cut tensors and sequences, by the thread's processor time.
 *
 *     build/bench_unfolded llama3-405b 8192 "1024 x (8 x h100-80g)" */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "planner/rows.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double whole(const weft_search_model *m, const weft_cost_row *row)
{
    double s = 0;
    for (int i = 0; i < m->shape.n_segment; i++)
        s += m->shape.segment[i].count * (row[m->shape.segment[i].layer_class].fwd_s +
                                          row[m->shape.segment[i].layer_class].bwd_s);
    return s + row[m->shape.first].fwd_s + row[m->shape.first].bwd_s +
           row[m->shape.last].fwd_s + row[m->shape.last].bwd_s;
}

static weft_status try_all(const weft_search_model *m, const weft_search_machine *d)
{
    static const int  tp[] = {1, 2, 4, 8};
    weft_cost_row     row[64];
    weft_cost_variant best  = {0};
    double            least = 0, begin = now();
    int               n = 0;
    for (int t = 0; t < 4; t++)
        for (int sp = 0; sp < (tp[t] > 1 ? 2 : 1); sp++) {
            weft_cost_variant v = {
                .tp = tp[t], .cp = 1, .ep = 1, .sp = sp, .micro_batch = 1};
            double at = now();
            if (!m->allows(m->arg, &v, NULL, 0)) continue;
            (m->glance ? m->glance : m->fill)(m->arg, &m->shape.engine, &v, &d->device,
                                              &d->fabric, row);
            double s = whole(m, row) * v.tp * v.cp; /* device-seconds of a sequence */
            printf("tp=%d cp=%d sp=%d: %.3f device-seconds a sequence, worked out in "
                   "%.3f s\n",
                   v.tp, v.cp, v.sp, s, now() - at);
            n++;
            if (least > 0 && s >= least) continue;
            least = s;
            best  = v;
        }
    printf("%d ways in %.2f s, the least tp=%d cp=%d sp=%d\n", n, now() - begin, best.tp,
           best.cp, best.sp);
    return WEFT_OK;
}

int main(int argc, char **argv)
{
    weft_arena          *a     = NULL;
    weft_cluster        *c     = NULL;
    weft_model          *whole = NULL;
    weft_search_machines hw;
    weft_search_model    m     = {0};
    weft_search_limits   l     = weft_search_limits_of("weft");
    weft_status          st    = WEFT_OK;
    double               begin = now();
    if (argc < 4) return 2;
    weft_compile_spec s = weft_compile_spec_default(argv[1], 1, atoll(argv[2]));
    s.dtype             = "bf16";
    s.layers            = 1 << 20; /* all of them */
    WEFT_GO(weft_arena_create(&a));
    WEFT_GO(weft_cluster_load(argv[3], NULL, &c));
    WEFT_GO(weft_planner_machines(c, a, &hw));
    weft_compile_spec one = weft_compile_spec_default(argv[1], 1, atoll(argv[2]));
    WEFT_GO(weft_compile_model(&one, &whole));
    WEFT_GO(weft_planner_rows(&s, whole, c, &l, 0, a, &m));
    printf("%s unfolded: ready in %.2f s\n", argv[1], now() - begin);
    WEFT_GO(try_all(&m, &hw.kind[0]));
    printf("all %.2f s\n", now() - begin);
out:
    if (st != WEFT_OK) fprintf(stderr, "%s\n", weft_error_text());
    weft_planner_rows_fini(&m);
    weft_model_destroy(whole);
    weft_cluster_destroy(c);
    weft_arena_destroy(a);
    return st != WEFT_OK;
}
