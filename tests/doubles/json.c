#include "json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Deeper than any inventory, and shallow enough for any stack. */
#define MAX_DEPTH 32

static struct json *parse_value(const char **at, int depth);

static void skip_space(const char **at)
{
    while (**at == ' ' || **at == '\t' || **at == '\n' || **at == '\r')
        (*at)++;
}

static int hex4(const char *text)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)text[i]))
            return -1;
        int c = tolower((unsigned char)text[i]);
        value = value * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return value;
}

/* Appends a code point of the basic plane as UTF-8. Pairs of surrogates do not occur in inventories. */
static char *put_utf8(char *out, int code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | (code >> 6));
        *out++ = (char)(0x80 | (code & 0x3F));
    } else {
        *out++ = (char)(0xE0 | (code >> 12));
        *out++ = (char)(0x80 | ((code >> 6) & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    }
    return out;
}

static char *put_escape(char *out, const char **at)
{
    static const char names[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    char c = *(*at)++;
    if (c == 'u') {
        int code = hex4(*at);
        if (code <= 0 || (code >= 0xD800 && code <= 0xDFFF))
            return NULL;
        *at += 4;
        return put_utf8(out, code);
    }
    const char *found = c == '\0' ? NULL : strchr(names, c);
    if (found == NULL)
        return NULL;
    *out++ = values[found - names];
    return out;
}

static char *parse_string(const char **at)
{
    if (**at != '"')
        return NULL;
    (*at)++;
    /* An escape is never shorter than what it stands for. */
    char *text = malloc(strlen(*at) + 1);
    char *out = text;
    while (text != NULL && **at != '"') {
        char c = *(*at)++;
        if ((unsigned char)c < 0x20)
            goto bad;
        if (c != '\\')
            *out++ = c;
        else if ((out = put_escape(out, at)) == NULL)
            goto bad;
    }
    if (text == NULL)
        return NULL;
    (*at)++;
    *out = '\0';
    return text;
bad:
    free(text);
    return NULL;
}

static int parse_members(struct json *parent, const char **at, int depth)
{
    char close = parent->type == JSON_OBJECT ? '}' : ']';
    struct json **tail = &parent->child;
    (*at)++;
    skip_space(at);
    if (**at == close)
        return (*at)++, 1;
    for (;;) {
        char *key = NULL;
        skip_space(at);
        if (parent->type == JSON_OBJECT) {
            if ((key = parse_string(at)) == NULL)
                return 0;
            skip_space(at);
            if (*(*at)++ != ':') {
                free(key);
                return 0;
            }
        }
        struct json *member = parse_value(at, depth + 1);
        if (member == NULL) {
            free(key);
            return 0;
        }
        member->key = key;
        *tail = member;
        tail = &member->next;
        skip_space(at);
        char c = *(*at)++;
        if (c == close)
            return 1;
        if (c != ',')
            return 0;
    }
}

static int parse_scalar(struct json *value, const char **at)
{
    static const struct { const char *word; enum json_type type; } words[] = {
        {"true", JSON_BOOL}, {"false", JSON_BOOL}, {"null", JSON_NULL}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].word);
        if (strncmp(*at, words[i].word, length) == 0) {
            value->type = words[i].type;
            value->string = strdup(words[i].word);
            *at += length;
            return value->string != NULL;
        }
    }
    size_t length = strspn(*at, "+-.0123456789eE");
    value->type = JSON_NUMBER;
    value->string = strndup(*at, length);
    *at += length;
    return length > 0 && value->string != NULL;
}

static struct json *parse_value(const char **at, int depth)
{
    struct json *value = calloc(1, sizeof *value);
    int good = 0;
    if (value == NULL)
        return NULL;
    skip_space(at);
    if (depth > MAX_DEPTH) {
        good = 0;
    } else if (**at == '{' || **at == '[') {
        value->type = **at == '{' ? JSON_OBJECT : JSON_ARRAY;
        good = parse_members(value, at, depth);
    } else if (**at == '"') {
        value->type = JSON_STRING;
        value->string = parse_string(at);
        good = value->string != NULL;
    } else {
        good = parse_scalar(value, at);
    }
    if (good)
        return value;
    json_free(value);
    return NULL;
}

struct json *json_parse(const char *text)
{
    struct json *value = parse_value(&text, 0);
    skip_space(&text);
    if (value != NULL && *text != '\0') {
        json_free(value);
        return NULL;
    }
    return value;
}

void json_free(struct json *value)
{
    while (value != NULL) {
        struct json *next = value->next;
        json_free(value->child);
        free(value->key);
        free(value->string);
        free(value);
        value = next;
    }
}

const struct json *json_get(const struct json *object, const char *key)
{
    if (object == NULL || object->type != JSON_OBJECT)
        return NULL;
    for (const struct json *member = object->child; member != NULL; member = member->next)
        if (strcmp(member->key, key) == 0)
            return member->type == JSON_NULL ? NULL : member;
    return NULL;
}

const char *json_text(const struct json *object, const char *key, const char *fallback)
{
    const struct json *member = json_get(object, key);
    return member != NULL && member->type == JSON_STRING ? member->string : fallback;
}

unsigned json_number(const struct json *object, const char *key, unsigned fallback)
{
    const struct json *member = json_get(object, key);
    return member != NULL && member->type == JSON_NUMBER ? (unsigned)strtoul(member->string, NULL, 10) : fallback;
}

bool json_true(const struct json *object, const char *key)
{
    const struct json *member = json_get(object, key);
    return member != NULL && member->type == JSON_BOOL && strcmp(member->string, "true") == 0;
}
