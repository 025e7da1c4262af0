/* State of the fake driver on one machine: a memory-mapped file, shared by every process that
 * loads one of the libraries.
 *
 * libcuda.so.1 (cuda.c) and libnvidia-ml.so.1 (nvml.c) implement the driver, libfakedriver.so
 * (control.c) the functions for tests. The environment variable GPUSHARE_FAKE_GPU is the path of
 * the file. Rules:
 *   - every access happens between fake_lock() and fake_unlock(); the mutex is robust, so that it
 *     remains usable when its owner dies;
 *   - fake_lock() first sweeps: a process that has ended (by pid and start time) loses its slot;
 *     its memory stays in use for `lag_ms`;
 *   - amounts are bytes, times are milliseconds of CLOCK_MONOTONIC;
 *   - FAKE_DRIVER (major version, from the command line of the compiler) determines which symbols
 *     exist; `driver` below is the reported version.
 */
#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef FAKE_DRIVER
#define FAKE_DRIVER 580
#endif
#define FAKE_MAGIC 0x6770757368617265ull
#define MAX_GPUS 16
#define MAX_PROCS 192
#define MAX_ALLOCS 1024
#define MAX_LIMITS 192
#define MAX_FAULTS 32
#define MAX_FREED 256
#define MAX_EVENTS 64
#define WINDOW 4096 /* stored bytes of an allocation; its content repeats with this period */
#define NO_LIMIT 0xFFFFFFFFFFFFFFFFull

enum fake_state { FAKE_RUNNING = 0, FAKE_LOCKED = 1, FAKE_CHECKPOINTED = 2, FAKE_FAILED = 3 };

enum fake_fault_kind {
  FAULT_NONE = 0,
  FAULT_FAIL,        /* returns `code` without effect */
  FAULT_FAIL_AFTER,  /* takes effect, but returns `code` */
  FAULT_LIE,         /* returns success without effect */
  FAULT_HANG,        /* does not return until the fault is cleared, without effect */
  FAULT_HANG_AFTER,  /* takes effect, but does not return */
  FAULT_DELAY,       /* takes effect after `delay_ms` */
  FAULT_VANISH,      /* the process in question is killed first */
  FAULT_DIE,         /* the caller is killed before the effect */
  FAULT_DIE_AFTER,   /* the caller is killed after the effect */
};

typedef struct {
  int32_t used, minor;
  char uuid[48];          /* "GPU-00000000-..." or "MIG-..." */
  unsigned char raw[16];  /* the same as bytes, for the CUDA driver */
  char model[64];
  uint64_t total, reserved; /* `reserved`: used by the driver itself */
  int32_t healthy;          /* 0: fallen off the bus, calls fail */
  int32_t mig_mode;         /* this GPU is partitioned */
  int32_t mig_parent;       /* index of the GPU of this instance; -1: no instance */
  int32_t mps;              /* an MPS server owns it */
  uint32_t utilization;
  uint32_t celsius, milliwatts; /* of its sensors; 0: it has none */
  int32_t hidden;           /* memory per process is not reported (WSL, some vGPUs) */
  int32_t recovery;         /* requested action: 0 none, 1 reset, 2 reboot, ... */
  int32_t remap_failure;    /* a row of its memory could not be replaced */
} fake_gpu;

typedef struct {
  int32_t used, pid;
  uint64_t start;
  int32_t state;           /* enum fake_state */
  int32_t bricked;         /* a restore ran out of memory: 304 from now on */
  int32_t managed;         /* it uses unified memory: cannot be checkpointed */
  int32_t masked;          /* CUDA_VISIBLE_DEVICES hid a GPU during cuInit */
  int32_t context[MAX_GPUS]; /* it has a context there (real index) */
  int32_t remap[MAX_GPUS];   /* GPU with the memory of GPU i now (relocation) */
  char cgroup[256];        /* "/sys/fs/cgroup/..." */
  int64_t busy_from, busy_until; /* the current or last kernel */
  int64_t busy_total;      /* ms of GPU work, past and launched */
  uint32_t sm_util;        /* percent while busy */
  int32_t graphics;        /* 0: compute process, 1: graphics, 2: both */
} fake_proc;

typedef struct {
  int32_t used, proc, gpu; /* slot in procs; current GPU (undefined while checkpointed) */
  int32_t home;            /* index of the GPU at the time of allocation */
  uint64_t bytes;
  unsigned char data[WINDOW];
} fake_alloc;

/* Memory that was freed, but is still in use according to the driver. */
typedef struct {
  int32_t used, gpu, pid, listed;
  uint64_t bytes;
  int64_t until;
} fake_freed;
typedef struct { int32_t used, gpu; char path[256]; uint64_t soft, hard; } fake_limit;
/* `left` -1: always; `pid` 0: any process. */
typedef struct {
  int32_t used, kind, code, left, skip, delay_ms, pid;
  char call[64];
  uint32_t generation, hits;
} fake_fault;
typedef struct { int32_t used, gpu; uint64_t type, data, seq; } fake_event;

typedef struct {
  uint64_t magic;
  pthread_mutex_t mutex;
  int32_t driver;           /* 580 */
  char driver_text[32];     /* "580.159.03" */
  int32_t cuda_version;     /* 13000 */
  int32_t gpu_count, lag_ms;
  uint64_t context_bytes;   /* size of a context, per process and GPU */
  int32_t remap_is_noop;    /* restore accepts a map and ignores it */
  int32_t masked_is_noop;   /* for a masked process the map is ignored, not refused */
  int32_t persistence;
  int32_t spoils;           /* a failed checkpoint leaves the process FAILED */
  int32_t lists_bare;       /* processes without context are listed, and cannot be locked */
  int32_t busy_copy_mib_s;  /* speed of checkpoint and restore; 0: instant */
  uint64_t event_seq, calls;
  fake_gpu gpus[MAX_GPUS];
  fake_proc procs[MAX_PROCS];
  fake_alloc allocs[MAX_ALLOCS];
  fake_freed freed[MAX_FREED];
  fake_limit limits[MAX_LIMITS];
  fake_fault faults[MAX_FAULTS];
  fake_event events[MAX_EVENTS];
} fake_node;

#define FAKE_UNUSED __attribute__((unused))

static fake_node *fake_mapped;
static char fake_path[512];

FAKE_UNUSED static int64_t fake_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

FAKE_UNUSED static void fake_sleep(int ms) {
  struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};
  while (nanosleep(&t, &t) && errno == EINTR) {}
}

/* The driver identifies processes by the pids of the host. For a process in a pid namespace, the
 * environment names a mount of the host's /proc. */
FAKE_UNUSED static const char *fake_proc_folder(void) {
  const char *given = getenv("GPUSHARE_FAKE_HOST_PROC");
  return given ? given : "/proc";
}

FAKE_UNUSED static int fake_self(void) {
  char path[256], text[32];
  if (!getenv("GPUSHARE_FAKE_HOST_PROC")) return getpid();
  snprintf(path, sizeof path, "%.200s/self", fake_proc_folder());
  ssize_t n = readlink(path, text, sizeof text - 1);
  if (n <= 0) return getpid();
  text[n] = 0;
  return atoi(text);
}

/* Start time of a process by /proc (field 22); 0: it has ended. A zombie has ended. */
FAKE_UNUSED static uint64_t fake_start_of(int pid) {
  char path[256], text[1024], *after;
  unsigned long long start = 0;
  snprintf(path, sizeof path, "%.200s/%d/stat", fake_proc_folder(), pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  after = strrchr(text, ')');
  if (!after || after[2] == 'Z' || after[2] == 'X') return 0;
  if (sscanf(after + 2,
      "%*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
      &start) != 1) return 0;
  return start;
}

/* The state named by the environment of this process; NULL: none. */
FAKE_UNUSED static fake_node *fake_open(void) {
  const char *path = getenv("GPUSHARE_FAKE_GPU");
  if (!path) return NULL;
  if (fake_mapped && !strcmp(path, fake_path)) return fake_mapped;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return NULL;
  void *at = mmap(NULL, sizeof(fake_node), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) return NULL;
  if (((fake_node *)at)->magic != FAKE_MAGIC) { munmap(at, sizeof(fake_node)); return NULL; }
  snprintf(fake_path, sizeof fake_path, "%s", path);
  return fake_mapped = at; /* earlier states stay mapped: a thread may still use them */
}

/* Memory of a process on a GPU with its context; 0 while it is checkpointed. */
FAKE_UNUSED static uint64_t fake_proc_used(fake_node *n, int proc, int gpu) {
  uint64_t sum = 0;
  fake_proc *p = &n->procs[proc];
  if (!p->used || p->state == FAKE_CHECKPOINTED) return 0;
  for (int g = 0; g < MAX_GPUS; g++)
    if (p->context[g] && p->remap[g] == gpu) sum += n->context_bytes;
  for (int i = 0; i < MAX_ALLOCS; i++)
    if (n->allocs[i].used && n->allocs[i].proc == proc && n->allocs[i].gpu == gpu)
      sum += n->allocs[i].bytes;
  return sum;
}

FAKE_UNUSED static int fake_has_context(fake_node *n, int proc, int gpu) {
  fake_proc *p = &n->procs[proc];
  if (!p->used || p->state == FAKE_CHECKPOINTED) return 0;
  for (int g = 0; g < MAX_GPUS; g++) if (p->context[g] && p->remap[g] == gpu) return 1;
  return 0;
}

/* It has called cuInit, but has no context. */
FAKE_UNUSED static int fake_is_bare(fake_node *n, int proc) {
  if (!n->procs[proc].used || n->procs[proc].state != FAKE_RUNNING) return 0;
  for (int g = 0; g < MAX_GPUS; g++) if (n->procs[proc].context[g]) return 0;
  return 1;
}

/* Memory in use on a GPU: by the driver, by processes, and freed but not yet reclaimed. */
FAKE_UNUSED static uint64_t fake_gpu_used(fake_node *n, int gpu) {
  uint64_t sum = n->gpus[gpu].reserved;
  for (int i = 0; i < MAX_PROCS; i++) if (n->procs[i].used) sum += fake_proc_used(n, i, gpu);
  for (int i = 0; i < MAX_FREED; i++)
    if (n->freed[i].used && n->freed[i].gpu == gpu) sum += n->freed[i].bytes;
  return sum;
}

/* Memory of the processes below a cgroup on a GPU. */
FAKE_UNUSED static uint64_t fake_cgroup_used(fake_node *n, const char *path, int gpu) {
  uint64_t sum = 0;
  size_t len = strlen(path);
  for (int i = 0; i < MAX_PROCS; i++) {
    fake_proc *p = &n->procs[i];
    if (p->used && !strncmp(p->cgroup, path, len) && (p->cgroup[len] == 0 || p->cgroup[len] == '/'))
      sum += fake_proc_used(n, i, gpu);
  }
  return sum;
}

/* Freed memory stays in use for a while; `listed`: the process list contains it too. */
FAKE_UNUSED static void fake_linger(fake_node *n, int proc, int listed) {
  if (n->lag_ms <= 0) return;
  for (int g = 0; g < n->gpu_count; g++) {
    uint64_t bytes = fake_proc_used(n, proc, g);
    for (int i = 0; bytes && i < MAX_FREED; i++) {
      if (n->freed[i].used) continue;
      n->freed[i] = (fake_freed){1, g, n->procs[proc].pid, listed, bytes, fake_now() + n->lag_ms};
      break;
    }
  }
}

FAKE_UNUSED static void fake_forget(fake_node *n, int proc) {
  fake_linger(n, proc, 1);
  for (int i = 0; i < MAX_ALLOCS; i++)
    if (n->allocs[i].used && n->allocs[i].proc == proc) n->allocs[i].used = 0;
  n->procs[proc].used = 0;
}

FAKE_UNUSED static void fake_sweep(fake_node *n) {
  int64_t now = fake_now();
  for (int i = 0; i < MAX_PROCS; i++)
    if (n->procs[i].used && fake_start_of(n->procs[i].pid) != n->procs[i].start) fake_forget(n, i);
  for (int i = 0; i < MAX_FREED; i++)
    if (n->freed[i].used && n->freed[i].until <= now) n->freed[i].used = 0;
}

FAKE_UNUSED static void fake_lock_raw(fake_node *n) {
  if (pthread_mutex_lock(&n->mutex) == EOWNERDEAD) pthread_mutex_consistent(&n->mutex);
}

FAKE_UNUSED static void fake_lock(fake_node *n) {
  fake_lock_raw(n);
  fake_sweep(n);
}

FAKE_UNUSED static void fake_unlock(fake_node *n) { pthread_mutex_unlock(&n->mutex); }

/* The slot of a process; -1: unknown. Call with the lock held. */
FAKE_UNUSED static int fake_find(fake_node *n, int pid) {
  for (int i = 0; i < MAX_PROCS; i++) if (n->procs[i].used && n->procs[i].pid == pid) return i;
  return -1;
}

/* The fault of this call, which concerns the process `about` (0: none). Call it WITHOUT the lock
 * at the beginning of every exported function; with `done` = 1 the function returns `code` at
 * once. With `after`, call fake_fault_after() after the effect and return its result. */
typedef struct { int done, code, after, slot; uint32_t generation; } fake_fate;

FAKE_UNUSED static void fake_hang(fake_node *n, int slot, uint32_t generation) {
  for (;;) { /* until the test clears the fault, or kills this process */
    fake_sleep(5);
    if (!n->faults[slot].used || n->faults[slot].generation != generation) return;
  }
}

FAKE_UNUSED static fake_fate fake_fault_before(fake_node *n, const char *call, int about) {
  fake_fate fate = {0, 0, FAULT_NONE, -1, 0};
  fake_fault f = {0};
  fake_lock_raw(n);
  n->calls++;
  for (int i = 0; i < MAX_FAULTS && fate.slot < 0; i++) {
    fake_fault *one = &n->faults[i];
    if (!one->used || !one->left || strcmp(one->call, call) || (one->pid && one->pid != about))
      continue;
    if (one->skip > 0) { one->skip--; continue; }
    if (one->left > 0) one->left--;
    one->hits++;
    f = *one;
    fate.slot = i;
    fate.generation = one->generation;
  }
  fake_unlock(n);
  switch (f.kind) {
    case FAULT_FAIL: fate.done = 1; fate.code = f.code; break;
    case FAULT_LIE: fate.done = 1; fate.code = 0; break;
    case FAULT_HANG:
      fake_hang(n, fate.slot, fate.generation);
      fate.done = 1;
      fate.code = f.code;
      break;
    case FAULT_DELAY: fake_sleep(f.delay_ms); break;
    case FAULT_VANISH:
      if (about > 0) {
        kill(about, SIGKILL);
        while (fake_start_of(about)) fake_sleep(1);
      }
      break;
    case FAULT_DIE: raise(SIGKILL); break;
    case FAULT_FAIL_AFTER: case FAULT_HANG_AFTER: case FAULT_DIE_AFTER:
      fate.after = f.kind;
      fate.code = f.code;
      break;
    default: break;
  }
  return fate;
}

FAKE_UNUSED static int fake_fault_after(fake_node *n, fake_fate fate, int result) {
  if (fate.after == FAULT_DIE_AFTER) raise(SIGKILL);
  if (fate.after == FAULT_HANG_AFTER) fake_hang(n, fate.slot, fate.generation);
  return fate.after == FAULT_FAIL_AFTER && result == 0 ? fate.code : result;
}

#endif
