/* fuzz.h - what the fuzz targets share: one function a target, fed by libFuzzer (scripts/fuzz.sh)
 * or by the plain driver (driver.c) with the kept corpus and seeded mutations of it.
 * Target     LLVMFuzzerTestOneInput reads data as one kind of file, uses what it read, frees it.
 * Promise    a reader says OK, or LS_ERR_INPUT with one printable line that names the file. It
 *            never faults, hangs or leaks, and its memory is in proportion to the file:
 *            fuzz_mem_end.
 * Failure    abort() after a line on stderr: both drivers then keep the input.
 * Memory     counted are the blocks that our code, jansson and PCRE2 take: malloc and its like are
 *            wrapped by the linker (--wrap), jansson is given the wrapped ones.
 * Threads    one. */
#ifndef LS_FUZZ_H
#define LS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define FUZZ_NAME "fuzz.in" /* the name each input has, for messages */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Between these the most bytes in use at a time may be `base` + `times` * n, and none may be left
 * at the end. */
void fuzz_mem_begin(void);
void fuzz_mem_end(size_t n, size_t times, size_t base);

/* What a reader returned: LS_OK, or a refusal in one good line. True for LS_OK. */
int fuzz_verdict(ls_status s, const ls_err *err);
/* Aborts with the text when the condition does not hold. */
void fuzz_require(int condition, const char *text);

/* A folder for targets that need files, removed at exit; the same one at every call. */
const char *fuzz_dir(void);
void fuzz_write(const char *name, const void *data, size_t n);

#endif
