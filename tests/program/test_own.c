/* What a rank computes of its states by itself: a program with each kind of gather.  Compiled
 * programs: tests/flow/test_commit.c. */
#include "support/test.h"

#include "program/own.h"

/* Rank 1 of 2.  w is updated, all is gathered from w in place of the rank, half is cast from it;
 * tied comes from rank 0 and is cast to thin; both is put together from what was gathered; mean is
 * copied from a message before the commit point. */
static const char text[] =
    "program own rank 1 of 2 micro 1 lanes 1 {\n"
    "  slab state state 448\n"
    "  slab work work 192\n"
    "  buffer w slab state at 0 bytes 64\n"
    "  buffer all slab state at 64 bytes 64\n"
    "  buffer half slab state at 128 bytes 64\n"
    "  buffer tied slab state at 192 bytes 64\n"
    "  buffer thin slab state at 256 bytes 64\n"
    "  buffer both slab state at 320 bytes 64\n"
    "  buffer mean slab state at 384 bytes 64\n"
    "  buffer g slab work at 0 bytes 64\n"
    "  buffer sum slab work at 64 bytes 64\n"
    "  buffer got slab work at 128 bytes 64\n"
    "  group [0,1]\n"
    "  bind param w w f32[4]\n"
    "  bind state all all f32[8]\n"
    "  bind state half half bf16[8]\n"
    "  bind state tied tied f32[4]\n"
    "  bind state thin thin bf16[4]\n"
    "  bind state both both f32[8]\n"
    "  bind state mean mean f32[4]\n"
    "  stream compute compute device 0 threads 0\n"
    "  stream comm comm device 0 threads 1\n"
    "  actor backward on compute {\n"
    "    compute g scale \"alpha=2\" (w f32[4]) -> (g f32[4]) ;\n"
    "  }\n"
    "  actor reduce on comm {\n"
    "    collective sum all_reduce group 0 tag 1 (g f32[4]) -> (sum f32[4]) ;\n"
    "  }\n"
    "  actor update on compute {\n"
    "    commit step ;\n"
    "    compute w_next add (w f32[4], sum f32[4]) -> (w f32[4]) ;\n"
    "    copy mean (sum f32[4]) -> (mean f32[4]) ;\n"
    "  }\n"
    "  actor gather on comm {\n"
    "    collective all all_gather group 0 tag 2 (w f32[4]) -> (all f32[8]) ;\n"
    "    collective tied broadcast group 0 tag 3 (w f32[4]) -> (tied f32[4]) ;\n"
    "    collective got broadcast group 0 tag 4 (w f32[4]) -> (got f32[4]) ;\n"
    "  }\n"
    "  actor last on compute {\n"
    "    compute half cast \"dtype=bf16\" (all f32[8]) -> (half bf16[8]) ;\n"
    "    compute thin cast \"dtype=bf16\" (tied f32[4]) -> (thin bf16[4]) ;\n"
    "    compute both concat \"axis=0\" (w f32[4], got f32[4]) -> (both f32[8]) ;\n"
    "  }\n"
    "  edge backward -> reduce credits 1 per_step\n"
    "  edge reduce -> update credits 1 per_step\n"
    "  edge update -> gather credits 1 per_step\n"
    "  edge gather -> last credits 1 per_step\n"
    "  list compute { backward 0; update; last; }\n"
    "  list comm { reduce; gather; }\n"
    "}\n";

static void each_kind_of_gather(void **state)
{
    static const struct {
        const char *name;
        int64_t     lo, hi;
    } want[] = {
        {"w", 0, 4},    {"all", 4, 8},  {"half", 4, 8}, {"tied", 0, 0},
        {"thin", 0, 0}, {"both", 0, 0}, {"mean", 0, 4},
    };
    weft_program *p;
    weft_arena   *a;
    weft_own_run *own;
    (void)state;
    assert_ok(weft_program_parse("own", text, strlen(text), &p));
    assert_ok(weft_program_verify(p));
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_program_find_own(p, a, &own));
    for (size_t i = 0; i < WEFT_COUNT(want); i++) {
        const weft_own_run *x = &own[weft_program_find(p, want[i].name) - p->binding];
        if (x->lo != want[i].lo || x->hi != want[i].hi)
            fail_msg("%s: [%lld, %lld)", want[i].name, (long long)x->lo,
                     (long long)x->hi);
    }
    weft_arena_destroy(a);
    weft_program_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_gather),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
