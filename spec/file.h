/* file.h - a file as bytes: mapped read-only, or read whole when it is small.
 * Policy    regular files only. `inside` names the folder the file has to lie in once every
 *           symbolic link is followed (NULL: anywhere). A Hugging Face cache snapshot is known:
 *           links from .../snapshots/REV to .../blobs count as inside.
 * Errors    LS_ERR_IO with the system's reason; LS_ERR_INPUT for what is no regular file, is too
 *           large or lies outside. Every message begins with the path.
 * Memory    ls_file owns its mapping; a file that is cut while it is mapped faults (as any mmap).
 * Threads   plain values; a mapping may be read from many threads. */
#ifndef LS_FILE_H
#define LS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct ls_file {
    const uint8_t *data; /* never NULL while open, not even for an empty file */
    size_t bytes;
} ls_file;

#ifdef __cplusplus
extern "C" {
#endif

ls_status ls_file_open(const char *path, const char *inside, ls_file *out, ls_err *err);
/* NULL and a zeroed ls_file are allowed; leaves it zeroed. */
void ls_file_close(ls_file *f);

/* The whole file in malloc'd memory, a zero byte behind it (not counted). Refuses more than
 * max_bytes before it allocates. */
ls_status ls_file_read(const char *path, const char *inside, size_t max_bytes, char **out,
                       size_t *bytes, ls_err *err);

/* True when something (of any kind) has this path. */
bool ls_file_exists(const char *path);

/* "dir/name" in malloc'd memory. */
ls_status ls_file_join(const char *dir, const char *name, char **out, ls_err *err);

#ifdef __cplusplus
}
#endif

#endif
