/* Memory calls of libcuda.so.1; part of cuda.c. */
/* ---- memory */

/* Memory that the lowest limit above this process leaves. */
static uint64_t room_in_cgroup(int slot, int gpu) {
  uint64_t room = NO_LIMIT;
  const char *mine = node->procs[slot].cgroup;
  for (int i = 0; i < MAX_LIMITS; i++) {
    fake_limit *l = &node->limits[i];
    size_t len = strlen(l->path);
    if (!l->used || l->gpu != gpu || l->hard == NO_LIMIT || strncmp(mine, l->path, len)
        || (mine[len] && mine[len] != '/')) continue;
    uint64_t used = fake_cgroup_used(node, l->path, gpu), left = used < l->hard ? l->hard - used
        : 0;
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
  else if (at < 0 || size > room_in_cgroup(slot, gpu)
      || fake_gpu_used(node, gpu) + size > node->gpus[gpu].total) result = OUT_OF_MEMORY;
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

/* The allocation of a range, with the lock held; NULL (without the lock): none. */
static fake_alloc *range(uint64_t pointer, uint64_t size, int *result) {
  int slot;
  if ((*result = enter(&slot))) return NULL;
  uint64_t at = (pointer >> SHIFT) - 1, offset = pointer & ((1ull << SHIFT) - 1);
  if (at < MAX_ALLOCS && node->allocs[at].used && node->allocs[at].proc == slot
      && offset + size <= node->allocs[at].bytes)
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
  for (uint64_t i = 0; i < size; i++)
    a->data[(offset + i) % WINDOW] = ((const unsigned char *)from)[i];
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
