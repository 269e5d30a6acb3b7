/* src/planning/cost/own_memory.c: what a program takes on a GPU besides its slabs. */
#include <stdio.h>
#include <string.h>

#include "cost/cost.h"
#include "op/workspace.h"
#include "support/test.h"

static const char text[] = "program memory rank 0 of 1 micro 1 lanes 1 {\n"
                           "  slab work work 4096000000\n"
                           "  slab staging staging 4096\n"
                           "  buffer x slab work at 0 bytes 1000000000\n"
                           "  buffer in slab staging at 0 bytes 64\n"
                           "  bind input in in f32[16]\n"
                           "  stream compute compute device 0 threads 0\n"
                           "  actor all on compute {\n"
                           "    %s\n"
                           "  }\n"
                           "  list compute { all; }\n"
                           "}\n";

/* Bytes over the slabs, on a device of this name. */
static int64_t besides(const char *instr, const char *device)
{
    char             all[4000];
    weft_program    *p = NULL;
    weft_device_kind d = {.name = device, .vendor = ""};
    snprintf(all, sizeof all, text, instr);
    if (weft_program_parse("memory", all, strlen(all), &p) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    int64_t n = weft_cost_program_bytes(p, &d) - 4096000000 - 4096;
    weft_program_destroy(p);
    return n;
}

#define MATMUL(m, n)                                                                     \
    "compute y matmul \"spec=mk,kn->mn\" (x bf16[" m ",64], x bf16[64," n "]) -> (x "    \
    "bf16[" m "," n "]) ;"

static void matmuls(void **state)
{
    (void)state;
    assert_int_equal(besides(MATMUL("4096", "4096"), "cpu"), 0);
    /* staging has a copy on the device */
    assert_int_equal(besides(MATMUL("4096", "4096"), "h200-141g"), 4096 + (56 << 20));
    assert_int_equal(besides(MATMUL("64", "64"), "h200-141g"), 4096 + (4 << 20));
    assert_int_equal(besides(MATMUL("512", "512"), "h200-141g"),
                     4096 + 4 * 512 * 512 * 16);
}

/* Two bytes a number of both operands, and 68 a row, each in three parts; k in steps of 16. */
static void fp8_matmuls(void **state)
{
    (void)state;
    int64_t a = 4096 * (2 * 64 + 68) + 768, b = 256 * (2 * 64 + 68) + 768;
    assert_int_equal(
        besides("compute y matmul \"spec=mk,nk->mn fp8=e4m3,e4m3\" (x bf16[4096,60], "
                "x bf16[256,60]) -> (x bf16[4096,256]) ;",
                "h200-141g"),
        4096 + (56 << 20) + 256 + a + b);
}

/* do, q, k, v, o, lse -> dq, dk, dv */
#define GRAD(b, h, g, s) GRAD_AND(b, h, g, s, "")
#define GRAD_AND(b, h, g, s, posts)                                                      \
    "compute d attention_grad (x bf16[" b "," s "," h ",64], x bf16[" b "," s "," h      \
    ",64], x bf16[" b "," s "," g ",64], x bf16[" b "," s "," g ",64], x bf16[" b "," s  \
    "," h ",64], x f32[" b "," s "," h "]) -> (x bf16[" b "," s "," h ",64], x bf16[" b  \
    "," s "," g ",64], x bf16[" b "," s "," g ",64]) " posts ";"

static void attention(void **state)
{
    (void)state;
    assert_int_equal(besides(GRAD("32", "12", "12", "1024"), "a100-80g"),
                     4096 + 32 * 12 * (2 * 1024 * 1024 + 4 * 1024) + 256);
    /* heads that share keys; 1000 is in tiles of 128 */
    assert_int_equal(besides(GRAD("2", "8", "2", "1000"), "a100-80g"),
                     4096 + 16 * (2 * 1024 * 1024 + 4 * 1000 + 4 * 1000 * 64) + 256);
    /* above 2.25 GiB: of 8 sequences of 0.5 GiB four at a time, of one sequence of 4 GiB half of
     * its key heads */
    assert_int_equal(besides(GRAD("8", "4", "4", "8192"), "a100-80g"),
                     4096 + 4 * 4 * ((int64_t)2 * 8192 * 8192 + 4 * 8192) + 256);
    assert_int_equal(besides(GRAD("1", "32", "32", "8192"), "a100-80g"),
                     4096 + 16 * ((int64_t)2 * 8192 * 8192 + 4 * 8192) + 256);
}

/* Of 64 in tiles of 128 queries and blocks of 128 keys: two numbers a row, a counter for each half
 * of a tile, a sum of 64 x 64 for each but those of the first tile, which sees one block; the same
 * of both gradients of shared keys; the ticket; angles of 32 pairs for each row. */
static void attention_by_warpgroups(void **state)
{
    (void)state;
    assert_int_equal(besides(GRAD("32", "12", "12", "1024"), "h200-141g"),
                     4096 + 1024 * 64 * 4 +
                         32 * 12 * (8 * 2 * 128 * 4 + 7 * 2 * 64 * 64 * 4) +
                         (4 * (1 + 32 * 12 * 8 * 2) + 255) / 256 * 256);
    assert_int_equal(besides(GRAD("2", "8", "2", "1000"), "h100-80g"),
                     4096 + 1024 * 64 * 4 +
                         2 * 8 * (8 * 2 * 128 * 4 + 7 * 2 * 64 * 64 * 4) +
                         2 * 2 * 8 * 2 * 2 * 64 * 64 * 4 +
                         (4 * (1 + 2 * 8 * 8 * 2 + 2 * 2 * 8 * 2) + 255) / 256 * 256);
    /* gradients of rotary embeddings are made where dq and dk are stored */
    assert_int_equal(besides(GRAD_AND("32", "12", "12", "1024",
                                      "post rotary \"inverse=1\" out 0 "
                                      "post rotary \"inverse=1\" out 1"),
                             "h200-141g"),
                     besides(GRAD("32", "12", "12", "1024"), "h200-141g"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmuls),
        cmocka_unit_test(fp8_matmuls),
        cmocka_unit_test(attention),
        cmocka_unit_test(attention_by_warpgroups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
