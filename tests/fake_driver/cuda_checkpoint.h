/* The checkpoint calls of libcuda.so.1; part of cuda.c. */
/* ---- checkpoint */

#if FAKE_DRIVER >= 570

typedef struct { unsigned timeout; unsigned pad; uint64_t reserved[7]; } lock_args;
typedef struct { unsigned char from[16], to[16]; } gpu_pair;
/* `storage` since 13.4 */
typedef struct {
    gpu_pair *pairs; unsigned count, pad; void *storage; uint64_t reserved[5]; } restore_args;
typedef struct { void *storage; uint64_t reserved[7]; } checkpoint_args;
typedef struct { uint64_t reserved[8]; } unlock_args;

/* cuda.h: "Reserved for future use, must be zeroed". Found here before a driver that reads it. */
static int is_zeroed(const void *from, size_t size) {
  for (size_t i = 0; i < size; i++) if (((const unsigned char *)from)[i]) return 0;
  return 1;
}

/* Callers use the pids of their own namespace. */
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

/* The slot of a process that can be checkpointed, with the lock held; without it on an error. */
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

static void copy_time(int slot) { /* the lock is released meanwhile */
  uint64_t bytes = 0;
  for (int i = 0; i < MAX_ALLOCS; i++)
    if (node->allocs[i].used && node->allocs[i].proc == slot) bytes += node->allocs[i].bytes;
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

static int lock_process(int pid, unsigned timeout) {
  int64_t end = fake_now() + timeout;
  for (;;) {
    int slot, result = find(pid, &slot);
    if (result) return result;
    fake_proc *p = &node->procs[slot];
    if (p->state != FAKE_RUNNING) result = ILLEGAL_STATE;
    /* llm-d-rl-time-slicing#148 */
    else if (node->lists_bare && fake_is_bare(node, slot)) result = NOT_INITIALIZED;
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
    /* cuda-checkpoint's README: "does not attempt to keep the process in a good state" */
    if (node->spoils) node->procs[slot].state = FAKE_FAILED;
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
  if (args && !is_zeroed(args, sizeof *args)) return INVALID_VALUE; /* no custom storage */
  return fake_fault_after(node, fate, checkpoint_process(pid));
}

static int index_of(const unsigned char *raw) {
  for (int g = 0; g < node->gpu_count; g++) if (!memcmp(node->gpus[g].raw, raw, 16)) return g;
  return -1;
}

/* The target of each GPU's memory. The map names every GPU of the machine (as the kernel-mode
 * driver sees it), each target once, and targets of the same model. Before 580 (CUDA 13.0) all 64
 * bytes were reserved. */
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
    if (from < 0 || onto < 0 || taken[onto]++ || named[from]++
        || strcmp(node->gpus[from].model, node->gpus[onto].model)) return INVALID_VALUE;
    to[from] = onto;
  }
  for (int g = 0; g < node->gpu_count; g++)
    if (!named[g] && node->gpus[g].mig_parent < 0) return INVALID_VALUE;
  if (node->remap_is_noop) for (int g = 0; g < MAX_GPUS; g++) to[g] = g;
  return SUCCESS;
}

static int has_room(int slot, const int *to) {
  fake_proc *p = &node->procs[slot];
  for (int g = 0; g < node->gpu_count; g++) {
    uint64_t need = 0;
    for (int home = 0; home < node->gpu_count; home++)
      if (p->context[home] && to[p->remap[home]] == g) need += node->context_bytes;
    for (int i = 0; i < MAX_ALLOCS; i++)
      if (node->allocs[i].used && node->allocs[i].proc == slot
          && to[p->remap[node->allocs[i].home]] == g) need += node->allocs[i].bytes;
    if (need && (fake_gpu_used(node, g) + need > node->gpus[g].total
        || need > room_in_cgroup(slot, g))) return 0;
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
      p->bricked = 1; /* NVIDIA/cuda-checkpoint issue 44: first 2, then always 304 */
      result = OUT_OF_MEMORY;
    } else {
      for (int g = 0; g < MAX_GPUS; g++) p->remap[g] = to[p->remap[g]];
      for (int i = 0; i < MAX_ALLOCS; i++)
        if (node->allocs[i].used && node->allocs[i].proc == slot)
          node->allocs[i].gpu = p->remap[node->allocs[i].home];
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
