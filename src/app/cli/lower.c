/* weft lower: the program of a model's training step */
#include "cli/cli.h"
#include "cli/spec.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_lower = {
    .name  = "lower",
    .usage = "MODEL [options]",
    .about = "print the program of a training step: actors, instructions, buffers at "
             "their offsets",
    .more  = "MODEL is a folder with config.json or a preset.  The text reads back: weft "
             "sim x.prog.",
    .example = "weft lower tiny256 --batch 8 --seq 128 --micro-batch 2 -o tiny.prog",
    .run     = run,
};

static void summary(const weft_program *p, weft_text *t)
{
    int    n_instr = 0;
    double flops   = 0;
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; i < p->actor[a].n_instr; i++, n_instr++)
            if (p->actor[a].instr[i].kind == WEFT_INSTR_COMPUTE)
                flops += weft_instr_flops(&p->actor[a].instr[i]);
    weft_text_add(t, "{\"name\": ");
    weft_text_put_quoted(t, p->name);
    weft_text_add(
        t,
        ", \"actors\": %d, \"instructions\": %d, \"buffers\": %d, \"micro_batches\": %d",
        p->n_actor, n_instr, p->n_buffer, p->n_micro);
    weft_text_add(t, ", \"lanes\": %d, \"state_bytes\": %lld, \"work_bytes\": %lld",
                  p->n_lane, (long long)weft_program_bytes(p, WEFT_SLAB_STATE),
                  (long long)weft_program_bytes(p, WEFT_SLAB_WORK));
    weft_text_add(t, ", \"staging_bytes\": %lld, \"flops_a_firing\": ",
                  (long long)weft_program_bytes(p, WEFT_SLAB_STAGING));
    weft_text_put_double(t, flops);
    weft_text_add(t, "}");
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c    = &weft_cli_lower;
    weft_cli_spec           s    = {.batch = 0};
    weft_model             *m    = NULL;
    weft_training           step = {0};
    weft_compiled           made = {0};
    weft_text               t    = {0};
    const char             *out  = NULL;
    bool                    json = false, eval = false, logits = false;
    int                     n_word                      = 0;
    weft_cli_option         option[WEFT_CLI_N_SPEC + 4] = {
                {"eval", 0, WEFT_CLI_FLAG, &eval, NULL, "forward only, loss out"},
                {"logits", 0, WEFT_CLI_FLAG, &logits, NULL, "forward only, logits out"},
                {"output", 'o', WEFT_CLI_TEXT, &out, "FILE", "instead of standard output"},
                {"json", 0, WEFT_CLI_FLAG, &json, NULL, "one line that sums it up"},
    };
    weft_cli_spec_options(&s, option + 4);
    int code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word != 1) return weft_cli_usage(c, "expected one model");
    code = weft_cli_spec_resolve(c, &s, argv[0]);
    if (code >= 0) return code;

    weft_status st = eval     ? weft_compile_model(&s.spec, &m)
                     : logits ? weft_compile_logits_model(&s.spec, &m)
                              : weft_compile_training(&s.spec, &step);
    if (st == WEFT_OK)
        st = eval     ? weft_compile_eval(&s.spec, m, NULL, 0, NULL, &made)
             : logits ? weft_compile_logits(&s.spec, m, &made)
                      : weft_compile_program(&step, NULL, 0, &made);
    if (st == WEFT_OK) st = weft_program_verify(made.program);
    if (st == WEFT_OK && json) summary(made.program, &t);
    if (st == WEFT_OK && !json) st = weft_program_print(made.program, &t);
    weft_compiled_fini(&made);
    weft_training_fini(&step);
    weft_model_destroy(m);
    return st == WEFT_OK ? weft_cli_put(c, &t, out) : weft_cli_fail(c, st);
}
