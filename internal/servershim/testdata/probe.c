/* A program for the shim's tests: it does to files what its arguments say, or shows its clocks. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int fd = -1;
static FILE *file;

static void must(int ok, const char *what) {
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static long long us(struct timespec ts) { return ts.tv_sec * 1000000LL + ts.tv_nsec / 1000; }

static void clocks(void) {
	struct timespec before, between, after, real;
	struct timeval tv;
	must(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &before) == 0, "before");
	must(clock_gettime(CLOCK_MONOTONIC, &between) == 0, "between");
	must(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &after) == 0, "after");
	must(clock_gettime(CLOCK_REALTIME, &real) == 0, "real");
	must(gettimeofday(&tv, NULL) == 0, "gettimeofday");
	printf("%d %lld %lld %lld\n", us(before) <= us(between) && us(between) <= us(after), us(real), tv.tv_sec * 1000000LL + tv.tv_usec,
		(long long)time(NULL));
}

/* append writes so many bytes. */
static void append(const char *n) {
	for (int i = atoi(n); i > 0; i--)
		must(file ? fputc('x', file) != EOF : write(fd, "x", 1) == 1, "append");
	if (file)
		must(fflush(file) == 0, "flush");
}

int main(int argc, char **argv) {
	(void)argc;
	for (char **a = argv + 1; *a; a++) {
		if (!strcmp(*a, "clocks"))
			clocks();
		else if (!strcmp(*a, "open"))
			must((fd = open(*++a, O_WRONLY | O_CREAT | O_APPEND, 0600)) >= 0, "open");
		else if (!strcmp(*a, "fopen"))
			must((file = fopen(*++a, "w")) != NULL, "fopen");
		else if (!strcmp(*a, "append"))
			append(*++a);
		else if (!strcmp(*a, "fsync"))
			must(fsync(file ? fileno(file) : fd) == 0, "fsync");
		else if (!strcmp(*a, "fdatasync"))
			must(fdatasync(file ? fileno(file) : fd) == 0, "fdatasync");
		else if (!strcmp(*a, "childsync")) {
			pid_t child = fork();
			if (child == 0)
				_exit(fdatasync(fd));
			int status;
			must(waitpid(child, &status, 0) == child && status == 0, "child");
		} else if (!strcmp(*a, "truncate"))
			must(ftruncate(fd, atoi(*++a)) == 0, "truncate");
		else if (!strcmp(*a, "rename")) {
			must(rename(a[1], a[2]) == 0, "rename");
			a += 2;
		} else if (!strcmp(*a, "remove"))
			must(unlink(*++a) == 0, "remove");
		else if (!strcmp(*a, "close")) {
			must((file ? fclose(file) : close(fd)) == 0, "close");
			file = NULL;
		} else {
			fprintf(stderr, "what is %s?\n", *a);
			return 2;
		}
	}
	return 0;
}
