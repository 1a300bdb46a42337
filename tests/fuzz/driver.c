/* driver.c - runs a fuzz target without a fuzzer: `fuzz_TARGET [-s SECONDS] [-c CASE] PATH...`
 *
 * First every kept input (files, and those of folders), then mutations of them until the time is
 * up; of files named slow_* none are made: they are there for the time they once took. Mutation
 * number k is the same on every machine: -c k runs that one alone. An input that makes the target
 * fail, or takes longer than CASE_SECONDS of processor time, is left as crash-TARGET.bin, and its
 * number is printed. Without -s the time is LS_FUZZ_SECONDS; else, under the sanitizers, 30 s where
 * CI is set and 10 s elsewhere; else 2 s. */
#define _XOPEN_SOURCE 700
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CASE_SECONDS 10 /* far from what any honest input of this size takes, also instrumented */
#define INPUT_MAX ((size_t)64 << 10)

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
void __sanitizer_set_death_callback(void (*callback)(void));
#else
#define SANITIZED 0
#endif

/* ---- inputs ---------------------------------------------------------------------------------- */

typedef struct input {
    uint8_t *p;
    size_t n;
    bool slow;
} input;

static input *corpus;
static size_t n_corpus;

static void die(const char *what, const char *which) {
    fprintf(stderr, "fuzz driver: %s: %s\n", what, which);
    exit(2);
}

static void add_file(const char *path, size_t bytes) {
    FILE *f = fopen(path, "rb");
    const char *slash = strrchr(path, '/');
    input in = {malloc(bytes + 1), bytes, strncmp(slash ? slash + 1 : path, "slow_", 5) == 0};
    corpus = realloc(corpus, (n_corpus + 1) * sizeof *corpus);
    if (!f || !in.p || !corpus || fread(in.p, 1, bytes, f) != bytes)
        die("cannot read", path);
    fclose(f);
    corpus[n_corpus++] = in;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name); /* not by the locale */
}

static void add(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0)
        die("no such file or folder", path);
    if (S_ISREG(st.st_mode)) {
        if ((size_t)st.st_size <= INPUT_MAX)
            add_file(path, (size_t)st.st_size);
        return;
    }
    struct dirent **list = NULL;
    const int n = scandir(path, &list, NULL, by_name);
    for (int i = 0; i < n; i++) {
        char at[1024];
        snprintf(at, sizeof at, "%s/%s", path, list[i]->d_name);
        if (list[i]->d_name[0] != '.')
            add(at);
        free(list[i]);
    }
    free(list);
}

/* ---- mutations ------------------------------------------------------------------------------- */

static uint64_t state;

static uint64_t rnd(uint64_t below) { /* splitmix64 */
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return below ? (z ^ z >> 31) % below : 0;
}

/* Takes `cut` bytes out at `at` and puts n bytes there. */
static void splice(input *in, size_t at, size_t cut, const void *p, size_t n) {
    if (in->n - cut + n > INPUT_MAX)
        return;
    memmove(in->p + at + n, in->p + at + cut, in->n - at - cut);
    memcpy(in->p + at, p, n);
    in->n = in->n - cut + n;
}

static void mutate(input *in) {
    static const uint64_t odd[] = {0,
                                   1,
                                   2,
                                   7,
                                   8,
                                   16,
                                   31,
                                   32,
                                   33,
                                   64,
                                   127,
                                   128,
                                   255,
                                   256,
                                   65535,
                                   65536,
                                   INT32_MAX,
                                   UINT32_MAX,
                                   (uint64_t)1 << 32,
                                   INT64_MAX,
                                   (uint64_t)1 << 63,
                                   UINT64_MAX,
                                   UINT64_MAX - 15,
                                   UINT64_MAX / 8 + 1};
    static const char *const words[] = {
        "{",    "}",       "[",       "]",    ":",
        ",",    "\"",      "null",    "true", "false",
        "-1",   "0",       "1e999",   "NaN",  "18446744073709551616",
        "0.5",  "\\u0000", "\\ud800", "\xff", "\xef\xbb\xbf",
        "\"\"", "{}",      "[]"};
    const size_t n_odd = sizeof odd / sizeof *odd, n_words = sizeof words / sizeof *words;
    const size_t at = (size_t)rnd(in->n + 1), left = in->n - at;
    const size_t len = (size_t)rnd((left < 64 || rnd(8) == 0 ? left : 64) + 1);
    uint8_t buf[1024];
    switch (rnd(11)) {
    case 0: /* a bit */
        if (left)
            in->p[at] ^= (uint8_t)(1u << rnd(8));
        break;
    case 1: /* a byte */
        if (left)
            in->p[at] = (uint8_t)rnd(256);
        break;
    case 2: /* a number, little endian */
    {
        const size_t width = (size_t)1 << rnd(4);
        const uint64_t v = odd[rnd(n_odd)] + (rnd(4) ? 0 : rnd(3) - 1);
        for (size_t i = 0; i < width && i < left; i++)
            in->p[at + i] = (uint8_t)(v >> 8 * i);
        break;
    }
    case 3: /* a number in figures, instead of one that is there */
    {
        size_t from = at, to;
        while (from < in->n && (in->p[from] < '0' || in->p[from] > '9'))
            from++;
        for (to = from; to < in->n && in->p[to] >= '0' && in->p[to] <= '9';)
            to++;
        const int n =
            snprintf((char *)buf, sizeof buf, "%llu", (unsigned long long)odd[rnd(n_odd)]);
        splice(in, from, to - from, buf, (size_t)n);
        break;
    }
    case 4: /* gone */
        splice(in, at, len, "", 0);
        break;
    case 5: /* cut */
        in->n = at;
        break;
    case 6: /* twice, or many times */
    {
        const size_t n = len < sizeof buf ? len : sizeof buf;
        memcpy(buf, in->p + at, n);
        for (uint64_t i = rnd(16) ? 1 : 1 + rnd(200); i > 0; i--)
            splice(in, at, 0, buf, n);
        break;
    }
    case 7: /* a word */
    {
        const char *w = words[rnd(n_words)];
        splice(in, at, rnd(2) ? 0 : len < 8 ? len : 8, w, strlen(w));
        break;
    }
    case 8: /* two stretches change places */
    {
        const size_t to = (size_t)rnd(in->n + 1), n = len < sizeof buf ? len : sizeof buf;
        memcpy(buf, in->p + at, n);
        splice(in, at, n, "", 0);
        splice(in, to < in->n ? to : in->n, 0, buf, n);
        break;
    }
    default: /* a stretch of another input */
    {
        const input *other = &corpus[rnd(n_corpus)];
        if (other->slow)
            break;
        const size_t from = (size_t)rnd(other->n + 1), most = other->n - from;
        const size_t n = (size_t)rnd((most < 256 ? most : 256) + 1);
        splice(in, at, rnd(2) ? 0 : len, other->p + from, n);
        break;
    }
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static const char *target;
static const uint8_t *now_p;
static size_t now_n;
static uint64_t now_case;
static bool now_kept;

/* Leaves what was being run; only calls that a signal handler may make. */
static void leave(void) {
    static volatile sig_atomic_t left;
    char name[128] = "crash-";
    if (left++ || !now_p)
        return;
    strncat(name, target, 80);
    strcat(name, ".bin");
    const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd >= 0 && write(fd, now_p, now_n) == (ssize_t)now_n)
        close(fd);
    fprintf(stderr, "fuzz driver: %s %llu of %s failed; it is in %s\n",
            now_kept ? "kept input" : "mutation", (unsigned long long)now_case, target, name);
}

static void on_signal(int sig) {
    if (sig == SIGPROF)
        fprintf(stderr, "fuzz driver: longer than %d s of processor time\n", CASE_SECONDS);
    leave();
    signal(sig, SIG_DFL);
    signal(SIGABRT, SIG_DFL);
    if (sig == SIGPROF)
        abort();
    raise(sig);
}

static void run(const uint8_t *p, size_t n, bool kept, uint64_t number) {
    const struct itimerval limit = {{0, 0}, {CASE_SECONDS, 0}}, off = {{0, 0}, {0, 0}};
    uint8_t *exact = malloc(n ? n : 1); /* a read past it shows */
    if (!exact)
        die("out of memory", target);
    memcpy(exact, p, n);
    now_p = exact;
    now_n = n;
    now_kept = kept;
    now_case = number;
    setitimer(ITIMER_PROF, &limit, NULL);
    LLVMFuzzerTestOneInput(exact, n);
    setitimer(ITIMER_PROF, &off, NULL);
    now_p = NULL;
    free(exact);
}

static void run_mutation(uint64_t number) {
    static uint8_t room[INPUT_MAX];
    state = number * 0xD6E8FEB86659FD93u + 1;
    const input *from = &corpus[rnd(n_corpus)];
    while (from->slow) /* main has seen one that is not */
        from = &corpus[rnd(n_corpus)];
    input in = {.p = room, .n = from->n};
    memcpy(room, from->p, from->n);
    for (uint64_t i = 1 + rnd(1 + rnd(8)); i > 0; i--)
        mutate(&in);
    run(in.p, in.n, false, number);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_to_run(void) {
    const char *own = getenv("LS_FUZZ_SECONDS"), *ci = getenv("CI");
    if (own && *own)
        return strtod(own, NULL);
    return !SANITIZED ? 2 : ci && *ci ? 30 : 10;
}

int main(int argc, char **argv) {
    double time = time_to_run();
    long long only = -1;
    int c;
    const char *slash = strrchr(argv[0], '/');
    target = slash ? slash + 1 : argv[0];
    while ((c = getopt(argc, argv, "s:c:")) != -1) {
        if (c == 's')
            time = strtod(optarg, NULL);
        else if (c == 'c')
            only = strtoll(optarg, NULL, 10);
        else
            return 2;
    }
    for (int i = optind; i < argc; i++)
        add(argv[i]);
    if (n_corpus == 0)
        die("no kept inputs", "give files or folders");
    const int caught[] = {SIGABRT, SIGPROF, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < (SANITIZED ? 2 : sizeof caught / sizeof *caught); i++)
        signal(caught[i], on_signal);
#if SANITIZED
    __sanitizer_set_death_callback(leave);
#endif
    const double end = seconds() + time;
    uint64_t k = 0;
    bool any = false;
    for (size_t i = 0; i < n_corpus; i++)
        any |= !corpus[i].slow;
    if (only >= 0) {
        if (any)
            run_mutation((uint64_t)only);
    } else {
        for (size_t i = 0; i < n_corpus; i++)
            run(corpus[i].p, corpus[i].n, true, i);
        while (any && seconds() < end)
            run_mutation(k++);
    }
    printf("%s: %zu kept inputs, %llu mutations\n", target, n_corpus, (unsigned long long)k);
    for (size_t i = 0; i < n_corpus; i++)
        free(corpus[i].p);
    free(corpus);
    return 0;
}
