/* The constants behind prices: what device kinds, link kinds and engines add to what a data sheet
 * says. Terms and their defaults are in device_terms.def, link_terms.def and engine_terms.def;
 * what is known of single kinds, with where it comes from, in constants.def.  A kind that nobody
 * named gets the defaults.
 *
 *     weft_cost_constants *c;
 *     WEFT_TRY(weft_cost_constants_create(&c));
 *     weft_cost_engine e;
 *     weft_cost_constants_engine(c, "Megatron-LM 2021", &e);
 */
#ifndef WEFT_COST_CONSTANTS_H
#define WEFT_COST_CONSTANTS_H

#include <stdbool.h>

#include "cluster/cluster.h"
#include "cost/fabric.h"

typedef struct weft_cost_engine {
    bool known; /* false: the defaults */
#define TERM(name, value, low, high, unit, about) double name;
#include "cost/engine_terms.def"
#undef TERM
} weft_cost_engine;

typedef enum weft_cost_family {
    WEFT_COST_DEVICE,
    WEFT_COST_LINK,
    WEFT_COST_ENGINE,
    WEFT_COST_N_FAMILY
} weft_cost_family;

typedef struct weft_cost_term {
    const char *name;
    double      value, low, high; /* the default and its physical limits */
    const char *unit, *about;
} weft_cost_term;

typedef struct weft_cost_constants weft_cost_constants;

weft_status weft_cost_constants_create(weft_cost_constants **out); /* the built-in ones */
/* Without what was fitted: where bench/predict/fit.py starts. */
weft_status weft_cost_constants_unfitted(weft_cost_constants **out);
void        weft_cost_constants_destroy(weft_cost_constants *c);

/* By "engine.nanotron.host_op_s", "device.default.stream", "link.ib.share"; outside its limits:
 * refused. */
weft_status weft_cost_constants_set(weft_cost_constants *c, const char *key, double v);

/* For tables and fitting: terms and kinds by number (kind 0 is "default"); the value of a kind, and
 * whether it is its own or the default's. */
int                   weft_cost_n_term(weft_cost_family f);
const weft_cost_term *weft_cost_term_at(weft_cost_family f, int i);
int                   weft_cost_n_kind(const weft_cost_constants *c, weft_cost_family f);
const char *weft_cost_kind_name(const weft_cost_constants *c, weft_cost_family f, int i);
const char *weft_cost_kind_source(const weft_cost_constants *c, weft_cost_family f,
                                  int i);
/* Did measured steps of the kind move its constants?  false: they are assumed, or the defaults. */
bool   weft_cost_kind_fitted(const weft_cost_constants *c, weft_cost_family f, int i);
double weft_cost_value(const weft_cost_constants *c, weft_cost_family f, int kind,
                       int term, bool *own);
/* For bench/predict/fit.py: unchecked; NAN: as the default. */
void weft_cost_put(weft_cost_constants *c, weft_cost_family f, int kind, int term,
                   double v);
/* The kind that a name means, in any case: the first whose pattern it contains; 0: none. */
int weft_cost_kind_of(const weft_cost_constants *c, weft_cost_family f, const char *name);
/* WEFT_ERR_ARG: no engine is called so; the text says which there are. */
weft_status weft_cost_know_engine(const weft_cost_constants *c, const char *name);

/* The profile for a framework as people write it. */
void weft_cost_constants_engine(const weft_cost_constants *c, const char *framework,
                                weft_cost_engine *out);
/* Was a step of the framework measured on a device of that name's kind (measured.def)? */
bool weft_cost_was_measured(const weft_cost_constants *c, const char *framework,
                            const char *device);
/* Widens the interval of e, the framework's profile, where none was. */
void weft_cost_widen(const weft_cost_constants *c, const char *framework,
                     const char *device, weft_cost_engine *e);
/* Fills what d leaves open (efficiencies, curve, launch) from its name; d->rate may be written. */
void weft_cost_constants_device(const weft_cost_constants *c, weft_device_kind *d);
/* A link of that kind and nominal speed. */
void weft_cost_constants_link(const weft_cost_constants *c, const char *kind, double Bps,
                              weft_cost_wire *out);

#endif
