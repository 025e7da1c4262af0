/* The driver's knowledge of a played machine: one memory-mapped file, shared by every process that loads one of the two libraries.
 *
 * libcuda.so.1 (cuda.c) and libnvidia-ml.so.1 (nvml.c) are its two faces, libfakedriver.so (control.c) the test's hand. The file's path is in
 * the environment variable GPUSHARE_FAKE_GPU. Rules:
 *   - every look and every change happens between fake_lock() and fake_unlock(); the mutex is robust: whoever dies with it, leaves it usable;
 *   - fake_lock() first sweeps: a process that is gone (pid and start time) loses its slot; what it held stays counted for `lag_ms`;
 *   - amounts are bytes, times are milliseconds of CLOCK_MONOTONIC;
 *   - FAKE_DRIVER (major version, from the compiler's command line) decides which symbols exist; `driver` below is what is reported.
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
#define MAX_GHOSTS 256
#define MAX_EVENTS 64
#define WINDOW 4096 /* bytes of an allocation that are really kept; its contents repeat with this period */
#define NO_LIMIT 0xFFFFFFFFFFFFFFFFull

enum fake_state { FAKE_RUNNING = 0, FAKE_LOCKED = 1, FAKE_CHECKPOINTED = 2, FAKE_FAILED = 3 };

enum fake_fault_kind {
  FAULT_NONE = 0,
  FAULT_FAIL,        /* returns `code`, does nothing */
  FAULT_FAIL_AFTER,  /* does it, and returns `code` all the same */
  FAULT_LIE,         /* does nothing, and returns success */
  FAULT_HANG,        /* never returns (until the fault is cleared), does nothing before that */
  FAULT_HANG_AFTER,  /* does it, and never returns */
  FAULT_DELAY,       /* waits `delay_ms`, then does it */
  FAULT_VANISH,      /* the process that the call is about is killed first */
  FAULT_DIE,         /* the caller is killed before it is done */
  FAULT_DIE_AFTER,   /* the caller is killed after it is done */
};

typedef struct {
  int32_t used, minor;
  char uuid[48];          /* "GPU-00000000-..." or "MIG-..." */
  unsigned char raw[16];  /* the same as the CUDA driver says it */
  char model[64];
  char busid[32];
  uint64_t total, reserved; /* `reserved`: the driver's own, used by nobody */
  int32_t healthy;          /* 0: fallen off the bus: calls about it fail */
  int32_t mig_mode;         /* this GPU is cut into instances */
  int32_t mig_parent;       /* index of the GPU that this instance is a part of; -1: a whole GPU */
  int32_t mps;              /* an MPS server owns it */
  uint64_t ecc_uncorrected;
  uint32_t temperature, power_mw, utilization;
  int32_t hidden;           /* the memory of single processes is not told (as under WSL and on some vGPUs) */
  int32_t recovery;         /* what the driver says has to be done: 0 nothing, 1 reset, 2 reboot, ... */
  int32_t remap_failure;    /* a row of its memory could not be replaced */
} fake_gpu;

typedef struct {
  int32_t used, pid;
  uint64_t start;
  int32_t state;           /* enum fake_state */
  int32_t bricked;         /* a restore ran out of room: 304 for ever */
  int32_t managed;         /* it uses unified memory: cannot be checkpointed */
  int32_t masked;          /* CUDA_VISIBLE_DEVICES hid a GPU from it when it called cuInit */
  int32_t context[MAX_GPUS]; /* it has a context there (real index) */
  int32_t remap[MAX_GPUS];   /* where the memory of GPU i lives now (relocation); identity at first */
  char cgroup[256];        /* "/sys/fs/cgroup/..." */
  int64_t busy_from, busy_until; /* the kernel that runs, or ran last */
  int64_t busy_total;      /* ms of GPU work that is over or promised */
  uint32_t sm_util;        /* percent while busy */
  int32_t graphics;        /* 0: in the list of compute processes, 1: in that of graphics, 2: in both */
} fake_proc;

typedef struct {
  int32_t used, proc, gpu; /* slot in procs; `gpu` is the real one, now (meaningless while checkpointed) */
  int32_t home;            /* the GPU ordinal's real index at the time of allocation */
  uint64_t bytes;
  unsigned char data[WINDOW];
} fake_alloc;

typedef struct { int32_t used, gpu, pid, listed; uint64_t bytes; int64_t until; } fake_ghost; /* freed, but still counted */
typedef struct { int32_t used, gpu; char path[256]; uint64_t soft, hard; } fake_limit;
typedef struct { int32_t used, kind, code, left, skip, delay_ms, pid; char call[64]; uint32_t generation, hits; } fake_fault; /* left -1: always; pid 0: about any process */
typedef struct { int32_t used, gpu; uint64_t type, data, seq; } fake_event;

typedef struct {
  uint64_t magic;
  pthread_mutex_t mutex;
  int32_t driver;           /* 580 */
  char driver_text[32];     /* "580.159.03" */
  int32_t cuda_version;     /* 13000 */
  int32_t gpu_count, lag_ms;
  uint64_t context_bytes;   /* overhead of a context, per process and GPU */
  int32_t remap_is_noop;    /* restore accepts a map and ignores it */
  int32_t masked_is_noop;   /* for a masked process the map is ignored instead of refused */
  int32_t persistence;
  int32_t spoils;           /* a checkpoint that fails for unified memory leaves the process FAILED */
  int32_t lists_bare;       /* who has only counted the GPUs is listed too, with nothing, and cannot be locked */
  int32_t busy_copy_mib_s;  /* speed of checkpoint and restore; 0: at once */
  uint64_t event_seq, calls;
  fake_gpu gpus[MAX_GPUS];
  fake_proc procs[MAX_PROCS];
  fake_alloc allocs[MAX_ALLOCS];
  fake_ghost ghosts[MAX_GHOSTS];
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

/* The driver knows processes by the machine's pids, whatever namespace they live in. A process in a namespace of its own is told by its
 * environment where the machine's /proc is to be seen. */
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

/* Start time of a process as /proc says (field 22); 0: it is gone. A zombie is gone. */
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
  if (sscanf(after + 2, "%*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &start) != 1) return 0;
  return start;
}

/* The file of this process's environment, mapped; NULL: there is no such machine. */
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
  return fake_mapped = at; /* an earlier machine of this process stays mapped: one of its threads may still be in a call */
}

/* What one process keeps on one GPU, context included; 0 while it is checkpointed. */
FAKE_UNUSED static uint64_t fake_proc_used(fake_node *n, int proc, int gpu) {
  uint64_t sum = 0;
  fake_proc *p = &n->procs[proc];
  if (!p->used || p->state == FAKE_CHECKPOINTED) return 0;
  for (int g = 0; g < MAX_GPUS; g++) if (p->context[g] && p->remap[g] == gpu) sum += n->context_bytes;
  for (int i = 0; i < MAX_ALLOCS; i++)
    if (n->allocs[i].used && n->allocs[i].proc == proc && n->allocs[i].gpu == gpu) sum += n->allocs[i].bytes;
  return sum;
}

FAKE_UNUSED static int fake_has_context(fake_node *n, int proc, int gpu) {
  fake_proc *p = &n->procs[proc];
  if (!p->used || p->state == FAKE_CHECKPOINTED) return 0;
  for (int g = 0; g < MAX_GPUS; g++) if (p->context[g] && p->remap[g] == gpu) return 1;
  return 0;
}

/* It has called cuInit, and has no context anywhere. */
FAKE_UNUSED static int fake_is_bare(fake_node *n, int proc) {
  if (!n->procs[proc].used || n->procs[proc].state != FAKE_RUNNING) return 0;
  for (int g = 0; g < MAX_GPUS; g++) if (n->procs[proc].context[g]) return 0;
  return 1;
}

/* All that is taken on a GPU: the driver's own, the processes', and what is freed but not yet counted as free. */
FAKE_UNUSED static uint64_t fake_gpu_used(fake_node *n, int gpu) {
  uint64_t sum = n->gpus[gpu].reserved;
  for (int i = 0; i < MAX_PROCS; i++) if (n->procs[i].used) sum += fake_proc_used(n, i, gpu);
  for (int i = 0; i < MAX_GHOSTS; i++) if (n->ghosts[i].used && n->ghosts[i].gpu == gpu) sum += n->ghosts[i].bytes;
  return sum;
}

/* What the processes below a cgroup keep on a GPU. */
FAKE_UNUSED static uint64_t fake_cgroup_used(fake_node *n, const char *path, int gpu) {
  uint64_t sum = 0;
  size_t len = strlen(path);
  for (int i = 0; i < MAX_PROCS; i++) {
    fake_proc *p = &n->procs[i];
    if (p->used && !strncmp(p->cgroup, path, len) && (p->cgroup[len] == 0 || p->cgroup[len] == '/')) sum += fake_proc_used(n, i, gpu);
  }
  return sum;
}

/* Memory that has just been given back is counted for a while yet; `listed`: the process list shows it, too. */
FAKE_UNUSED static void fake_linger(fake_node *n, int proc, int listed) {
  if (n->lag_ms <= 0) return;
  for (int g = 0; g < n->gpu_count; g++) {
    uint64_t bytes = fake_proc_used(n, proc, g);
    for (int i = 0; bytes && i < MAX_GHOSTS; i++) {
      if (n->ghosts[i].used) continue;
      n->ghosts[i] = (fake_ghost){1, g, n->procs[proc].pid, listed, bytes, fake_now() + n->lag_ms};
      break;
    }
  }
}

FAKE_UNUSED static void fake_forget(fake_node *n, int proc) {
  fake_linger(n, proc, 1);
  for (int i = 0; i < MAX_ALLOCS; i++) if (n->allocs[i].used && n->allocs[i].proc == proc) n->allocs[i].used = 0;
  n->procs[proc].used = 0;
}

FAKE_UNUSED static void fake_sweep(fake_node *n) {
  int64_t now = fake_now();
  for (int i = 0; i < MAX_PROCS; i++)
    if (n->procs[i].used && fake_start_of(n->procs[i].pid) != n->procs[i].start) fake_forget(n, i);
  for (int i = 0; i < MAX_GHOSTS; i++) if (n->ghosts[i].used && n->ghosts[i].until <= now) n->ghosts[i].used = 0;
}

FAKE_UNUSED static void fake_lock_raw(fake_node *n) {
  if (pthread_mutex_lock(&n->mutex) == EOWNERDEAD) pthread_mutex_consistent(&n->mutex);
}

FAKE_UNUSED static void fake_lock(fake_node *n) {
  fake_lock_raw(n);
  fake_sweep(n);
}

FAKE_UNUSED static void fake_unlock(fake_node *n) { pthread_mutex_unlock(&n->mutex); }

/* The slot of a process; -1: the driver has never heard of it. Call with the lock held. */
FAKE_UNUSED static int fake_find(fake_node *n, int pid) {
  for (int i = 0; i < MAX_PROCS; i++) if (n->procs[i].used && n->procs[i].pid == pid) return i;
  return -1;
}

/* What goes wrong with this call, which is about process `about` (0: about none). Call WITHOUT the lock, at the beginning of every
 * exported function; on return with `done` = 1 the function returns `code` at once. On `after`, call fake_fault_after() when the work is
 * done and return what it says. */
typedef struct { int done, code, after, slot; uint32_t generation; } fake_fate;

FAKE_UNUSED static void fake_hang(fake_node *n, int slot, uint32_t generation) {
  for (;;) { /* until the test clears the fault, or kills us */
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
    if (!one->used || !one->left || strcmp(one->call, call) || (one->pid && one->pid != about)) continue;
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
    case FAULT_HANG: fake_hang(n, fate.slot, fate.generation); fate.done = 1; fate.code = f.code; break;
    case FAULT_DELAY: fake_sleep(f.delay_ms); break;
    case FAULT_VANISH: if (about > 0) { kill(about, SIGKILL); while (fake_start_of(about)) fake_sleep(1); } break;
    case FAULT_DIE: raise(SIGKILL); break;
    case FAULT_FAIL_AFTER: case FAULT_HANG_AFTER: case FAULT_DIE_AFTER: fate.after = f.kind; fate.code = f.code; break;
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
