/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The threads that run kernels, as in `runtime/workers.py`: helpers wait until the process ends.
 * Whoever launches takes part, and waits only for helpers that have begun; a launch that finds the
 * helpers busy with another runs alone. */
#include "internal.h"

#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAGE = 4096 };

static struct {
  pthread_mutex_t lock, turn;
  pthread_cond_t come, done;
  int64_t threads; /* that were started */
  int64_t wanted, working;
  np_task *task;
  void *data;
  int64_t *counter;
  size_t size;
} helpers = {.lock = PTHREAD_MUTEX_INITIALIZER,
             .turn = PTHREAD_MUTEX_INITIALIZER,
             .come = PTHREAD_COND_INITIALIZER,
             .done = PTHREAD_COND_INITIALIZER};

/* Threads do not survive a fork: the child makes its own. */
static void begin_child(void) {
  pthread_mutex_init(&helpers.lock, NULL);
  pthread_mutex_init(&helpers.turn, NULL);
  pthread_cond_init(&helpers.come, NULL);
  pthread_cond_init(&helpers.done, NULL);
  helpers.threads = helpers.wanted = helpers.working = 0;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, begin_child); }

int64_t np_workers(int32_t wanted) {
  const char *chosen = getenv("NEPTUNE_NUM_THREADS");
  if (wanted > 0)
    return wanted;
  if (chosen && isdigit((unsigned char)*chosen) && atoll(chosen) > 0)
    return atoll(chosen) < 4096 ? atoll(chosen) : 4096;
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return CPU_COUNT(&set);
#endif
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? count : 1;
}

static void *grown(void *memory, size_t *held, size_t size) {
  if (*held >= size)
    return memory;
  free(memory);
  size_t pages = (size + PAGE - 1) / PAGE * PAGE;
  memory = aligned_alloc(PAGE, pages);
  *held = memory ? pages : 0;
  return memory;
}

static void *help(void *nothing) {
  void *memory = NULL;
  size_t held = 0;
  pthread_mutex_lock(&helpers.lock);
  for (;;) {
    while (helpers.wanted == 0)
      pthread_cond_wait(&helpers.come, &helpers.lock);
    --helpers.wanted;
    ++helpers.working;
    np_task *task = helpers.task;
    void *data = helpers.data;
    int64_t *counter = helpers.counter;
    size_t size = helpers.size;
    pthread_mutex_unlock(&helpers.lock);
    memory = grown(memory, &held, size);
    if (memory) /* else the others do the work */
      task(data, counter, memory, (int64_t)size);
    pthread_mutex_lock(&helpers.lock);
    if (--helpers.working == 0)
      pthread_cond_signal(&helpers.done);
  }
  return nothing;
}

static void start(int64_t wanted) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  while (helpers.threads < wanted) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, help, NULL))
      return; /* as many as there are do the work */
    pthread_detach(thread);
    ++helpers.threads;
  }
}

neptune_status np_share(np_task *task, void *data, int64_t workers, size_t size) {
  _Alignas(64) int64_t counter = 0;
  size_t held = 0;
  void *scratch = grown(NULL, &held, size);
  if (!scratch)
    return np_fail(NEPTUNE_NO_MEMORY, "no memory for %zu bytes of scratch", size);
  if (workers <= 1 || pthread_mutex_trylock(&helpers.turn)) {
    task(data, &counter, scratch, (int64_t)size);
    free(scratch);
    return NEPTUNE_OK;
  }
  pthread_mutex_lock(&helpers.lock);
  start(workers - 1);
  helpers.task = task;
  helpers.data = data;
  helpers.counter = &counter;
  helpers.size = size;
  helpers.wanted = workers - 1;
  pthread_cond_broadcast(&helpers.come);
  pthread_mutex_unlock(&helpers.lock);
  task(data, &counter, scratch, (int64_t)size);
  pthread_mutex_lock(&helpers.lock);
  helpers.wanted = 0;
  while (helpers.working)
    pthread_cond_wait(&helpers.done, &helpers.lock);
  pthread_mutex_unlock(&helpers.lock);
  pthread_mutex_unlock(&helpers.turn);
  free(scratch);
  return NEPTUNE_OK;
}
