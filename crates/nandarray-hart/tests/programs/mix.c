/* A mix as in processors' benchmarks: list processing, matrices, a state machine, CRC. Own code; it prints a checksum.
 *
 * The number of rounds is the constant ROUNDS, so that one build is one workload. It uses no floating point and no
 * library.
 */
#include "system.h"

#ifndef ROUNDS
#define ROUNDS 20
#endif

#define NODES 200
#define SIDE 20

struct node {
    struct node *next;
    int key;
    short tag;
    short weight;
};

static struct node nodes[NODES];
static short left_matrix[SIDE * SIDE], right_matrix[SIDE * SIDE];
static int product[SIDE * SIDE];

static unsigned short crc16(unsigned int value, int bits, unsigned short crc)
{
    for (int i = 0; i < bits; i++) {
        unsigned int odd = (value ^ crc) & 1;
        value >>= 1;
        crc >>= 1;
        if (odd)
            crc ^= 0xa001;
    }
    return crc;
}

static unsigned int state = 1;

static unsigned int chance(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static struct node *make_list(void)
{
    for (int i = 0; i < NODES; i++) {
        nodes[i].next = i + 1 < NODES ? &nodes[i + 1] : 0;
        nodes[i].key = (int)(chance() & 0xffff) - 0x8000;
        nodes[i].tag = (short)i;
        nodes[i].weight = (short)(chance() & 0x7f);
    }
    return nodes;
}

static struct node *reverse(struct node *list)
{
    struct node *done = 0;
    while (list) {
        struct node *next = list->next;
        list->next = done;
        done = list;
        list = next;
    }
    return done;
}

static struct node *find(struct node *list, int tag)
{
    while (list && list->tag != tag)
        list = list->next;
    return list;
}

/* Merge sort from the bottom up, by key or by tag. */
static struct node *sort(struct node *list, int by_tag)
{
    for (int width = 1;; width *= 2) {
        struct node *rest = list, *tail = 0;
        int merges = 0;
        list = 0;
        while (rest) {
            struct node *left = rest, *right = rest;
            int lefts = 0, rights = width;
            merges++;
            while (lefts < width && right) {
                lefts++;
                right = right->next;
            }
            while (lefts > 0 || (rights > 0 && right)) {
                struct node *taken;
                int take_left = rights == 0 || !right ||
                                (lefts > 0 && (by_tag ? left->tag <= right->tag : left->key <= right->key));
                if (take_left) {
                    taken = left;
                    left = left->next;
                    lefts--;
                } else {
                    taken = right;
                    right = right->next;
                    rights--;
                }
                if (tail)
                    tail->next = taken;
                else
                    list = taken;
                tail = taken;
            }
            rest = right;
        }
        tail->next = 0;
        if (merges <= 1)
            return list;
    }
}

static unsigned short lists(unsigned short crc)
{
    struct node *list = make_list();
    for (int i = 0; i < 30; i++) {
        struct node *found = find(list, (int)(chance() % NODES));
        if (found)
            crc = crc16((unsigned int)found->weight, 16, crc);
        list = reverse(list);
    }
    list = sort(list, 0);
    for (struct node *at = list; at; at = at->next)
        if ((at->key & 7) == 0)
            crc = crc16((unsigned int)at->key, 16, crc);
    list = sort(list, 1);
    return crc16((unsigned int)list->key, 16, crc);
}

static unsigned short matrices(unsigned short crc)
{
    for (int i = 0; i < SIDE * SIDE; i++) {
        left_matrix[i] = (short)(chance() & 0xff);
        right_matrix[i] = (short)(chance() & 0xff);
    }
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            int sum = 0;
            for (int k = 0; k < SIDE; k++)
                sum += left_matrix[i * SIDE + k] * right_matrix[k * SIDE + j];
            product[i * SIDE + j] = sum;
        }
    int total = 0, last = 0;
    for (int i = 0; i < SIDE * SIDE; i++) {
        int value = (product[i] >> 2 & 0xf) * (product[i] >> 5 & 0x7f);
        total += value > last ? 10 : value & 3;
        last = value;
    }
    return crc16((unsigned int)total, 16, crc);
}

/* The kind of number that a word is: a state machine over characters. */
enum { START, SIGN, DIGITS, POINT, FRACTION, EXPONENT, POWER, WRONG, KINDS };

static int classify(const char **text)
{
    int at = START;
    const char *p = *text;
    for (; *p && *p != ','; p++) {
        int digit = *p >= '0' && *p <= '9';
        switch (at) {
        case START:
            at = digit ? DIGITS : *p == '+' || *p == '-' ? SIGN : *p == '.' ? POINT : WRONG;
            break;
        case SIGN:
            at = digit ? DIGITS : *p == '.' ? POINT : WRONG;
            break;
        case DIGITS:
            at = digit ? DIGITS : *p == '.' ? FRACTION : *p == 'e' ? EXPONENT : WRONG;
            break;
        case POINT:
        case FRACTION:
            at = digit ? FRACTION : *p == 'e' ? EXPONENT : WRONG;
            break;
        case EXPONENT:
            at = digit || *p == '-' ? POWER : WRONG;
            break;
        case POWER:
            at = digit ? POWER : WRONG;
            break;
        default:
            break;
        }
    }
    *text = *p ? p + 1 : p;
    return at;
}

static unsigned short machine(unsigned short crc)
{
    static const char words[] = "5012,-87,.5,+1.5e-9,3.14159,12e4,abc,--3,1e,0.0001,-42.75e12,9x9,77777777,.,1.e5,-0";
    int seen[KINDS] = {0};
    for (int round = 0; round < 8; round++) {
        const char *at = words;
        while (*at)
            seen[classify(&at)]++;
    }
    for (int i = 0; i < KINDS; i++)
        crc = crc16((unsigned int)seen[i], 32, crc);
    return crc;
}

int main(void)
{
    unsigned short crc = 0;
    for (int round = 0; round < ROUNDS; round++) {
        crc = lists(crc);
        crc = matrices(crc);
        crc = machine(crc);
    }
    print_number("mix", crc);
    return 0;
}
