/* Whether a model's tokens are bytes. */
#include <stdio.h>

#include "base/io.h"
#include "model/model.h"

enum {
    N_BYTES = 256
};

static const char *const file[] = {"tokenizer.json",
                                   "tokenizer_config.json",
                                   "tokenizer.model",
                                   "spiece.model",
                                   "sentencepiece.bpe.model",
                                   "vocab.json",
                                   "vocab.txt",
                                   "merges.txt",
                                   "special_tokens_map.json",
                                   "added_tokens.json"};

bool weft_model_has_tokenizer(const weft_model *m)
{
    char path[4352];
    for (size_t i = 0; i < WEFT_COUNT(file) && m->dir; i++) {
        snprintf(path, sizeof path, "%s/%s", m->dir, file[i]);
        if (weft_io_exists(path)) return true;
    }
    return false;
}

bool weft_model_is_of_bytes(const weft_model *m)
{
    return m->info.vocab == N_BYTES && !weft_model_has_tokenizer(m);
}
