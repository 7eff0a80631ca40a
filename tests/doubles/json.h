/* A reader for the little JSON that an inventory is: no dependency, whole documents only. */
#ifndef DOUBLES_JSON_H
#define DOUBLES_JSON_H

#include <stdbool.h>
#include <stddef.h>

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_type type;
    char *key;     /* name of this member, inside an object */
    char *string;  /* JSON_STRING: the text; JSON_NUMBER, JSON_BOOL, JSON_NULL: as written */
    struct json *child; /* first element or member */
    struct json *next;  /* next element or member of the same parent */
};

/* Reads one document; NULL where it is not JSON. Release it with json_free. */
struct json *json_parse(const char *text);
void json_free(struct json *value);

/* Member of an object, NULL where absent or null. */
const struct json *json_get(const struct json *object, const char *key);
/* Text of a member, or the fallback. */
const char *json_text(const struct json *object, const char *key, const char *fallback);
/* Unsigned number of a member, or the fallback. */
unsigned json_number(const struct json *object, const char *key, unsigned fallback);
/* Whether a member is there and true. */
bool json_true(const struct json *object, const char *key);

#endif
