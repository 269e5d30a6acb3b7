/* A score in words: one place for the names that every command prints. */
#include <string.h>

#include "cost/score.h"

const char *weft_cost_recompute_name(int r)
{
    static const char *const name[WEFT_RECOMPUTE_N] = {"none", "selective", "full",
                                                       "light"};
    return name[r];
}

void weft_cost_time_parts(const weft_cost_score *s, weft_cost_part out[WEFT_COST_N_TIME])
{
    const weft_cost_part part[WEFT_COST_N_TIME] = {{"compute", s->compute_s},
                                                   {"compute again", s->again_s},
                                                   {"waiting for wires", s->comm_s},
                                                   {"waiting for the host", s->host_s},
                                                   {"between stages", s->p2p_s},
                                                   {"pipeline idle", s->bubble_s},
                                                   {"gradients, weights", s->dp_s},
                                                   {"optimizer", s->optimizer_s},
                                                   {"fixed", s->fixed_s}};
    memcpy(out, part, sizeof part);
}

void weft_cost_memory_parts(const weft_cost_score *s,
                            weft_cost_part         out[WEFT_COST_N_MEMORY])
{
    const weft_cost_part part[WEFT_COST_N_MEMORY] = {
        {"weights, gradients", s->weight_bytes},
        {"optimizer state", s->state_bytes},
        {"activations", s->keep_bytes},
        {"working", s->work_bytes},
        {"engine", s->engine_bytes}};
    memcpy(out, part, sizeof part);
}
