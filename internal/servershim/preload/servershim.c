/* Preloaded into a redis-server, this shifts its wall clock, notes for each file how much of it was synced, and makes
 * syncs wait. What it is told and what it notes stand in one file, LEASEQ_SHIM, that the server and whoever steers it map
 * or read: package servershim knows the same layout. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#if __SIZEOF_POINTER__ != 8
#error "only for systems with 64 bits"
#endif

#define SLOTS 32768
#define STALL_BOUND 30000000 /* us */

/* A slot is one file, by its inode. */
struct slot {
	uint64_t key;   /* 0: free */
	int64_t synced; /* bytes from the begin that are on the disk */
	int64_t cuts;   /* how often it was made anew or truncated */
	int64_t unused;
};

struct control {
	int64_t shift; /* told: us, added to the wall clock */
	int64_t stall; /* told: syncs wait while it is not 0 */
	int64_t loads; /* noted: servers that have loaded this */
	int64_t begun, ended, waiting; /* noted: syncs of the server that runs, or ran last */
	int64_t last;  /* noted: when a sync began, us since 1970, not shifted */
	int64_t unused[505];
	struct slot slots[SLOTS];
};

static struct control *volatile control; /* NULL: not mapped yet */
static FILE *(*real_fopen)(const char *, const char *), *(*real_fopen64)(const char *, const char *);

static void give_up(const char *what) {
	perror(what);
	_exit(97);
}

__attribute__((constructor)) static void map_control(void) {
	const char *path = getenv("LEASEQ_SHIM");
	int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
	void *at = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (at == MAP_FAILED)
		give_up("servershim: LEASEQ_SHIM");
	close(file);
	*(void **)&real_fopen = dlsym(RTLD_NEXT, "fopen");
	*(void **)&real_fopen64 = dlsym(RTLD_NEXT, "fopen64");
	if (!real_fopen64)
		real_fopen64 = real_fopen;
	struct control *c = at;
	c->begun = c->ended = c->waiting = c->last = 0;
	__atomic_add_fetch(&c->loads, 1, __ATOMIC_SEQ_CST);
	control = c;
}

static int64_t clock_us(clockid_t which) {
	struct timespec ts;
	syscall(SYS_clock_gettime, which, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* ---- the wall clock ---- */

static int64_t wall_us(clockid_t which) {
	struct control *c = control;
	return clock_us(which) + (c ? __atomic_load_n(&c->shift, __ATOMIC_RELAXED) : 0);
}

int clock_gettime(clockid_t which, struct timespec *ts) {
	if (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE)
		return (int)syscall(SYS_clock_gettime, which, ts);
	int64_t us = wall_us(which);
	ts->tv_sec = us / 1000000;
	ts->tv_nsec = us % 1000000 * 1000;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	(void)zone;
	int64_t us = wall_us(CLOCK_REALTIME);
	tv->tv_sec = us / 1000000;
	tv->tv_usec = us % 1000000;
	return 0;
}

time_t time(time_t *out) {
	time_t s = wall_us(CLOCK_REALTIME) / 1000000;
	if (out)
		*out = s;
	return s;
}

/* ---- what is on the disk ---- */

/* reach raises what is known to be on the disk. */
static void reach(struct slot *s, int64_t length) {
	for (int64_t was = __atomic_load_n(&s->synced, __ATOMIC_SEQ_CST); was < length;)
		if (__atomic_compare_exchange_n(&s->synced, &was, length, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return;
}

/* slot_of finds the slot of a file, or makes one that says that so much of it is on the disk. No lock: who holds one can
 * be killed, and the table outlives it. */
static struct slot *slot_of(struct control *c, const struct stat *st, int64_t synced) {
	uint64_t key = (uint64_t)st->st_ino + (uint64_t)st->st_dev * 0x9e3779b97f4a7c15u;
	key += key == 0;
	for (uint64_t i = 0; i < SLOTS; i++) {
		struct slot *s = &c->slots[(key + i) % SLOTS];
		uint64_t found = 0;
		if (__atomic_compare_exchange_n(&s->key, &found, key, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
			reach(s, synced);
			return s;
		}
		if (found == key)
			return s;
	}
	errno = ENOSPC;
	give_up("servershim: more files than it can note");
	return NULL;
}

/* cut notes that a file was made anew, or truncated. */
static void cut(struct slot *s, int64_t length) {
	__atomic_add_fetch(&s->cuts, 1, __ATOMIC_SEQ_CST);
	for (int64_t was = __atomic_load_n(&s->synced, __ATOMIC_SEQ_CST); was > length;)
		if (__atomic_compare_exchange_n(&s->synced, &was, length, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return;
}

/* opened notes a file that was opened for writing. What it holds that was never noted was there before: it is on the disk.
 * An empty one holds nothing, whatever was noted of another file with its inode. */
static void opened(int fd) {
	struct control *c = control;
	struct stat st;
	int saved = errno;
	if (c && fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		struct slot *s = slot_of(c, &st, st.st_size);
		if (st.st_size == 0)
			cut(s, 0);
	}
	errno = saved;
}

static void truncated(const struct stat *st, int64_t length) {
	struct control *c = control;
	int saved = errno;
	if (c && S_ISREG(st->st_mode))
		cut(slot_of(c, st, st->st_size), length);
	errno = saved;
}

/* stall waits while syncs are told to. */
static void stall(struct control *c) {
	if (!__atomic_load_n(&c->stall, __ATOMIC_SEQ_CST))
		return;
	const struct timespec pause = {0, 1000000};
	__atomic_add_fetch(&c->waiting, 1, __ATOMIC_SEQ_CST);
	int64_t until = clock_us(CLOCK_MONOTONIC) + STALL_BOUND;
	while (__atomic_load_n(&c->stall, __ATOMIC_SEQ_CST) && clock_us(CLOCK_MONOTONIC) < until)
		syscall(SYS_nanosleep, &pause, NULL);
	__atomic_sub_fetch(&c->waiting, 1, __ATOMIC_SEQ_CST);
}

/* synced does a sync, and notes what it is sure of: what the file held when the sync began. */
static int synced(int fd, long call) {
	struct control *c = control;
	struct stat st;
	if (!c)
		return (int)syscall(call, fd);
	struct slot *s = NULL;
	int64_t cuts = 0;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		s = slot_of(c, &st, 0);
		cuts = __atomic_load_n(&s->cuts, __ATOMIC_SEQ_CST);
	}
	__atomic_store_n(&c->last, clock_us(CLOCK_REALTIME), __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&c->begun, 1, __ATOMIC_SEQ_CST);
	stall(c);
	int answer = (int)syscall(call, fd), saved = errno;
	if (answer == 0 && s && cuts == __atomic_load_n(&s->cuts, __ATOMIC_SEQ_CST))
		reach(s, st.st_size);
	__atomic_add_fetch(&c->ended, 1, __ATOMIC_SEQ_CST);
	errno = saved;
	return answer;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }

int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

/* Each of the following has two names, which are one function on systems with 64 bits. A C library may have made the
 * second one a macro. */
#undef open64
#undef fopen64
#undef truncate64
#undef ftruncate64

static int open_noted(const char *path, int flags, mode_t mode) {
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	if ((flags & O_ACCMODE) != O_RDONLY)
		opened(fd);
	return fd;
}

#define OPEN(name) \
	int name(const char *path, int flags, ...) { \
		va_list rest; \
		va_start(rest, flags); \
		mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
		va_end(rest); \
		return open_noted(path, flags, mode); \
	}

#define FOPEN(name, real) \
	FILE *name(const char *path, const char *mode) { \
		FILE *file = real ? real(path, mode) : NULL; \
		if (file && mode[0] != 'r') \
			opened(fileno(file)); \
		return file; \
	}

#define TRUNCATE(name) \
	int name(const char *path, off_t length) { \
		struct stat st; \
		int known = stat(path, &st), answer = (int)syscall(SYS_truncate, path, length); \
		if (known == 0 && answer == 0) \
			truncated(&st, length); \
		return answer; \
	}

#define FTRUNCATE(name) \
	int name(int fd, off_t length) { \
		struct stat st; \
		int known = fstat(fd, &st), answer = (int)syscall(SYS_ftruncate, fd, length); \
		if (known == 0 && answer == 0) \
			truncated(&st, length); \
		return answer; \
	}

OPEN(open)
OPEN(open64)
FOPEN(fopen, real_fopen)
FOPEN(fopen64, real_fopen64)
TRUNCATE(truncate)
TRUNCATE(truncate64)
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)
