/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * NVIDIA's driver, and the images of a bundle that it has loaded. */
#ifndef NEPTUNE_CUDA_H
#define NEPTUNE_CUDA_H

#include "internal.h"

#include <stdatomic.h>

enum { TENSOR_MAP_BYTES = 128 };

typedef struct np_launch_attribute { /* CUlaunchAttribute with a value that is one int */
  int id, pad, value[16];
} np_launch_attribute;

typedef struct np_launch_config { /* CUlaunchConfig */
  unsigned grid[3], block[3], shared;
  void *stream;
  np_launch_attribute *attributes;
  unsigned attribute_count;
} np_launch_config;

/* The functions of the driver that are called, by their names in cuda.h. */
typedef struct np_driver {
  int (*cuInit)(unsigned);
  int (*cuGetErrorName)(int, const char **);
  int (*cuGetErrorString)(int, const char **);
  int (*cuDeviceGet)(int *, int);
  int (*cuDeviceGetAttribute)(int *, int, int);
  int (*cuPointerGetAttribute)(void *, int, uint64_t);
  int (*cuMemAlloc_v2)(uint64_t *, size_t);
  int (*cuMemFree_v2)(uint64_t);
  int (*cuMemcpyHtoD_v2)(uint64_t, const void *, size_t);
  int (*cuModuleLoadData)(void **, const void *);
  int (*cuModuleUnload)(void *);
  int (*cuModuleGetFunction)(void **, void *, const char *);
  int (*cuFuncSetAttribute)(void *, int, int);
  int (*cuCtxGetCurrent)(void **);
  int (*cuCtxGetDevice)(int *);
  int (*cuDevicePrimaryCtxRetain)(void **, int);
  int (*cuCtxPushCurrent_v2)(void *);
  int (*cuCtxPopCurrent_v2)(void **);
  int (*cuStreamIsCapturing)(void *, int *);
  int (*cuLaunchKernelEx)(const np_launch_config *, void *, void **, void **);
  int (*cuTensorMapEncodeTiled)(void *, int, unsigned, void *, const uint64_t *, const uint64_t *,
                                const uint32_t *, const uint32_t *, int, int, int, int);
} np_driver;

typedef struct np_gpu_kernel {
  const char *name;
  void *module, *function;
  size_t threads, shared, hidden, blocks; /* blocks: at most so many (0: one for each program) */
  size_t begin;                           /* of its code */
  bool follows;
} np_gpu_kernel;

typedef struct np_image {
  np_plan plan;
  const np_json *when;      /* which calls it is for; NULL: any */
  const np_json *alignment; /* [kind, number, bytes] */
  size_t kernels;
  np_gpu_kernel *kernel;
  uint64_t *constants; /* addresses on the device */
} np_image;

/* The images of a bundle in one context. */
typedef struct np_loaded {
  struct np_loaded *next;
  void *context;
  int device;
  int multiprocessors;
  size_t images;
  np_image *image;
  atomic_size_t once, kept; /* numbers of calls */
} np_loaded;

const np_driver *np_open_driver(void); /* NULL, with a message, where there is none */
neptune_status np_driver_fail(int error, const char *what);

/* The images for a device in the context that this thread works in there. */
neptune_status np_load_images(neptune_kernel *kernel, int device, np_loaded **loaded);

/* The parameters of a kernel: addresses of values, which stand in `room`. */
typedef struct np_parameters {
  void *addresses[512];
  _Alignas(64) unsigned char room[16384];
  size_t count, used;
} np_parameters;

/* Adds the 128 bytes that a copy engine takes: ["map", kind, number, rows_dim, rows, columns].
   `narrow`: the L2 fetches 128 bytes at once where rows have several panels. */
neptune_status np_add_tensor_map(np_parameters *parameters, const np_view *view,
                                 const np_json *operand, bool narrow);
void *np_parameter_room(np_parameters *parameters, size_t size, size_t alignment);

#endif
