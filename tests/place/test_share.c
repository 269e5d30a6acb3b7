/* Work in proportion: the slowest is as fast as any split makes it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "place/place.h"

static uint64_t seed = 5;

static int pick(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static double brute_units(const double *speed, int n, int64_t total, int64_t least)
{
    double best = INFINITY;
    if (n == 1) return total < least ? INFINITY : (double)total / speed[0];
    for (int64_t u = least; u <= total; u++)
        best = fmin(best, fmax((double)u / speed[0],
                               brute_units(speed + 1, n - 1, total - u, least)));
    return best;
}

static void units(void **state)
{
    (void)state;
    for (int t = 0; t < 300; t++) {
        double  speed[4], worst = 0;
        int64_t unit[4], sum    = 0;
        int     n = 1 + pick(4), least = pick(2), total = n + pick(14);
        for (int i = 0; i < n; i++) speed[i] = 0.25 * (1 + pick(12));
        assert_int_equal(weft_place_units(speed, n, total, least, unit), WEFT_OK);
        for (int i = 0; i < n; i++) {
            worst = fmax(worst, (double)unit[i] / speed[i]);
            assert_true(unit[i] >= least);
            sum += unit[i];
        }
        assert_int_equal(sum, total);
        assert_true(fabs(worst - brute_units(speed, n, total, least)) < 1e-9);
    }
}

static double brute_layers(const double *layer_s, const double *bytes, int n,
                           const double *speed, const double *most, int n_stage)
{
    double best = INFINITY, sum = 0, b = 0;
    if (!n_stage) return n ? INFINITY : 0;
    for (int i = 1; i <= n; i++) {
        sum += layer_s[i - 1];
        b += bytes[i - 1];
        if (b > most[0]) break;
        best = fmin(best,
                    fmax(sum / speed[0], brute_layers(layer_s + i, bytes + i, n - i,
                                                      speed + 1, most + 1, n_stage - 1)));
    }
    return best;
}

static void layers(void **state)
{
    (void)state;
    for (int t = 0; t < 300; t++) {
        double layer_s[9], bytes[9], speed[4], most[4], worst = 0;
        int    n_stage = 1 + pick(4), n = n_stage + pick(5), cut[5];
        for (int i = 0; i < n; i++) layer_s[i] = 1 + pick(5), bytes[i] = 1 + pick(3);
        for (int i = 0; i < n_stage; i++) speed[i] = 1 + pick(4), most[i] = 2 + pick(12);
        double      best = brute_layers(layer_s, bytes, n, speed, most, n_stage);
        weft_status st = weft_place_layers(layer_s, bytes, n, speed, most, n_stage, cut);
        assert_int_equal(st, isinf(best) ? WEFT_ERR_NOFIT : WEFT_OK);
        if (st != WEFT_OK) continue;
        assert_int_equal(cut[0], 0);
        for (int s = 0; s < n_stage; s++) {
            double sum = 0;
            assert_true(cut[s] < cut[s + 1]);
            for (int i = cut[s]; i < cut[s + 1]; i++) sum += layer_s[i];
            worst = fmax(worst, sum / speed[s]);
        }
        assert_true(fabs(worst - best) < 1e-9);
    }
}

/* Devices 2 : 1, 48 equal layers: stage times within 10 %. */
static void two_to_one(void **state)
{
    (void)state;
    double layer_s[48], speed[4] = {1, 2, 1, 2};
    int    cut[5];
    for (int i = 0; i < 48; i++) layer_s[i] = 1;
    assert_int_equal(weft_place_layers(layer_s, NULL, 48, speed, NULL, 4, cut), WEFT_OK);
    for (int s = 0; s < 4; s++)
        assert_true(fabs((cut[s + 1] - cut[s]) / speed[s] / 8 - 1) <= 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units),
        cmocka_unit_test(layers),
        cmocka_unit_test(two_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
