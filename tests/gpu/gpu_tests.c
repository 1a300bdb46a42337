/* gpu_tests.c - many test programs in one: `ls_gpu_tests NAME` is what tests/NAME.c is alone, and
 * `ls_gpu_tests` lists the names. LS_TEST_LIST names a file of X(NAME) lines. */
#include <stdio.h>
#include <string.h>

#define X(name) int name(void);
#include LS_TEST_LIST
#undef X

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } test[] = {
#define X(name) {#name, name},
#include LS_TEST_LIST
#undef X
    };
    for (size_t i = 0; i < sizeof test / sizeof *test; i++)
        if (argc < 2)
            puts(test[i].name);
        else if (strcmp(argv[1], test[i].name) == 0)
            return test[i].run();
    if (argc < 2)
        return 0;
    fprintf(stderr, "%s: no test %s\n", argv[0], argv[1]);
    return 2;
}
