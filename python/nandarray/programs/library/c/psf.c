/* psf.c: parse, select, filter: lines of delimited text to rows of the wanted fields of the lines that pass a test.
 *
 * -DFIELDS={kind, bytes, places, at, kept},... describes the fields of a line up to the last one that is needed. INT
 * and DECIMAL are integers of 4 or 8 bytes, a DECIMAL times 10^places, of 9 or 18 digits at most; DATE (yyyy-mm-dd) is
 * 4 bytes of days since 1970-01-01; TEXT is padded with zeros to its bytes, a multiple of 4, and lies at `at` in the
 * scratchpad; a SKIP is passed over. A row has the fields that are kept, in order, without gaps.
 *
 * -DTESTS='case 4: return ...;' has a case for each field behind which something can be decided: whether the line
 * still passes. The first test that fails passes over the rest of the line, which is not looked at: fields behind it,
 * like all that is behind the last needed one, are not checked.
 *
 * Every line ends with \n or \r\n; the text of a block program does, too. A stream program ends where its stream
 * does: the caller sees to it that the last byte is a \n. With -DLISTING it has the form of the ASSASIN dissertation's
 * Listing 7.1: it never asks for the end, and its last StreamLoad ends it. A line that cannot be read ends the run
 * with the status FAULT, which says where and why.
 *
 * -DQUOTE=34: fields may be quoted as RFC 4180 has it; quotes are followed to the end of each line, needed or not. With
 * -DQUOTED_ENDS=1 there may be ends of lines within quotes, so that no one can cut the text without reading it: a block
 * program sees a window of bytes and takes the whole lines in it (metadata "ahead"), a stream program has one task.
 * -DSPELLINGS='SPELT(n, characters) ...' has what a missing value is written as; fields that are not quoted are
 * compared with it. Behind a row is then a word with a bit for each field that is there, and a test is true, false or
 * neither: TESTS ask for true. A program without these three definitions reads each character once.
 */
#include "common.h"

enum { SKIP, INT, DECIMAL, DATE, TEXT_FIELD };

#ifndef FIELDS
#define FIELDS \
    {INT, 8, 0, 0, 1}, {SKIP, 0, 0, 0, 0}, {DECIMAL, 4, 2, 0, 1}, {DATE, 4, 0, 0, 0}, {TEXT_FIELD, 8, 0, 0, 1}
#define TESTS case 3: return NUMBER(3) < 10471;
#define ROW_BYTES 20
#define ROW_BYTES_A_BYTE 1.0
#define ROW_DTYPE [["c0", "int64"], ["c2", "int32"], ["c4", "S8"]]
#define DELIMITER 124
#define LINE_BYTES 4096
#define TEXT_BYTES 12
#endif
#ifndef LISTING
#define LISTING 0
#endif
#ifndef QUOTE
#define QUOTE 0
#endif
#ifndef QUOTED_ENDS
#define QUOTED_ENDS 0
#endif
#ifndef SPELLINGS
#define VALID_BYTES 0
#endif
#define EXTENDED (QUOTE || VALID_BYTES)

#if QUOTED_ENDS && STREAM
#define CUT "tasks": "whole", "inputs": [{"name": "text", "dtype": "uint8"}],
#elif QUOTED_ENDS
#define CUT "tasks": "ordered", "state_bytes": 16, "inputs": [{"name": "text", "dtype": "uint8", "ahead": LINE_BYTES}],
#else
#define CUT "inputs": [{"name": "text", "dtype": "uint8", "records": "lines"}],
#endif

PROGRAM("name": "psf", "kind": KIND, CUT
        "outputs": [{"name": "rows", "dtype": ROW_DTYPE, "exact": false,
                     "bound": {"per_input_byte": ROW_BYTES_A_BYTE, "fixed": ROW_BYTES}}],
        "scratchpad_bytes": TEXT_BYTES)

typedef struct {
    int kind, bytes, places, at, kept;
} field;
static const field fields[] = {FIELDS};
#define N_FIELDS ((int)(sizeof fields / sizeof fields[0]))
_Static_assert(sizeof fields / sizeof fields[0] <= 64, "the number of a field has six bits in a status");

/* Faults of a line, in the two lowest bits of a status, with quotes in three. */
enum { MALFORMED, TOO_LONG, MISSING, LINE_TOO_LONG, NOT_CLOSED };
#define KIND_BITS (QUOTE ? 3 : 2)
#define FAULT(offset, number, what) \
    (-16 - (int64_t)((((uint64_t)(offset)) << (6 + KIND_BITS)) | ((uint64_t)(number) << KIND_BITS) | (what)))
#define IS_NOT_CLOSED(status) ((status) < 0 && ((-16 - (status)) & 7) == NOT_CLOSED)

/* ---- characters ------------------------------------------------------------------------------------------------ */

#if STREAM
typedef struct {
    char nothing;
} text;
#define NEXT(t) ((int)nd_load_u8(0))
#define PEEK(t, k) ((int)nd_peek_u8(0, k))
#define WHERE(t) ((size_t)nd_input_head(0))
#define AT_END(t) nd_at_end(0)
#else
typedef struct {
    const unsigned char *next;
#if QUOTE
    const unsigned char *end; /* behind a \n: only quoted characters have to ask for it */
#endif
} text;
#define NEXT(t) ((int)*(t)->next++)
#define PEEK(t, k) ((int)(t)->next[k])
#define WHERE(t) ((size_t)(uintptr_t)(t)->next)
#define AT_END(t) ((t)->next == (t)->end)
#endif
#define ENDS(c) ((c) == DELIMITER || (c) == '\n')
#define INLINE static inline __attribute__((always_inline))

/* ---- fields: each gives the character behind it, or -1 - MALFORMED or -1 - TOO_LONG ----------------------------- */

#define NUMBER_READER(name, type, digits_max)                                                       \
    INLINE int name(text *t, int places, type *value) {                                             \
        int c = NEXT(t), negative = c == '-';                                                       \
        if (negative) c = NEXT(t);                                                                  \
        type size = (type)(unsigned)(c - '0');                                                      \
        if ((unsigned)(c - '0') > 9) return -1 - MALFORMED;                                         \
        size_t begin = WHERE(t), after = 0;                                                         \
        for (unsigned d; (d = (unsigned)((c = NEXT(t)) - '0')) < 10;) size = size * 10 + d;         \
        size_t count = WHERE(t) - begin;                                                            \
        if (places && c == '.') {                                                                   \
            begin = WHERE(t);                                                                       \
            for (unsigned d; (d = (unsigned)((c = NEXT(t)) - '0')) < 10;) size = size * 10 + d;     \
            after = WHERE(t) - begin - 1;                                                           \
        }                                                                                           \
        if (after > (size_t)places || count + (size_t)places > digits_max) return -1 - TOO_LONG;    \
        for (; after < (size_t)places; after++) size *= 10;                                         \
        *value = negative ? 0 - size : size;                                                        \
        return c;                                                                                   \
    }
NUMBER_READER(number_32, uint32_t, 9)
NUMBER_READER(number_64, uint64_t, 18)

INLINE int date(text *t, uint32_t *days) {
    unsigned part[3], wrong = 0;
    UNROLL_ALL for (int i = 0; i < 3; i++) {
        part[i] = 0;
        UNROLL_ALL for (int j = 0; j < (i ? 2 : 4); j++) {
            int c = NEXT(t);
            unsigned d = (unsigned)(c - '0');
            if (d > 9) return c == '\n' ? -1 - MISSING : -1 - MALFORMED;
            part[i] = part[i] * 10 + d;
        }
        if (i == 2) continue;
        int c = NEXT(t);
        if (c != '-') return c == '\n' ? -1 - MISSING : -1 - MALFORMED;
    }
    unsigned year = part[0], month = part[1], day = part[2];
    unsigned leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    unsigned length = month == 2 ? 28 + leap : 30 + ((month + (month >> 3)) & 1);
    wrong |= (month - 1 >= 12) | (day - 1 >= length);
    if (wrong) return -1 - MALFORMED;
    /* Years begin in March, so that the leap day is the last one; 400 years more keep all of them positive. */
    unsigned y = year + 400 - (month <= 2), m = month + (month <= 2 ? 9u : (unsigned)-3);
    *days = y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468 - 146097;
    return NEXT(t);
}

/* Characters into room for them and one more, which may be a \r; zeros behind them if they are kept. */
INLINE int characters(text *t, unsigned char *to, unsigned room, unsigned *length, int kept) {
    unsigned n = 0;
    int c;
    while (c = NEXT(t), !ENDS(c)) {
        if (QUOTE && c == QUOTE) return -1 - MALFORMED;
        if (n <= room) to[n] = (unsigned char)c;
        n++;
    }
    if (c == '\n' && n && n <= room + 1 && to[n - 1] == '\r') n--;
    *length = n;
    if (n > room) return -1 - TOO_LONG;
    if (kept)
        for (; n < room; n++) to[n] = 0;
    return c;
}

#if EXTENDED
/* Give the end of a line for the first character of \r\n, any other character as it is. */
INLINE int ended(text *t, int c) { return c == '\r' && PEEK(t, 0) == '\n' ? NEXT(t) : c; }
#endif

#if QUOTE
/* Characters behind a quote, up to the one that closes, two of which are one: `kept` as for characters without quotes.
 * The character behind it is given. A text that ends before, and a line that is too long, end the loop. */
INLINE int quoted_characters(text *t, unsigned char *to, unsigned room, unsigned *length, int kept, size_t begin) {
    unsigned n = 0;
    for (;; n++) {
        if (WHERE(t) - begin >= LINE_BYTES) return -1 - LINE_TOO_LONG;
        if (AT_END(t)) return -1 - NOT_CLOSED;
        int c = NEXT(t);
        if (c == QUOTE && (AT_END(t) || PEEK(t, 0) != QUOTE)) break;
        if (c == QUOTE) (void)NEXT(t);
        if (n < room) to[n] = (unsigned char)c;
    }
    *length = n;
    if (AT_END(t)) return -1 - NOT_CLOSED;
    if (n > room && room) return -1 - TOO_LONG;
    if (kept)
        for (; n < room; n++) to[n] = 0;
    return ended(t, NEXT(t));
}

/* Pass over a field, and give what is behind it. */
INLINE int passed_over(text *t, size_t begin) {
    unsigned length;
    if (PEEK(t, 0) == QUOTE) return (void)NEXT(t), quoted_characters(t, 0, 0, &length, 0, begin);
    for (int c;;) {
        if (c = NEXT(t), ENDS(c)) return c;
        if (c == QUOTE) return -1 - MALFORMED;
    }
}
#endif

#if VALID_BYTES
/* Whether the text goes on with a word and the end of a field; nothing behind the end of a line is looked at. */
INLINE int spelt(text *t, const unsigned char *word, unsigned n) {
    for (unsigned k = 0; k < n; k++)
        if (PEEK(t, k) != word[k]) return 0;
    int c = PEEK(t, n);
    return ENDS(c) || (c == '\r' && PEEK(t, n + 1) == '\n');
}

/* Pass over a missing value, and give what is behind it; 0 if there is a value. No field ends with a zero. */
INLINE int missing(text *t) {
    int n = -1;
#define SPELT(count, ...) \
    if (n < 0 && spelt(t, (const unsigned char[]){__VA_ARGS__, 0}, count)) n = count;
    SPELLINGS
    if (n < 0) return 0;
    for (; n; n--) (void)NEXT(t);
    return ended(t, NEXT(t));
}
#endif

/* ---- tests ----------------------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t small[N_FIELDS];
    uint64_t large[N_FIELDS];
    unsigned length[N_FIELDS];
    unsigned char *words;
#if VALID_BYTES
    uint64_t valid;
#endif
} line_values;

/* In TESTS: the value of field I, and questions to its characters, which are given as numbers. */
#define NUMBER(i) (fields[i].bytes == 8 ? (int64_t)v->large[i] : (int64_t)(int32_t)v->small[i])
#define SMALL(i) ((int32_t)v->small[i])
#define VALID(i) ((int)(v->valid >> (i)) & 1)
#define WORDS(i) (v->words + fields[i].at)
#define LETTERS(...) ((const unsigned char[]){__VA_ARGS__, 0})
#define IS(i, n, ...) (v->length[i] == (n) && same(WORDS(i), LETTERS(__VA_ARGS__), n))
#define BEGINS(i, n, ...) (v->length[i] >= (n) && same(WORDS(i), LETTERS(__VA_ARGS__), n))
#define FINISHES(i, n, ...) (v->length[i] >= (n) && same(WORDS(i) + v->length[i] - (n), LETTERS(__VA_ARGS__), n))
#define HOLDS(i, n, ...) (holds(WORDS(i), v->length[i], LETTERS(__VA_ARGS__), n))

INLINE int same(const unsigned char *a, const unsigned char *b, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        if (a[i] != b[i]) return 0;
    return 1;
}

__attribute__((unused))
static inline int holds(const unsigned char *words, unsigned length, const unsigned char *part, unsigned n) {
    for (unsigned i = 0; i + n <= length; i++)
        if (same(words + i, part, n)) return 1;
    return 0;
}

INLINE int passes(int i, const line_values *v) {
    (void)v;
    switch (i) {
        TESTS
    default: return 1;
    }
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

INLINE int read_field(text *t, int i, line_values *v, size_t begin) {
    const field *f = &fields[i];
    int c = 0;
    (void)begin;
#if VALID_BYTES
    if (f->kind != SKIP && (c = missing(t)) != 0) {
        v->small[i] = 0, v->large[i] = 0, v->length[i] = 0;
        if (f->kind == TEXT_FIELD && f->kept)
            for (int k = 0; k < f->bytes; k++) v->words[f->at + k] = 0;
        return c;
    }
    v->valid |= UINT64_C(1) << i;
#endif
#if QUOTE
    if (f->kind == SKIP) return passed_over(t, begin);
    int is_quoted = PEEK(t, 0) == QUOTE;
    if (is_quoted) (void)NEXT(t);
    if (is_quoted && f->kind == TEXT_FIELD)
        return quoted_characters(t, v->words + f->at, (unsigned)f->bytes, &v->length[i], f->kept, begin);
#endif
    if (f->kind == SKIP) do c = NEXT(t);
        while (!ENDS(c));
    if ((f->kind == INT || f->kind == DECIMAL) && f->bytes == 4) c = number_32(t, f->places, &v->small[i]);
    if ((f->kind == INT || f->kind == DECIMAL) && f->bytes == 8) c = number_64(t, f->places, &v->large[i]);
    if (f->kind == DATE) c = date(t, &v->small[i]);
    if (f->kind == TEXT_FIELD) c = characters(t, v->words + f->at, (unsigned)f->bytes, &v->length[i], f->kept);
#if QUOTE
    /* A number is closed where it ends: there are no quotes, and no end of a line, within. */
    if (is_quoted && c != QUOTE) return c == -1 - TOO_LONG ? c : -1 - MALFORMED;
    if (is_quoted) c = ended(t, NEXT(t));
#endif
    return c;
}

/* Read a line up to its end: 1 if it passes, 0 if not, or a negative status. */
INLINE int64_t line(text *t, line_values *v, uint64_t first) {
    size_t begin = WHERE(t);
    int c = 0, passed = 1;
#if STREAM
    uint64_t offset = first + begin;
#else
    uint64_t offset = begin - first;
#endif
#if VALID_BYTES
    v->valid = 0;
#endif
#if QUOTE
    int last = N_FIELDS - 1;
#endif
    UNROLL_ALL for (int i = 0; i < N_FIELDS; i++) {
        c = read_field(t, i, v, begin);
#if EXTENDED
        c = ended(t, c);
#else
        if (c == '\r' && i == N_FIELDS - 1 && (c = NEXT(t)) != '\n') return FAULT(offset, i, MALFORMED);
#endif
#if QUOTE
        if (c == -1 - LINE_TOO_LONG) return FAULT(offset, 0, LINE_TOO_LONG);
#endif
        if (c < 0) return FAULT(offset, i, -1 - c);
        if (c == '\n' && i < N_FIELDS - 1) return FAULT(offset, i + 1, MISSING);
        if (!ENDS(c)) return FAULT(offset, i, MALFORMED);
        if (!passes(i, v)) {
            passed = 0;
#if QUOTE
            last = i;
#endif
            break;
        }
    }
#if QUOTE
    while (c != '\n') {
        last += last < 63;
        c = passed_over(t, begin);
        if (c == -1 - LINE_TOO_LONG) return FAULT(offset, 0, LINE_TOO_LONG);
        if (c < 0 || !ENDS(c)) return FAULT(offset, last, c < 0 ? -1 - c : MALFORMED);
    }
#else
    while (c != '\n') c = NEXT(t);
#endif
    if (WHERE(t) - begin > LINE_BYTES) return FAULT(offset, 0, LINE_TOO_LONG);
    return passed;
}

#define PUT_EACH(put_small, put_large, put_words)                                                    \
    UNROLL_ALL for (int i = 0; i < N_FIELDS; i++) {                                                  \
        const field *f = &fields[i];                                                                 \
        if (!f->kept) continue;                                                                      \
        if (f->kind == TEXT_FIELD) put_words(v.words + f->at, f->bytes);                             \
        else if (f->bytes == 8) put_large(v.large[i]);                                               \
        else put_small(v.small[i]);                                                                  \
    }

/* The word behind a row: which of its fields are there. */
#if VALID_BYTES == 8
#define PUT_VALID(put_small, put_large)    \
    do {                                   \
        uint64_t valid_ = v.valid & KEPT;  \
        put_large(valid_);                 \
    } while (0)
#elif VALID_BYTES
#define PUT_VALID(put_small, put_large)       \
    do {                                      \
        uint32_t valid_ = (uint32_t)(v.valid & KEPT); \
        put_small(valid_);                    \
    } while (0)
#else
#define PUT_VALID(put_small, put_large) ((void)0)
#endif

#if STREAM
INLINE void put_words(const unsigned char *from, int bytes) {
    for (int i = 0; i < bytes; i += 4) nd_store_u32(0, load_u32(__builtin_assume_aligned(from + i, 4)));
}

int64_t nd_stream(nd_args *args) {
    text t = {0};
    line_values v;
    v.words = ND_SCRATCHPAD(args, unsigned char);
#if LISTING
    for (;;) {
#else
    while (!nd_at_end(0)) {
#endif
        int64_t status = line(&t, &v, args->first_record);
        if (status < 0) return status;
        if (!status) continue;
#define PUT_SMALL(value) nd_store_u32(0, value)
#define PUT_LARGE(value) nd_store_u64(0, value)
        PUT_EACH(PUT_SMALL, PUT_LARGE, put_words)
        PUT_VALID(PUT_SMALL, PUT_LARGE);
    }
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    const unsigned char *begin = ND_INPUT(args, 0, unsigned char);
    size_t bytes = args->inputs[0].bytes, room = args->outputs[0].bytes / ROW_BYTES, n = 0;
#if QUOTED_ENDS
    /* The window may end within a line: what lies behind the last end of one is for the next task. */
    int is_last = args->pace[0].ended != 0;
    while (!is_last && bytes && begin[bytes - 1] != '\n') bytes--;
    if (!is_last && !bytes) return FAULT(args->first_record, 0, LINE_TOO_LONG);
#endif
    if (bytes && begin[bytes - 1] != '\n') return BAD_INPUT;
    const unsigned char *end = begin + bytes;
    text t = {begin};
#if QUOTE
    t.end = end;
#endif
    unsigned char *to = ND_OUTPUT(args, 0, unsigned char);
    line_values v;
    v.words = ND_SCRATCHPAD(args, unsigned char);
    while (t.next < end) {
#if QUOTED_ENDS
        const unsigned char *from = t.next;
#endif
        int64_t status = line(&t, &v, (uint64_t)(uintptr_t)begin - args->first_record);
#if QUOTED_ENDS
        if (!is_last && IS_NOT_CLOSED(status)) {
            /* The rest of the line is in the next window, which begins with it, and has room for the longest line. */
            if (from == begin) return FAULT(args->first_record, 0, LINE_TOO_LONG);
            t.next = from;
            break;
        }
#endif
        if (status < 0) return status;
        if (!status) continue;
        if (n++ == room) return OUTPUT_FULL;
#define PUT_SMALL(value) (__builtin_memcpy(__builtin_assume_aligned(to, 4), &(value), 4), to += 4)
#define PUT_LARGE(value) (__builtin_memcpy(__builtin_assume_aligned(to, 4), &(value), 8), to += 8)
#define PUT_WORDS(from, bytes) \
    (__builtin_memcpy(__builtin_assume_aligned(to, 4), __builtin_assume_aligned(from, 4), bytes), to += (bytes))
        PUT_EACH(PUT_SMALL, PUT_LARGE, PUT_WORDS)
        PUT_VALID(PUT_SMALL, PUT_LARGE);
    }
#if QUOTED_ENDS
    ND_SET_TAKEN(args, 0, t.next - begin, unsigned char);
#endif
    args->outputs[0].used = n * ROW_BYTES;
    return 0;
}
#endif
