/* Memory and processes in libnvidia-ml.so.1; part of nvml.c. */
/* ---- memory and processes */

int nvmlDeviceGetMemoryInfo(fake_gpu *g, uint64_t *total_free_used) {
  DEVICE("nvmlDeviceGetMemoryInfo") {
    total_free_used[0] = g->total;
    total_free_used[2] = fake_gpu_used(n, index);
    total_free_used[1] = g->total - total_free_used[2];
  }
  END;
}

typedef struct { uint32_t version; uint64_t total, reserved, free, used; } memory_v2;

int nvmlDeviceGetMemoryInfo_v2(fake_gpu *g, memory_v2 *memory) {
  DEVICE("nvmlDeviceGetMemoryInfo_v2") {
    if (memory->version != MEMORY_V2) result = VERSION_MISMATCH;
    uint64_t taken = fake_gpu_used(n, index);
    if (result == OK)
      *memory = (memory_v2){
          memory->version, g->total, g->reserved, g->total - taken, taken - g->reserved};
  }
  END;
}

/* Processes with a context, and ended ones that are still listed. `write` stores an entry; returns
 * their number. */
static unsigned listed(fake_node *n, int gpu, int graphics,
    void (*write)(void *, unsigned, process_entry), void *to, unsigned room) {
  unsigned count = 0;
  uint32_t instance = n->gpus[gpu].mig_parent >= 0 ? (uint32_t)n->gpus[gpu].minor : 0xFFFFFFFFu;
  for (int i = 0; i < MAX_PROCS; i++) {
    fake_proc *p = &n->procs[i];
    int bare = n->lists_bare && !graphics && fake_is_bare(n, i);
    if (!bare && (!fake_has_context(n, i, gpu) || (p->graphics != 2 && p->graphics != graphics)))
      continue;
    uint64_t bytes = n->gpus[gpu].hidden ? NO_LIMIT : fake_proc_used(n, i, gpu);
    if (count < room)
      write(to, count, (process_entry){(uint32_t)p->pid, bytes, instance, instance});
    count++;
  }
  for (int i = 0; !graphics && i < MAX_FREED; i++) {
    fake_freed *freed = &n->freed[i];
    if (!freed->used || freed->gpu != gpu || !freed->listed) continue;
    if (count < room)
      write(to, count, (process_entry){(uint32_t)freed->pid, freed->bytes, instance, instance});
    count++;
  }
  return count;
}

static void write_short(void *to, unsigned at, process_entry entry) {
    ((process_entry *)to)[at] = entry; }

FAKE_UNUSED static void write_long(void *to, unsigned at, process_entry e) {
  ((long_process_entry *)to)[at] =
      (long_process_entry){e.pid, e.bytes, e.gpu_instance, e.compute_instance, 0};
}

static int give(unsigned *count, unsigned room, unsigned found) {
  *count = found; /* no process is a success, even without room */
  return found > room ? INSUFFICIENT_SIZE : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v2(fake_gpu *g, unsigned *count, void *to) {
  DEVICE("nvmlDeviceGetComputeRunningProcesses_v2") result =
      give(count, *count, listed(n, index, 0, write_short, to, to ? *count : 0));
  END;
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(fake_gpu *g, unsigned *count, void *to) {
  DEVICE("nvmlDeviceGetGraphicsRunningProcesses_v2") result =
      give(count, *count, listed(n, index, 1, write_short, to, to ? *count : 0));
  END;
}

#if FAKE_DRIVER == 535
#define WRITE_V3 write_long
/* No entries beyond the memory of the caller. */
#define ROOM_V3(count) \
  ((count) * (unsigned)sizeof(process_entry) / (unsigned)sizeof(long_process_entry))
#else
#define WRITE_V3 write_short
#define ROOM_V3(count) (count)
#endif

int nvmlDeviceGetComputeRunningProcesses_v3(fake_gpu *g, unsigned *count, void *to) {
  DEVICE("nvmlDeviceGetComputeRunningProcesses_v3") result =
      give(count, *count, listed(n, index, 0, WRITE_V3, to, to ? ROOM_V3(*count) : 0));
  END;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(fake_gpu *g, unsigned *count, void *to) {
  DEVICE("nvmlDeviceGetGraphicsRunningProcesses_v3") result =
      give(count, *count, listed(n, index, 1, WRITE_V3, to, to ? ROOM_V3(*count) : 0));
  END;
}

int nvmlDeviceGetUtilizationRates(fake_gpu *g, uint32_t *gpu_memory) {
  DEVICE("nvmlDeviceGetUtilizationRates") {
    if (g->mig_mode || g->mig_parent >= 0) result = NOT_SUPPORTED;
    uint32_t busiest = g->utilization;
    for (int i = 0; i < MAX_PROCS; i++) {
      fake_proc *p = &n->procs[i];
      uint32_t share = p->sm_util ? p->sm_util : 100;
      if (fake_has_context(n, i, index) && p->busy_from <= fake_now()
          && p->busy_until > fake_now() && share > busiest) busiest = share;
    }
    gpu_memory[0] = busiest;
    gpu_memory[1] = busiest / 2;
  }
  END;
}

int nvmlDeviceGetTemperature(fake_gpu *g, int sensor, uint32_t *celsius) {
  DEVICE("nvmlDeviceGetTemperature") {
    if (sensor || !g->celsius || g->mig_parent >= 0) result = NOT_SUPPORTED;
    else *celsius = g->celsius;
  }
  END;
}

int nvmlDeviceGetPowerUsage(fake_gpu *g, uint32_t *milliwatts) {
  DEVICE("nvmlDeviceGetPowerUsage") {
    if (!g->milliwatts || g->mig_parent >= 0) result = NOT_SUPPORTED;
    else *milliwatts = g->milliwatts;
  }
  END;
}

static int64_t real_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* An entry for each process that was busy since then; without any: NOT_FOUND. Like real drivers,
 * the returned size is always 100 (NVIDIA/go-nvml issue 11), and some samples are meaningless
 * (Syllo/nvtop issue 110). */
int nvmlDeviceGetProcessUtilization(fake_gpu *g, utilization_entry *to, unsigned *count,
    uint64_t since_us) {
  DEVICE("nvmlDeviceGetProcessUtilization") {
    int64_t now = fake_now(), now_us = real_us(), since = since_us
        ? now - (now_us - (int64_t)since_us) / 1000 : now - 5000;
    unsigned room = to ? *count : 0, found = 0, nonsense = 0;
    if (g->mig_mode || g->mig_parent >= 0) result = NOT_SUPPORTED;
    else if (!to) result = INSUFFICIENT_SIZE;
    for (int i = 0; result == OK && i < MAX_PROCS; i++) {
      fake_proc *p = &n->procs[i];
      if (!fake_has_context(n, i, index)) continue;
      int idle = !p->busy_until || p->busy_from > now || p->busy_until <= since;
      uint32_t sm = idle ? 0xFFFF0000u : p->sm_util ? p->sm_util : 100;
      if (idle) nonsense++;
      if (found < room)
        to[found] = (utilization_entry){(uint32_t)p->pid, (uint64_t)now_us, sm, 1, 0, 0};
      found++;
    }
    *count = result == INSUFFICIENT_SIZE ? 100 : found;
    if (result == OK)
      result = found == nonsense ? NOT_FOUND : found > room ? INSUFFICIENT_SIZE : OK;
  }
  END;
}
