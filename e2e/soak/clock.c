/* Adds the seconds in the file $SOAK_CLOCK (eight bytes, native order) to the wall clock of a program that loads this
   with LD_PRELOAD. The monotonic clock is not changed, as when the clock of a machine is set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void load(void) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("SOAK_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        offset = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (real_clock_gettime == NULL)
        load();
    int result = real_clock_gettime(clock, time);
    if (result == 0 && offset != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += *offset;
    return result;
}

/* Those of OpenSSL and of others. */
time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result != NULL)
        *result = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict result, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    result->tv_sec = now.tv_sec;
    result->tv_usec = now.tv_nsec / 1000;
    return failed;
}
