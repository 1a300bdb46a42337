/* lockstep.c - the program: finds the command, runs it, turns its status into an exit status.
 * Exit   0 done; 1 a check failed; 2 the input or usage is wrong (one line on stderr: what, where,
 *        how to mend); 130 stopped by the person. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "term.h"

static const ls_command *const commands[] = {&ls_cmd_generate, &ls_cmd_run,   &ls_cmd_check,
                                             &ls_cmd_inspect,  &ls_cmd_bench, &ls_cmd_synth};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const ls_command *find(const char *name) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static void help(FILE *f) {
    fputs("lockstep - speculative decoding whose output is bit for bit that of plain decoding\n\n"
          "usage: lockstep COMMAND [OPTIONS]\n\n",
          f);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  %-10s %s\n", commands[i]->name, commands[i]->line);
    fputs("  help       this page, or that of one command: lockstep help COMMAND\n\n"
          "Options of a command: lockstep COMMAND --help. Version: lockstep --version.\n"
          "Exit status: 0 done, 1 a check failed, 2 input or usage is wrong, 130 stopped.\n\n"
          "First steps\n"
          "  lockstep generate --prompt \"Once upon a time\"\n"
          "  lockstep check --n-prompts 4\n"
          "  lockstep run experiments/acceptance_rate.lua\n",
          f);
}

static int finish(const char *name, ls_status status, const ls_err *err) {
    if (status == LS_OK)
        return fflush(stdout) == 0 ? 0 : 2;
    fflush(stdout);
    if (err->msg[0])
        fprintf(stderr, "lockstep%s%s: %s\n", *name ? " " : "", name, err->msg);
    return status == LS_ERR_CHECK ? 1 : status == LS_ERR_STOPPED ? 130 : 2;
}

/* The OpenMP library reads how long an idle thread spins when it is loaded, and its default of
 * milliseconds makes passes many times slower where another program wants the processor too. A
 * short spin costs nothing on an idle machine. Started again with it, unless the person chose
 * otherwise. */
static void settle_waiting(char **argv) {
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
        return;
    if (setenv("GOMP_SPINCOUNT", "1000", 1) == 0)
        execv("/proc/self/exe", argv); /* comes back only where there is no /proc: then so be it */
}

int main(int argc, char **argv) {
    settle_waiting(argv);
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0) {
        printf("lockstep %s\n", LS_VERSION);
        return 0;
    }
    if (strcmp(name, "help") == 0 && argc > 2) {
        argv[1] = argv[2], argv[2] = "--help"; /* lockstep help X is lockstep X --help */
        name = argv[1];
    } else if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 ||
               strcmp(name, "-h") == 0) {
        help(stdout);
        return 0;
    }
    ls_err err = {0};
    const ls_command *cmd = find(name);
    char shown[96];
    if (!cmd)
        return finish("",
                      *name ? ls_fail(&err, LS_ERR_INPUT, "no command %s: try lockstep help",
                                      ls_err_text(shown, sizeof shown, name, strlen(name)))
                            : ls_fail(&err, LS_ERR_INPUT, "no command given: try lockstep help"),
                      &err);
    ls_term_catch();
    return finish(cmd->name, cmd->run(cmd, argc - 1, argv + 1, &err), &err);
}
