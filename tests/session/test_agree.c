/* Ranks that do not mean the same say so, all in the same words, instead of waiting for each
 * other. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "compile/compile.h"
#include "program/talk.h"
#include "session/agree.h"
#include "support/files.h"

enum {
    MAX_RANK = 8
};

#define OK(call)                                                                         \
    do {                                                                                 \
        if ((call) != WEFT_OK) fail_msg("%s", weft_error_text());                        \
    } while (0)

typedef struct rank {
    weft_comm          *comm;
    const weft_program *program; /* or texts */
    const char         *text[4];
    int                 n_text;
    weft_status         st;
    char                said[1024];
} rank;

static void *be(void *arg)
{
    rank      *r     = arg;
    int32_t    all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    weft_agree a     = {.comm = r->comm};
    r->st            = weft_comm_open_group(a.comm, a.comm->world, all, 77, &a.group);
    if (r->st == WEFT_OK)
        r->st = r->program ? weft_agree_programs(&a, r->program)
                           : weft_agree_texts(&a, "the plan", r->n_text, r->text);
    snprintf(r->said, sizeof r->said, "%s", r->st == WEFT_OK ? "" : weft_error_text());
    return NULL;
}

/* What all n ranks say, the same; "" where they agree. */
static const char *ask(rank *r, int n)
{
    weft_comm_local *world;
    pthread_t        t[MAX_RANK];
    double           begin = weft_clock_s();
    OK(weft_comm_local_create(n, &world));
    for (int i = 0; i < n; i++) OK(weft_comm_local_join(world, i, 60, &r[i].comm));
    for (int i = 0; i < n; i++) pthread_create(&t[i], NULL, be, &r[i]);
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < n; i++) weft_comm_destroy(r[i].comm);
    weft_comm_local_destroy(world);
    for (int i = 0; i < n; i++) {
        assert_string_equal(r[i].said, r[0].said);
        assert_int_equal(r[i].st, *r[i].said ? WEFT_ERR_ARG : WEFT_OK);
    }
    assert_true(weft_clock_s() - begin < 30); /* nobody waited for the deadline */
    return r[0].said;
}

/* ---- programs written by hand ---- */

/* Two stages, with the nth `from` of the file changed into `to`. */
static const char *ask_stages(rank *r, const char *from, int nth, const char *to)
{
    size_t         n;
    int            n_program;
    weft_program **p;
    char          *text = test_files_read("tests/golden/two_stage.prog", &n), *at = text;
    weft_text      t = {0};
    for (int k = 0; k < nth; k++) {
        at = strstr(k ? at + 1 : at, from);
        assert_non_null(at);
    }
    weft_text_put(&t, text, (size_t)(at - text));
    weft_text_add(&t, "%s%s", to, at + strlen(from));
    OK(weft_program_parse_set("test", t.s, t.n, &p, &n_program));
    assert_int_equal(n_program, 2);
    for (int k = 0; k < 2; k++) r[k] = (rank){.program = p[k]};
    ask(r, 2);
    weft_program_destroy_set(p, 2);
    weft_text_fini(&t);
    free(text);
    return r[0].said;
}

static void expect(const char *said, const char *what)
{
    if (!strstr(said, what)) fail_msg("expected: %s\n  got:      %s", what, said);
    assert_non_null(strstr(said, "; start every rank with the same weft"));
}

static void test_stages(void **s)
{
    (void)s;
    rank        r[2];
    const char *sum = "sq_all all_reduce group 0 tag 9";
    assert_string_equal(ask_stages(r, "rank 0", 1, "rank 0"), "");
    expect(ask_stages(r, sum, 2, "sq_all all_gather group 0 tag 9"),
           "of a step's calls among ranks 0 and 1 (tag 9), number 1 is all_reduce of 8 "
           "bytes of f64 (sq_all) at rank 0 and all_gather of 8 bytes of f64 (sq_all) at "
           "rank 1");
    expect(ask_stages(r, "tag 9 (sq f64[])", 2, "tag 9 (sq f32[2])"),
           "all_reduce of 8 bytes of f64 (sq_all) at rank 0 and all_reduce of 8 bytes of "
           "f32 (sq_all) at rank 1");
    expect(ask_stages(r, sum, 2, "sq_all all_reduce group 0 tag 8"),
           "(tag 9), number 1 is all_reduce of 8 bytes of f64 (sq_all) at rank 0 and "
           "missing at rank 1");
    expect(ask_stages(r, "group [0,1]", 2, "group [1,0]"), "and missing at rank");
    expect(ask_stages(r, "-> (h f32[2,8])", 2, "-> (h f32[2,4])"),
           "of a step's messages from rank 0 to rank 1 (tag 1), number 1 is 64 bytes (h; "
           "2 may wait) at rank 0 and 32 bytes (h; 2 may wait) at rank 1");
    expect(ask_stages(r, "tag 1 credits 2", 2, "tag 1 credits 1"),
           "64 bytes (h; 1 may wait) at rank 1");
    expect(
        ask_stages(r, "out 2; out 3;", 1, "out 2;"),
        "messages from rank 1 to rank 0 (tag 2), number 4 is 64 bytes (dh; 2 may wait) "
        "at rank 0 and missing at rank 1");
}

/* Two ranks meet under two tags: each in its own order, they would wait for ever; in one order,
 * or on two streams, not. */
static const char *ask_tags(rank *r, const char *stream, int first, int second)
{
    weft_program **p;
    int            n;
    weft_text      t   = {0};
    bool           one = !strcmp(stream, "compute");
    for (int k = 0; k < 2; k++)
        weft_text_add(&t,
                      "program p rank %d of 2 micro 1 lanes 1 { group [0,1]\n"
                      "stream compute compute device 0 threads 0\n"
                      "stream comm comm device 0 threads 1\n"
                      "actor a on compute { collective x barrier group 0 tag %d ; }\n"
                      "actor b on %s { collective y barrier group 0 tag %d ; }\n"
                      "list compute { a; %s }\n%s }\n",
                      k, k ? second : first, stream, k ? first : second, one ? "b;" : "",
                      one ? "" : "list comm { b; }");
    OK(weft_program_parse_set("test", t.s, t.n, &p, &n));
    for (int k = 0; k < 2; k++) r[k] = (rank){.program = p[k]};
    ask(r, 2);
    weft_program_destroy_set(p, n);
    weft_text_fini(&t);
    return r[0].said;
}

static void test_rings(void **s)
{
    (void)s;
    rank r[2];
    assert_string_equal(ask_tags(r, "comm", 1, 2), "");
    const char *said = ask_tags(r, "compute", 1, 2);
    assert_non_null(strstr(said,
                           "ranks would wait for each other for ever: deadlock: rank "
                           "0 compute: actor a waits in collective 'x' for rank 1; "
                           "rank 1 compute: actor a waits in collective 'x' for rank "
                           "0; take another plan"));
}

/* ---- texts ---- */

static void test_texts(void **s)
{
    (void)s;
    rank r[5] = {0};
    for (int k = 0; k < 5; k++) {
        r[k].n_text  = 3;
        r[k].text[0] = "a";
        r[k].text[1] = "  \"b\": 1,";
        r[k].text[2] = "c";
    }
    assert_string_equal(ask(r, 5), "");
    r[3].text[1] = "  \"b\": 2,";
    r[4].text[0] = "another";
    expect(ask(r, 5), "ranks 0 and 3 do not agree on the plan: \"b\": 1 at rank 0, "
                      "\"b\": 2 at rank 3; ");
    r[3].text[1] = r[2].text[1];
    r[4].text[0] = r[2].text[0];
    r[2].n_text  = 2;
    expect(ask(r, 5),
           "ranks 0 and 2 do not agree on the plan: c at rank 0, nothing more at "
           "rank 2; ");
}

/* ---- programs that are made ---- */

typedef struct world {
    int           n;
    weft_plan    *plan;
    weft_training training;
    weft_compiled of[MAX_RANK];
} world;

static void open_world(world *w, const char *model, const char *words)
{
    weft_strategy     h;
    weft_compile_spec spec = weft_compile_spec_default(model, 16, 16);
    spec.micro_batch       = 2;
    spec.lanes             = 4;
    OK(weft_strategy_parse(words, &h));
    OK(weft_compile_training(&spec, &w->training));
    OK(weft_compile_plan(&w->training, &h, 0, &w->plan));
    w->n = weft_plan_world(w->plan);
    for (int k = 0; k < w->n; k++)
        OK(weft_compile_program(&w->training, w->plan, k, &w->of[k]));
}

static void close_world(world *w)
{
    for (int k = 0; k < w->n; k++) weft_compiled_fini(&w->of[k]);
    weft_plan_destroy(w->plan);
    weft_training_fini(&w->training);
}

static const char *ask_world(world *w, rank *r)
{
    for (int k = 0; k < w->n; k++) r[k] = (rank){.program = w->of[k].program};
    return ask(r, w->n);
}

/* The last call of a kind in a program. */
static weft_instr *find_call(weft_program *p, weft_instr_kind kind)
{
    weft_instr *found = NULL;
    for (int a = 0; a < p->n_actor; a++)
        for (int k = 0; k < p->actor[a].n_instr; k++)
            if (p->actor[a].instr[k].kind == kind) found = &p->actor[a].instr[k];
    assert_non_null(found);
    return found;
}

/* Every plan balances; whatever one rank does otherwise is noticed. */
static void test_made(void **s)
{
    (void)s;
    static const char *const words[] = {"dp=2 tp=2 pp=2 zero=1",
                                        "dp=2 tp=2 sp=true zero=3", "cp=2 pp=2",
                                        "dp=3 zero=2", "dp=2 cp=2 cp_comm=ring"};
    rank                     r[MAX_RANK];
    world                    w = {0};
    for (size_t k = 0; k < WEFT_COUNT(words); k++) {
        open_world(&w, "tiny256", words[k]);
        if (*ask_world(&w, r)) fail_msg("%s: %s", words[k], r[0].said);
        for (int i = 0; i < w.n; i++) {
            weft_instr *c = find_call(w.of[i].program, WEFT_INSTR_COLLECTIVE);
            int32_t     n = c->lanes;
            c->lanes += 64;
            expect(ask_world(&w, r), "would wait for each other");
            c->lanes = n;
        }
        assert_string_equal(ask_world(&w, r), "");
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_stages), cmocka_unit_test(test_rings),
        cmocka_unit_test(test_texts), cmocka_unit_test(test_made)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
