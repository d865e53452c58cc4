/* Start a Cortex-M, run the self-test, and report its result to the debugger or emulator. */
#include "model.h"

extern uint32_t bss_start, bss_end, stack_top;

static model_state state;

/* Semihosting: operation 0x04 prints text, 0x20 ends the program with an exit code. */
static void ask(uint32_t what, const void *with)
{
    register uint32_t operation __asm__("r0") = what;
    register const void *argument __asm__("r1") = with;
    __asm__ volatile("bkpt 0xAB" : "+r"(operation) : "r"(argument) : "memory");
}

static void leave(uint32_t code)
{
    uint32_t block[2] = {0x20026, code};
    ask(0x04, code == 0 ? "self-test passed\n" : "self-test failed\n");
    ask(0x20, block);
}

void reset(void);
void reset(void)
{
    uint32_t *word;
    for (word = &bss_start; word < &bss_end; word++)
        *word = 0;
    leave((uint32_t)model_selftest(&state));
    for (;;)
        ;
}

/* Any fault ends the program too. */
static void fault(void)
{
    leave(255);
}

/* The processor reads the initial stack pointer and the entry point here. Compilers may call memset, so define it. */
__attribute__((section(".vectors"), used)) static const uintptr_t vectors[16] = {
    (uintptr_t)&stack_top, (uintptr_t)reset, (uintptr_t)fault, (uintptr_t)fault,
    (uintptr_t)fault,      (uintptr_t)fault, (uintptr_t)fault,
};

void *memset(void *to, int value, uint32_t n);
void *memset(void *to, int value, uint32_t n)
{
    volatile uint8_t *byte = to;
    while (n-- > 0)
        *byte++ = (uint8_t)value;
    return to;
}

void *memcpy(void *to, const void *from, uint32_t n);
void *memcpy(void *to, const void *from, uint32_t n)
{
    volatile uint8_t *byte = to;
    const uint8_t *source = from;
    while (n-- > 0)
        *byte++ = *source++;
    return to;
}
