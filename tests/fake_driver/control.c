/* Functions for tests: create a machine, inject faults, read its state. fake_gpu_machine.py loads
 * them with ctypes; every function takes the lock. */
#include "state.h"

static fake_node *made;

int fake_create(const char *path, int driver, const char *text, int cuda_version) {
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
  if (ftruncate(fd, sizeof(fake_node))) { close(fd); return -1; }
  fake_node *n = mmap(NULL, sizeof(fake_node), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (n == MAP_FAILED) return -1;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&n->mutex, &kind);
  n->driver = driver;
  n->cuda_version = cuda_version;
  n->persistence = 1;
  snprintf(n->driver_text, sizeof n->driver_text, "%s", text);
  n->magic = FAKE_MAGIC;
  munmap(n, sizeof(fake_node));
  return 0;
}

/* Selects the machine of the following calls. */
int fake_use(const char *path) {
  if (made) munmap(made, sizeof(fake_node));
  made = NULL;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  void *at = mmap(NULL, sizeof(fake_node), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) return -1;
  made = at;
  return made->magic == FAKE_MAGIC ? 0 : -1;
}

int fake_add_gpu(const char *uuid, const unsigned char *raw, const char *model, uint64_t total,
    int mig_parent) {
  fake_lock(made);
  int index = made->gpu_count;
  if (index >= MAX_GPUS) { fake_unlock(made); return -1; }
  fake_gpu *g = &made->gpus[index];
  memset(g, 0, sizeof *g);
  g->used = 1;
  g->minor = index;
  g->healthy = 1;
  g->mig_parent = mig_parent;
  g->total = total;
  memcpy(g->raw, raw, 16);
  snprintf(g->uuid, sizeof g->uuid, "%s", uuid);
  snprintf(g->model, sizeof g->model, "%s", model);
  if (mig_parent >= 0) made->gpus[mig_parent].mig_mode = 1;
  made->gpu_count++;
  fake_unlock(made);
  return index;
}

/* Sets a property of the machine or (gpu >= 0) of a GPU; 0: done. */
int fake_set(const char *name, int gpu, uint64_t value) {
  int found = 1;
  fake_lock(made);
  fake_gpu *g = gpu >= 0 && gpu < made->gpu_count ? &made->gpus[gpu] : NULL;
  if (!strcmp(name, "lag_ms")) made->lag_ms = (int)value;
  else if (!strcmp(name, "context_bytes")) made->context_bytes = value;
  else if (!strcmp(name, "remap_is_noop")) made->remap_is_noop = (int)value;
  else if (!strcmp(name, "masked_is_noop")) made->masked_is_noop = (int)value;
  else if (!strcmp(name, "persistence")) made->persistence = (int)value;
  else if (!strcmp(name, "spoils")) made->spoils = (int)value;
  else if (!strcmp(name, "lists_bare")) made->lists_bare = (int)value;
  else if (!strcmp(name, "copy_mib_s")) made->busy_copy_mib_s = (int)value;
  else if (g && !strcmp(name, "reserved")) g->reserved = value;
  else if (g && !strcmp(name, "healthy")) g->healthy = (int)value;
  else if (g && !strcmp(name, "mig_mode")) g->mig_mode = (int)value;
  else if (g && !strcmp(name, "mps")) g->mps = (int)value;
  else if (g && !strcmp(name, "hidden")) g->hidden = (int)value;
  else if (g && !strcmp(name, "recovery")) g->recovery = (int)value;
  else if (g && !strcmp(name, "remap_failure")) g->remap_failure = (int)value;
  else if (g && !strcmp(name, "celsius")) g->celsius = (uint32_t)value;
  else if (g && !strcmp(name, "milliwatts")) g->milliwatts = (uint32_t)value;
  else if (g && !strcmp(name, "utilization")) g->utilization = (uint32_t)value;
  else found = 0;
  fake_unlock(made);
  return found ? 0 : -1;
}

int fake_add_fault(const char *call, int kind, int code, int times, int skip, int delay_ms,
    int pid) {
  static uint32_t generation;
  int slot = -1;
  fake_lock(made);
  for (int i = 0; i < MAX_FAULTS && slot < 0; i++) if (!made->faults[i].used) slot = i;
  if (slot >= 0) {
    fake_fault f = {1, kind, code, times, skip, delay_ms, pid, {0}, ++generation, 0};
    snprintf(f.call, sizeof f.call, "%s", call);
    made->faults[slot] = f;
  }
  fake_unlock(made);
  return slot;
}

int fake_fault_hits(int slot) {
  fake_lock(made);
  int hits = made->faults[slot].used ? (int)made->faults[slot].hits : -1;
  fake_unlock(made);
  return hits;
}

void fake_clear_faults(void) {
  fake_lock(made);
  memset(made->faults, 0, sizeof made->faults);
  fake_unlock(made);
}

void fake_add_event(int gpu, uint64_t type, uint64_t data) {
  fake_lock(made);
  made->event_seq++;
  made->events[made->event_seq % MAX_EVENTS] = (fake_event){1, gpu, type, data, made->event_seq};
  fake_unlock(made);
}

int fake_state_of(int pid) {
  fake_lock(made);
  int slot = fake_find(made, pid);
  int state = slot < 0 ? -1 : made->procs[slot].bricked ? 100 + made->procs[slot].state
      : made->procs[slot].state;
  fake_unlock(made);
  return state;
}

/* Sets the state that an interrupted step would leave. */
int fake_set_state(int pid, int state) {
  fake_lock(made);
  int slot = fake_find(made, pid);
  if (slot >= 0) made->procs[slot].state = state;
  fake_unlock(made);
  return slot < 0 ? -1 : 0;
}

uint64_t fake_used_by(int pid, int gpu) {
  fake_lock(made);
  int slot = fake_find(made, pid);
  uint64_t used = slot < 0 ? 0 : fake_proc_used(made, slot, gpu);
  fake_unlock(made);
  return used;
}

uint64_t fake_used_on(int gpu) {
  fake_lock(made);
  uint64_t used = fake_gpu_used(made, gpu);
  fake_unlock(made);
  return used;
}

uint64_t fake_calls(void) { return made->calls; }

int fake_limit_of(const char *path, int gpu, uint64_t *soft, uint64_t *hard) {
  int found = -1;
  fake_lock(made);
  for (int i = 0; i < MAX_LIMITS; i++)
    if (made->limits[i].used && made->limits[i].gpu == gpu && !strcmp(made->limits[i].path, path)) {
      *soft = made->limits[i].soft;
      *hard = made->limits[i].hard;
      found = 0;
    }
  fake_unlock(made);
  return found;
}

/* Sets the NVML list of a process (0 compute, 1 graphics, 2 both) and its utilization. */
int fake_set_process(int pid, int graphics, int sm_util, int64_t busy_ms) {
  fake_lock(made);
  int slot = fake_find(made, pid);
  if (slot >= 0) {
    made->procs[slot].graphics = graphics;
    made->procs[slot].sm_util = (uint32_t)sm_util;
    made->procs[slot].busy_from = fake_now();
    made->procs[slot].busy_until = busy_ms > 0 ? fake_now() + busy_ms : 0;
  }
  fake_unlock(made);
  return slot < 0 ? -1 : 0;
}

/* Adds a running process that only uses memory. */
int fake_add_process(int pid, int gpu, uint64_t bytes, const char *cgroup) {
  int slot = -1, at = -1;
  fake_lock(made);
  for (int i = 0; i < MAX_PROCS && slot < 0; i++) if (!made->procs[i].used) slot = i;
  for (int i = 0; i < MAX_ALLOCS && at < 0; i++) if (!made->allocs[i].used) at = i;
  if (slot >= 0 && at >= 0) {
    fake_proc *p = &made->procs[slot];
    memset(p, 0, sizeof *p);
    p->used = 1;
    p->pid = pid;
    p->start = fake_start_of(pid);
    for (int g = 0; g < MAX_GPUS; g++) p->remap[g] = g;
    p->context[gpu] = 1;
    snprintf(p->cgroup, sizeof p->cgroup, "%s", cgroup);
    made->allocs[at].used = 1;
    made->allocs[at].proc = slot;
    made->allocs[at].gpu = made->allocs[at].home = gpu;
    made->allocs[at].bytes = bytes;
  }
  fake_unlock(made);
  return slot;
}
