/* Engines on devices that none of their steps was measured on: a wider interval.
 *
 * Both numbers are of bench/predict/unseen.py from bench/results/predict-2026-11-15.txt: each of 15
 * sources of measured steps was left out of the fit, and what occurs nowhere else forgotten. */
#include <math.h>
#include <string.h>

#include "cost/constants.h"

/* log(measured / predicted) of a source's mean, root mean square over the sources. */
#define UNSEEN_SPREAD 0.231
/* Where no engine was measured on the device: the longest measured step over its prediction, of the
 * source whose device was forgotten. */
#define UNKNOWN_DEVICE_LONGEST 2.38

static const struct {
    const char *engines, *devices;
} measured[] = {
#define MEASURED(engines, devices, source) {engines, devices},
#include "cost/measured.def"
#undef MEASURED
};

/* Is word one of those in list, with blanks between? */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = list; *s; s += strcspn(s, " "), s += *s == ' ')
        if (strcspn(s, " ") == n && !strncmp(s, word, n)) return true;
    return false;
}

bool weft_cost_was_measured(const weft_cost_constants *c, const char *framework,
                            const char *device)
{
    int e = weft_cost_kind_of(c, WEFT_COST_ENGINE, framework);
    int d = weft_cost_kind_of(c, WEFT_COST_DEVICE, device);
    for (size_t i = 0; e > 0 && d > 0 && i < sizeof measured / sizeof *measured; i++)
        if (has_word(measured[i].engines, weft_cost_kind_name(c, WEFT_COST_ENGINE, e)) &&
            has_word(measured[i].devices, weft_cost_kind_name(c, WEFT_COST_DEVICE, d)))
            return true;
    return false;
}

void weft_cost_widen(const weft_cost_constants *c, const char *framework,
                     const char *device, weft_cost_engine *e)
{
    weft_cost_engine own;
    int              d = weft_cost_kind_of(c, WEFT_COST_DEVICE, device);
    if (weft_cost_was_measured(c, framework, device)) return;
    weft_cost_constants_engine(c, framework, &own);
    e->spread = hypot(own.spread, UNSEEN_SPREAD);
    if (!weft_cost_kind_fitted(c, WEFT_COST_DEVICE, d))
        e->longest = fmax(e->longest, UNKNOWN_DEVICE_LONGEST);
}
