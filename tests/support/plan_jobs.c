#include "support/plan_jobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/doc.h"
#include "base/io.h"
#include "base/random.h"
#include "store/safetensors.h"
#include "support/files.h"
#include "support/test.h"

enum {
    SEQ  = 16,
    ROWS = 64
};

const test_plan_row test_plan_table[] = {
#include "flow/plans.def"
};

const int test_plan_table_rows = (int)WEFT_COUNT(test_plan_table);

/* ---- models and data ---- */

/* Every `from` in the text, which has room for it, becomes `to`. */
static void replace(char *text, const char *from, const char *to)
{
    for (char *at = text; (at = strstr(at, from)); at += strlen(to)) {
        memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
        memcpy(at, to, strlen(to));
    }
}

/* The fixture's configuration with four layers, no weights: drawn from the seed.  name "x-drop":
 * family x with dropout; "x-groups": three groups of two heads. */
static void write_model(const char *name)
{
    char   from[256], text[8192];
    int    family = (int)strcspn(name, "-");
    size_t n;
    snprintf(from, sizeof from, "tests/fixtures/families/%.*s/config.json", family, name);
    char *whole = test_files_read(from, &n);
    assert_true(n < sizeof text / 2);
    memcpy(text, whole, n + 1);
    free(whole);
    replace(text, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4");
    replace(text, "\"n_layer\": 2", "\"n_layer\": 4");
    if (!strcmp(name + family, "-groups")) {
        replace(text, "\"num_attention_heads\": 4", "\"num_attention_heads\": 6");
        replace(text, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3");
    }
    if (!strcmp(name + family, "-drop")) {
        replace(text, "\"embd_pdrop\": 0,", "\"embd_pdrop\": 0.1,");
        replace(text, "\"resid_pdrop\": 0,", "\"resid_pdrop\": 0.1,");
        replace(text, "\"hidden_dropout_prob\": 0.0", "\"hidden_dropout_prob\": 0.1");
    }
    assert_ok(weft_io_mkdirs(test_files_path("%s", name)));
    test_files_write(test_files_path("%s/config.json", name), text, strlen(text));
}

static uint32_t draw(uint32_t i, uint32_t below)
{
    uint32_t key[2] = {7, 11}, ctr[4] = {i, 0, 0, 0}, w[4];
    weft_random_philox(key, ctr, w);
    return w[0] % below;
}

static void write_data(void)
{
    static uint16_t token[ROWS * SEQ * 4 + 1];
    static int32_t  ids[ROWS * SEQ], labels[ROWS * SEQ];
    int64_t         dim[2] = {ROWS, SEQ};
    weft_shape      shape  = {.n = 2, .d = {dim[0], dim[1]}};
    for (uint32_t i = 0; i < WEFT_COUNT(token); i++)
        token[i] = (uint16_t)(i % 3 ? (token[i - 1] * 5u + 3) % 31 : draw(i, 31));
    for (uint32_t i = 0; i < WEFT_COUNT(ids);
         i++) { /* an uneven number of labels a row */
        ids[i] = (int32_t)draw(i, 31);
        labels[i] =
            draw(i + 100000, 100) < 15 + i / SEQ % 20 ? (ids[i] * 5 + 3) % 31 : -100;
    }
    test_files_write(test_files_path("tokens.bin"), token, sizeof token);
    weft_store_item item[] = {{"input_ids", WEFT_DTYPE_I32, shape, {.data = ids}},
                              {"labels", WEFT_DTYPE_I32, shape, {.data = labels}}};
    assert_ok(weft_store_write(test_files_path("rows.safetensors"),
                               &(weft_store_spec){.item = item, .n_item = 2}));
}

void test_plan_jobs_write(void)
{
    static const char *const model[] = {"gpt2",      "llama",       "mixtral",
                                        "bert",      "ernie",       "gpt2-drop",
                                        "bert-drop", "llama-groups"};
    for (size_t i = 0; i < WEFT_COUNT(model); i++) write_model(model[i]);
    write_data();
}

const char *test_plan_job_keys(const char *model, int steps)
{
    static char text[1536];
    char        name[32];
    bool        rows = !strncmp(model, "bert", 4) || !strncmp(model, "ernie", 5);
    size_t      n    = strcspn(model, " ");
    const char *data = test_files_path(rows ? "rows.safetensors" : "tokens.bin");
    snprintf(name, sizeof name, "%.*s", (int)n, model);
    snprintf(
        text, sizeof text,
        "model=%s data=%s seq=%d batch=16 micro_batch=1 lanes=8 steps=%d threads=1 "
        "optimizer.lr=0.003 optimizer.weight_decay=0.1 optimizer.clip=1 eval.data=%s "
        "eval.batches=1 %s",
        test_files_path("%s", name), data, SEQ, steps, data, model + n);
    return text;
}

/* ---- outcomes ---- */

static double read_number(const weft_node *m, const char *key)
{
    const weft_node *n = weft_node_get(m, key);
    assert_non_null(n);
    return n->kind == WEFT_NODE_INT ? (double)n->u.i : n->u.f;
}

void test_plan_read_metrics(const char *path, test_plan_outcome *o)
{
    size_t n;
    char  *text = test_files_read(path, &n), *save = NULL;
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        weft_doc *d;
        assert_ok(weft_doc_parse_json(path, l, strlen(l), &d));
        assert_true(o->n < TEST_PLAN_MAX_STEPS);
        o->loss[o->n]   = read_number(weft_doc_root(d), "loss");
        o->norm[o->n++] = read_number(weft_doc_root(d), "grad_norm");
        if (weft_node_get(weft_doc_root(d), "eval_loss"))
            o->eval = read_number(weft_doc_root(d), "eval_loss");
        weft_doc_destroy(d);
    }
    free(text);
}

/* As the issue counts: BITWISE leaves no difference. */
bool test_plan_same(test_plan_kind kind, const test_plan_outcome *one,
                    const test_plan_outcome *o, double *loss, double *norm)
{
    bool bits = o->n == one->n && !strcmp(o->hash, one->hash) && o->eval == one->eval;
    *loss = *norm = 0;
    for (int i = 0; i < o->n && i < one->n; i++) {
        bits  = bits && o->loss[i] == one->loss[i] && o->norm[i] == one->norm[i];
        *loss = fmax(*loss, fabs(o->loss[i] / one->loss[i] - 1));
        *norm = fmax(*norm, fabs(o->norm[i] / one->norm[i] - 1));
    }
    if (one->eval != 0) *loss = fmax(*loss, fabs(o->eval / one->eval - 1));
    return kind == CLOSE ? o->n == one->n && *loss <= 1e-5 && *norm <= 1e-5 : bits;
}
