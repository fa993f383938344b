/* nandarray_native.h: the streams of a program in C that is compiled for the host, as part of the process that runs it.
 *
 * nandarray.h includes this in place of the stream instructions if ND_NATIVE is defined. A stream is the input or
 * output itself, which lies in memory whole, and the program's position in it. The end of a task within a load, at
 * which a hart stops, is a jump out of the program here. Positions are a thread's own: several run one program at
 * once.
 *
 * Unlike on a hart, nd_read_input, nd_read_output and nd_peek are not checked for bytes that do not exist or are
 * farther away than ND_REACH.
 */
#ifndef NANDARRAY_NATIVE_H
#define NANDARRAY_NATIVE_H

void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
int memcmp(const void *left, const void *right, size_t n);
size_t strlen(const char *text);

/* The C library's, by names of our own: its header declares them otherwise. */
int nd_native_setjmp_(void *mark) __asm__("_setjmp") __attribute__((returns_twice));
void nd_native_longjmp_(void *mark, int value) __asm__("longjmp") __attribute__((noreturn));

typedef struct nd_native_stream_ {
    unsigned char *begin, *head, *end;
} nd_native_stream_;

/* One task's streams. More room for the mark than any C library takes. */
static __thread struct {
    nd_native_stream_ in[ND_MAX_INPUTS], out[ND_MAX_OUTPUTS];
    nd_args *args;
    uint64_t mark[128] __attribute__((aligned(16)));
} nd_native_;

/* A load found fewer bytes than it takes: 0 of them end the task, others are an error, which `used` says. */
__attribute__((noinline, cold, noreturn, unused)) static void nd_native_ended_(unsigned s) {
    uint64_t left = (uint64_t)(nd_native_.in[s].end - nd_native_.in[s].head);
    if (left) nd_native_.args->inputs[s].used = left + 1;
    nd_native_longjmp_(nd_native_.mark, 1);
}

/* A store found no room: more is used than there is room for. */
__attribute__((noinline, cold, noreturn, unused)) static void nd_native_full_(unsigned s) {
    nd_native_.out[s].head = nd_native_.out[s].end + 1;
    nd_native_longjmp_(nd_native_.mark, 1);
}

__attribute__((always_inline, unused)) static inline unsigned char *nd_native_take_(unsigned s, size_t n) {
    unsigned char *at = nd_native_.in[s].head;
    if (__builtin_expect((size_t)(nd_native_.in[s].end - at) < n, 0)) nd_native_ended_(s);
    nd_native_.in[s].head = at + n;
    return at;
}

__attribute__((always_inline, unused)) static inline unsigned char *nd_native_give_(unsigned s, size_t n) {
    unsigned char *at = nd_native_.out[s].head;
    if (__builtin_expect((size_t)(nd_native_.out[s].end - at) < n, 0)) nd_native_full_(s);
    nd_native_.out[s].head = at + n;
    return at;
}

#define ND_NATIVE_GET_(from, type)                                \
    __extension__({                                               \
        type nd_v_;                                               \
        __builtin_memcpy(&nd_v_, (from), sizeof nd_v_);           \
        nd_v_;                                                    \
    })
#define ND_NATIVE_PUT_(s, type, value)                            \
    __extension__({                                               \
        type nd_v_ = (type)(value);                               \
        __builtin_memcpy(nd_native_give_((s), sizeof nd_v_), &nd_v_, sizeof nd_v_); \
        (void)0;                                                  \
    })
#define ND_NATIVE_LOAD_(s, type) ND_NATIVE_GET_(nd_native_take_((s), sizeof(type)), type)
#define ND_NATIVE_BACK_(end, back, type) ND_NATIVE_GET_((end) - (uintptr_t)(back), type)

#define nd_load_i8(s) ND_NATIVE_LOAD_(s, int8_t)
#define nd_load_i16(s) ND_NATIVE_LOAD_(s, int16_t)
#define nd_load_i32(s) ND_NATIVE_LOAD_(s, int32_t)
#define nd_load_i64(s) ND_NATIVE_LOAD_(s, int64_t)
#define nd_load_u8(s) ND_NATIVE_LOAD_(s, uint8_t)
#define nd_load_u16(s) ND_NATIVE_LOAD_(s, uint16_t)
#define nd_load_u32(s) ND_NATIVE_LOAD_(s, uint32_t)
#define nd_load_u64(s) ND_NATIVE_LOAD_(s, uint64_t)

#define nd_store_u8(s, v) ND_NATIVE_PUT_(s, uint8_t, v)
#define nd_store_u16(s, v) ND_NATIVE_PUT_(s, uint16_t, v)
#define nd_store_u32(s, v) ND_NATIVE_PUT_(s, uint32_t, v)
#define nd_store_u64(s, v) ND_NATIVE_PUT_(s, uint64_t, v)

#define nd_read_input_u8(s, back) ND_NATIVE_BACK_(nd_native_.in[s].end, back, uint8_t)
#define nd_read_input_u16(s, back) ND_NATIVE_BACK_(nd_native_.in[s].end, back, uint16_t)
#define nd_read_input_i32(s, back) ND_NATIVE_BACK_(nd_native_.in[s].end, back, int32_t)
#define nd_read_input_u64(s, back) ND_NATIVE_BACK_(nd_native_.in[s].end, back, uint64_t)
#define nd_read_output_u8(s, back) ND_NATIVE_BACK_(nd_native_.out[s].head, back, uint8_t)
#define nd_read_output_u16(s, back) ND_NATIVE_BACK_(nd_native_.out[s].head, back, uint16_t)
#define nd_read_output_i32(s, back) ND_NATIVE_BACK_(nd_native_.out[s].head, back, int32_t)
#define nd_read_output_u64(s, back) ND_NATIVE_BACK_(nd_native_.out[s].head, back, uint64_t)

/* All bytes are there: what is waited for is what is left, as far as a hart would wait. */
__attribute__((always_inline, unused)) static inline size_t nd_native_wait_(unsigned s, uintptr_t bytes) {
    size_t left = (size_t)(nd_native_.in[s].end - nd_native_.in[s].head);
    size_t wanted = bytes < ND_REACH ? bytes : ND_REACH;
    return wanted < left ? wanted : left;
}

#define nd_wait(s, bytes) nd_native_wait_((s), (uintptr_t)(bytes))
#define ND_NATIVE_PEEK_(s, ahead, type) ND_NATIVE_GET_(nd_native_.in[s].head + (intptr_t)(ahead), type)
#define nd_peek_u8(s, ahead) ND_NATIVE_PEEK_(s, ahead, uint8_t)
#define nd_peek_u16(s, ahead) ND_NATIVE_PEEK_(s, ahead, uint16_t)
#define nd_peek_i32(s, ahead) ND_NATIVE_PEEK_(s, ahead, int32_t)
#define nd_peek_u64(s, ahead) ND_NATIVE_PEEK_(s, ahead, uint64_t)

#define nd_input_head(s) ((uintptr_t)(nd_native_.in[s].head - nd_native_.in[s].begin))
#define nd_input_tail(s) ((uintptr_t)(nd_native_.in[s].end - nd_native_.in[s].begin))
#define nd_output_head(s) ((uintptr_t)(nd_native_.out[s].head - nd_native_.out[s].begin))
#define nd_output_tail(s) ((uintptr_t)(nd_native_.out[s].end - nd_native_.out[s].begin))
#define nd_at_end(s) (nd_native_.in[s].head == nd_native_.in[s].end)

/* The program's own nd_stream, which is not there in a program of blocks. */
__attribute__((weak)) int64_t nd_stream_body_(nd_args *args);

int64_t nd_stream(nd_args *args) {
    int64_t status = 0;
    for (unsigned s = 0; s < ND_MAX_INPUTS; s++) {
        unsigned char *at = (unsigned char *)(uintptr_t)args->inputs[s].address;
        nd_native_.in[s] = (nd_native_stream_){at, at, at + args->inputs[s].bytes};
    }
    for (unsigned s = 0; s < ND_MAX_OUTPUTS; s++) {
        unsigned char *at = (unsigned char *)(uintptr_t)args->outputs[s].address;
        nd_native_.out[s] = (nd_native_stream_){at, at, at + args->outputs[s].bytes};
    }
    nd_native_.args = args;
    if (nd_native_setjmp_(nd_native_.mark) == 0) {
        status = nd_stream_body_(args);
        if (status < 0) return status;
    }
    args = nd_native_.args;
    for (unsigned s = 0; s < ND_MAX_OUTPUTS; s++)
        args->outputs[s].used = (uint64_t)(nd_native_.out[s].head - nd_native_.out[s].begin);
    return 0;
}
#define nd_stream nd_stream_body_

#endif
