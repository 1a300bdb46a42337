/* checkpoint.h - the weights of a model: a Hugging Face folder (one file, or shards named by an
 * index), or one GGUF file.
 * Folder    model.safetensors.index.json if there is one, else model.safetensors. Files that
 *           neither names are ignored.
 * Index     weight_map: tensor -> file. A file is a plain name inside the folder (no path, no link
 *           leading out); it has to exist and hold that tensor. A tensor that a shard holds but the
 *           index gives to another shard, or to none, is not part of the model.
 * GGUF      a path of a file that begins with GGUF: its tensors as gguf_view.h gives them, matrices
 *           of Q8_0 and Q4_K as the file's blocks, under the names a folder has. The digest is over
 *           the file alone.
 * Digest    what `sha256sum F1 F2 ... | sha256sum` prints in the folder, over config.json (if
 *           there), the index (if used) and the weight files, in byte order of their names.
 * Memory    owns the mappings and what was widened; tensors borrow from them until close.
 * Threads   read-only after open. */
#ifndef LS_CHECKPOINT_H
#define LS_CHECKPOINT_H

#include <stdbool.h>

#include "gguf.h"
#include "load.h"
#include "sha256.h"
#include "safetensors.h"

typedef struct ls_checkpoint ls_checkpoint;

typedef struct ls_checkpoint_options {
    bool widen;   /* block types of a GGUF file all become f32: to compare with */
    ls_load load; /* told of what takes a while */
} ls_checkpoint_options;

#ifdef __cplusplus
extern "C" {
#endif
/* dir: the folder, or the path of a GGUF file. */
ls_status ls_checkpoint_open(const char *dir, ls_checkpoint **out, ls_err *err);
ls_status ls_checkpoint_open_with(const char *dir, ls_checkpoint_options o, ls_checkpoint **out,
                                  ls_err *err);
void ls_checkpoint_close(ls_checkpoint *cp);

const char *ls_checkpoint_dir(const ls_checkpoint *cp);
size_t ls_checkpoint_count(const ls_checkpoint *cp);
/* i < count, in byte order of the names. */
const ls_st_tensor *ls_checkpoint_at(const ls_checkpoint *cp, size_t i);
/* NULL: no such tensor. */
const ls_st_tensor *ls_checkpoint_find(const ls_checkpoint *cp, const char *name);
size_t ls_checkpoint_n_files(const ls_checkpoint *cp);
/* The file as it is stored, when this is one; else NULL. */
const ls_gguf *ls_checkpoint_gguf(const ls_checkpoint *cp);

/* Reads every byte of the model: seconds for large ones. */
ls_status ls_checkpoint_digest(const ls_checkpoint *cp, char hex[LS_SHA256_HEX], ls_err *err);
#ifdef __cplusplus
}
#endif

#endif
