/* Which build of weft this program is: its version, and the commit where that is known (main.c sets
 * it; tools/build_id.sh finds it).  `weft --version` prints it, agents of several hosts compare it.
 */
#ifndef WEFT_CLI_BUILD_H
#define WEFT_CLI_BUILD_H

/* commit "": it is not known. */
void        weft_cli_set_commit(const char *commit);
const char *weft_cli_commit(void);
/* "0.1.0 1234567-dirty", or the version alone. */
const char *weft_cli_build(void);

#endif
