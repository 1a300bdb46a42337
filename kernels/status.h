/* status.h - what a call that can fail returns, and the one line a person reads.
 * Errors    a function that can fail returns ls_status, LS_OK = 0, and takes an optional ls_err
 *           last.
 *           On error outputs are untouched unless the function says otherwise.
 * Message   one line: what is wrong, where (file, tensor, line), how to mend. No newline at the
 *           end, control bytes escaped by whoever puts foreign text in (ls_err_text does).
 * Threads   an ls_err belongs to its caller; nothing here is global. */
#ifndef LS_STATUS_H
#define LS_STATUS_H

#include <stddef.h>

typedef enum ls_status {
    LS_OK = 0,
    LS_ERR_INPUT,   /* a file, option or argument is wrong: exit status 2 */
    LS_ERR_IO,      /* the operating system said no: exit status 2 */
    LS_ERR_SHAPE,   /* sizes that do not belong together */
    LS_ERR_FULL,    /* cache or context is used up */
    LS_ERR_STATE,   /* call not allowed in this state */
    LS_ERR_MEMORY,  /* out of memory */
    LS_ERR_NUMERIC, /* NaN or +inf where a token would be chosen */
    LS_ERR_SCRIPT,  /* a Lua script failed, overran a budget or returned nonsense: exit status 2 */
    LS_ERR_DEVICE,  /* the accelerator failed */
    LS_ERR_STOPPED, /* the person asked to stop (SIGINT) */
    LS_ERR_CHECK    /* a check that a script made has failed: exit status 1 */
} ls_status;

#define LS_ERR_MAX 768

typedef struct ls_err {
    ls_status code;
    char msg[LS_ERR_MAX];
} ls_err;

#if defined(__GNUC__)
#define LS_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define LS_PRINTF(a, b)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the message (cut at LS_ERR_MAX) and returns `code`; err may be NULL. */
ls_status ls_fail(ls_err *err, ls_status code, const char *fmt, ...) LS_PRINTF(3, 4);

/* Puts "prefix: " before the message already in err (used on the way up: file names, layers). */
ls_status ls_fail_in(ls_err *err, ls_status code, const char *fmt, ...) LS_PRINTF(3, 4);

/* Copies foreign bytes into dst as printable UTF-8: control bytes and bad UTF-8 become \xHH. Always
 * terminates; cuts at cap - 1 and ends with "..." if it cut. Returns dst. */
char *ls_err_text(char *dst, size_t cap, const char *src, size_t n);

/* "input", "full", ... for records and tests. */
const char *ls_status_name(ls_status s);

#ifdef __cplusplus
}
#endif

#define LS_TRY(expr)                \
    do {                            \
        ls_status ls_try_ = (expr); \
        if (ls_try_ != LS_OK)       \
            return ls_try_;         \
    } while (0)

#endif
