/* wal_replay.c: bring pages of -DPAGE_BYTES up to date from a write-ahead log.
 *
 * The log, whole in each task, has records at multiples of 8 bytes: uint32 bytes of the record, uint32 CRC-32C of
 * what follows, uint64 sequence number, uint64 page, uint32 offset, uint32 length, then the data, filled up to 8
 * bytes. It ends before the first record that is cut short, has another CRC or another length than its data, or a
 * sequence number that is not larger than the last one's: that is how a log ends that was being written when the
 * power went.
 *
 * A page begins with the sequence number of the last record applied to it (uint64). A record is applied if its
 * number is larger, so replay may be repeated. Pages count from the beginning of the whole input; records of other
 * tasks' pages are passed over. Bad input: a record, sound otherwise, that lies outside its page or on the page's
 * number.
 */
#include "crc32c.h"

#ifndef PAGE_BYTES
#define PAGE_BYTES 4096
#endif
_Static_assert(PAGE_BYTES % 8 == 0 && PAGE_BYTES >= 16, "a number and data");

PROGRAM("name": "wal_replay", "kind": "block",
        "inputs": [{"name": "pages", "dtype": "uint8", "record_bytes": PAGE_BYTES},
                   {"name": "log", "dtype": "uint8", "whole": true}],
        "outputs": [{"name": "result", "dtype": "uint8", "record_bytes": PAGE_BYTES}], "scratchpad_bytes": 8192)

typedef struct {
    uint32_t bytes, crc;
    uint64_t number, page;
    uint32_t offset, length;
} head;
_Static_assert(sizeof(head) == 32, "the layout of logs");

int64_t nd_block(nd_args *args) {
    uint64_t pages = args->inputs[0].bytes / PAGE_BYTES, last = 0;
    if (args->inputs[0].bytes % PAGE_BYTES) return BAD_INPUT;
    unsigned char *result = ND_OUTPUT(args, 0, unsigned char);
    const unsigned char *log = ND_INPUT(args, 1, unsigned char), *end = log + args->inputs[1].bytes;
    crc_tables *tables = ND_SCRATCHPAD(args, crc_tables);
    if (args->outputs[0].bytes < pages * PAGE_BYTES) return OUTPUT_FULL;
    __builtin_memcpy(result, ND_INPUT(args, 0, unsigned char), (size_t)(pages * PAGE_BYTES));
    crc_make_tables(tables);
    while ((size_t)(end - log) >= sizeof(head)) {
        const head *record = (const head *)log;
        uint64_t whole = sizeof(head) + (((uint64_t)record->length + 7) & ~7ull);
        if (record->bytes != whole || whole > (uint64_t)(end - log) || record->number <= last) break;
        if (crc32c(tables, log + 8, (size_t)whole - 8) != record->crc) break;
        if (record->offset < 8 || (uint64_t)record->offset + record->length > PAGE_BYTES) return BAD_INPUT;
        last = record->number;
        uint64_t at = record->page - args->first_record;
        if (record->page >= args->first_record && at < pages) {
            unsigned char *page = result + at * PAGE_BYTES;
            if (*(word64 *)page < last) {
                __builtin_memcpy(page + record->offset, log + sizeof(head), record->length);
                *(word64 *)page = last;
            }
        }
        log += whole;
    }
    args->outputs[0].used = pages * PAGE_BYTES;
    return 0;
}
