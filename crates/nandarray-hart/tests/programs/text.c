/* Text: numbers parsed and printed, words counted in a table of hashes, strings searched, moved, compared, turned. */
#include "system.h"

static const char text[] =
    "the quick brown fox jumps over the lazy dog 12345 -678 0x1f 3.14159 "
    "the end of the line is not the end of the page "
    "and what is written is not what is read 18446744073709551615 1e-5 "
    "the dog sleeps 42 times 7 is -0 -1 99999999999999";

struct entry {
    char word[16];
    int count;
};

static struct entry table[128];

static unsigned int hash(const char *word)
{
    unsigned int value = 5381;
    while (*word)
        value = value * 33 ^ (unsigned char)*word++;
    return value;
}

static int same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

static void count(const char *word)
{
    for (unsigned int at = hash(word);; at++) {
        struct entry *entry = &table[at % 128];
        if (!entry->count) {
            int i = 0;
            do
                entry->word[i] = word[i];
            while (word[i++] && i < 15);
            entry->count = 1;
            return;
        }
        if (same(entry->word, word)) {
            entry->count++;
            return;
        }
    }
}

static long long number(const char *p)
{
    long long value = 0, sign = 1;
    if (*p == '-')
        sign = -1, p++;
    while (*p >= '0' && *p <= '9')
        value = value * 10 + (*p++ - '0');
    return sign * value;
}

static int print(char *to, unsigned long long value)
{
    char turned[24];
    int length = 0, i = 0;
    do
        turned[length++] = (char)('0' + value % 10);
    while (value /= 10);
    while (length)
        to[i++] = turned[--length];
    to[i] = 0;
    return i;
}

static const char *find(const char *in, const char *what)
{
    for (; *in; in++) {
        int i = 0;
        while (what[i] && in[i] == what[i])
            i++;
        if (!what[i])
            return in;
    }
    return 0;
}

int main(void)
{
    unsigned long long sum = 0, found = 0;
    char word[24], printed[32];
    for (const char *p = text; *p;) {
        int length = 0;
        while (*p && *p != ' ' && length < 15)
            word[length++] = *p++;
        while (*p && *p != ' ')
            p++;
        if (*p)
            p++;
        word[length] = 0;
        count(word);
        sum = sum * 7 + (unsigned long long)number(word);
    }
    for (int i = 0; i < 128; i++)
        if (table[i].count)
            found = found * 31 + hash(table[i].word) * (unsigned int)table[i].count;
    for (unsigned long long value = 1; value < 1ull << 60; value *= 37)
        found += hash(printed + (print(printed, value ^ sum) > 30));
    for (const char *at = text; (at = find(at, "the")); at++)
        found = found * 3 + (unsigned long long)(at - text);
    print_number("sum", sum);
    print_number("found", found);
    write_out(printed, (size_t)print(printed, sum));
    write_out("\n", 1);
    return 0;
}
