/* A hint (engines/contract.py) as one function of SQL: row_may_match(program, value, row) is 0 if the row cannot match.

   A program is the text of a hint that row_hints.py writes: one byte for the version and four for the length of the
   longest value to examine, then its nodes, each before its parts. A node is 20 bytes (kind, flags, number of parts, two
   doubles), then three texts, each after its length in four bytes: marker, least and greatest. Integers and doubles
   begin with their lowest byte.

   Programs, rows and values are hostile: clients choose them, and files may be damaged. So every length is checked
   before it is used, and the answer to whatever is not understood is 1, "perhaps". That only costs time, while a wrong 0
   would lose a row. The answers are those of the conditions in hinted_read.py, or wider. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* for memmem */
#endif
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__ /* every x86-64 has it */
#include <emmintrin.h>
#endif

enum { VERSION = 1, START_BYTES = 5, HEAD_BYTES = 20, NODES_MAX = 128, DEPTH_MAX = 16 };
#define PROGRAM_BYTES_MAX (16u << 20)

/* The search for a marker begins this many bytes before the place where the last row had it. */
enum { NEAR_BYTES = 32 };

/* A longer number may match. The longest that is stored has 25 bytes; a client's text may have thousands of digits. */
enum { NUMBER_BYTES_MAX = 64 };

enum { CONTAINS = 1, NUMBER_AFTER, TEXT_AFTER, ROW_BETWEEN, ALL_OF, ANY_OF };
enum { QUOTED = 1, INTEGERS = 2, OR_ABSENT = 4, ENDLESS = 8 };

typedef struct {
    const uint8_t *at; /* never NULL */
    size_t length;
} Bytes;

typedef struct {
    int kind, flags;
    size_t next; /* the node after this one and its parts */
    double from, to;
    Bytes marker, least, greatest;
    size_t found; /* where the last row with the marker had it */
} Node;

typedef struct {
    size_t examined_max; /* a longer value may match */
    int needs_row;
    size_t count;
    Node nodes[NODES_MAX];
    uint8_t text[]; /* the program, to which the nodes point */
} Program;

/* ---- Reading a program ---- */

static int take(Bytes *rest, size_t length, Bytes *taken) {
    if (rest->length < length)
        return 0;
    *taken = (Bytes){rest->at, length};
    *rest = (Bytes){rest->at + length, rest->length - length};
    return 1;
}

static uint64_t integer(const uint8_t *at, int bytes) {
    uint64_t result = 0;
    while (bytes-- > 0)
        result = result << 8 | at[bytes];
    return result;
}

static double number(const uint8_t *at) {
    uint64_t bits = integer(at, 8);
    double result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static int take_text(Bytes *rest, Bytes *text) {
    Bytes length;
    return take(rest, 4, &length) && take(rest, (size_t)integer(length.at, 4), text);
}

/* Adds a node and its parts; returns 0 if the program is malformed. */
static int read_node(Program *program, Bytes *rest, int depth) {
    Bytes head;
    if (depth == DEPTH_MAX || program->count == NODES_MAX || !take(rest, HEAD_BYTES, &head))
        return 0;
    Node *node = &program->nodes[program->count++];
    node->kind = head.at[0];
    node->flags = head.at[1];
    node->from = number(head.at + 4);
    node->to = number(head.at + 12);
    node->found = 0;
    if (!take_text(rest, &node->marker) || !take_text(rest, &node->least) || !take_text(rest, &node->greatest))
        return 0;
    size_t parts = (size_t)integer(head.at + 2, 2);
    switch (node->kind) {
    case CONTAINS:
    case NUMBER_AFTER:
    case TEXT_AFTER:
        if (parts != 0 || node->marker.length == 0 || isnan(node->from) || isnan(node->to))
            return 0;
        break;
    case ROW_BETWEEN:
        if (parts != 0)
            return 0;
        program->needs_row = 1;
        break;
    case ALL_OF:
        break;
    case ANY_OF:
        if (parts == 0)
            return 0;
        break;
    default:
        return 0;
    }
    while (parts-- > 0)
        if (!read_node(program, rest, depth + 1))
            return 0;
    node->next = program->count;
    return 1;
}

/* NULL if the text is malformed or memory is short. The caller frees it. */
static Program *program_of(Bytes text) {
    if (text.length < START_BYTES || text.length > PROGRAM_BYTES_MAX || text.at[0] != VERSION)
        return NULL;
    Program *program = malloc(sizeof(Program) + text.length);
    if (program == NULL)
        return NULL;
    memcpy(program->text, text.at, text.length);
    program->examined_max = (size_t)integer(text.at + 1, 4);
    program->needs_row = 0;
    program->count = 0;
    Bytes rest = {program->text + START_BYTES, text.length - START_BYTES};
    if (read_node(program, &rest, 0) && rest.length == 0)
        return program;
    free(program);
    return NULL;
}

/* ---- Asking a row ---- */

/* The first occurrence, or NULL. `wanted` is not empty. */
static const uint8_t *search(const uint8_t *at, size_t length, Bytes wanted) {
#ifdef __SSE2__
    /* Compare its first and its last byte at 16 places at once: JSON rarely has both at this distance. For a short
       marker this takes half the time of memmem, which goes on where a hostile row has both at many places. */
    enum { MISSES_MAX = 32 };
    size_t last = wanted.length - 1;
    int misses = 0;
    if (last > 0 && last < 64) {
        const __m128i firsts = _mm_set1_epi8((char)wanted.at[0]), lasts = _mm_set1_epi8((char)wanted.at[last]);
        for (; length >= last + 16 && misses < MISSES_MAX; at += 16, length -= 16) {
            __m128i begins = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)at), firsts);
            __m128i ends = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(at + last)), lasts);
            int places = _mm_movemask_epi8(_mm_and_si128(begins, ends));
            for (; places != 0; places &= places - 1, misses++) {
                const uint8_t *place = at + __builtin_ctz((unsigned)places);
                if (memcmp(place, wanted.at, wanted.length) == 0)
                    return place;
            }
        }
    }
#endif
#ifndef _WIN32
    return memmem(at, length, wanted.at, wanted.length);
#else
    while (length >= wanted.length) {
        const uint8_t *first = memchr(at, wanted.at[0], length - wanted.length + 1);
        if (first == NULL || memcmp(first, wanted.at, wanted.length) == 0)
            return first;
        length -= (size_t)(first + 1 - at);
        at = first + 1;
    }
    return NULL;
#endif
}

/* Sets `after` to what follows the node's marker; returns 0 if the value does not contain it. */
static int find(Node *node, Bytes value, Bytes *after) {
    const uint8_t *found = NULL;
    size_t length = node->marker.length;
    size_t begin = node->found > NEAR_BYTES ? node->found - NEAR_BYTES : 0; /* rows of a table are alike */
    if (begin < value.length)
        found = search(value.at + begin, value.length - begin, node->marker);
    if (found == NULL && begin > 0) {
        size_t before = begin + length - 1;
        found = search(value.at, before < value.length ? before : value.length, node->marker);
    }
    if (found == NULL)
        return 0;
    node->found = (size_t)(found - value.at);
    *after = (Bytes){found + length, value.length - node->found - length};
    return 1;
}

static int compare(Bytes one, Bytes other) {
    size_t length = one.length < other.length ? one.length : other.length;
    int order = memcmp(one.at, other.at, length);
    return order != 0 ? order : (one.length > other.length) - (one.length < other.length);
}

static int is_digit(Bytes text) {
    return text.length > 0 && text.at[0] >= '0' && text.at[0] <= '9';
}

static void skip(Bytes *text) {
    text->at++;
    text->length--;
}

/* digits * 10^exponent, with an error of some 10^-15 of it: the bounds leave room for 10^-12. */
static double scaled(uint64_t digits, long exponent) {
    static const double POWERS[] = {1e1, 1e2, 1e4, 1e8, 1e16, 1e32, 1e64, 1e128, 1e256};
    double result = (double)digits;
    if (digits == 0 || exponent < -400)
        return 0.0;
    if (exponent > 400)
        return HUGE_VAL;
    unsigned long rest = (unsigned long)labs(exponent);
    for (int bit = 0; rest != 0; bit++, rest >>= 1)
        if (rest & 1)
            result = exponent > 0 ? result * POWERS[bit] : result / POWERS[bit];
    return result;
}

/* Reads a number of JSON off the front of `text`, of any length; returns 0 if there is none. */
static int take_number(Bytes *text, double *value, int *is_integer) {
    enum { DIGITS_MAX = 19, EXPONENT_MAX = 1000000000 }; /* 19 digits fit into 64 bits */
    uint64_t digits = 0;
    int significant = 0;
    int64_t exponent = 0, shift = 0;
    int is_negative = text->length > 0 && text->at[0] == '-';
    if (is_negative)
        skip(text);
    if (!is_digit(*text))
        return 0;
    *is_integer = 1;
    for (int in_fraction = 0;;) {
        for (; is_digit(*text); skip(text)) {
            if (significant < DIGITS_MAX) {
                digits = digits * 10 + (uint64_t)(text->at[0] - '0');
                significant += digits != 0;
                exponent -= in_fraction;
            } else {
                exponent += !in_fraction;
            }
        }
        if (in_fraction || text->length == 0 || text->at[0] != '.')
            break;
        in_fraction = 1;
        *is_integer = 0;
        skip(text);
    }
    if (text->length > 0 && (text->at[0] | 0x20) == 'e') {
        *is_integer = 0;
        skip(text);
        int is_small = text->length > 0 && text->at[0] == '-';
        if (text->length > 0 && (text->at[0] == '-' || text->at[0] == '+'))
            skip(text);
        for (; is_digit(*text); skip(text))
            if (shift < EXPONENT_MAX)
                shift = shift * 10 + (text->at[0] - '0');
        exponent += is_small ? -shift : shift;
    }
    *value = scaled(digits, exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : (long)exponent);
    if (is_negative)
        *value = -*value;
    return 1;
}

static int is_between(const Node *node, double value) {
    return node->from <= value && value <= node->to;
}

/* `text` follows the marker. */
static int number_matches(const Node *node, Bytes text) {
    int is_quoted = (node->flags & QUOTED) && text.length > 0 && text.at[0] == '"';
    if (is_quoted) {
        if (is_between(node, 0.0)) /* as the cast in SQL reads a quotation mark */
            return 1;
        skip(&text);
    }
    double value;
    int is_integer, is_cut = text.length > NUMBER_BYTES_MAX;
    if (is_cut)
        text.length = NUMBER_BYTES_MAX;
    if (!take_number(&text, &value, &is_integer) || (is_cut && text.length == 0))
        return 1;
    if (!is_quoted && !(node->flags & INTEGERS) && is_integer && text.length > 0 &&
        (text.at[0] == ',' || text.at[0] == '}'))
        return 1;
    return is_between(node, value);
}

static int node_matches(Program *program, size_t at, Bytes value, Bytes row) {
    Node *node = &program->nodes[at];
    Bytes after;
    switch (node->kind) {
    case CONTAINS:
        return find(node, value, &after);
    case NUMBER_AFTER:
        return find(node, value, &after) ? number_matches(node, after) : (node->flags & OR_ABSENT) != 0;
    case TEXT_AFTER:
        if (!find(node, value, &after))
            return (node->flags & OR_ABSENT) != 0;
        if (after.length > node->least.length)
            after.length = node->least.length;
        return compare(node->least, after) <= 0 && compare(after, node->greatest) <= 0;
    case ROW_BETWEEN:
        return compare(node->least, row) <= 0 && ((node->flags & ENDLESS) || compare(row, node->greatest) < 0);
    case ALL_OF:
        for (size_t part = at + 1; part < node->next; part = program->nodes[part].next)
            if (!node_matches(program, part, value, row))
                return 0;
        return 1;
    default: /* ANY_OF */
        for (size_t part = at + 1; part < node->next; part = program->nodes[part].next)
            if (node_matches(program, part, value, row))
                return 1;
        return 0;
    }
}

/* `row` is the row part of the key. */
static int may_match(Program *program, Bytes value, Bytes row) {
    return value.length > program->examined_max || node_matches(program, 0, value, row);
}

/* ---- The function of SQL ---- */

#ifndef WITHOUT_SQLITE /* tests compile the above alone, with sanitizers */
#include "sqlite3ext.h"
SQLITE_EXTENSION_INIT1

/* Returns 0 if the value is no blob, or memory is short. */
static int take_blob(sqlite3_value *value, Bytes *bytes) {
    if (sqlite3_value_type(value) != SQLITE_BLOB)
        return 0;
    const void *at = sqlite3_value_blob(value);
    bytes->length = (size_t)sqlite3_value_bytes(value);
    bytes->at = at != NULL ? at : (const void *)"";
    return at != NULL || bytes->length == 0;
}

static void row_may_match(sqlite3_context *context, int count, sqlite3_value **arguments) {
    Bytes text, value, row = {(const uint8_t *)"", 0};
    (void)count;
    sqlite3_result_int(context, 1);
    /* SQLite keeps the program while a statement runs, and drops it if the first argument is not the same each time. */
    Program *program = sqlite3_get_auxdata(context, 0);
    if (program == NULL) {
        if (!take_blob(arguments[0], &text) || (program = program_of(text)) == NULL)
            return;
        sqlite3_set_auxdata(context, 0, program, free); /* which frees it at once if memory is short */
        program = sqlite3_get_auxdata(context, 0);
    }
    if (program != NULL && take_blob(arguments[1], &value) && (!program->needs_row || take_blob(arguments[2], &row)))
        sqlite3_result_int(context, may_match(program, value, row));
}

/* All else is hidden: another extension in the process has an `sqlite3_api` too, perhaps of another SQLite. */
#ifdef _WIN32
__declspec(dllexport)
#else
__attribute__((visibility("default")))
#endif
int sqlite3_rowhints_init(sqlite3 *database, char **message, const sqlite3_api_routines *pApi) {
    SQLITE_EXTENSION_INIT2(pApi);
    (void)message;
    /* Only our own statements may call it: no view or trigger of a foreign file. */
    int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY;
    return sqlite3_create_function(database, "row_may_match", 3, flags, NULL, row_may_match, NULL, NULL);
}
#endif
