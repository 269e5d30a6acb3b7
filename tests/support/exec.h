/* An executor whose slabs are allocated with it and freed with it.
 *     test_exec_create(program, &options, &e);   slabs that the options have are taken as they are
 *     test_exec_destroy(e); */
#ifndef TEST_SUPPORT_EXEC_H
#define TEST_SUPPORT_EXEC_H

#include "exec/exec.h"

weft_status test_exec_create(const weft_program *p, const weft_exec_options *o,
                             weft_exec **out);
void        test_exec_destroy(weft_exec *e); /* accepts NULL */

#endif
