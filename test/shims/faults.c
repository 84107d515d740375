// Lets calls of the C library fail. FAULTS=CALL:WHAT[:SKIP[:COUNT]],...: the first SKIP calls of
// CALL work, the next COUNT (default: all) do not. WHAT is the number of an error, sSECONDS to wait
// before the call, or `short` for reads and writes of one byte. FAULTS_IN=TEXT takes calls alone
// whose path has this text in it. ROOM=BYTES is what statvfs says is free. FAULTS_MET=FILE is made
// when the first call did not work.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WORKS = 0, SHORT = -1 };

static int isMeant(int file, const char *path) {
  const char *in = getenv("FAULTS_IN");
  char link[64], text[4096] = "";
  if (!in)
    return 1;
  if (!path) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (readlink(link, text, sizeof text - 1) < 0)
      return 0;
    path = text;
  }
  return strstr(path, in) != NULL;
}

static void pauseFor(double seconds) {
  struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  while (nanosleep(&left, &left))
    ;
}

static void noteMet(void) {
  const char *met = getenv("FAULTS_MET");
  if (met) // not by calls that fail
    syscall(SYS_mknod, met, S_IFREG | 0600, 0);
}

/// What this call is to do: work, be short, or end with an error.
static int decide(const char *name, long *calls, int file, const char *path) {
  const char *rule = getenv("FAULTS");
  size_t length = strlen(name);
  for (; rule && *rule; rule = strchr(rule, ',') ? strchr(rule, ',') + 1 : NULL) {
    if (strncmp(rule, name, length) || rule[length] != ':')
      continue;
    if (!isMeant(file, path))
      return WORKS;
    long call = __atomic_fetch_add(calls, 1, __ATOMIC_SEQ_CST), skip = 0, count = 1L << 60;
    const char *what = rule + length + 1;
    char *end = (char *)what + strcspn(what, ":,");
    if (*end == ':')
      skip = strtol(end + 1, &end, 10);
    if (*end == ':')
      count = strtol(end + 1, &end, 10);
    if (call < skip || call >= skip + count)
      return WORKS;
    noteMet();
    if (!strncmp(what, "short", 5))
      return SHORT;
    if (*what != 's')
      return atoi(what);
    pauseFor(atof(what + 1));
    return WORKS;
  }
  return WORKS;
}

#define WRAP(result, name, parameters, arguments, file, path, size)                                \
  result name parameters {                                                                         \
    static long calls;                                                                             \
    static result(*real) parameters;                                                               \
    if (!real)                                                                                     \
      *(void **)&real = dlsym(RTLD_NEXT, #name);                                                   \
    int what = decide(#name, &calls, file, path);                                                  \
    if (what > 0)                                                                                  \
      return errno = what, -1;                                                                     \
    if (what == SHORT)                                                                             \
      size;                                                                                        \
    return real arguments;                                                                         \
  }
#define CUT count = count > 1 ? 1 : count

WRAP(int, fsync, (int file), (file), file, NULL, (void)0)
WRAP(int, flock, (int file, int operation), (file, operation), file, NULL, (void)0)
WRAP(int, fallocate, (int file, int mode, off_t start, off_t length), (file, mode, start, length),
     file, NULL, (void)0)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, path, (void)0)
WRAP(int, rmdir, (const char *path), (path), -1, path, (void)0)
WRAP(int, unlink, (const char *path), (path), -1, path, (void)0)
WRAP(int, rename, (const char *from, const char *to), (from, to), -1, to, (void)0)
WRAP(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
     (a, from, b, to, flags), -1, to, (void)0)
WRAP(int, link, (const char *from, const char *to), (from, to), -1, to, (void)0)
WRAP(int, linkat, (int a, const char *from, int b, const char *to, int flags),
     (a, from, b, to, flags), -1, to, (void)0)
WRAP(ssize_t, read, (int file, void *bytes, size_t count), (file, bytes, count), file, NULL, CUT)
WRAP(ssize_t, write, (int file, const void *bytes, size_t count), (file, bytes, count), file, NULL,
     CUT)
WRAP(ssize_t, pwrite, (int file, const void *bytes, size_t count, off_t at),
     (file, bytes, count, at), file, NULL, CUT)

WRAP(int, ftruncate, (int file, off_t size), (file, size), file, NULL, (void)0)

/// Files that are opened to be written: others are libraries and the like. All names count as one.
static long opened;
#define WRAP_OPEN(name, parameters, arguments)                                                     \
  int name parameters {                                                                            \
    va_list rest;                                                                                  \
    va_start(rest, flags);                                                                         \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                      \
    va_end(rest);                                                                                  \
    int what = (flags & O_ACCMODE) == O_RDONLY ? WORKS : decide("open", &opened, -1, path);        \
    if (what > 0)                                                                                  \
      return errno = what, -1;                                                                     \
    return ((int(*) parameters)dlsym(RTLD_NEXT, #name))arguments;                                  \
  }
WRAP_OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
WRAP_OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
WRAP_OPEN(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
WRAP_OPEN(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))

int statvfs(const char *path, struct statvfs *facts) {
  int result = ((int (*)(const char *, struct statvfs *))dlsym(RTLD_NEXT, "statvfs"))(path, facts);
  const char *room = getenv("ROOM");
  if (!result && room)
    facts->f_bavail = (fsblkcnt_t)(strtoull(room, NULL, 10) / facts->f_frsize);
  return result;
}
