/* src/ir/program/work.c: what instructions are measured by. */
#include "support/test.h"

#include <string.h>

#include "program/work.h"

#define Q "bf16[1,16,8,64]"
#define K "bf16[1,32,4,64]"

/* 16 tokens that see 32 keys, heads of 64; keys of a head of their own, and shared by twos. */
static const char text[] =
    "program work rank 0 of 1 micro 1 lanes 1 {\n"
    "  slab work work 131072\n"
    "  buffer q slab work at 0 bytes 16384\n"
    "  buffer k slab work at 16384 bytes 32768\n"
    "  buffer o slab work at 49152 bytes 16384\n"
    "  buffer lse slab work at 65536 bytes 512\n"
    "  buffer dk slab work at 66048 bytes 32768\n"
    "  stream compute compute device 0 threads 0\n"
    "  actor all on compute {\n"
    "    compute a attention (q " Q ", k bf16[1,32,8,64], k bf16[1,32,8,64]) -> (o " Q
    ", lse f32[1,16,8]) ;\n"
    "    compute b attention (q " Q ", k " K ", k " K ") -> (o " Q
    ", lse f32[1,16,8]) ;\n"
    "    compute c attention_grad (q " Q ", q " Q ", k " K ", k " K ", o " Q
    ", lse f32[1,16,8]) -> (o " Q ", dk " K ", dk " K ") ;\n"
    "    compute d matmul \"spec=ab,bc->ac\" (q bf16[64,128], k bf16[128,32]) -> (o "
    "bf16[64,32]) ;\n"
    "  }\n"
    "  list compute { all 0; }\n"
    "}\n";

/* What a kernel of attention goes by is the same whether heads share keys or not; its gradient is
 * another one there. */
static void attention_goes_by_keys(void **state)
{
    (void)state;
    weft_program *p = NULL;
    weft_workload w[4];
    assert_ok(weft_program_parse("work", text, sizeof text - 1, &p));
    for (int i = 0; i < 4; i++) weft_instr_work(&p->actor[0].instr[i], &w[i]);
    assert_string_equal(w[0].kind, "attention by keys");
    assert_string_equal(w[1].kind, "attention by keys");
    assert_string_equal(w[2].kind, "attention_grad by keys+shared");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(w[i].n, 3);
        assert_true(w[i].size[0] == weft_instr_flops(&p->actor[0].instr[i]));
        assert_true(w[i].size[1] == 32 && w[i].size[2] == 64);
    }
    assert_memory_equal(w[0].size, w[1].size, sizeof w[0].size);
    assert_string_equal(w[3].kind, "matmul nn");
    assert_true(w[3].size[0] == 64 && w[3].size[1] == 32 && w[3].size[2] == 128);
    weft_program_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_goes_by_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
