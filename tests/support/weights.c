#include "support/weights.h"

#include "support/test.h"

#include <math.h>

#include "store/hf_dir.h"

static const double ALLOWED = 1e-4;

static bool ends(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

/* Elements [from, to) of the tensor are left out. */
static void excepted(const weft_store_tensor *t, int64_t n, int64_t *from, int64_t *to)
{
    *from = *to = 0;
    if (ends(t->name, ".key.bias") || ends(t->name, "k_proj.bias")) *to = n;
    if (ends(t->name, "c_attn.bias")) *from = n / 3, *to = n / 3 * 2;
}

static double compare(const char *who, const weft_store_tensor *want,
                      const weft_store_tensor *got)
{
    int64_t n    = weft_shape_count(&want->shape), from, to;
    double  diff = 0, norm = 0;
    assert_int_equal(want->bytes, got->bytes);
    excepted(want, n, &from, &to);
    for (int64_t i = 0; i < n; i++) {
        float a, b;
        if (i >= from && i < to) continue;
        memcpy(&a, (const char *)want->data + 4 * i, 4);
        memcpy(&b, (const char *)got->data + 4 * i, 4);
        diff += pow((double)a - (double)b, 2);
        norm += pow((double)a, 2);
    }
    if (!(sqrt(diff) <= ALLOWED * sqrt(norm)))
        fail_msg("%s: %s is off by %.3g of its norm", who, want->name, sqrt(diff / norm));
    return norm > 0 ? sqrt(diff / norm) / ALLOWED : 0;
}

double test_weights_compare(const char *who, const weft_store_file *want,
                            const char *folder)
{
    weft_store_dir *got;
    double          worst = 0;
    assert_ok(weft_store_dir_open(folder, &got));
    for (int i = 0; i < weft_store_count(want); i++) {
        const weft_store_tensor *t = weft_store_at(want, i);
        const weft_store_tensor *g = weft_store_dir_find(got, t->name);
        if (!g) fail_msg("%s: %s is missing from the export", who, t->name);
        worst = fmax(worst, compare(who, t, g));
    }
    weft_store_dir_close(got);
    return worst;
}

double test_weights_compare_dir(const char *who, const char *want, const char *folder)
{
    weft_store_dir *w;
    double          worst = 0;
    assert_ok(weft_store_dir_open(want, &w));
    for (int i = 0; i < weft_store_dir_file_count(w); i++)
        worst = fmax(worst, test_weights_compare(who, weft_store_dir_file(w, i), folder));
    weft_store_dir_close(w);
    return worst;
}
