/* libnvidia-ml.so.1 of the fake driver: NVML on the state in state.h.
 *
 * A device handle points to the GPU in the mapped state; a MIG instance has its own. FAKE_DRIVER
 * determines which functions exist, as with real drivers; 535 has the process list of its first
 * releases, whose entries are longer than callers expect. cuda.c enforces limits and allocates
 * memory.
 */
#include "state.h"

enum {
  OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, IS_LOST = 15, OPERATING_SYSTEM = 17,
  INSUFFICIENT_RESOURCES = 23, VERSION_MISMATCH = 25
};

#define EVENT_SETS 16
#define MEMORY_V2 (40 | 2u << 24) /* size and version */
#if FAKE_DRIVER >= 570
#define EVENT_TYPES 0xFF9Full /* nvmlEventTypeAll of nvml.h 12.9 and 13.5 */
#else
#define EVENT_TYPES 0x19Full /* of 535 */
#endif
#define LEGACY 0x4e564d4c /* handles of event sets */

typedef struct {
  uint32_t pid;
  uint64_t bytes;
  uint32_t gpu_instance, compute_instance;
} process_entry;
typedef struct {
  uint32_t pid;
  uint64_t bytes;
  uint32_t gpu_instance, compute_instance;
  uint64_t protected_bytes;
} long_process_entry;
typedef struct { uint32_t pid; uint64_t time_us; uint32_t sm, memory, enc, dec; } utilization_entry;
typedef struct {
  uint32_t id, scope;
  int64_t time, latency;
  uint32_t type, result;
  union { uint32_t u32; uint64_t u64; } value;
} field_value;
typedef struct {
  fake_gpu *device;
  uint64_t type, data;
  uint32_t gpu_instance, compute_instance;
} event_data;
typedef struct { const char *path; uint64_t soft, hard, used; } memory_limits;
typedef struct { int used; uint64_t seen, mask[MAX_GPUS]; } event_set;

static event_set event_sets[EVENT_SETS];
static int initialized;
static char mapped_path[1024];

/* A test process may use several machines in turn. */
static fake_node *node(void) {
  const char *path = getenv("GPUSHARE_FAKE_GPU");
  if (fake_mapped && path && strcmp(path, mapped_path)) {
    munmap(fake_mapped, sizeof(fake_node));
    fake_mapped = NULL;
  }
  if (path) snprintf(mapped_path, sizeof mapped_path, "%s", path);
  return fake_open();
}

#define BEGIN(name, about)                                          \
  fake_node *n = fake_open();                                       \
  if (!n || !initialized) return UNINITIALIZED;                     \
  fake_fate fate = fake_fault_before(n, name, about);               \
  if (fate.done) return fate.code;                                  \
  int result = OK;                                                  \
  fake_lock(n)

#define END                                                         \
  fake_unlock(n);                                                   \
  return fake_fault_after(n, fate, result)

#define DEVICE(name)                                                \
  BEGIN(name, 0);                                                   \
  int index = index_of(n, g);                                       \
  if (index < 0) result = INVALID_ARGUMENT;                         \
  else if (!is_answering(n, g)) result = IS_LOST;                   \
  if (result == OK)

static int is_answering(fake_node *n, fake_gpu *g) {
  return g->healthy && (g->mig_parent < 0 || n->gpus[g->mig_parent].healthy);
}

static int index_of(fake_node *n, fake_gpu *g) {
  return g >= n->gpus && g < n->gpus + n->gpu_count ? (int)(g - n->gpus) : -1;
}

static int copied(char *to, unsigned size, const char *from) {
  return snprintf(to, size, "%s", from) < (int)size ? OK : INSUFFICIENT_SIZE;
}

/* ---- the library */

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  fake_node *n = node();
  if (!n) return DRIVER_NOT_LOADED;
  fake_fate fate = fake_fault_before(n, "nvmlInitWithFlags", 0);
  if (fate.done) return fate.code;
  initialized++;
  return fake_fault_after(n, fate, OK);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
  if (!initialized) return UNINITIALIZED;
  if (--initialized == 0) memset(event_sets, 0, sizeof event_sets);
  return OK;
}

const char *nvmlErrorString(int code) {
  static const char *texts[] = {
    "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
    "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
    "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "Library Not Found",
    "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
    "Operating System", "Driver/library version mismatch"
  };
  return code >= 0 && code < (int)(sizeof texts / sizeof *texts) ? texts[code] : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  BEGIN("nvmlSystemGetDriverVersion", 0);
  result = copied(text, size, n->driver_text);
  END;
}

/* ---- which devices */

int nvmlDeviceGetCount_v2(unsigned *count) {
  BEGIN("nvmlDeviceGetCount_v2", 0);
  *count = 0;
  for (int i = 0; i < n->gpu_count; i++) *count += n->gpus[i].mig_parent < 0;
  END;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned wanted, fake_gpu **device) {
  BEGIN("nvmlDeviceGetHandleByIndex_v2", 0);
  result = INVALID_ARGUMENT;
  for (int i = 0; i < n->gpu_count; i++) {
    if (n->gpus[i].mig_parent >= 0 || wanted--) continue;
    *device = &n->gpus[i];
    result = n->gpus[i].healthy ? OK : IS_LOST;
    break;
  }
  END;
}

int nvmlDeviceGetName(fake_gpu *g, char *text, unsigned size) {
  DEVICE("nvmlDeviceGetName") result = copied(text, size, g->model);
  END;
}

int nvmlDeviceGetUUID(fake_gpu *g, char *text, unsigned size) {
  DEVICE("nvmlDeviceGetUUID") result = copied(text, size, g->uuid);
  END;
}

int nvmlDeviceGetMinorNumber(fake_gpu *g, unsigned *minor) {
  DEVICE("nvmlDeviceGetMinorNumber") *minor = (unsigned)g->minor;
  END;
}

int nvmlDeviceGetMigMode(fake_gpu *g, unsigned *current, unsigned *pending) {
  DEVICE("nvmlDeviceGetMigMode") {
    if (strstr(g->model, "T4") || strstr(g->model, "L4")) result = NOT_SUPPORTED;
    *current = *pending = (unsigned)g->mig_mode;
  }
  END;
}

int nvmlDeviceGetMaxMigDeviceCount(fake_gpu *g, unsigned *count) {
  DEVICE("nvmlDeviceGetMaxMigDeviceCount") *count = g->mig_mode ? 7 : 0;
  END;
}

int nvmlDeviceGetMigDeviceHandleByIndex(fake_gpu *g, unsigned wanted, fake_gpu **device) {
  DEVICE("nvmlDeviceGetMigDeviceHandleByIndex") {
    result = NOT_FOUND;
    for (int i = 0; i < n->gpu_count; i++) {
      if (n->gpus[i].mig_parent != index || wanted--) continue;
      *device = &n->gpus[i];
      result = OK;
      break;
    }
  }
  END;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(fake_gpu *g, fake_gpu **device) {
  DEVICE("nvmlDeviceGetDeviceHandleFromMigDeviceHandle") {
    if (g->mig_parent < 0) result = INVALID_ARGUMENT;
    else *device = &n->gpus[g->mig_parent];
  }
  END;
}

#include "nvml_processes.h"

/* ---- health */

int nvmlDeviceGetRemappedRows(fake_gpu *g, unsigned *corrected, unsigned *uncorrected,
    unsigned *pending, unsigned *failed) {
  DEVICE("nvmlDeviceGetRemappedRows") {
    if (g->mig_mode || g->mig_parent >= 0) result = NOT_SUPPORTED;
    *corrected = *uncorrected = *pending = 0;
    *failed = (unsigned)g->remap_failure;
  }
  END;
}

/* Every NVML has this call; each field has a result of its own. 230, the recovery action, requires
 * driver 565. */
int nvmlDeviceGetFieldValues(fake_gpu *g, int count, field_value *values) {
  DEVICE("nvmlDeviceGetFieldValues")
    for (int i = 0; i < count; i++) {
      values[i].result = values[i].id != 230 ? NOT_SUPPORTED : FAKE_DRIVER >= 565 ? OK
          : INVALID_ARGUMENT;
      values[i].type = 1;
      values[i].value.u64 = 0;
      values[i].value.u32 = (uint32_t)g->recovery;
    }
  END;
}

int nvmlDeviceGetSupportedEventTypes(fake_gpu *g, uint64_t *types) {
  DEVICE("nvmlDeviceGetSupportedEventTypes") *types = EVENT_TYPES;
  END;
}

int nvmlEventSetCreate(void **set) {
  BEGIN("nvmlEventSetCreate", 0);
  result = INSUFFICIENT_RESOURCES;
  for (int i = 0; i < EVENT_SETS; i++) {
    if (event_sets[i].used) continue;
    memset(&event_sets[i], 0, sizeof event_sets[i]);
    event_sets[i].used = LEGACY;
    event_sets[i].seen = n->event_seq;
    *set = &event_sets[i];
    result = OK;
    break;
  }
  END;
}

int nvmlDeviceRegisterEvents(fake_gpu *g, uint64_t types, event_set *set) {
  DEVICE("nvmlDeviceRegisterEvents") {
    if (!set || set->used != LEGACY) result = INVALID_ARGUMENT;
    else if (types & ~EVENT_TYPES) result = NOT_SUPPORTED;
    else set->mask[index] |= types;
  }
  END;
}

/* The next event that this set registered for. */
static int next_event(fake_node *n, event_set *set, event_data *to) {
  for (uint64_t seq = set->seen + 1; seq <= n->event_seq; seq++) {
    fake_event *e = &n->events[seq % MAX_EVENTS];
    if (!e->used || e->seq != seq) continue;
    set->seen = seq;
    if (!(set->mask[e->gpu] & e->type)) continue;
    *to = (event_data){&n->gpus[e->gpu], e->type, e->data, 0xFFFFFFFFu, 0xFFFFFFFFu};
    return 1;
  }
  set->seen = n->event_seq;
  return 0;
}

int nvmlEventSetWait_v2(event_set *set, event_data *to, unsigned timeout_ms) {
  int64_t until = fake_now() + timeout_ms;
  BEGIN("nvmlEventSetWait_v2", 0);
  if (!set || set->used != LEGACY) result = INVALID_ARGUMENT;
  else
    while (!next_event(n, set, to)) {
      if (fake_now() >= until) { result = TIMEOUT; break; }
      fake_unlock(n);
      fake_sleep(5);
      fake_lock(n);
    }
  END;
}

int nvmlEventSetFree(event_set *set) {
  BEGIN("nvmlEventSetFree", 0);
  if (!set || set->used != LEGACY) result = INVALID_ARGUMENT;
  else set->used = 0;
  END;
}

/* ---- limits (r615) */

#if FAKE_DRIVER >= 615
static fake_limit *limit_of(fake_node *n, int gpu, const char *path, int make) {
  fake_limit *spare = NULL;
  for (int i = 0; i < MAX_LIMITS; i++) {
    fake_limit *one = &n->limits[i];
    if (one->used && one->gpu == gpu && !strcmp(one->path, path)) return one;
    if (!one->used && !spare) spare = one;
  }
  if (!make || !spare) return NULL;
  *spare = (fake_limit){1, gpu, {0}, 0, NO_LIMIT};
  snprintf(spare->path, sizeof spare->path, "%s", path);
  return spare;
}

int nvmlDeviceSetMemoryLimits_v1(fake_gpu *g, const memory_limits *wanted) {
  DEVICE("nvmlDeviceSetMemoryLimits_v1") {
    fake_limit *limit = NULL;
    if (!wanted->path || *wanted->path != '/' || wanted->soft > wanted->hard)
      result = INVALID_ARGUMENT;
    else if (g->mig_mode || g->mig_parent >= 0) result = NOT_SUPPORTED;
    else if (wanted->soft > g->total || (wanted->hard > g->total && wanted->hard != NO_LIMIT))
      result = INVALID_ARGUMENT;
    else if (access(wanted->path, F_OK)) result = OPERATING_SYSTEM;
    else if (!(limit = limit_of(n, index, wanted->path, 1))) result = INSUFFICIENT_SIZE;
    if (limit) {
      limit->soft = wanted->soft;
      limit->hard = wanted->hard;
    }
  }
  END;
}

int nvmlDeviceGetMemoryLimits_v1(fake_gpu *g, memory_limits *to) {
  DEVICE("nvmlDeviceGetMemoryLimits_v1") {
    if (!to->path || *to->path != '/') result = INVALID_ARGUMENT;
    else if (g->mig_mode || g->mig_parent >= 0) result = NOT_SUPPORTED;
    else {
      fake_limit *limit = limit_of(n, index, to->path, 0);
      if (access(to->path, F_OK)) result = OPERATING_SYSTEM;
      else if (!limit) result = NOT_FOUND;
      if (result == OK) {
        to->soft = limit->soft;
        to->hard = limit->hard;
        to->used = fake_cgroup_used(n, to->path, index);
      }
    }
  }
  END;
}
#endif
