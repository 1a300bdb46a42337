/* cases.h - the carried cases, and folders and files that tests make up.
 * Errors      whatever fails here fails the test. */
#ifndef LS_TEST_CASES_H
#define LS_TEST_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "status.h"

/* The folder of the tests' sources; set by ls_cases_begin(LS_TEST_DIR). */
void ls_cases_begin(const char *test_dir);

/* Calls fn for each entry of manifest.json whose file begins with prefix, with the full path and
 * "accept", "reject" or "either"; fails when there are fewer than at_least. */
typedef void (*ls_case_fn)(const char *path, const char *expect, const char *why);
void ls_cases_each(const char *prefix, size_t at_least, ls_case_fn fn);

/* "tests/rest", from a format; free it. */
char *ls_test_path(const char *fmt, ...) LS_PRINTF(1, 2);
/* Whole file with a zero byte behind it; free it. */
char *ls_test_read(const char *path, size_t *n);

/* A fresh empty folder, and files in it. The remover deletes one level of folders too. */
char *ls_test_dir_make(void);
void ls_test_dir_remove(char *dir);
void ls_test_write(const char *dir, const char *name, const void *data, size_t n);
void ls_test_copy(const char *from, const char *dir, const char *name);

/* One line that is not empty and contains each of the needles (NULL-terminated list). */
void ls_assert_message(const ls_err *err, ...);

/* Fails with the message when the call did. */
#define OK(call, err)                   \
    do {                                \
        if ((call) != LS_OK)            \
            fail_msg("%s", (err)->msg); \
    } while (0)

#endif
