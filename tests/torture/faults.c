/* Loaded before libc: fails or kills at the k-th change of a disk, records all changes, lets the clock jump. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static long countdown = -1, changes = 0;
static int error_number = 0, for_good = 0;
static long jump = 0;
static int record = -1;
static char below[PATH_MAX];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Let the k-th change from now fail, and with for_good all after it as well; k < 0: none.
   An error number of -1 kills the process instead. */
void fault_arm(long k, int number, int good) {
    countdown = k;
    error_number = number;
    for_good = good;
    changes = 0;
}

long fault_changes(void) { return changes; }
void fault_jump(long seconds) { jump = seconds; }

/* Write every change below a folder to a file from now on. */
void fault_record(const char *path, const char *folder) {
    snprintf(below, sizeof below, "%s", folder);
    record = REAL(open64)(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static int fails(void) {
    changes++;
    if (countdown < 0 || changes <= countdown || (!for_good && changes > countdown + 1)) return 0;
    if (error_number == -1) kill(getpid(), SIGKILL);
    errno = error_number;
    return 1;
}

static int is_file(int fd) {
    struct stat status;
    int before = errno, found = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    errno = before;
    return found;
}

/* The path of a descriptor, or of a name relative to one. */
static const char *path_of(int fd, const char *name, char *buffer) {
    if (name && name[0] == '/') return strncpy(buffer, name, PATH_MAX - 1);
    char link[64], base[PATH_MAX] = "";
    if (fd == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return "";
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, base, sizeof base - 1);
        base[n > 0 ? n : 0] = 0;
    }
    if (!name) return strcpy(buffer, base);
    if (snprintf(buffer, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) return "";
    return buffer;
}

/* kind, lengths of two paths and of the data, the place, then all three. */
static void note(char kind, const char *a, const char *b, long at, const void *data, size_t n) {
    if (record < 0 || strncmp(a, below, strlen(below)) != 0) return;
    int before = errno;
    long head[5] = {kind, (long)strlen(a), (long)strlen(b), at, (long)n};
    char *line = malloc(sizeof head + head[1] + head[2] + n);
    memcpy(line, head, sizeof head);
    memcpy(line + sizeof head, a, head[1]);
    memcpy(line + sizeof head + head[1], b, head[2]);
    if (n) memcpy(line + sizeof head + head[1] + head[2], data, n);
    REAL(write)(record, line, sizeof head + head[1] + head[2] + n);
    free(line);
    errno = before;
}

#define PATHS char one[PATH_MAX] = "", two[PATH_MAX] = ""; (void)one; (void)two

ssize_t write(int fd, const void *data, size_t n) {
    PATHS;
    if (!is_file(fd)) return REAL(write)(fd, data, n);
    if (fails()) return -1;
    int appends = fcntl(fd, F_GETFL) & O_APPEND;
    ssize_t done = REAL(write)(fd, data, n);
    if (done > 0 && record >= 0) {
        struct stat status;
        fstat(fd, &status);
        long end = appends ? (long)status.st_size : (long)lseek(fd, 0, SEEK_CUR);
        note('w', path_of(fd, NULL, one), "", end - done, data, done);
    }
    return done;
}
static ssize_t placed(ssize_t done, int fd, const void *data, long at) {
    PATHS;
    if (done > 0 && record >= 0) note('w', path_of(fd, NULL, one), "", at, data, done);
    return done;
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    return is_file(fd) && fails() ? -1 : placed(REAL(pwrite)(fd, data, n, at), fd, data, at);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    return is_file(fd) && fails() ? -1 : placed(REAL(pwrite64)(fd, data, n, at), fd, data, at);
}
static int cut(int code, int fd, long size) {
    PATHS;
    if (!code && record >= 0) note('t', path_of(fd, NULL, one), "", size, NULL, 0);
    return code;
}
int ftruncate(int fd, off_t size) { return fails() ? -1 : cut(REAL(ftruncate)(fd, size), fd, size); }
int ftruncate64(int fd, off64_t size) { return fails() ? -1 : cut(REAL(ftruncate64)(fd, size), fd, size); }

static int synced(int code, int fd) {
    PATHS;
    if (!code && record >= 0) note('s', path_of(fd, NULL, one), "", 0, NULL, 0);
    return code;
}
int fsync(int fd) { return !for_good && is_file(fd) && fails() ? -1 : synced(REAL(fsync)(fd), fd); }
int fdatasync(int fd) { return !for_good && is_file(fd) && fails() ? -1 : synced(REAL(fdatasync)(fd), fd); }

int mkdir(const char *path, mode_t mode) {
    PATHS;
    if (fails()) return -1;
    int code = REAL(mkdir)(path, mode);
    if (!code && record >= 0) note('d', path_of(AT_FDCWD, path, one), "", 0, NULL, 0);
    return code;
}
int rename(const char *a, const char *b) {
    PATHS;
    if (!for_good && fails()) return -1;
    int code = REAL(rename)(a, b);
    if (!code && record >= 0)
        note('m', path_of(AT_FDCWD, a, one), path_of(AT_FDCWD, b, two), 0, NULL, 0);
    return code;
}
static int removes(void) { return error_number == -1 && fails(); } /* a full disk lets go of files */
static int removed(int code, int fd, const char *name) {
    PATHS;
    if (!code && record >= 0) note('u', path_of(fd, name, one), "", 0, NULL, 0);
    return code;
}
int unlink(const char *path) { return removes() ? -1 : removed(REAL(unlink)(path), AT_FDCWD, path); }
int rmdir(const char *path) { return removes() ? -1 : removed(REAL(rmdir)(path), AT_FDCWD, path); }
int unlinkat(int fd, const char *path, int flags) {
    return removes() ? -1 : removed(REAL(unlinkat)(fd, path, flags), fd, path);
}

static int opened(int fd, int at, const char *path, int flags, int is_new) {
    PATHS;
    if (fd < 0 || record < 0) return fd;
    if (is_new) note('c', path_of(at, path, one), "", 0, NULL, 0);
    else if (flags & O_TRUNC) note('t', path_of(at, path, one), "", 0, NULL, 0);
    return fd;
}
static int missing(int at, const char *path, int flags) {
    int before = errno, found = (flags & O_CREAT) && faccessat(at, path, F_OK, AT_SYMLINK_NOFOLLOW);
    errno = before;
    return found;
}
#define MODE va_list rest; va_start(rest, flags); mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; va_end(rest)
int open(const char *path, int flags, ...) {
    MODE;
    int is_new = missing(AT_FDCWD, path, flags);
    return opened(REAL(open)(path, flags, mode), AT_FDCWD, path, flags, is_new);
}
int open64(const char *path, int flags, ...) {
    MODE;
    int is_new = missing(AT_FDCWD, path, flags);
    return opened(REAL(open64)(path, flags, mode), AT_FDCWD, path, flags, is_new);
}
int openat(int at, const char *path, int flags, ...) {
    MODE;
    int is_new = missing(at, path, flags);
    return opened(REAL(openat)(at, path, flags, mode), at, path, flags, is_new);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE;
    int is_new = missing(at, path, flags);
    return opened(REAL(openat64)(at, path, flags, mode), at, path, flags, is_new);
}

int clock_gettime(clockid_t which, struct timespec *now) {
    int code = REAL(clock_gettime)(which, now);
    if (which == CLOCK_REALTIME && jump) {
        now->tv_sec += jump;
        jump = -jump; /* forward and back again */
    }
    return code;
}
