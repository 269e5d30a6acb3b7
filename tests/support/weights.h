/* Final weights against a reference's: every tensor within 1e-4 of its norm.
 * Key biases are excepted: their true gradient is zero, so Adam only amplifies rounding. */
#ifndef TEST_SUPPORT_WEIGHTS_H
#define TEST_SUPPORT_WEIGHTS_H

#include "store/safetensors.h"

/* Tensors of `want`, all of them, in the folder that a run exported.  who: begins a failure's
 * line.  Answers the largest difference found, as a share of what is allowed. */
double test_weights_compare(const char *who, const weft_store_file *want,
                            const char *folder);
/* The same for a folder of files; want: a Hugging Face folder. */
double test_weights_compare_dir(const char *who, const char *want, const char *folder);

#endif
