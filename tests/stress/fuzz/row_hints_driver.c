/* Reads cases and writes one digit for each row: whether it may match. hint_runs.py compiles this with sanitizers.

   A case is a program, the number of its rows, and for each row its key and its value. Numbers have four bytes, the
   lowest first; each text comes after its length, and lies in memory of exactly that size. */

#define WITHOUT_SQLITE
#include "row_hints.c"
#include <stdio.h>

static int read_number(size_t *number_read) {
    uint8_t bytes[4];
    if (fread(bytes, 1, 4, stdin) != 4)
        return 0;
    *number_read = (size_t)integer(bytes, 4);
    return 1;
}

static Bytes read_text(void) {
    size_t length;
    if (!read_number(&length))
        exit(3);
    uint8_t *at = malloc(length);
    if (fread(at, 1, length, stdin) != length)
        exit(3);
    return (Bytes){at, length};
}

int main(void) {
    for (int next; (next = getchar()) != EOF;) {
        ungetc(next, stdin);
        Bytes text = read_text();
        Program *program = program_of(text);
        size_t rows;
        if (!read_number(&rows))
            return 3;
        while (rows-- > 0) {
            Bytes row = read_text(), value = read_text();
            putchar(program == NULL || may_match(program, value, row) ? '1' : '0');
            free((void *)row.at);
            free((void *)value.at);
        }
        free(program);
        free((void *)text.at);
    }
    return 0;
}
