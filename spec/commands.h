/* commands.h - what `lockstep` can be asked to do: one file a command, one table in lockstep.c. */
#ifndef LS_COMMANDS_H
#define LS_COMMANDS_H

#include "options.h"

extern const ls_command ls_cmd_generate, ls_cmd_run, ls_cmd_check, ls_cmd_inspect, ls_cmd_bench,
    ls_cmd_synth;

#endif
