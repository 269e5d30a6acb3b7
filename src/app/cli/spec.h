/* Options that graph, lower, sim and bench share: which program of which model. */
#ifndef WEFT_CLI_SPEC_H
#define WEFT_CLI_SPEC_H

#include "cli/cli.h"
#include "compile/compile.h"

typedef struct weft_cli_spec {
    weft_compile_spec spec;
    int64_t           batch, seq, micro_batch, lanes;
    const char       *dtype, *fp8_format, *optimizer, *recompute, *reduction, *offload;
    double            clip; /* < 0: not given */
    bool              dropout;
} weft_cli_spec;

enum {
    WEFT_CLI_N_SPEC = 12
};

/* Writes WEFT_CLI_N_SPEC rows that read into s. */
void weft_cli_spec_options(weft_cli_spec *s, weft_cli_option *row);
/* After parsing: s->spec of the model; -1 to go on, else an exit code. */
int weft_cli_spec_resolve(const weft_cli_command *c, weft_cli_spec *s, const char *model);

#endif
