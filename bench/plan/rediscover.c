/* Plans that people found, next to what the search finds with what their engines could do; prints
 * markdown.
 *
 *     build/bench_rediscover ../shared/validation [all]
 *
 * all: each recipe, and what steps are made of. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "engine/engine.h"
#include "estimate/describe.h"
#include "rediscover.h"

/* ---- machines and models ---- */

weft_status bench_machines(const bench *b, const char *device, const char *net,
                           int n_node, int per_node, weft_search_machines *out)
{
    int d = weft_hardware_device(b->h, device), n = weft_hardware_net(b->h, net);
    if (d < 0 || n < 0) return WEFT_FAIL(WEFT_ERR_ARG, "no %s or no %s", device, net);
    *out                   = (weft_search_machines){.n = 1, .known = true};
    weft_search_machine *m = &out->kind[0];
    m->device              = b->h->device[d];
    m->device.rate         = m->rate;
    memcpy(m->rate, b->h->device[d].rate, sizeof(*m->rate) * (size_t)m->device.n_rate);
    weft_cost_constants_device(b->k, &m->device);
    weft_estimate_fabric(b->k, &b->h->net[n], per_node, &m->fabric);
    m->n_node   = n_node;
    m->per_node = per_node;
    m->speed = m->link = 1;
    return WEFT_OK;
}

void bench_config(weft_config *c, const char *framework, const sizes *z)
{
    weft_engine_open(c);
    c->id           = "?";
    c->framework    = framework;
    c->family       = z->kv_heads ? "llama" : "gpt";
    c->attn         = "full";
    c->precision    = "bf16";
    c->layers       = z->layers;
    c->hidden       = z->hidden;
    c->heads        = z->heads;
    c->kv_heads     = z->kv_heads ? z->kv_heads : z->heads;
    c->ffn_hidden   = z->ffn ? z->ffn : 4 * z->hidden;
    c->vocab        = z->vocab;
    c->seq          = z->seq;
    c->global_batch = z->batch;
    c->tp = c->pp = c->cp = c->dp = 1;
}

/* ---- a line of the table ---- */

void bench_put_choice(const weft_search_choice *c, weft_text *t)
{
    weft_search_print_choice(c, t);
    char *cut = strstr(t->s, " stages=");
    if (cut && strlen(cut) > 30) strcpy(cut, " stages uneven");
}

/* "tp8 pp16 dp64" as constraints; cp and ep are 1 unless said. */
static weft_status constrain_all(const char *known, weft_arena *a,
                                 weft_search_constraints *p)
{
    weft_search_open(p);
    char text[200], *save = NULL;
    snprintf(text, sizeof text, "%s", known);
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char constraint[80];
        int  at = (int)strcspn(w, "0123456789");
        if (strchr(w, '='))
            snprintf(constraint, sizeof constraint, "%s", w);
        else
            snprintf(constraint, sizeof constraint, "%.*s=%s", at, w, w + at);
        WEFT_TRY(weft_search_constrain(p, constraint, a));
    }
    if (weft_search_given(p, WEFT_KEY_cp) < 0) weft_search_fix(p, WEFT_KEY_cp, 1);
    if (weft_search_given(p, WEFT_KEY_ep) < 0) weft_search_fix(p, WEFT_KEY_ep, 1);
    return WEFT_OK;
}

static bool is_known(const weft_search_choice *c, const weft_search_constraints *p)
{
    return c->variant.tp == weft_search_given(p, WEFT_KEY_tp) &&
           c->variant.cp == weft_search_given(p, WEFT_KEY_cp) &&
           c->variant.ep == weft_search_given(p, WEFT_KEY_ep) &&
           c->point.pp == weft_search_given(p, WEFT_KEY_pp) &&
           c->point.dp == weft_search_given(p, WEFT_KEY_dp);
}

static weft_status compare(const bench *b, const char *name, const char *known,
                           weft_search_problem *p, double measured_s)
{
    weft_search_result *open = NULL, *constrained = NULL;
    weft_text           found = {0}, theirs = {0};
    weft_status         st = WEFT_OK;
    p->n_best              = 1;
    weft_search_open(&p->constraints);
    WEFT_GO(weft_search_run(p, &open));
    WEFT_GO(constrain_all(known, b->a, &p->constraints));
    st = weft_search_run(p, &constrained);
    bench_put_choice(&open->choice[0], &found);
    double us = open->choice[0].score.step_s;
    if (st != WEFT_OK) {
        printf("| %s | %s | %s | %.3g s | %s | |\n", name, known, found.s, us,
               weft_error_text());
        st = WEFT_OK;
        goto out;
    }
    double them = constrained->choice[0].score.step_s;
    bench_put_choice(&constrained->choice[0], &theirs);
    printf("| %s | %s | %s | %.3g s | %.3g s", name, known, found.s, us, them);
    if (measured_s > 0) printf(" (measured %.4g)", measured_s);
    if (is_known(&open->choice[0], &p->constraints))
        printf(" | found |\n");
    else
        printf(" | %.1f %%, %s the 90 %% of what is found (%.3g to %.3g s) |\n",
               100 * (them / us - 1), them <= open->choice[0].hi ? "within" : "above",
               open->choice[0].lo, open->choice[0].hi);
    if (b->show) {
        weft_text           t = {0};
        weft_search_problem q = *p;
        printf("   theirs: %s\n", theirs.s);
        weft_search_print(&q, open, false, &t);
        weft_search_print(&q, constrained, false, &t);
        printf("%s", t.s);
        weft_text_fini(&t);
    }
out:
    fflush(stdout);
    weft_text_fini(&found);
    weft_text_fini(&theirs);
    weft_search_destroy(open);
    weft_search_destroy(constrained);
    return st;
}

static void head(const char *title)
{
    printf("\n%s\n\n| case | known | found | step | the known degrees | verdict |\n"
           "|---|---|---|---|---|---|\n",
           title);
}

/* ---- GPT of 2021 ---- */

static weft_status sc21(const bench *b)
{
    static const struct {
        const char *name, *known;
        int         n_node;
        sizes       z;
        double      measured_s;
    } c[] = {
        {"1.7B", "tp1 pp1 dp32", 4, {24, 2304, 24, 0, 0, 51200, 2048, 512}, 3.515},
        {"3.6B", "tp2 pp1 dp32", 8, {30, 3072, 32, 0, 0, 51200, 2048, 512}, 0},
        {"7.5B", "tp4 pp1 dp32", 16, {36, 4096, 32, 0, 0, 51200, 2048, 512}, 3.691},
        {"18B", "tp8 pp1 dp32", 32, {40, 6144, 48, 0, 0, 51200, 2048, 1024}, 0},
        {"39B", "tp8 pp2 dp32", 64, {48, 8192, 64, 0, 0, 51200, 2048, 1536}, 14.424},
        {"76B", "tp8 pp4 dp32", 128, {60, 10240, 80, 0, 0, 51200, 2048, 1792}, 0},
        {"145B", "tp8 pp8 dp24", 192, {80, 12288, 96, 0, 0, 51200, 2048, 2304}, 24.842},
        {"310B", "tp8 pp16 dp15", 240, {96, 16384, 128, 0, 0, 51200, 2048, 2160}, 0},
        {"530B", "tp8 pp35 dp9", 315, {105, 20480, 128, 0, 0, 51200, 2048, 2520}, 54.159},
        {"1T", "tp8 pp64 dp6", 384, {128, 25600, 160, 0, 0, 51200, 2048, 3072}, 0},
    };
    weft_search_limits l = weft_search_limits_of("Megatron-LM 2021");
    l.recompute          = 1u << WEFT_RECOMPUTE_FULL;
    head("SC'21, within Megatron-LM of 2021");
    for (size_t i = 0; i < WEFT_COUNT(c); i++) {
        weft_search_machines m;
        weft_config          x;
        char                 name[80];
        bench_config(&x, "Megatron-LM 2021", &c[i].z);
        x.precision       = "fp16";
        x.flash_attention = 0;
        WEFT_TRY(bench_machines(b, "a100-80g", "a100_hdr200x8", c[i].n_node, 8, &m));
        WEFT_TRY(weft_config_complete("sc21", &x));
        weft_search_problem p = {.machines = &m, .batch = c[i].z.batch};
        WEFT_TRY(weft_search_transformer(&x, b->k, &l, b->a, &p.model));
        snprintf(name, sizeof name, "GPT %s, %d a100-80g", c[i].name, 8 * c[i].n_node);
        WEFT_TRY(compare(b, name, c[i].known, &p, c[i].measured_s));
    }
    return WEFT_OK;
}

static weft_status llama(const bench *b)
{
    static const struct {
        const char *name, *known;
        int         n_node, seq, batch;
        double      measured_s;
    } c[] = {{"8,192, 8k tokens", "tp8 pp16 dp64", 1024, 8192, 2048, 12.08},
             {"16,384, 8k tokens", "tp8 pp16 dp128", 2048, 8192, 2048, 6.49},
             {"16,384, 131k tokens", "tp8 cp16 pp16 dp8", 2048, 131072, 128, 10.94}};
    weft_search_limits l = weft_search_limits_of("weft");
    l.schedules          = 1u << WEFT_COST_1F1B;
    l.cuts               = WEFT_CUT_ENDS;
    l.zero_pp            = 7;
    l.partial            = true;
    head("Llama-3 405B on h100-80g, within what its authors' engine did");
    for (size_t i = 0; i < WEFT_COUNT(c); i++) {
        weft_search_machines m;
        weft_config          x;
        sizes z = {126, 16384, 128, 8, 53248, 128256, c[i].seq, c[i].batch};
        bench_config(&x, "in-house FSDP+TP+PP+CP", &z);
        x.gated_mlp      = 1;
        x.tied_embedding = 0;
        x.grad_dtype     = "fp32";
        WEFT_TRY(bench_machines(b, "h100-80g", "h100_roce400x8", c[i].n_node, 8, &m));
        WEFT_TRY(weft_config_complete("llama", &x));
        weft_search_problem p = {.machines = &m, .batch = z.batch};
        WEFT_TRY(weft_search_transformer(&x, b->k, &l, b->a, &p.model));
        p.model.shape.engine.mem_keep *= 0.8; /* they say that nothing had to run again */
        WEFT_TRY(compare(b, c[i].name, c[i].known, &p, c[i].measured_s));
    }
    return WEFT_OK;
}

/* ---- experts, as Alpa has them ---- */

/* Every second layer has experts: two layers are one. */
static void fill_pair(void *arg, const weft_cost_engine *e, const weft_cost_variant *v,
                      const weft_device_kind *d, const weft_cost_fabric *f,
                      weft_cost_row *row)
{
    weft_estimate_fill(arg, e, v, d, f, row);
    weft_cost_row *a = &row[WEFT_LAYER_DENSE], *x = &row[WEFT_LAYER_EXPERTS];
    a->fwd_s += x->fwd_s;
    a->bwd_s += x->bwd_s;
    a->again_s += x->again_s;
    a->comm_s += x->comm_s;
    a->host_s += x->host_s;
    a->keep_bytes += x->keep_bytes;
    a->gathered_bytes += x->gathered_bytes;
    a->work_bytes = fmax(a->work_bytes, x->work_bytes);
    a->n_param += x->n_param;
    a->n_expert_param += x->n_expert_param;
}

static weft_status alpa(bench *b)
{
    static const struct {
        const char *name, *known;
        int         n_node, layers, experts;
    } c[]                = {{"27B, 32 v100-16g", "tp1 ep4 pp8 dp4", 4, 16, 48},
                            {"70B, 64 v100-16g", "tp1 ep8 pp8 dp8", 8, 32, 64}};
    weft_search_limits l = weft_search_limits_of("weft");
    l.schedules          = 1u << WEFT_COST_1F1B;
    l.recompute          = 1u << WEFT_RECOMPUTE_FULL;
    l.chunks = l.cp = l.sp = false;
    head("Alpa's mixtures of experts, p3.16xlarge, batch of 1,024 x 1,024");
    for (size_t i = 0; i < WEFT_COUNT(c); i++) {
        weft_search_machines m;
        weft_config          x;
        weft_cost_segment    pairs = {WEFT_LAYER_DENSE, c[i].layers / 2};
        sizes                z = {c[i].layers, 2048, 16, 0, 8 * 2048, 32000, 1024, 1024};
        bench_config(&x, "Alpa", &z);
        x.family          = "moe";
        x.gated_mlp       = 0;
        x.experts         = c[i].experts;
        x.experts_topk    = 2;
        x.tied_embedding  = 0;
        x.flash_attention = 0;
        x.precision       = "fp16";
        WEFT_TRY(bench_machines(b, "v100-16g", "v100_aws25g", c[i].n_node, 8, &m));
        WEFT_TRY(weft_config_complete("alpa", &x));
        weft_search_problem p = {.machines = &m, .batch = 1024};
        WEFT_TRY(weft_search_transformer(&x, b->k, &l, b->a, &p.model));
        p.model.shape.segment   = &pairs;
        p.model.shape.n_segment = 1;
        p.model.fill            = fill_pair;
        weft_cost_engine *e     = &p.model.shape.engine;
        e->mem_state  = 4;   /* Adafactor: the master copy, sums of rows and columns */
        e->mem_fixed  = 5e8; /* XLA takes the memory whole and lays it out itself */
        e->mem_spare  = 1;
        e->mem_limit  = 0.97;
        e->pp_exposed = atof(getenv("PPX") ? getenv("PPX") : "0");
        WEFT_TRY(compare(b, c[i].name, c[i].known, &p, 0));
    }
    return WEFT_OK;
}

/* ---- TransGAN ---- */

/* Seconds of a layer forward and backward, of one sample, as AMP's authors published them for
 * V100 (tp 1, 2, 4): the input side, twelve layers 1,024 wide on 81 places, twelve 16 wide on
 * 82,944, what follows them. */
static const double gan_s[3][4] = {{1.2e-3, 6.14e-3, 12.0e-3, 1.27e-3},
                                   {1.2e-3, 6.95e-3, 14.84e-3, 1.28e-3},
                                   {1.3e-3, 7.44e-3, 13.75e-3, 1.34e-3}};

static void fill_gan(void *arg, const weft_cost_engine *e, const weft_cost_variant *v,
                     const weft_device_kind *d, const weft_cost_fabric *f,
                     weft_cost_row *row)
{
    const double *s = gan_s[v->tp == 1 ? 0 : v->tp == 2 ? 1 : 2];
    (void)arg, (void)e, (void)d, (void)f;
    for (int k = 0; k < 4; k++) {
        double t = s[k] * v->micro_batch;
        /* 81 places of 1,024, or 82,944 of 16, in 32 bits; a layer keeps some 16 of them */
        double out = 4.0 * v->micro_batch * (k < 2 ? 81 * 1024 : 82944 * 16);
        row[k]     = (weft_cost_row){.fwd_s      = t / 3,
                                     .bwd_s      = 2 * t / 3,
                                     .keep_bytes = 16 * out,
                                     .out_bytes  = 4.0 * v->micro_batch * 81 * 1024,
                                     .n_param    = k == 1 ? 12 * 1024.0 * 1024 / v->tp : 3e3};
    }
}

static bool allow_gan(void *arg, const weft_cost_variant *v, char *why, size_t n)
{
    (void)arg;
    if (v->cp == 1 && v->ep == 1 && !v->sp && (v->tp == 1 || v->tp == 2 || v->tp == 4))
        return true;
    if (why) snprintf(why, n, "TransGAN was measured with tp of 1, 2 and 4 only");
    return false;
}

static weft_status transgan(bench *b)
{
    static const weft_cost_segment part[] = {{1, 12}, {2, 12}};
    weft_search_machines           m;
    weft_search_limits             l = weft_search_limits_of("weft");
    l.zero = l.zero_pp = 1;
    l.schedules        = 1u << WEFT_COST_1F1B;
    l.recompute        = 1;
    l.chunks = l.cp = l.ep = l.sp = false;
    WEFT_TRY(bench_machines(b, "v100-16g", "v100_aws10g", 4, 4, &m));
    weft_search_problem p = {.machines = &m, .batch = 64};
    p.model               = (weft_search_model){.name      = "TransGAN",
                                                .unit      = "samples",
                                                .limits    = l,
                                                .max_tp    = 4,
                                                .max_cp    = 1,
                                                .max_ep    = 1,
                                                .max_micro = 64,
                                                .fill      = fill_gan,
                                                .allows    = allow_gan};
    p.model.shape         = (weft_cost_table){.n_class     = 4,
                                              .first       = 0,
                                              .last        = 3,
                                              .n_segment   = 2,
                                              .segment     = part,
                                              .grad_bytes  = 4,
                                              .param_bytes = 2};
    weft_cost_constants_engine(b->k, "DeepSpeed/Megatron 1.1.5", &p.model.shape.engine);
    head("TransGAN, 16 v100-16g in 4 nodes on 10 Gb/s (AMP), batch of 64, layers as "
         "measured");
    return compare(b, "TransGAN", "tp1 pp4 dp4 micro_batch=1 stages=9-6-5-4", &p, 0);
}

static weft_status all(bench *b)
{
    WEFT_TRY(weft_arena_create(&b->a));
    WEFT_TRY(weft_hardware_load(b->dir, &b->h));
    WEFT_TRY(weft_cost_constants_create(&b->k));
    WEFT_TRY(sc21(b));
    WEFT_TRY(llama(b));
    WEFT_TRY(alpa(b));
    WEFT_TRY(transgan(b));
    WEFT_TRY(bench_cells(b));
    WEFT_TRY(bench_ernie(b));
    return bench_recipes(b);
}

int main(int argc, char **argv)
{
    bench b = {.dir = argc > 1 ? argv[1] : "../shared/validation", .show = argc > 2};
    if (all(&b) == WEFT_OK) return 0;
    fprintf(stderr, "%s\n", weft_error_text());
    return 1;
}
