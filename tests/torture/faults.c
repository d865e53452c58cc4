/* Loaded before libc: fails the k-th change of a disk, and lets the clock jump. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static long countdown = -1, changes = 0;
static int error_number = 0, for_good = 0;
static long jump = 0;

/* Let the k-th change from now fail, and with for_good all after it as well; k < 0: none. */
void fault_arm(long k, int number, int good) {
    countdown = k;
    error_number = number;
    for_good = good;
    changes = 0;
}

long fault_changes(void) { return changes; }
void fault_jump(long seconds) { jump = seconds; }

static int fails(void) {
    changes++;
    if (countdown < 0 || changes <= countdown || (!for_good && changes > countdown + 1)) return 0;
    errno = error_number;
    return 1;
}

static int is_file(int fd) {
    struct stat status;
    int before = errno, found = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    errno = before;
    return found;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
ssize_t write(int fd, const void *data, size_t n) {
    return is_file(fd) && fails() ? -1 : REAL(write)(fd, data, n);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    return is_file(fd) && fails() ? -1 : REAL(pwrite)(fd, data, n, at);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    return is_file(fd) && fails() ? -1 : REAL(pwrite64)(fd, data, n, at);
}
int mkdir(const char *path, mode_t mode) { return fails() ? -1 : REAL(mkdir)(path, mode); }
int fsync(int fd) { return !for_good && is_file(fd) && fails() ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return !for_good && is_file(fd) && fails() ? -1 : REAL(fdatasync)(fd); }
int rename(const char *a, const char *b) { return !for_good && fails() ? -1 : REAL(rename)(a, b); }

int clock_gettime(clockid_t which, struct timespec *now) {
    int code = REAL(clock_gettime)(which, now);
    if (which == CLOCK_REALTIME && jump) {
        now->tv_sec += jump;
        jump = -jump; /* forward and back again */
    }
    return code;
}
