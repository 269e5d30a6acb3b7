/* The commit point: a program that has it where it belongs is sound, and each way to break it is
 * refused in one line that names actor and instruction. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "program/program.h"

/* A rank of two: a norm that is summed over ranks, the commit point, updates of w (compute stream)
 * and m (host stream, ordered by an edge), and w gathered for the next step (comm stream). */
static const char good[] =
    "program half rank 0 of 2 micro 1 lanes 1 {\n"
    "  slab state state 320\n"
    "  slab work work 384\n"
    "  slab staging staging 192\n"
    "  buffer w slab state at 0 bytes 64\n"
    "  buffer m slab state at 64 bytes 64\n"
    "  buffer all slab state at 128 bytes 64\n"
    "  buffer half slab state at 192 bytes 64\n"
    "  buffer lone slab state at 256 bytes 64\n"
    "  buffer g slab work at 0 bytes 64\n"
    "  buffer sq slab work at 64 bytes 64\n"
    "  buffer sum slab work at 128 bytes 64\n"
    "  buffer norm slab work at 192 bytes 64\n"
    "  buffer scale slab work at 256 bytes 64\n"
    "  buffer got slab work at 320 bytes 64\n"
    "  buffer x slab staging at 0 bytes 64\n"
    "  buffer lr slab staging at 64 bytes 64\n"
    "  buffer c slab staging at 128 bytes 64\n"
    "  group [0,1]\n"
    "  bind param w w f32[4]\n"
    "  bind state m m f32[4]\n"
    "  bind state all all f32[8]\n"
    "  bind state half half bf16[8]\n"
    "  bind state lone lone f32[4]\n"
    "  bind input x x f32[4]\n"
    "  bind step_input lr lr f32[]\n"
    "  bind step_input c c f32[4]\n"
    "  stream compute compute device 0 threads 0\n"
    "  stream comm comm device 0 threads 1\n"
    "  stream host host device 0 threads 1\n"
    "  actor backward on compute {\n"
    "    compute g mul (x f32[4], w f32[4]) -> (g f32[4]) ;\n"
    "  }\n"
    "  actor update on compute {\n"
    "    compute sq sumsq (g f32[4]) -> (sq f64[]) ;\n"
    "    collective sum all_reduce group 0 tag 1 (sq f64[]) -> (sum f64[]) ;\n"
    "    compute clip clip \"max_norm=1\" (sum f64[]) -> (norm f32[], scale f32[]) ;\n"
    "    commit step (norm f32[]) ;\n"
    "    compute w_next sgd (w f32[4], g f32[4], lr f32[], scale f32[]) -> (w f32[4]) ;\n"
    "  }\n"
    "  actor late on host {\n"
    "    compute m_next sgd (m f32[4], g f32[4], lr f32[], scale f32[]) -> (m f32[4]) ;\n"
    "  }\n"
    "  actor gather on comm {\n"
    "    collective all all_gather group 0 tag 2 (w f32[4]) -> (all f32[8]) ;\n"
    "    compute half cast \"dtype=bf16\" (all f32[8]) -> (half bf16[8]) ;\n"
    "  }\n"
    "  actor last on compute {\n"
    "    mark here ;\n"
    "  }\n"
    "  edge update -> late credits 1 per_step\n"
    "  edge late -> backward credits 1 per_step delay 1\n"
    "  edge update -> gather credits 1 per_step\n"
    "  edge gather -> last credits 1 per_step\n"
    "  edge gather -> backward credits 1 per_step delay 1\n"
    "  list compute { backward 0; update; last; }\n"
    "  list comm { gather; }\n"
    "  list host { late; }\n"
    "}\n";

static char *replace(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at) fail_msg("the text has no '%s'", from);
    size_t before = (size_t)(at - text), n = strlen(text) - strlen(from) + strlen(to);
    char  *s = malloc(n + 1);
    assert_non_null(s);
    memcpy(s, text, before);
    memcpy(s + before, to, strlen(to));
    strcpy(s + before + strlen(to), at + strlen(from));
    return s;
}

static weft_status verify(const char *text)
{
    weft_program *p;
    assert_ok(weft_program_parse("half", text, strlen(text), &p));
    weft_status st = weft_program_verify(p);
    weft_program_destroy(p);
    return st;
}

static void good_is_sound(void **state)
{
    (void)state;
    assert_ok(verify(good));
}

#define COMMIT "    commit step (norm f32[]) ;\n"
#define SUM    "    collective sum all_reduce group 0 tag 1 (sq f64[]) -> (sum f64[]) ;\n"
#define CLIP                                                                             \
    "    compute clip clip \"max_norm=1\" (sum f64[]) -> (norm f32[], scale f32[]) ;\n"
#define W_NEXT                                                                           \
    "    compute w_next sgd (w f32[4], g f32[4], lr f32[], scale f32[]) -> (w f32[4]) "  \
    ";\n"

static const struct {
    const char *from, *to, *line;
} broken[] = {
    {COMMIT, "",
     "actor update, compute 'w_next': it writes state w, and the program has no"},
    {COMMIT W_NEXT, W_NEXT COMMIT,
     "actor update, compute 'w_next': it writes state w before the commit point"},
    {"-> (g f32[4]) ;\n",
     "-> (g f32[4]) ;\n    copy lone (x f32[4]) -> (lone f32[4]) ;\n",
     "actor backward, copy 'lone': it writes state lone before the commit point"},
    {"  actor late on host {\n",
     "  actor free on comm { copy lone (c f32[4]) -> (lone f32[4]) ; }\n  actor late on "
     "host {\n",
     NULL}, /* it does not fire */
    {SUM CLIP COMMIT, "    commit step ;\n" SUM CLIP,
     "actor update, compute 'w_next': it updates state w from collective 'sum' of actor "
     "update"},
    {SUM CLIP COMMIT, SUM "    commit step ;\n" CLIP, NULL},
    {COMMIT, COMMIT "    commit again ;\n",
     "actor update, commit 'again': a second commit point; the first is 'step' of actor "
     "update"},
    {"update; last; }", "update; update; last; }", "fire"},
    {"backward 0; update;", "backward 0; update 0;",
     "actor update, commit 'step': it fires for micro-batch 0, not once a step"},
    {"commit step (norm f32[])", "commit step (g f32[4])",
     "actor update, commit 'step': operand 0 is no scalar"},
    {"commit step (norm f32[])", "commit step (norm f32[]) -> (norm f32[])",
     "actor update, commit 'step': it has 1 operands and 1 results"},
    {"    mark here ;\n",
     "    collective lone all_reduce group 0 tag 4 (c f32[4]) -> (lone f32[4]) ;\n",
     "actor last, collective 'lone': it writes state lone from a message after the "
     "commit"},
    {"    mark here ;\n",
     "    compute lone sgd (lone f32[4], all f32[4], lr f32[], scale f32[]) -> (lone "
     "f32[4]) ;\n",
     "actor last, compute 'lone': it updates state lone from collective 'all' of actor "
     "gather"},
    {"    mark here ;\n",
     "    copy got (all f32[4]) -> (got f32[4]) ;\n"
     "    compute lone sgd (lone f32[4], got f32[4], lr f32[], scale f32[]) -> (lone "
     "f32[4]) ;\n",
     "actor last, compute 'lone': it updates state lone from collective 'all' of actor "
     "gather"},
    {"    mark here ;\n", "    copy lone (all f32[4]) -> (lone f32[4]) ;\n", NULL},
};

static void broken_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(broken); i++) {
        char       *s  = replace(good, broken[i].from, broken[i].to);
        weft_status st = verify(s);
        if (!broken[i].line && st != WEFT_OK)
            fail_msg("%s: refused: %s", broken[i].to, weft_error_text());
        if (broken[i].line && (st != WEFT_ERR_ARG || strchr(weft_error_text(), '\n') ||
                               !strstr(weft_error_text(), broken[i].line)))
            fail_msg("%s: %s: %s\nexpected: %s", broken[i].to, weft_status_name(st),
                     weft_error_text(), broken[i].line);
        free(s);
    }
}

/* Streams that nothing orders: the write of lone may come before the commit point. */
static void an_unordered_write_is_refused(void **state)
{
    (void)state;
    char *s = replace(good, "  actor late on host {\n",
                      "  actor free on host { copy lone (c f32[4]) -> (lone f32[4]) ; }\n"
                      "  actor late on host {\n");
    char *t = replace(s, "list host { late; }", "list host { free; late; }");
    assert_fails(
        verify(t), WEFT_ERR_ARG,
        "actor free, copy 'lone': nothing orders its write of state lone after the "
        "commit point; an edge is missing");
    free(t);
    t = replace(s, "list host { late; }", "list host { late; free; }");
    assert_ok(verify(t));
    free(t);
    free(s);
}

static void ranks_have_it_together(void **state)
{
    (void)state;
    static const char none[] = "program none rank 1 of 2 micro 1 lanes 1 {\n}\n";
    weft_program     *p[2];
    assert_ok(weft_program_parse("half", good, strlen(good), &p[0]));
    assert_ok(weft_program_parse("none", none, strlen(none), &p[1]));
    assert_fails(weft_program_verify_all((const weft_program *const *)p, 2), WEFT_ERR_ARG,
                 "rank 0 has a commit point, rank 1 has none");
    for (int i = 0; i < 2; i++) weft_program_destroy(p[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_is_sound),
        cmocka_unit_test(broken_is_refused),
        cmocka_unit_test(an_unordered_write_is_refused),
        cmocka_unit_test(ranks_have_it_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
