/* parse.c: lines of delimited text to rows of binary fields.
 *
 * -DFIELDS={kind,size},... says what the fields of a line are; a row (-DROW_BYTES) is a word of 64 bits whose bit i
 * says that field i was missing or malformed, then each field but the skipped ones: INT an int64; DECIMAL an int64,
 * the number times 10^size; DATE (yyyy-mm-dd) an int64 of days since 1970-01-01; FLOAT a float64; BYTES the text in
 * size bytes, with zeros behind it.
 *
 * Lines end with \n or \r\n, the last one also with the text. Empty lines give no row, and a \r that begins a line
 * is none of it; fields beyond the last are passed over. Malformed fields are zeros: numbers with other characters
 * or too large for 19 digits or for int64, more decimals than size, days that no calendar has, text longer than its
 * bytes (cut, not zero), floats that need more than 2^53 or 10^22 for an exact conversion. There are no quotes: a
 * delimiter is one.
 */
#include "common.h"

enum { SKIP, INT, DECIMAL, DATE, FLOAT, BYTES };

#ifndef FIELDS
#define FIELDS {INT, 0}, {SKIP, 0}, {DECIMAL, 2}, {DATE, 0}, {FLOAT, 0}, {BYTES, 8}
#define ROW_BYTES 48
#define ROW_BYTES_A_BYTE 24.0
#define ROW_DTYPE \
    [["bad", "uint64"], ["c0", "int64"], ["c2", "int64"], ["c3", "int64"], ["c4", "float64"], ["c5", "S8"]]
#endif

/* The shortest line that gives a row is a character and its end; the last one may lack that. */
PROGRAM("name": "parse", "kind": KIND, "inputs": [{"name": "text", "dtype": "uint8", "records": "lines"}],
        "outputs": [{"name": "rows", "dtype": ROW_DTYPE,
                     "bound": {"per_input_byte": ROW_BYTES_A_BYTE, "fixed": ROW_BYTES}}],
        "scalars": [{"name": "delimiter", "dtype": "uint8", "default": 44}])

typedef struct {
    int kind, size;
} field;
static const field fields[] = {FIELDS};
#define N_FIELDS ((int)(sizeof fields / sizeof fields[0]))
_Static_assert(sizeof fields / sizeof fields[0] <= 64, "a bit each");

/* ---- characters ------------------------------------------------------------------------------------------------ */

/* One character ahead; -1 behind the last one. */
typedef struct {
    int c;
    int delimiter;
#if !STREAM
    const unsigned char *next, *end;
#endif
} text;

static inline __attribute__((always_inline)) void advance(text *t) {
#if STREAM
    t->c = nd_at_end(0) ? -1 : (int)nd_load_u8(0);
#else
    t->c = t->next < t->end ? *t->next++ : -1;
#endif
}

static inline int line_ends(const text *t) { return t->c == '\n' || t->c < 0; }
static inline int field_ends(const text *t) { return t->c == t->delimiter || line_ends(t); }

/* After a value: is the field over? Takes a \r before \n. */
static inline int over(text *t) {
    if (t->c == '\r') {
        advance(t);
        return line_ends(t);
    }
    return field_ends(t);
}

static inline unsigned digit(const text *t) { return (unsigned)t->c - '0'; }

/* ---- values: 1 if well formed ---------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) int sign(text *t) {
    int negative = t->c == '-';
    if (negative || t->c == '+') advance(t);
    return negative;
}

/* Digits behind those that value has already; how many. At most 19 in all fit. */
static inline __attribute__((always_inline)) int digits(text *t, uint64_t *value) {
    int count = 0;
    for (unsigned d; (d = digit(t)) < 10; count++) {
        *value = *value * 10 + d;
        advance(t);
    }
    return count;
}

static inline int signed_value(uint64_t size, int negative, int64_t *value) {
    if (size > (uint64_t)INT64_MAX + (uint64_t)negative) return 0;
    *value = (int64_t)(negative ? 0 - size : size);
    return 1;
}

static inline __attribute__((always_inline)) int decimal(text *t, int places, int64_t *value) {
    int negative = sign(t), after = 0;
    uint64_t size = 0;
    int count = digits(t, &size);
    if (places && t->c == '.') {
        advance(t);
        after = digits(t, &size);
    }
    if (count + after == 0 || after > places || count + places > 19 || !over(t)) return 0;
    for (; after < places; after++) size *= 10;
    return signed_value(size, negative, value);
}

static inline __attribute__((always_inline)) int date(text *t, int64_t *days) {
    static const unsigned char length[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    uint64_t year = 0, month = 0, day = 0;
    if (digits(t, &year) != 4 || t->c != '-') return 0;
    advance(t);
    if (digits(t, &month) != 2 || t->c != '-') return 0;
    advance(t);
    if (digits(t, &day) != 2 || !over(t) || month - 1 >= 12) return 0;
    int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (day - 1 >= (uint64_t)(length[month - 1] + (month == 2 && leap))) return 0;
    /* Years begin in March, so that the leap day is the last one. */
    int64_t y = (int64_t)year - (month <= 2), m = (int64_t)month + (month <= 2 ? 9 : -3);
    int64_t era = y >= 0 ? y / 400 : -1, of_era = y - era * 400;
    *days = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * m + 2) / 5 + (int64_t)day - 1 - 719468;
    return 1;
}

/* Exact where both numbers are, and so is the quotient or product rounded once (W. D. Clinger, 1990). */
static inline int floating(text *t, double *value) {
    static const double ten[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    int negative = sign(t), after = 0;
    uint64_t size = 0;
    int count = digits(t, &size);
    if (t->c == '.') {
        advance(t);
        after = digits(t, &size);
    }
    if (count + after == 0 || count + after > 19 || size > 1ull << 53) return 0;
    int64_t power = 0;
    if (t->c == 'e' || t->c == 'E') {
        advance(t);
        int down = sign(t);
        uint64_t given = 0;
        int length = digits(t, &given);
        if (length == 0 || length > 4) return 0;
        power = down ? -(int64_t)given : (int64_t)given;
    }
    power -= after;
    if (!over(t)) return 0;
    if (size == 0) power = 0;
    if (power < -22 || power > 22) return 0;
    double number = power < 0 ? (double)size / ten[-power] : (double)size * ten[power];
    *value = negative ? -number : number;
    return 1;
}

static inline int bytes(text *t, unsigned char *to, int room) {
    int n = 0;
    while (!field_ends(t)) {
        int c = t->c;
        advance(t);
        if (c == '\r' && line_ends(t)) break;
        if (n < room) to[n] = (unsigned char)c;
        n++;
    }
    return n <= room;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Parse a line to a row; the line's end is taken. */
static inline void line(text *t, uint64_t row[ROW_BYTES / 8]) {
    for (int i = 0; i < ROW_BYTES / 8; i++) row[i] = 0;
    uint64_t bad = 0, *to = row + 1;
    UNROLL_ALL for (int i = 0; i < N_FIELDS; i++) {
        int well = 0, kind = fields[i].kind;
        if (i == 0 || t->c == t->delimiter) {
            if (i) advance(t);
            int64_t value = 0;
            double number = 0;
            if (kind == SKIP) well = 1;
            if (kind == INT) well = decimal(t, 0, &value);
            if (kind == DECIMAL) well = decimal(t, fields[i].size, &value);
            if (kind == DATE) well = date(t, &value);
            if (kind == FLOAT) well = floating(t, &number);
            if (kind == BYTES) well = bytes(t, (unsigned char *)to, fields[i].size);
            if (kind == FLOAT) value = (int64_t)nd_bits_of_f64_(number);
            if (kind != BYTES && kind != SKIP) *to = (uint64_t)value;
            while (!field_ends(t)) advance(t);
        }
        bad |= (uint64_t)!well << i;
        if (kind != SKIP) to += kind == BYTES ? fields[i].size / 8 : 1;
    }
    while (!line_ends(t)) advance(t);
    advance(t);
    row[0] = bad;
}

#if STREAM
int64_t nd_stream(nd_args *args) {
    text t = {.delimiter = (int)nd_scalar_u64(args, 0)};
    if (t.delimiter == '\n' || t.delimiter == '\r') return BAD_SCALAR;
    uint64_t row[ROW_BYTES / 8];
    advance(&t);
    while (t.c >= 0) {
        if (t.c == '\r') advance(&t);
        if (line_ends(&t)) {
            advance(&t);
            continue;
        }
        line(&t, row);
        UNROLL(8) for (int i = 0; i < ROW_BYTES / 8; i++) nd_store_u64(0, row[i]);
    }
    return 0;
}
#else
int64_t nd_block(nd_args *args) {
    text t = {.delimiter = (int)nd_scalar_u64(args, 0)};
    if (t.delimiter == '\n' || t.delimiter == '\r') return BAD_SCALAR;
    t.next = ND_INPUT(args, 0, unsigned char);
    t.end = t.next + args->inputs[0].bytes;
    uint64_t *row = ND_OUTPUT(args, 0, uint64_t);
    size_t room = args->outputs[0].bytes / ROW_BYTES, n = 0;
    advance(&t);
    while (t.c >= 0) {
        if (t.c == '\r') advance(&t);
        if (line_ends(&t)) {
            advance(&t);
            continue;
        }
        if (n == room) return OUTPUT_FULL;
        line(&t, row + n * (ROW_BYTES / 8));
        n++;
    }
    args->outputs[0].used = n * ROW_BYTES;
    return 0;
}
#endif
