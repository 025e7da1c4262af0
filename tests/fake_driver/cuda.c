/* libcuda.so.1 of a played machine: the calls that notebooks' processes and the agent make, over the state in state.h.
 *
 * A device pointer names a slot of the state's table of allocations (slot + 1 in the upper bits). Contents repeat with WINDOW bytes. A kernel
 * is cuLaunchKernel whose function handle is its running time in ms: it is asynchronous, cuCtxSynchronize waits for it. Calls of a process
 * that is locked or checkpointed wait until it runs again, as the real driver lets them.
 */
#include "state.h"

enum {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
  OPERATING_SYSTEM = 304, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, NOT_PERMITTED = 800, NOT_SUPPORTED = 801, UNKNOWN = 999
};

#define EXPORT __attribute__((visibility("default")))
#define SHIFT 40

static fake_node *node;
static pid_t ready_in; /* the process that called cuInit: a forked child has not */
static int visible[MAX_GPUS], visible_count;
static __thread int current = -1; /* ordinal */

static int is_ready(void) { return node && ready_in == getpid(); }

static int own(void) { return fake_find(node, fake_self()); }

static void see(void) { /* in the order of the mask, up to the first word in it that names no GPU, as the real one reads it */
  const char *mask = getenv("CUDA_VISIBLE_DEVICES");
  char copy[1024], *rest = copy, *word;
  visible_count = 0;
  if (!mask) {
    for (int g = 0; g < node->gpu_count; g++) if (!node->gpus[g].mig_mode) visible[visible_count++] = g;
    return;
  }
  snprintf(copy, sizeof copy, "%s", mask);
  while ((word = strsep(&rest, ",")) && visible_count < MAX_GPUS) {
    int found = -1;
    for (int g = 0; g < node->gpu_count; g++) {
      char number[16];
      snprintf(number, sizeof number, "%d", g);
      if (!node->gpus[g].mig_mode && (!strcmp(word, number) || !strcmp(word, node->gpus[g].uuid))) found = g;
    }
    if (found < 0) return;
    visible[visible_count++] = found;
  }
}

static int sees_all(void) {
  int whole = 0;
  for (int g = 0; g < node->gpu_count; g++) whole += !node->gpus[g].mig_mode;
  return visible_count == whole;
}

static void read_cgroup(char *into, size_t size) {
  const char *given = getenv("GPUSHARE_FAKE_CGROUP");
  char line[256];
  const char *mount = getenv("GPUSHARE_FAKE_CGROUPS"); /* where the unified hierarchy is mounted */
  if (!mount) mount = "/sys/fs/cgroup";
  snprintf(into, size, "%s", mount);
  if (given) { snprintf(into, size, "%s", given); return; }
  FILE *file = fopen("/proc/self/cgroup", "re");
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, "0::/", 4)) {
      line[strcspn(line, "\n")] = 0;
      snprintf(into, size, "%s%.200s", mount, line[4] ? line + 3 : "");
    }
  if (file) fclose(file);
}

static int join(void) { /* a slot for this process; with the lock held */
  int slot = own();
  for (int i = 0; slot < 0 && i < MAX_PROCS; i++)
    if (!node->procs[i].used) {
      fake_proc *p = &node->procs[i];
      memset(p, 0, sizeof *p);
      p->pid = fake_self();
      p->start = fake_start_of(p->pid);
      p->masked = !sees_all();
      for (int g = 0; g < MAX_GPUS; g++) p->remap[g] = g;
      read_cgroup(p->cgroup, sizeof p->cgroup);
      p->used = 1;
      slot = i;
    }
  return slot;
}

/* With the lock, once this process may run; its slot in `slot`. On an error the lock is not held. */
static int enter(int *slot) {
  if (!is_ready()) return NOT_INITIALIZED;
  for (;;) {
    fake_lock(node);
    *slot = own();
    int state = *slot < 0 ? FAKE_FAILED : node->procs[*slot].state;
    if (state == FAKE_RUNNING) return SUCCESS;
    fake_unlock(node);
    if (state == FAKE_FAILED) return UNKNOWN;
    fake_sleep(2);
  }
}

static int real_of(int slot, int ordinal) { return node->procs[slot].remap[visible[ordinal]]; }

/* ---- start, devices, contexts ------------------------------------------------------------------------------------------------------- */

EXPORT int cuInit(unsigned flags) {
  (void)flags;
  if (!(node = fake_open())) return NO_DEVICE;
  fake_fate fate = fake_fault_before(node, "cuInit", fake_self());
  if (fate.done) return fate.code;
  fake_lock(node);
  see();
  int slot = join();
  fake_unlock(node);
  if (slot < 0) return UNKNOWN;
  ready_in = visible_count ? getpid() : 0; /* a process that sees no GPU stays CUDA_ERROR_NOT_INITIALIZED */
  return fake_fault_after(node, fate, visible_count ? SUCCESS : NO_DEVICE);
}

EXPORT int cuDriverGetVersion(int *version) {
  if (!(node = fake_open())) return NO_DEVICE;
  *version = node->cuda_version;
  return SUCCESS;
}

EXPORT int cuDeviceGetCount(int *count) {
  if (!is_ready()) return NOT_INITIALIZED;
  *count = visible_count;
  return SUCCESS;
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
  if (!is_ready()) return NOT_INITIALIZED;
  if (ordinal < 0 || ordinal >= visible_count) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}

static int look(int device, fake_gpu *into) {
  if (!is_ready()) return NOT_INITIALIZED;
  if (device < 0 || device >= visible_count) return INVALID_DEVICE;
  fake_lock(node);
  int slot = own();
  if (slot >= 0) *into = node->gpus[real_of(slot, device)];
  fake_unlock(node);
  return slot < 0 ? UNKNOWN : SUCCESS;
}

EXPORT int cuDeviceGetUuid(unsigned char *uuid, int device) {
  fake_gpu gpu;
  int result = look(device, &gpu);
  if (!result) memcpy(uuid, gpu.raw, 16);
  return result;
}

EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }

EXPORT int cuDeviceGetName(char *name, int len, int device) {
  fake_gpu gpu;
  int result = look(device, &gpu);
  if (!result) snprintf(name, (size_t)len, "%s", gpu.model);
  return result;
}

EXPORT int cuDeviceTotalMem_v2(size_t *total, int device) {
  fake_gpu gpu;
  int result = look(device, &gpu);
  if (!result) *total = gpu.total;
  return result;
}

EXPORT int cuDeviceGetPCIBusId(char *text, int len, int device) { /* as the real one: after a move it says the old place */
  if (!is_ready()) return NOT_INITIALIZED;
  if (device < 0 || device >= visible_count) return INVALID_DEVICE;
  snprintf(text, (size_t)len, "%s", node->gpus[visible[device]].busid);
  return SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
  int slot, result;
  if (!is_ready()) return NOT_INITIALIZED;
  fake_fate fate = fake_fault_before(node, "cuDevicePrimaryCtxRetain", fake_self());
  if (fate.done) return fate.code;
  if (device < 0 || device >= visible_count) return INVALID_DEVICE;
  if ((result = enter(&slot))) return result;
  fake_proc *p = &node->procs[slot];
  int home = visible[device], gpu = p->remap[home];
  if (!node->gpus[gpu].healthy) result = UNKNOWN;
  else if (!p->context[home] && fake_gpu_used(node, gpu) + node->context_bytes > node->gpus[gpu].total) result = OUT_OF_MEMORY;
  else p->context[home] = 1;
  fake_unlock(node);
  if (!result) *context = (void *)(intptr_t)(device + 1);
  return fake_fault_after(node, fate, result);
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  int slot, result;
  if (device < 0 || device >= visible_count) return INVALID_DEVICE;
  if ((result = enter(&slot))) return result;
  node->procs[slot].context[visible[device]] = 0;
  for (int i = 0; i < MAX_ALLOCS; i++)
    if (node->allocs[i].used && node->allocs[i].proc == slot && node->allocs[i].home == visible[device]) node->allocs[i].used = 0;
  fake_unlock(node);
  return SUCCESS;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  if (!is_ready()) return NOT_INITIALIZED;
  if (device < 0 || device >= visible_count) return INVALID_DEVICE;
  fake_lock(node);
  int slot = own();
  *flags = 0;
  *active = slot >= 0 && node->procs[slot].context[visible[device]];
  fake_unlock(node);
  return SUCCESS;
}

EXPORT int cuCtxSetCurrent(void *context) {
  if (!is_ready()) return NOT_INITIALIZED;
  current = (int)(intptr_t)context - 1;
  return SUCCESS;
}

EXPORT int cuCtxGetCurrent(void **context) {
  *context = (void *)(intptr_t)(current + 1);
  return is_ready() ? SUCCESS : NOT_INITIALIZED;
}

EXPORT int cuCtxGetDevice(int *device) {
  if (current < 0) return INVALID_CONTEXT;
  *device = current;
  return SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------------- */

static uint64_t room_in_cgroup(int slot, int gpu) { /* what the tightest limit above this process leaves */
  uint64_t room = NO_LIMIT;
  const char *mine = node->procs[slot].cgroup;
  for (int i = 0; i < MAX_LIMITS; i++) {
    fake_limit *l = &node->limits[i];
    size_t len = strlen(l->path);
    if (!l->used || l->gpu != gpu || l->hard == NO_LIMIT || strncmp(mine, l->path, len) || (mine[len] && mine[len] != '/')) continue;
    uint64_t used = fake_cgroup_used(node, l->path, gpu), left = used < l->hard ? l->hard - used : 0;
    if (left < room) room = left;
  }
  return room;
}

static int take(uint64_t *pointer, uint64_t size, int managed) {
  int slot, result, at = -1;
  if (current < 0) return INVALID_CONTEXT;
  if (!size) return INVALID_VALUE;
  if ((result = enter(&slot))) return result;
  int home = visible[current], gpu = node->procs[slot].remap[home];
  for (int i = 0; i < MAX_ALLOCS && at < 0; i++) if (!node->allocs[i].used) at = i;
  if (!node->procs[slot].context[home]) result = INVALID_CONTEXT;
  else if (!node->gpus[gpu].healthy) result = UNKNOWN;
  else if (at < 0 || size > room_in_cgroup(slot, gpu) || fake_gpu_used(node, gpu) + size > node->gpus[gpu].total) result = OUT_OF_MEMORY;
  else {
    fake_alloc *a = &node->allocs[at];
    memset(a, 0, sizeof *a);
    a->proc = slot;
    a->gpu = gpu;
    a->home = home;
    a->bytes = size;
    a->used = 1;
    node->procs[slot].managed |= managed;
    *pointer = (uint64_t)(at + 1) << SHIFT;
  }
  fake_unlock(node);
  return result;
}

EXPORT int cuMemAlloc_v2(uint64_t *pointer, size_t size) {
  if (!is_ready()) return NOT_INITIALIZED;
  fake_fate fate = fake_fault_before(node, "cuMemAlloc_v2", fake_self());
  return fate.done ? fate.code : fake_fault_after(node, fate, take(pointer, size, 0));
}

EXPORT int cuMemAllocManaged(uint64_t *pointer, size_t size, unsigned flags) {
  (void)flags;
  return is_ready() ? take(pointer, size, 1) : NOT_INITIALIZED;
}

/* The allocation that a range lies in, with the lock held; NULL (and no lock): there is none. */
static fake_alloc *range(uint64_t pointer, uint64_t size, int *result) {
  int slot;
  if ((*result = enter(&slot))) return NULL;
  uint64_t at = (pointer >> SHIFT) - 1, offset = pointer & ((1ull << SHIFT) - 1);
  if (at < MAX_ALLOCS && node->allocs[at].used && node->allocs[at].proc == slot && offset + size <= node->allocs[at].bytes)
    return &node->allocs[at];
  fake_unlock(node);
  *result = INVALID_VALUE;
  return NULL;
}

EXPORT int cuMemFree_v2(uint64_t pointer) {
  int result;
  fake_alloc *a = range(pointer, 0, &result);
  if (!a) return result;
  a->used = 0;
  fake_unlock(node);
  return SUCCESS;
}

EXPORT int cuMemGetInfo_v2(size_t *left, size_t *total) {
  int slot, result;
  if (current < 0) return INVALID_CONTEXT;
  if ((result = enter(&slot))) return result;
  int gpu = real_of(slot, current);
  uint64_t used = fake_gpu_used(node, gpu);
  *total = node->gpus[gpu].total;
  *left = used < *total ? *total - used : 0;
  fake_unlock(node);
  return SUCCESS;
}

EXPORT int cuMemsetD8_v2(uint64_t pointer, unsigned char value, size_t size) {
  int result;
  fake_alloc *a = range(pointer, size, &result);
  if (!a) return result;
  uint64_t offset = pointer & ((1ull << SHIFT) - 1);
  for (uint64_t i = 0; i < size && i < WINDOW; i++) a->data[(offset + i) % WINDOW] = value;
  fake_unlock(node);
  return SUCCESS;
}

EXPORT int cuMemcpyHtoD_v2(uint64_t pointer, const void *from, size_t size) {
  int result;
  fake_alloc *a = range(pointer, size, &result);
  if (!a) return result;
  uint64_t offset = pointer & ((1ull << SHIFT) - 1);
  for (uint64_t i = 0; i < size; i++) a->data[(offset + i) % WINDOW] = ((const unsigned char *)from)[i];
  fake_unlock(node);
  return SUCCESS;
}

EXPORT int cuMemcpyDtoH_v2(void *into, uint64_t pointer, size_t size) {
  int result;
  fake_alloc *a = range(pointer, size, &result);
  if (!a) return result;
  uint64_t offset = pointer & ((1ull << SHIFT) - 1);
  for (uint64_t i = 0; i < size; i++) ((unsigned char *)into)[i] = a->data[(offset + i) % WINDOW];
  fake_unlock(node);
  return SUCCESS;
}

/* ---- work --------------------------------------------------------------------------------------------------------------------------- */

EXPORT int cuLaunchKernel(void *milliseconds, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g, void *stream,
                          void **parameters, void **extra) {
  int slot, result;
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)stream, (void)parameters, (void)extra;
  if (current < 0) return INVALID_CONTEXT;
  if ((result = enter(&slot))) return result;
  fake_proc *p = &node->procs[slot];
  int64_t now = fake_now(), length = (int64_t)(intptr_t)milliseconds;
  if (p->busy_until <= now) p->busy_from = p->busy_until = now;
  p->busy_until += length;
  p->busy_total += length;
  p->sm_util = 100;
  fake_unlock(node);
  return SUCCESS;
}

EXPORT int cuCtxSynchronize(void) {
  int slot, result;
  for (;;) {
    if ((result = enter(&slot))) return result;
    int64_t left = node->procs[slot].busy_until - fake_now();
    fake_unlock(node);
    if (left <= 0) return SUCCESS;
    fake_sleep(left > 5 ? 5 : (int)left);
  }
}

/* ---- checkpoint --------------------------------------------------------------------------------------------------------------------- */

#if FAKE_DRIVER >= 570

typedef struct { unsigned timeout; unsigned pad; uint64_t reserved[7]; } lock_args;
typedef struct { unsigned char from[16], to[16]; } gpu_pair;
typedef struct { gpu_pair *pairs; unsigned count, pad; void *storage; uint64_t reserved[5]; } restore_args; /* `storage` since 13.4 */
typedef struct { void *storage; uint64_t reserved[7]; } checkpoint_args;
typedef struct { uint64_t reserved[8]; } unlock_args;

/* cuda.h: "Reserved for future use, must be zeroed". Who leaves something there is told here, before a driver that reads it is met. */
static int is_zeroed(const void *from, size_t size) {
  for (size_t i = 0; i < size; i++) if (((const unsigned char *)from)[i]) return 0;
  return 1;
}

/* A caller names processes by the numbers of its own namespace. */
static int as_the_machine_counts(int pid) {
  char path[256], line[256];
  if (!getenv("GPUSHARE_FAKE_HOST_PROC")) return pid;
  for (int i = 0; i < MAX_PROCS; i++) {
    if (!node->procs[i].used) continue;
    snprintf(path, sizeof path, "%.200s/%d/status", fake_proc_folder(), node->procs[i].pid);
    FILE *file = fopen(path, "re");
    int found = 0;
    while (file && fgets(line, sizeof line, file)) {
      char *last = strncmp(line, "NSpid:", 6) ? NULL : strrchr(line, '\t');
      if (last) found = atoi(last + 1) == pid;
    }
    if (file) fclose(file);
    if (found) return node->procs[i].pid;
  }
  return pid;
}

/* The slot of a process that can be checkpointed, with the lock held; on an error the lock is not held. */
static int find(int pid, int *slot) {
  if (!is_ready()) return NOT_INITIALIZED;
  fake_lock(node);
  *slot = fake_find(node, as_the_machine_counts(pid));
  int result = *slot < 0 ? INVALID_VALUE : SUCCESS;
  for (int g = 0; !result && g < node->gpu_count; g++) {
    fake_gpu *gpu = &node->gpus[node->procs[*slot].remap[g]];
    if (node->procs[*slot].context[g] && (gpu->mps || gpu->mig_parent >= 0)) result = NOT_SUPPORTED;
  }
  if (result) fake_unlock(node);
  return result;
}

static void copy_time(int slot) { /* the lock is let go meanwhile */
  uint64_t bytes = 0;
  for (int i = 0; i < MAX_ALLOCS; i++) if (node->allocs[i].used && node->allocs[i].proc == slot) bytes += node->allocs[i].bytes;
  if (node->busy_copy_mib_s <= 0) return;
  fake_unlock(node);
  fake_sleep((int)(bytes * 1000 / ((uint64_t)node->busy_copy_mib_s << 20)));
  fake_lock(node);
}

EXPORT int cuCheckpointProcessGetState(int pid, int *state) {
  int slot;
  if (!is_ready()) return NOT_INITIALIZED;
  fake_fate fate = fake_fault_before(node, "cuCheckpointProcessGetState", pid);
  if (fate.done) return fate.code;
  int result = find(pid, &slot);
  if (result) return fake_fault_after(node, fate, result);
  *state = node->procs[slot].state;
  fake_unlock(node);
  return fake_fault_after(node, fate, SUCCESS);
}

EXPORT int cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) {
  int slot, result = find(pid, &slot);
  if (result) return result;
  *tid = pid;
  fake_unlock(node);
  return SUCCESS;
}

static int lock_process(int pid, unsigned timeout) {
  int64_t end = fake_now() + timeout;
  for (;;) {
    int slot, result = find(pid, &slot);
    if (result) return result;
    fake_proc *p = &node->procs[slot];
    if (p->state != FAKE_RUNNING) result = ILLEGAL_STATE;
    else if (node->lists_bare && fake_is_bare(node, slot)) result = NOT_INITIALIZED; /* llm-d-rl-time-slicing pull request 148 */
    else if (p->busy_until <= fake_now()) p->state = FAKE_LOCKED;
    else if (timeout && fake_now() >= end) result = NOT_READY;
    int settled = result || p->state == FAKE_LOCKED;
    fake_unlock(node);
    if (settled) return result;
    fake_sleep(2);
  }
}

EXPORT int cuCheckpointProcessLock(int pid, lock_args *args) {
  if (!is_ready()) return NOT_INITIALIZED;
  fake_fate fate = fake_fault_before(node, "cuCheckpointProcessLock", pid);
  if (fate.done) return fate.code;
  if (args && !is_zeroed(&args->pad, sizeof *args - sizeof args->timeout)) return INVALID_VALUE;
  return fake_fault_after(node, fate, lock_process(pid, args ? args->timeout : 0));
}

static int checkpoint_process(int pid) {
  int slot, result = find(pid, &slot);
  if (result) return result;
  if (node->procs[slot].state != FAKE_LOCKED) result = ILLEGAL_STATE;
  else if (node->procs[slot].managed) {
    result = NOT_SUPPORTED;
    if (node->spoils) node->procs[slot].state = FAKE_FAILED; /* "does not attempt to keep the process in a good state": cuda-checkpoint's README */
  }
  else {
    copy_time(slot);
    if (node->procs[slot].used && node->procs[slot].pid == pid) {
      fake_linger(node, slot, 0);
      node->procs[slot].state = FAKE_CHECKPOINTED;
    } else result = INVALID_VALUE;
  }
  fake_unlock(node);
  return result;
}

EXPORT int cuCheckpointProcessCheckpoint(int pid, checkpoint_args *args) {
  if (!is_ready()) return NOT_INITIALIZED;
  fake_fate fate = fake_fault_before(node, "cuCheckpointProcessCheckpoint", pid);
  if (fate.done) return fate.code;
  if (args && !is_zeroed(args, sizeof *args)) return INVALID_VALUE; /* custom storage is not played */
  return fake_fault_after(node, fate, checkpoint_process(pid));
}

static int index_of(const unsigned char *raw) {
  for (int g = 0; g < node->gpu_count; g++) if (!memcmp(node->gpus[g].raw, raw, 16)) return g;
  return -1;
}

/* Where each GPU's memory goes. The map names every GPU of the machine (as the kernel-mode driver sees it), each target once, and targets
 * of the same model. Before 580 (CUDA 13.0) all 64 bytes were reserved. */
static int read_map(fake_proc *p, restore_args *args, int *to) {
  int taken[MAX_GPUS] = {0}, named[MAX_GPUS] = {0};
  for (int g = 0; g < MAX_GPUS; g++) to[g] = g;
  if (!args) return SUCCESS;
  if (!is_zeroed(&args->pad, sizeof *args - offsetof(restore_args, pad))) return INVALID_VALUE;
  if (node->driver < 580) return is_zeroed(args, sizeof *args) ? SUCCESS : INVALID_VALUE;
  if (!args->pairs != !args->count) return INVALID_VALUE;
  if (!args->count) return SUCCESS;
  if (p->masked && node->masked_is_noop) return SUCCESS;
  if (p->masked) return INVALID_VALUE;
  for (unsigned i = 0; i < args->count; i++) {
    int from = index_of(args->pairs[i].from), onto = index_of(args->pairs[i].to);
    if (from < 0 || onto < 0 || taken[onto]++ || named[from]++ || strcmp(node->gpus[from].model, node->gpus[onto].model)) return INVALID_VALUE;
    to[from] = onto;
  }
  for (int g = 0; g < node->gpu_count; g++) if (!named[g] && node->gpus[g].mig_parent < 0) return INVALID_VALUE;
  if (node->remap_is_noop) for (int g = 0; g < MAX_GPUS; g++) to[g] = g;
  return SUCCESS;
}

static int has_room(int slot, const int *to) {
  fake_proc *p = &node->procs[slot];
  for (int g = 0; g < node->gpu_count; g++) {
    uint64_t need = 0;
    for (int home = 0; home < node->gpu_count; home++) if (p->context[home] && to[p->remap[home]] == g) need += node->context_bytes;
    for (int i = 0; i < MAX_ALLOCS; i++)
      if (node->allocs[i].used && node->allocs[i].proc == slot && to[p->remap[node->allocs[i].home]] == g) need += node->allocs[i].bytes;
    if (need && (fake_gpu_used(node, g) + need > node->gpus[g].total || need > room_in_cgroup(slot, g))) return 0;
  }
  return 1;
}

static int restore_process(int pid, restore_args *args) {
  int slot, to[MAX_GPUS], result = find(pid, &slot);
  if (result) return result;
  fake_proc *p = &node->procs[slot];
  if (p->state != FAKE_CHECKPOINTED) result = ILLEGAL_STATE;
  else if (p->bricked) result = OPERATING_SYSTEM;
  else if (!(result = read_map(p, args, to))) {
    copy_time(slot);
    if (!p->used || p->pid != pid) result = INVALID_VALUE;
    else if (!has_room(slot, to)) {
      p->bricked = 1; /* NVIDIA/cuda-checkpoint issue 44: the first time 2, then 304 for ever */
      result = OUT_OF_MEMORY;
    } else {
      for (int g = 0; g < MAX_GPUS; g++) p->remap[g] = to[p->remap[g]];
      for (int i = 0; i < MAX_ALLOCS; i++)
        if (node->allocs[i].used && node->allocs[i].proc == slot) node->allocs[i].gpu = p->remap[node->allocs[i].home];
      p->state = FAKE_LOCKED;
    }
  }
  fake_unlock(node);
  return result;
}

EXPORT int cuCheckpointProcessRestore(int pid, restore_args *args) {
  if (!is_ready()) return NOT_INITIALIZED;
  fake_fate fate = fake_fault_before(node, "cuCheckpointProcessRestore", pid);
  return fate.done ? fate.code : fake_fault_after(node, fate, restore_process(pid, args));
}

static int unlock_process(int pid) {
  int slot, result = find(pid, &slot);
  if (result) return result;
  if (node->procs[slot].state == FAKE_LOCKED) node->procs[slot].state = FAKE_RUNNING;
  else result = ILLEGAL_STATE;
  fake_unlock(node);
  return result;
}

EXPORT int cuCheckpointProcessUnlock(int pid, unlock_args *args) {
  if (!is_ready()) return NOT_INITIALIZED;
  fake_fate fate = fake_fault_before(node, "cuCheckpointProcessUnlock", pid);
  if (fate.done) return fate.code;
  if (args && !is_zeroed(args, sizeof *args)) return INVALID_VALUE;
  return fake_fault_after(node, fate, unlock_process(pid));
}

#endif

/* ---- names -------------------------------------------------------------------------------------------------------------------------- */

EXPORT int cuGetErrorName(int error, const char **name) {
  static const struct { int code; const char *name; } names[] = {
    {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM"}, {401, "CUDA_ERROR_ILLEGAL_STATE"}, {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"}, {800, "CUDA_ERROR_NOT_PERMITTED"}, {801, "CUDA_ERROR_NOT_SUPPORTED"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"}, {802, "CUDA_ERROR_SYSTEM_NOT_READY"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {810, "CUDA_ERROR_MPS_CLIENT_TERMINATED"}, {999, "CUDA_ERROR_UNKNOWN"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].code == error) { *name = names[i].name; return SUCCESS; }
  *name = NULL;
  return INVALID_VALUE;
}
