/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * A double of NVIDIA's driver: writes down what it is asked. FAKE_CHIP is the compute capability
 * ("90"), FAKE_PARAMETERS the bytes of the parameters of each kernel ("first:8,4;second:8"). */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
  unsigned char bytes[TENSOR_MAP_BYTES];
  char text[200];
} maps[8];
static size_t map_count;

int cuInit(unsigned flags) { return (int)flags; }
int cuGetErrorName(int error, const char **name) { return *name = "CUDA_ERROR", error * 0; }
int cuGetErrorString(int error, const char **text) { return *text = "an error", error * 0; }
int cuDeviceGet(int *handle, int number) { return *handle = number, 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  int chip = atoi(getenv("FAKE_CHIP"));
  *value = attribute == 75 ? chip / 10 : attribute == 76 ? chip % 10 : attribute == 16 ? 132 : -1;
  return device;
}
int cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
  *(int *)value = 0;
  return attribute != 9 || !address;
}
int cuMemAlloc_v2(uint64_t *address, size_t size) {
  printf("allocate %zu\n", size);
  return *address = 0xa000, 0;
}
int cuMemFree_v2(uint64_t address) { return printf("free 0x%llx\n", (unsigned long long)address), 0; }
int cuMemcpyHtoD_v2(uint64_t address, const void *data, size_t size) {
  printf("copy ");
  for (size_t k = 0; k < size; ++k)
    printf("%02x", ((const unsigned char *)data)[k]);
  printf("\n");
  return address != 0xa000;
}
int cuModuleLoadData(void **module, const void *code) {
  printf("load %.4s\n", (const char *)code);
  return *module = (void *)0x77, 0;
}
int cuModuleUnload(void *module) { return printf("unload\n"), module != (void *)0x77; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  printf("function %s\n", name);
  *function = (void *)(uintptr_t)name; /* a function is its name */
  return module != (void *)0x77;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  printf("shared %s %d\n", (const char *)function, value);
  return attribute != 8;
}
int cuCtxGetCurrent(void **context) { return *context = NULL, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)0xc0;
  return device;
}
int cuCtxPushCurrent_v2(void *context) { return printf("push %p\n", context), 0; }
int cuCtxPopCurrent_v2(void **context) { return *context = (void *)0xc0, printf("pop\n"), 0; }
int cuStreamIsCapturing(void *stream, int *status) { return *status = 0, stream == NULL; }

static size_t list(char *out, size_t room, const uint64_t *wide, const uint32_t *narrow,
                   unsigned count, char between) {
  size_t used = 0;
  for (unsigned k = 0; k < count; ++k)
    used += (size_t)snprintf(out + used, room - used, "%.*s%llu", k > 0, &between,
                             (unsigned long long)(wide ? wide[k] : narrow[k]));
  return used;
}

int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                           const uint64_t *extents, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *ones, int interleave, int swizzle, int l2, int fill) {
  char *out = maps[map_count].text;
  size_t used = (size_t)snprintf(out, 64, "map(%p %s ", address, type == 6 ? "f16" : "bf16");
  used += list(out + used, 30, extents, NULL, rank, 'x');
  out[used++] = ' ';
  used += list(out + used, 30, strides, NULL, rank - 1, ',');
  out[used++] = ' ';
  used += list(out + used, 30, NULL, box, rank, 'x');
  snprintf(out + used, 40, " swizzle %d l2 %d)", swizzle, l2);
  for (unsigned k = 0; k < rank; ++k)
    if (ones[k] != 1)
      return 1;
  memset(map, 0x42 + (int)map_count, TENSOR_MAP_BYTES);
  memcpy(maps[map_count++].bytes, map, TENSOR_MAP_BYTES);
  return (uintptr_t)map % 64 || interleave || fill;
}

static void print_parameter(const void *at, int size) {
  uint64_t value = 0;
  if (size == TENSOR_MAP_BYTES) {
    for (size_t k = 0; k < map_count; ++k)
      if (memcmp(maps[k].bytes, at, TENSOR_MAP_BYTES) == 0)
        printf(" %s", maps[k].text);
    return;
  }
  memcpy(&value, at, (size_t)size);
  printf(value >= 0x1000 || (size == 8 && !value) ? " 0x%llx" : " %llu", (unsigned long long)value);
}

int cuLaunchKernelEx(const np_launch_config *c, void *function, void **parameters, void **extra) {
  const char *name = function, *sizes = strstr(getenv("FAKE_PARAMETERS"), name);
  printf("launch %s grid %u block %u shared %u stream %p early %u:", name, c->grid[0], c->block[0],
         c->shared, c->stream, c->attribute_count);
  sizes = sizes ? sizes + strlen(name) : "";
  for (size_t k = 0; *sizes == ':' || *sizes == ','; ++k) {
    char *end;
    print_parameter(parameters[k], (int)strtol(sizes + 1, &end, 10));
    sizes = end;
  }
  printf("\n");
  bool early = !c->attribute_count || (c->attributes[0].id == 6 && c->attributes[0].value[0] == 1);
  return extra != NULL || c->grid[1] != 1 || c->block[1] != 1 || !early;
}
