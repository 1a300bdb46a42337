#include "term.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "clock.h"

#define REDRAW_US 100000
#define BAR 24

static volatile sig_atomic_t stopped;

static void on_interrupt(int sig) {
    (void)sig;
    stopped = 1;
}

void ls_term_catch(void) {
    struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}

bool ls_term_stopped(void *self) {
    (void)self;
    return stopped != 0;
}

ls_term ls_term_open(int color, bool quiet) {
    return (ls_term){.color = color == 1 || (color == 0 && isatty(STDOUT_FILENO)),
                     .progress = !quiet && isatty(STDERR_FILENO),
                     .drawn_us = -REDRAW_US};
}

const char *ls_term_style(const ls_term *t, ls_style style) {
    static const char *const codes[] = {"\033[0m", "\033[32m", "\033[36m",  "\033[2;9;31m",
                                        "\033[2m", "\033[32m", "\033[1;31m"};
    return t->color ? codes[style] : "";
}

static int columns(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

void ls_term_progress(ls_term *t, int64_t done, int64_t total, const char *text) {
    if (!t->progress)
        return;
    const double now = ls_now_us();
    if (now - t->drawn_us < REDRAW_US && done < total)
        return;
    char line[256];
    int n = 0;
    if (total > 0) {
        const int full = (int)((double)(done < total ? done : total) / (double)total * BAR);
        n = snprintf(line, sizeof line, "[%.*s%.*s] %lld/%lld  ", full, "########################",
                     BAR - full, "........................", (long long)done, (long long)total);
    } else {
        n = snprintf(line, sizeof line, "%lld  ", (long long)done);
    }
    if (text)
        snprintf(line + n, sizeof line - (size_t)n, "%s", text);
    /* one line and not more: a wrapped one could not be taken back */
    fprintf(stderr, "\r\033[K%.*s", columns() - 1, line);
    fflush(stderr);
    t->drawn = true;
    t->drawn_us = now;
}

static void on_load(void *self, uint64_t done, uint64_t total, const char *text) {
    char line[80];
    snprintf(line, sizeof line, "MiB %s", text);
    if (total >= LS_TERM_LOAD_BYTES)
        ls_term_progress(self, (int64_t)(done >> 20), (int64_t)(total >> 20), line);
}

ls_load ls_term_load(ls_term *t) {
    return (ls_load){.progress = on_load, .self = t};
}

void ls_term_clear(ls_term *t) {
    if (!t->drawn)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    t->drawn = false;
}
