/* Quicksort with insertion sort below eight, heap sort, and binary search, over numbers made up. */
#include "system.h"

#define COUNT 3000

static unsigned long long seed = 88172645463325252ull;

static unsigned int chance(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned int)(seed >> 16);
}

static void swap(int *a, int *b)
{
    int t = *a;
    *a = *b;
    *b = t;
}

static void quick(int *from, int *to)
{
    while (to - from > 8) {
        int middle = from[(to - from) / 2];
        int *low = from, *high = to - 1;
        while (low <= high) {
            while (*low < middle)
                low++;
            while (*high > middle)
                high--;
            if (low <= high)
                swap(low++, high--);
        }
        quick(from, high + 1);
        from = low;
    }
    for (int *at = from; at < to; at++)
        for (int *back = at; back > from && back[-1] > *back; back--)
            swap(back - 1, back);
}

static void sink(int *heap, int at, int count)
{
    for (int child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] > heap[child])
            child++;
        if (heap[at] >= heap[child])
            return;
        swap(&heap[at], &heap[child]);
    }
}

static void heap_sort(int *heap, int count)
{
    for (int at = count / 2; at-- > 0;)
        sink(heap, at, count);
    while (--count > 0) {
        swap(&heap[0], &heap[count]);
        sink(heap, 0, count);
    }
}

int main(void)
{
    static int one[COUNT], other[COUNT];
    for (int i = 0; i < COUNT; i++)
        one[i] = other[i] = (int)chance();
    quick(one, one + COUNT);
    heap_sort(other, COUNT);
    unsigned long long sum = 0, wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += one[i] != other[i] || (i && one[i - 1] > one[i]);
        sum = sum * 31 + (unsigned int)one[i];
    }
    int found = 0;
    for (int i = 0; i < COUNT; i++) {
        int low = 0, high = COUNT, wanted = (int)chance();
        if (i & 1)
            wanted = one[i];
        while (low < high) {
            int middle = (low + high) / 2;
            if (one[middle] < wanted)
                low = middle + 1;
            else
                high = middle;
        }
        found += low < COUNT && one[low] == wanted;
    }
    print_number("wrong", wrong);
    print_number("sum", sum);
    print_number("found", (unsigned long long)found);
    return 0;
}
