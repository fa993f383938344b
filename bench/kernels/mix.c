/* mix.c: for each seed a round of the work that processors' benchmarks mix: lists, matrices, a state machine, CRCs.
 *
 * Own code, in the proportions of such benchmarks; its figures compare with itself only. One result a seed, so that
 * nothing is left out. No floating point, no calls of a library.
 */
#include <nandarray.h>

ND_PROGRAM("name": "mix", "kind": "block", "inputs": [{"name": "seed", "dtype": "uint64"}],
           "outputs": [{"name": "check", "dtype": "uint64"}])

#define NODES 120
#define SIDE 12
#define TEXT 600

typedef struct node { struct node *next; int32_t key; uint16_t tag, weight; } node;

static uint32_t crc(uint32_t value, int bits, uint32_t sum) {
    for (int i = 0; i < bits; i++) {
        uint32_t odd = (value ^ sum) & 1;
        value >>= 1, sum >>= 1;
        if (odd) sum ^= 0xedb88320u;
    }
    return sum;
}

static uint32_t chance(uint32_t *state) { return (*state = *state * 1664525u + 1013904223u) >> 8; }

static node *reversed(node *list) {
    node *done = 0;
    while (list) {
        node *next = list->next;
        list->next = done, done = list, list = next;
    }
    return done;
}

static node *found(node *list, int32_t key) {
    while (list && list->key != key) list = list->next;
    return list;
}

static int by_key(const node *a, const node *b) { return a->key <= b->key; }
static int by_tag(const node *a, const node *b) { return a->tag <= b->tag; }

/* Merge sort from the bottom up; the order is a function's, called through a pointer. */
static node *sorted(node *list, int (*before)(const node *, const node *)) {
    for (size_t run = 1;; run *= 2) {
        node *left = list, **end = &list;
        size_t merges = 0;
        list = 0;
        while (left) {
            node *right = left;
            size_t lefts = 0, rights = run;
            merges++;
            while (lefts < run && right) right = right->next, lefts++;
            while (lefts || (rights && right)) {
                node *one;
                if (!lefts) one = right, right = right->next, rights--;
                else if (!rights || !right || before(left, right)) one = left, left = left->next, lefts--;
                else one = right, right = right->next, rights--;
                *end = one, end = &one->next;
            }
            left = right;
        }
        *end = 0;
        if (merges <= 1) return list;
    }
}

static uint32_t lists(uint32_t seed) {
    node nodes[NODES];
    for (int i = 0; i < NODES; i++) {
        nodes[i].next = i + 1 < NODES ? &nodes[i + 1] : 0;
        nodes[i].key = (int32_t)(chance(&seed) & 0xfff);
        nodes[i].tag = (uint16_t)i;
        nodes[i].weight = (uint16_t)chance(&seed);
    }
    node *list = nodes;
    uint32_t sum = 0;
    for (int turn = 0; turn < 12; turn++) {
        node *one = found(list, nodes[(turn * 7) % NODES].key);
        if (one) sum = crc(one->weight, 16, sum);
        list = reversed(list);
    }
    list = sorted(list, by_key);
    for (node *one = list; one; one = one->next) sum = crc((uint32_t)one->key, 8, sum);
    list = sorted(list, by_tag);
    for (node *one = list; one; one = one->next) sum += (uint32_t)(one->tag ^ one->weight);
    return sum;
}

static uint32_t matrices(uint32_t seed) {
    int16_t a[SIDE * SIDE], b[SIDE * SIDE];
    int32_t c[SIDE * SIDE];
    uint32_t sum = 0;
    for (int i = 0; i < SIDE * SIDE; i++) {
        a[i] = (int16_t)(chance(&seed) & 0xff);
        b[i] = (int16_t)(chance(&seed) & 0xff);
    }
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < SIDE * SIDE; i++) a[i] = (int16_t)(a[i] + turn);
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                int32_t dot = 0;
                for (int k = 0; k < SIDE; k++) {
                    int32_t part = a[i * SIDE + k] * b[k * SIDE + j];
                    dot += turn & 1 ? ((part >> 2) & 15) * ((part >> 5) & 127) : part;
                }
                c[i * SIDE + j] = dot;
            }
        int32_t last = 0, run = 0;
        for (int i = 0; i < SIDE * SIDE; i++) {
            run += c[i];
            if (run > 1 << 20) sum += 10, run = 0;
            else sum += c[i] > last;
            last = c[i];
        }
        sum = crc((uint32_t)last, 32, sum);
    }
    return sum;
}

enum { START, SIGN, WHOLE, POINT, EXPONENT, POWER, NUMBER, WRONG, STATES };

/* Counts how often each state of a reader of numbers is entered. */
static uint32_t states(uint32_t seed) {
    static const char letters[16] = "0123456789+-.eE,";
    char text[TEXT];
    uint32_t times[STATES] = {0}, sum = 0;
    for (int i = 0; i < TEXT; i++) text[i] = letters[chance(&seed) & 15];
    for (int turn = 0; turn < 3; turn++) {
        int state = START;
        for (int i = 0; i < TEXT; i++) {
            char one = text[i];
            int digit = one >= '0' && one <= '9';
            if (one == ',') { times[state]++, state = START; continue; }
            switch (state) {
            case START: state = digit ? WHOLE : one == '+' || one == '-' ? SIGN : one == '.' ? POINT : WRONG; break;
            case SIGN: state = digit ? WHOLE : one == '.' ? POINT : WRONG; break;
            case WHOLE: state = digit ? WHOLE : one == '.' ? POINT : one == 'e' || one == 'E' ? EXPONENT : WRONG; break;
            case POINT: state = digit ? POINT : one == 'e' || one == 'E' ? EXPONENT : WRONG; break;
            case EXPONENT: state = digit || one == '+' || one == '-' ? POWER : WRONG; break;
            case POWER: state = digit ? NUMBER : WRONG; break;
            case NUMBER: state = digit ? NUMBER : WRONG; break;
            default: break;
            }
            times[state] += state != WRONG;
        }
        for (int i = 0; i < TEXT; i += 11) text[i] = (char)(text[i] == '1' ? ',' : text[i]);
    }
    for (int i = 0; i < STATES; i++) sum = crc(times[i], 32, sum);
    return sum;
}

int64_t nd_block(nd_args *args) {
    const uint64_t *seeds = ND_INPUT(args, 0, uint64_t);
    uint64_t *checks = ND_OUTPUT(args, 0, uint64_t);
    size_t n = ND_INPUT_COUNT(args, 0, uint64_t);
    for (size_t i = 0; i < n; i++) {
        uint32_t seed = (uint32_t)seeds[i], sum = lists(seed);
        sum = crc(matrices(seed ^ sum), 32, sum);
        checks[i] = (uint64_t)crc(states(seed + sum), 32, sum) << 32 | sum;
    }
    ND_SET_USED(args, 0, n, uint64_t);
    return 0;
}
