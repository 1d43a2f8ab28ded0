/* Preloaded into a redis-server, this shifts its wall clock by what stands in the file LEASEQ_CLOCK: microseconds, eight
 * bytes, read at every call, so that a test can step the clock of a server that runs. The monotonic clock is left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none, *shift = &none;

__attribute__((constructor)) static void map_shift(void) {
	const char *path = getenv("LEASEQ_CLOCK");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *at = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
	if (at == MAP_FAILED) {
		perror("wallclock: LEASEQ_CLOCK");
		_exit(97);
	}
	close(file);
	shift = at;
}

static int64_t now(clockid_t which) { /* microseconds */
	struct timespec ts;
	syscall(SYS_clock_gettime, which, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000 + *shift;
}

int clock_gettime(clockid_t which, struct timespec *ts) {
	if (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE)
		return (int)syscall(SYS_clock_gettime, which, ts);
	int64_t us = now(which);
	ts->tv_sec = us / 1000000;
	ts->tv_nsec = us % 1000000 * 1000;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	(void)zone;
	int64_t us = now(CLOCK_REALTIME);
	tv->tv_sec = us / 1000000;
	tv->tv_usec = us % 1000000;
	return 0;
}

time_t time(time_t *out) {
	time_t s = now(CLOCK_REALTIME) / 1000000;
	if (out)
		*out = s;
	return s;
}
