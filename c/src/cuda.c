/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * NVIDIA's driver, opened when it is needed, and the images of a bundle on a device. As
 * `runtime/drivers/cuda.py` and `runtime/images.py`. */
#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAJOR = 75, MINOR = 76, MULTIPROCESSORS = 16, DYNAMIC_SHARED = 8 };

static np_driver driver;
static bool is_open;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

neptune_status np_driver_fail(int error, const char *what) {
  const char *name = NULL, *text = NULL;
  driver.cuGetErrorName(error, &name);
  driver.cuGetErrorString(error, &text);
  return np_fail(NEPTUNE_NO_DRIVER, "%s failed: %s (%d), %s", what, name ? name : "", error,
                 text ? text : "unknown error");
}

static neptune_status open_driver(void) {
  static const struct {
    const char *name;
    size_t offset;
  } entries[] = {
#define ENTRY(name) {#name, offsetof(np_driver, name)}
      ENTRY(cuInit), ENTRY(cuGetErrorName), ENTRY(cuGetErrorString), ENTRY(cuDeviceGet),
      ENTRY(cuDeviceGetAttribute), ENTRY(cuPointerGetAttribute), ENTRY(cuMemAlloc_v2),
      ENTRY(cuMemFree_v2), ENTRY(cuMemcpyHtoD_v2), ENTRY(cuModuleLoadData), ENTRY(cuModuleUnload),
      ENTRY(cuModuleGetFunction), ENTRY(cuFuncSetAttribute), ENTRY(cuCtxGetCurrent),
      ENTRY(cuCtxGetDevice), ENTRY(cuDevicePrimaryCtxRetain), ENTRY(cuCtxPushCurrent_v2),
      ENTRY(cuCtxPopCurrent_v2), ENTRY(cuStreamIsCapturing), ENTRY(cuLaunchKernelEx),
      ENTRY(cuTensorMapEncodeTiled),
#undef ENTRY
  };
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library)
    return np_fail(NEPTUNE_NO_DRIVER,
                   "there is no CUDA driver on this machine; install NVIDIA's driver");
  for (size_t k = 0; k < sizeof entries / sizeof *entries; ++k) {
    void *found = dlsym(library, entries[k].name);
    if (!found)
      return np_fail(NEPTUNE_NO_DRIVER, "the CUDA driver has no %s; install a newer driver",
                     entries[k].name);
    memcpy((char *)&driver + entries[k].offset, &found, sizeof found);
  }
  int error = driver.cuInit(0);
  return error ? np_driver_fail(error, "cuInit") : NEPTUNE_OK;
}

const np_driver *np_open_driver(void) {
  pthread_mutex_lock(&lock);
  if (!is_open)
    is_open = open_driver() == NEPTUNE_OK;
  pthread_mutex_unlock(&lock);
  return is_open ? &driver : NULL;
}

/* ---- which image runs on a device */

typedef struct architecture {
  int major, minor;
  bool exact; /* only on this one: "sm_90a" */
} architecture;

static bool parse_architecture(const char *name, architecture *found) {
  int number, used = 0;
  if (sscanf(name, "sm_%d%n", &number, &used) != 1 || number < 10)
    return false;
  found->major = number / 10;
  found->minor = number % 10;
  found->exact = strcmp(name + used, "a") == 0;
  return found->exact || !name[used];
}

static bool runs_on(architecture code, architecture device) {
  if (code.major != device.major)
    return false;
  return code.exact ? code.minor == device.minor : code.minor <= device.minor;
}

static int rank(architecture a) { return a.major * 100 + a.minor * 2 + a.exact; }

/* The newest target of the bundle that a device runs; its rank, or -1. */
static int best_rank(const np_json *images, architecture device, np_text *have) {
  int best = -1;
  for (size_t k = 0; k < images->count; ++k) {
    const np_json *target = np_get_kind(&images->items[k], "target", NP_STRING);
    architecture code;
    if (target)
      np_add(have, "%s%s", k ? ", " : "", target->string);
    if (target && parse_architecture(target->string, &code) && runs_on(code, device) &&
        rank(code) > best)
      best = rank(code);
  }
  return best;
}

/* ---- loading */

static neptune_status wrong(const char *what) {
  return np_fail(NEPTUNE_BAD_FILE, "an image of the bundle is wrong: %s", what);
}

static neptune_status load_kernel(neptune_kernel *kernel, const np_json *image, const char *name,
                                  const np_json *facts, np_image *made, int multiprocessors) {
  np_gpu_kernel *k = &made->kernel[made->kernels];
  size_t size, per_block = 0;
  k->name = name;
  if (!np_get_size(facts, "threads", &k->threads) || !np_get_size(facts, "shared", &k->shared) ||
      (!np_get_size(facts, "offset", &k->begin) && !np_get_size(image, "offset", &k->begin)) ||
      (!np_get_size(facts, "size", &size) && !np_get_size(image, "size", &size)) ||
      k->begin > kernel->code_size || size > kernel->code_size - k->begin)
    return wrong("a kernel without its threads, shared memory or code");
  np_get_size(facts, "hidden", &k->hidden);
  const np_json *resident = np_get(facts, "resident"), *follows = np_get(facts, "follows");
  k->follows = follows && follows->integer;
  if (resident && resident->integer && np_get_size(facts, "blocks_per_sm", &per_block))
    k->blocks = per_block * (size_t)multiprocessors;
  for (size_t n = 0; n < made->kernels; ++n) /* kernels of one code share a module */
    if (made->kernel[n].begin == k->begin)
      k->module = made->kernel[n].module;
  ++made->kernels;
  int error = 0;
  if (!k->module) {
    /* behind the code there is more of the file, or at least the zero at its end */
    error = driver.cuModuleLoadData(&k->module, kernel->code + k->begin);
    if (error)
      return np_driver_fail(error, "cuModuleLoadData");
  }
  if ((error = driver.cuModuleGetFunction(&k->function, k->module, name)))
    return np_driver_fail(error, "cuModuleGetFunction");
  if ((error = driver.cuFuncSetAttribute(k->function, DYNAMIC_SHARED, (int)k->shared)))
    return np_driver_fail(error, "cuFuncSetAttribute");
  return NEPTUNE_OK;
}

static neptune_status load_image(neptune_kernel *kernel, const np_json *facts, np_image *made,
                                 int multiprocessors) {
  const np_json *kernels = np_get_kind(facts, "kernels", NP_OBJECT);
  np_arena *arena = &kernel->arena;
  neptune_status status = np_plan_of(kernel, facts, &made->plan);
  if (status || !kernels)
    return status ? status : wrong("no kernels");
  made->when = np_get(facts, "when");
  made->alignment = np_get_kind(facts, "alignment", NP_ARRAY);
  if (!made->alignment)
    made->alignment = np_get_kind(kernel->facts, "alignment", NP_ARRAY);
  made->kernel = np_take(arena, kernels->count, sizeof *made->kernel);
  made->constants = np_take(arena, made->plan.constants, sizeof *made->constants);
  if (!made->kernel || !made->constants)
    return np_fail(NEPTUNE_NO_MEMORY, "no memory for an image");
  for (size_t k = 0; !status && k < kernels->count; ++k)
    status = load_kernel(kernel, facts, kernels->keys[k], &kernels->items[k], made,
                         multiprocessors);
  for (size_t k = 0; !status && k < made->plan.constants; ++k) {
    const np_constant *c = &made->plan.constant[k];
    int error = c->size ? driver.cuMemAlloc_v2(&made->constants[k], c->size) : 0;
    if (!error && c->size)
      error = driver.cuMemcpyHtoD_v2(made->constants[k], c->data, c->size);
    status = error ? np_driver_fail(error, "storing a constant") : NEPTUNE_OK;
  }
  return status;
}

static int attribute(int number, int handle) {
  int value = 0;
  driver.cuDeviceGetAttribute(&value, number, handle);
  return value;
}

static neptune_status load_into(neptune_kernel *kernel, int handle, np_loaded *made) {
  const np_json *images = np_get_kind(kernel->facts, "images", NP_ARRAY);
  architecture device = {attribute(MAJOR, handle), attribute(MINOR, handle), false}, code;
  np_text have = {{0}, 0};
  int best = images ? best_rank(images, device, &have) : -1;
  if (best < 0)
    return np_fail(NEPTUNE_BAD_MACHINE,
                   "the bundle holds code for %s; this device is sm_%d%d; compile it for this "
                   "device too",
                   have.used ? have.data : kernel->target, device.major, device.minor);
  made->multiprocessors = attribute(MULTIPROCESSORS, handle);
  if (!(made->image = np_take(&kernel->arena, images->count, sizeof *made->image)))
    return np_fail(NEPTUNE_NO_MEMORY, "no memory for the images");
  for (size_t k = 0; k < images->count; ++k) {
    const np_json *target = np_get_kind(&images->items[k], "target", NP_STRING);
    if (!target || !parse_architecture(target->string, &code) || rank(code) != best ||
        !runs_on(code, device))
      continue;
    neptune_status status = load_image(kernel, &images->items[k], &made->image[made->images++],
                                       made->multiprocessors);
    if (status)
      return status;
  }
  return NEPTUNE_OK;
}

/* The thread's own context where it is on the device, else the device's primary one. */
static neptune_status find_context(int handle, void **context) {
  int where = -1, error = driver.cuCtxGetCurrent(context);
  if (!error && *context && driver.cuCtxGetDevice(&where) == 0 && where == handle)
    return NEPTUNE_OK;
  error = driver.cuDevicePrimaryCtxRetain(context, handle);
  return error ? np_driver_fail(error, "cuDevicePrimaryCtxRetain") : NEPTUNE_OK;
}

struct np_cuda {
  np_loaded *loaded;
};

neptune_status np_load_images(neptune_kernel *kernel, int device, np_loaded **found) {
  int handle = 0, error = driver.cuDeviceGet(&handle, device);
  void *context = NULL, *before;
  if (error)
    return np_driver_fail(error, "cuDeviceGet");
  neptune_status status = find_context(handle, &context);
  if (status)
    return status;
  pthread_mutex_lock(&lock);
  if (!kernel->cuda)
    kernel->cuda = np_take(&kernel->arena, 1, sizeof *kernel->cuda);
  *found = kernel->cuda ? kernel->cuda->loaded : NULL;
  while (*found && (*found)->context != context)
    *found = (*found)->next;
  np_loaded *made = *found || !kernel->cuda ? NULL : np_take(&kernel->arena, 1, sizeof *made);
  if (made) {
    made->context = context;
    made->device = device;
    if ((error = driver.cuCtxPushCurrent_v2(context))) {
      status = np_driver_fail(error, "entering a device");
    } else {
      status = load_into(kernel, handle, made);
      driver.cuCtxPopCurrent_v2(&before);
    }
    if (!status) {
      made->next = kernel->cuda->loaded;
      *found = kernel->cuda->loaded = made;
    }
  } else if (!*found) {
    status = np_fail(NEPTUNE_NO_MEMORY, "no memory for the images");
  }
  pthread_mutex_unlock(&lock);
  return status;
}

void np_cuda_free(struct np_cuda *cuda) {
  for (np_loaded *l = cuda ? cuda->loaded : NULL; l; l = l->next) {
    void *before;
    if (driver.cuCtxPushCurrent_v2(l->context))
      continue; /* the context is gone, and its modules with it */
    for (size_t n = 0; n < l->images; ++n) {
      np_image *image = &l->image[n];
      for (size_t k = 0; k < image->plan.constants; ++k)
        if (image->constants[k])
          driver.cuMemFree_v2(image->constants[k]);
      for (size_t k = 0; k < image->kernels; ++k) {
        bool seen = false;
        for (size_t m = 0; m < k; ++m)
          seen = seen || image->kernel[m].module == image->kernel[k].module;
        if (!seen)
          driver.cuModuleUnload(image->kernel[k].module);
      }
    }
    driver.cuCtxPopCurrent_v2(&before);
  }
}
