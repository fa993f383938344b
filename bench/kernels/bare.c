/* Start of a bare program: a stack, and then main. For simulators that have no system calls. */
static char stack[16384] __attribute__((aligned(16), used));

__attribute__((naked, used)) void bare_start(void)
{
    __asm__ volatile(".option push\n.option norelax\nla gp, __global_pointer$\n.option pop\n"
                     "la sp, stack\nli t0, 16384\nadd sp, sp, t0\ncall main\n1: j 1b\n");
}
