#include "config_rig.h"

#include "cases.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ls_status with_family(const char *name, const change *list, size_t n, ls_config *c, ls_err *err) {
    char from[96];
    snprintf(from, sizeof from, "fixtures/families/%s/config.json", name);
    char *path = ls_test_path(from);
    json_t *base = json_load_file(path, 0, NULL);
    free(path);
    assert_non_null(base);
    for (size_t i = 0; i < n; i++) {
        if (!list[i].value) {
            json_object_del(base, list[i].key);
            continue;
        }
        json_t *v = json_loads(list[i].value, JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        json_object_set_new(base, list[i].key, v);
    }
    char *text = json_dumps(base, 0), *dir = ls_test_dir_make();
    json_decref(base);
    assert_non_null(text);
    ls_test_write(dir, "config.json", text, strlen(text));
    free(text);
    ls_status s = ls_config_read(dir, c, err);
    ls_test_dir_remove(dir);
    return s;
}
