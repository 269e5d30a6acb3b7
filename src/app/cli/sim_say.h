/* What weft sim says of a folded run. */
#ifndef WEFT_CLI_SIM_SAY_H
#define WEFT_CLI_SIM_SAY_H

#include "sim/fold.h"

/* Does every rank's program fit the memory that plans may fill of its device? */
bool weft_cli_sim_fits(const weft_sim_folded *f, const weft_cluster *c);
/* What was simulated; model NULL: program texts, which do not say. */
typedef struct weft_cli_sim_asked {
    const char *model, *dtype;
    int64_t     batch, seq, micro_batch;
} weft_cli_sim_asked;

/* One line of JSON: times, of each rank idle share and memory, of each level of links bytes a
 * step. */
weft_status weft_cli_sim_json(const weft_sim_folded *f, const weft_world *w,
                              const weft_cluster *c, const weft_cli_sim_asked *asked,
                              weft_text *out);
/* For people: what was simulated, the timeline's summary of one rank a class, then the same sums.
 */
weft_status weft_cli_sim_print(const weft_sim_folded *f, const weft_world *w,
                               const weft_cluster *c, const weft_cli_sim_asked *asked,
                               weft_text *out);
/* For Perfetto: every rank of a small job, one of each class of a large one. */
weft_status weft_cli_sim_trace(const weft_sim_folded *f, const weft_world *w,
                               weft_text *out);

#endif
