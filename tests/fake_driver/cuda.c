/* libcuda.so.1 of the fake driver: the calls of notebooks' processes and the agent, on state.h.
 *
 * A device pointer contains a slot of the table of allocations (slot + 1 in the upper bits). The
 * content repeats after WINDOW bytes. The function handle of cuLaunchKernel is the running time of
 * the kernel in ms: it is asynchronous, and cuCtxSynchronize waits for it. Calls of a process that
 * is locked or checkpointed wait until it runs again, like those of the real driver.
 */
#include "state.h"

enum {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100,
  INVALID_DEVICE = 101, INVALID_CONTEXT = 201, OPERATING_SYSTEM = 304, ILLEGAL_STATE = 401,
  NOT_FOUND = 500, NOT_READY = 600, NOT_PERMITTED = 800, NOT_SUPPORTED = 801, UNKNOWN = 999
};

#define EXPORT __attribute__((visibility("default")))
#define SHIFT 40

static fake_node *node;
static pid_t ready_in; /* the process that called cuInit, not its forked children */
static int visible[MAX_GPUS], visible_count;
static __thread int current = -1; /* ordinal */

static int is_ready(void) { return node && ready_in == getpid(); }

static int own(void) { return fake_find(node, fake_self()); }

/* Reads the mask in order, up to the first word that names no GPU, like the real driver. */
static void read_visible(void) {
  const char *mask = getenv("CUDA_VISIBLE_DEVICES");
  char copy[1024], *rest = copy, *word;
  visible_count = 0;
  if (!mask) {
    for (int g = 0; g < node->gpu_count; g++)
      if (!node->gpus[g].mig_mode) visible[visible_count++] = g;
    return;
  }
  snprintf(copy, sizeof copy, "%s", mask);
  while ((word = strsep(&rest, ",")) && visible_count < MAX_GPUS) {
    int found = -1;
    for (int g = 0; g < node->gpu_count; g++) {
      char number[16];
      snprintf(number, sizeof number, "%d", g);
      if (!node->gpus[g].mig_mode && (!strcmp(word, number) || !strcmp(word, node->gpus[g].uuid)))
        found = g;
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
  const char *mount = getenv("GPUSHARE_FAKE_CGROUPS"); /* mount point of the unified hierarchy */
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

/* A slot for this process; with the lock held. */
static int join(void) {
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

/* Returns with the lock once this process may run, with its slot in `slot`; without the lock on an
 * error. */
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

/* ---- start, devices, contexts */

EXPORT int cuInit(unsigned flags) {
  (void)flags;
  if (!(node = fake_open())) return NO_DEVICE;
  fake_fate fate = fake_fault_before(node, "cuInit", fake_self());
  if (fate.done) return fate.code;
  fake_lock(node);
  read_visible();
  int slot = join();
  fake_unlock(node);
  if (slot < 0) return UNKNOWN;
  ready_in = visible_count ? getpid() : 0; /* without GPUs it stays NOT_INITIALIZED */
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

EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    return cuDeviceGetUuid(uuid, device); }

EXPORT int cuDeviceTotalMem_v2(size_t *total, int device) {
  fake_gpu gpu;
  int result = look(device, &gpu);
  if (!result) *total = gpu.total;
  return result;
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
  else if (!p->context[home]
      && fake_gpu_used(node, gpu) + node->context_bytes > node->gpus[gpu].total) result =
      OUT_OF_MEMORY;
  else p->context[home] = 1;
  fake_unlock(node);
  if (!result) *context = (void *)(intptr_t)(device + 1);
  return fake_fault_after(node, fate, result);
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

#include "cuda_memory.h"

/* ---- work */

EXPORT int cuLaunchKernel(void *milliseconds, unsigned a, unsigned b, unsigned c, unsigned d,
    unsigned e, unsigned f, unsigned g, void *stream,
                          void **parameters, void **extra) {
  int slot, result;
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)stream, (void)parameters,
      (void)extra;
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

#include "cuda_checkpoint.h"

/* ---- names */

EXPORT int cuGetErrorName(int error, const char **name) {
  static const struct { int code; const char *name; } names[] = {
    {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
        {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"},
        {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM"}, {401, "CUDA_ERROR_ILLEGAL_STATE"},
        {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"}, {800, "CUDA_ERROR_NOT_PERMITTED"},
        {801, "CUDA_ERROR_NOT_SUPPORTED"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"}, {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
        {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {810, "CUDA_ERROR_MPS_CLIENT_TERMINATED"}, {999, "CUDA_ERROR_UNKNOWN"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].code == error) { *name = names[i].name; return SUCCESS; }
  *name = NULL;
  return INVALID_VALUE;
}
