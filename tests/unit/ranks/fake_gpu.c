/* Stands in for libcuda and libnccl on machines without a GPU: devices whose memory is the host's, streams that are
 * threads, and communicators among the threads of one process. What a test cannot see here is anything about speed.
 *
 * FAKE_GPUS=n       how many devices there are (4)
 * FAKE_CORRUPT=1    every message longer than 1000 bytes arrives with one byte wrong in its middle
 * FAKE_TRACE=path  there it is noted when the driver is initialised, in which order of devices, and when a context is made
 * FAKE_LATE=n        what is held back on device n goes on a second later than it should
 * FAKE_LOSE=a>b     messages of rank a of a communicator to its rank b never arrive, but for those that make connections
 * FAKE_CUT=n,m      the n-th and m-th message over 1 MB never end: their first halves come again and again until the abort
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { COPY, FILL, STAMP, HOLD, SEND, RECV, TOGETHER, REDUCE, GATHER, SCATTER, BROADCAST };
enum { MOST = 64 };

typedef struct event { double at; } event;
struct comm;
typedef struct op {
    int kind, value, peer, state;
    struct op *parts;
    void *to;
    const void *from;
    size_t size;
    event *stamp;
    struct comm *comm;
    struct op *next;
} op;
typedef struct stream {
    pthread_mutex_t lock;
    pthread_cond_t some;
    op *head, *tail;
    int busy;
} stream;
typedef struct {
    const void *data;
    size_t size;
    int full;
    struct op *owner;
} slot;
typedef struct group {
    char id[128];
    int ranks, joined, arrived, round;
    const float *given[MOST];
    slot slots[MOST][MOST];
    struct group *next;
} group;
typedef struct comm {
    group *of;
    int rank, device, aborted, told[MOST];
} comm;
typedef struct { char internal[128]; } unique_id;
typedef struct { size_t size; unsigned magic, version; int blocking; } config;

static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static group *groups;
static __thread int device;
static FILE *log_file;
static char last_error[256];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void say(int dev, const char *level, const char *text) {
    if (!log_file) {
        const char *path = getenv("NCCL_DEBUG_FILE");
        log_file = path ? fopen(path, "w") : stderr;
        setlinebuf(log_file);
    }
    fprintf(log_file, "fake:%d:%ld [%d] %s%s %s\n", (int)getpid(), syscall(SYS_gettid), dev,
            strcmp(level, "WARN") ? "NCCL " : "fake/gpu.c:1 NCCL ", level, text);
}

/* Waits until all ranks of a group have come here; returns 0 when the communicator was aborted. */
static int barrier(comm *c) {
    group *g = c->of;
    int round = g->round;
    if (++g->arrived == g->ranks) {
        g->arrived = 0;
        g->round++;
        pthread_cond_broadcast(&change);
    }
    while (g->round == round && !c->aborted)
        pthread_cond_wait(&change, &all);
    return !c->aborted;
}

static float combined(group *g, int operation, size_t at) {
    float sum = g->given[0][at];
    for (int r = 1; r < g->ranks; r++) {
        float one = g->given[r][at];
        sum = operation == 0 ? sum + one : operation == 2 ? (sum > one ? sum : one) : (sum < one ? sum : one);
    }
    return sum;
}

/* What one rank gets of what all ranks gave; `size` counts values, of one rank where the message is cut by ranks. */
static void collect(op *o) {
    comm *c = o->comm;
    group *g = c->of;
    size_t n = o->size, total = o->kind == GATHER ? n * g->ranks : n;
    g->given[c->rank] = o->from;
    if (!barrier(c))
        return;
    float *result = malloc(total * sizeof(float));
    for (size_t i = 0; i < total; i++)
        switch (o->kind) {
        case REDUCE: result[i] = combined(g, o->value, i); break;
        case SCATTER: result[i] = combined(g, o->value, c->rank * n + i); break;
        case GATHER: ((int *)result)[i] = ((const int *)g->given[i / n])[i % n]; break;
        default: ((int *)result)[i] = ((const int *)g->given[0])[i];
        }
    if (barrier(c)) {
        memcpy(o->to, result, total * sizeof(float));
        if (total > 250 && getenv("FAKE_CORRUPT"))
            ((char *)o->to)[total * 2 + 2] ^= 64;
        barrier(c);
    }
    free(result);
}

static int lost(int src, const op *o) {
    const char *which = getenv("FAKE_LOSE");
    int a, b;
    return which && o->size != 64 && sscanf(which, "%d>%d", &a, &b) == 2 && a == src && b == o->peer;
}

/* Whether a message is one that is cut off, or has been. */
static int cut(op *o, size_t size) {
    static int number;
    const char *which = getenv("FAKE_CUT");
    if (!which || size < 1000000 || o->state == 3)
        return o->state == 3;
    number++;
    for (; which; which = strchr(which, ',') ? strchr(which, ',') + 1 : NULL)
        if (atoi(which) == number)
            return 1;
    return 0;
}

/* One step of a send or receive, as far as it can go now; returns whether it got anywhere. */
static int step(comm *c, op *o) {
    group *g = c->of;
    slot *s = o->kind == SEND ? &g->slots[c->rank][o->peer] : &g->slots[o->peer][c->rank];
    if (o->state == 2 || (o->kind == SEND && lost(c->rank, o)))
        return 0;
    if (o->kind == RECV) {
        if (!s->full)
            return 0;
        if (cut(o, s->size)) {
            memcpy(o->to, s->data, s->size / 2);
            o->state = 3;
            return 0;
        }
        memcpy(o->to, s->data, s->size < o->size ? s->size : o->size);
        if (o->size > 1000 && getenv("FAKE_CORRUPT"))
            ((char *)o->to)[o->size / 2] ^= 1;
        s->full = 0, s->owner = NULL;
        return o->state = 2;
    }
    if (o->state == 0) {
        if (s->full || s->owner)
            return 0;
        s->data = o->from, s->size = o->size, s->owner = o, s->full = 1;
        return o->state = 1;
    }
    return s->owner == o ? 0 : (o->state = 2);
}

/* All sends and receives of a group at once, each pair's in order. */
static void transfer(op *o) {
    comm *c = o->comm;
    for (;;) {
        int left = 0, moved = 0, again = 0;
        for (op *part = o->parts; part; part = part->next) {
            moved |= step(c, part);
            left += part->state != 2;
            again |= part->state == 3;
        }
        if (moved)
            pthread_cond_broadcast(&change);
        if (!left || c->aborted)
            break;
        if (!moved && again) {
            pthread_mutex_unlock(&all);
            usleep(2000);
            pthread_mutex_lock(&all);
        } else if (!moved)
            pthread_cond_wait(&change, &all);
    }
    for (op *part = o->parts, *next; part; part = next)
        next = part->next, free(part);
}

static void exchange(op *o) {
    pthread_mutex_lock(&all);
    if (o->kind == TOGETHER)
        transfer(o);
    else
        collect(o);
    pthread_mutex_unlock(&all);
}

static void *work(void *arg) {
    stream *s = arg;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (!s->head)
            pthread_cond_wait(&s->some, &s->lock);
        op *o = s->head;
        pthread_mutex_unlock(&s->lock);
        switch (o->kind) {
        case COPY: memmove(o->to, o->from, o->size); break;
        case FILL: memset(o->to, o->value, o->size); break;
        case STAMP: o->stamp->at = now(); break;
        case HOLD:
            while (*(volatile unsigned *)o->from < (unsigned)o->value)
                usleep(10);
            if (getenv("FAKE_LATE") && (size_t)atoi(getenv("FAKE_LATE")) == o->size)
                sleep(1);
            break;
        default: exchange(o);
        }
        pthread_mutex_lock(&s->lock);
        s->head = o->next;
        if (!s->head)
            s->tail = NULL;
        s->busy--;
        pthread_mutex_unlock(&s->lock);
        free(o);
    }
    return NULL;
}

static int put(stream *s, op o) {
    op *copy = malloc(sizeof(op));
    *copy = o;
    copy->next = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->tail)
        s->tail->next = copy;
    else
        s->head = copy;
    s->tail = copy;
    s->busy++;
    pthread_cond_signal(&s->some);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static int gpus(void) {
    const char *text = getenv("FAKE_GPUS");
    return text ? atoi(text) : 4;
}

static void trace(const char *what, const char *more) {
    const char *path = getenv("FAKE_TRACE");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s %s\n", what, more ? more : "-");
        fclose(file);
    }
}

int cuInit(unsigned flags) { return trace("init", getenv("CUDA_DEVICE_ORDER")), 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDevicePrimaryCtxRetain(void **context, int dev) {
    trace("context", NULL);
    return *context = (void *)(long)(dev + 1), 0;
}
int cuCtxSetCurrent(void *context) { return device = (int)(long)context - 1, 0; }
int cuStreamWaitValue32_v2(stream *s, const void *at, unsigned value, unsigned flags) {
    return put(s, (op){.kind = HOLD, .from = at, .value = (int)value, .size = device});
}
int cuGetErrorName(int code, const char **text) { return *text = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR", 0; }
int cuGetErrorString(int code, const char **text) { return *text = code == 2 ? "out of memory" : "error", 0; }
int cuDeviceGetCount(int *count) { return *count = gpus(), 0; }
int cuDeviceGet(int *handle, int ordinal) { return *handle = ordinal, 0; }
int cuDeviceGetUuid(unsigned char *uuid, int dev) { return memset(uuid, 0x10 + dev, 16), 0; }
int cuDeviceGetPCIBusId(char *text, int size, int dev) { return snprintf(text, size, "0000:%02X:00.0", 16 + dev), 0; }
int cuDeviceGetAttribute(int *value, int which, int device) {
    return *value = which == 18 && getenv("FAKE_INTEGRATED") != NULL, 0;
}
int cuMemGetInfo_v2(size_t *free_, size_t *total) { return *free_ = *total = 1ul << 30, 0; }
int cuMemAlloc_v2(void **pointer, size_t size) { return size > 1ul << 30 ? 2 : (*pointer = malloc(size), 0); }
int cuMemFree_v2(void *pointer) { return free(pointer), 0; }
int cuMemHostAlloc(void **pointer, size_t size, unsigned flags) { return *pointer = malloc(size), 0; }
int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t size, stream *s) {
    return put(s, (op){.kind = COPY, .to = to, .from = from, .size = size});
}
int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t size, stream *s) {
    return put(s, (op){.kind = COPY, .to = to, .from = from, .size = size});
}
int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t size, stream *s) {
    return put(s, (op){.kind = COPY, .to = to, .from = from, .size = size});
}
int cuMemsetD8Async(void *to, unsigned char value, size_t size, stream *s) {
    return put(s, (op){.kind = FILL, .to = to, .value = value, .size = size});
}
int cuStreamCreate(stream **made, unsigned flags) {
    stream *s = calloc(1, sizeof(stream));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->some, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, work, s);
    return *made = s, 0;
}
int cuStreamQuery(stream *s) {
    pthread_mutex_lock(&s->lock);
    int busy = s->busy;
    pthread_mutex_unlock(&s->lock);
    return busy ? 600 : 0;
}
int cuEventCreate(event **made, unsigned flags) { return *made = calloc(1, sizeof(event)), 0; }
int cuEventRecord(event *e, stream *s) { return put(s, (op){.kind = STAMP, .stamp = e}); }
int cuEventElapsedTime(float *ms, event *a, event *b) { return *ms = (float)((b->at - a->at) * 1e3), 0; }
int cuEventDestroy_v2(event *e) { return free(e), 0; }

int ncclGetVersion(int *version) { return *version = 22809, 0; }
int ncclGetUniqueId(unique_id *id) {
    static int count;
    memset(id, 0x77, sizeof(*id));
    pthread_mutex_lock(&all);
    memcpy(id->internal, &count, sizeof(count));
    count++;
    pthread_mutex_unlock(&all);
    return 0;
}
int ncclCommInitRankConfig(comm **made, int ranks, unique_id id, int rank, config *how) {
    if (how->magic != 0xcafebeef || how->blocking != 0 || rank >= ranks || ranks > MOST) {
        strcpy(last_error, "bad config");
        return 4;
    }
    pthread_mutex_lock(&all);
    group *g = groups;
    while (g && memcmp(g->id, id.internal, 128))
        g = g->next;
    if (!g) {
        g = calloc(1, sizeof(group));
        memcpy(g->id, id.internal, 128);
        g->ranks = ranks, g->next = groups, groups = g;
    }
    g->joined++;
    comm *c = calloc(1, sizeof(comm));
    c->of = g, c->rank = rank, c->device = device;
    *made = c;
    pthread_mutex_unlock(&all);
    say(device, "INFO", "NET/Socket : Using [0]fake0:192.0.2.1<0> [1]fake1:192.0.2.2<0>");
    if (rank == 0) {
        char ring[200] = "Channel 00/02 :";
        for (int at = 0; at < ranks; at++)
            snprintf(ring + strlen(ring), sizeof(ring) - strlen(ring), " %4d", at);
        say(device, "INFO", ring);
        ring[9] = '1';
        say(device, "INFO", ring);
    }
    return 7;
}
int ncclCommGetAsyncError(comm *c, int *state) {
    pthread_mutex_lock(&all);
    *state = c->of->joined < c->of->ranks ? 7 : 0;
    pthread_mutex_unlock(&all);
    return 0;
}
/* What a thread has queued since ncclGroupStart; like NCCL, this goes off as one piece at ncclGroupEnd. */
static __thread struct { int open; op *head, *tail; stream *on; } queued;

static int flush(void) {
    if (queued.head)
        put(queued.on, (op){.kind = TOGETHER, .parts = queued.head, .comm = queued.head->comm});
    queued.head = queued.tail = NULL;
    return 7;
}
static int queue(stream *s, op o) {
    op *copy = malloc(sizeof(op));
    *copy = o;
    if (queued.tail)
        queued.tail->next = copy;
    else
        queued.head = copy;
    queued.tail = copy, queued.on = s;
    return queued.open ? 0 : flush();
}
int ncclGroupStart(void) { return queued.open++, 0; }
int ncclGroupEnd(void) { return --queued.open ? 0 : flush(); }
int ncclCommFinalize(comm *c) { return 0; }
int ncclCommDestroy(comm *c) { return free(c), 0; }
int ncclCommAbort(comm *c) {
    say(c->device, "INFO", "comm abort");
    pthread_mutex_lock(&all);
    c->aborted = 1;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&all);
    return 0;
}
const char *ncclGetLastError(comm *c) { return last_error; }
static void tell(comm *c, int src, int dst, const char *how) {
    char text[200];
    snprintf(text, sizeof(text), "Channel 00/1 : %d[%d] -> %d[%d]%s via NET/Socket/%d", src, src, dst, dst, how, c->device % 2);
    if (!strcmp(how, "") || c->device / 2 == 0)
        snprintf(text, sizeof(text), "Channel 00/1 : %d[%d] -> %d[%d] via P2P/direct pointer", src, src, dst, dst);
    say(c->device, "INFO", text);
}
int ncclSend(const void *data, size_t count, int type, int peer, comm *c, stream *s) {
    if (!(c->told[peer] & 1))
        c->told[peer] |= 1, tell(c, c->rank, peer, " [send]");
    return queue(s, (op){.kind = SEND, .from = data, .size = count, .peer = peer, .comm = c});
}
int ncclRecv(void *data, size_t count, int type, int peer, comm *c, stream *s) {
    if (!(c->told[peer] & 2) && c->device / 2)
        c->told[peer] |= 2, tell(c, peer, c->rank, " [receive]");
    return queue(s, (op){.kind = RECV, .to = data, .size = count, .peer = peer, .comm = c});
}
static int collective(comm *c, stream *s, op o, const char *name, size_t bytes) {
    char text[100];
    snprintf(text, sizeof(text), "%s: %zu Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}", name, bytes);
    if (c->rank == 0)
        say(c->device, "INFO", text);
    o.comm = c;
    return put(s, o);
}
int ncclAllReduce(const void *from, void *to, size_t n, int type, int operation, comm *c, stream *s) {
    op o = {.kind = REDUCE, .from = from, .to = to, .size = n, .value = operation};
    return collective(c, s, o, "AllReduce", 4 * n);
}
int ncclAllGather(const void *from, void *to, size_t n, int type, comm *c, stream *s) {
    return collective(c, s, (op){.kind = GATHER, .from = from, .to = to, .size = n}, "AllGather", 4 * n * c->of->ranks);
}
int ncclReduceScatter(const void *from, void *to, size_t n, int type, int operation, comm *c, stream *s) {
    op o = {.kind = SCATTER, .from = from, .to = to, .size = n, .value = operation};
    return collective(c, s, o, "ReduceScatter", 4 * n * c->of->ranks);
}
int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, comm *c, stream *s) {
    op o = {.kind = BROADCAST, .from = from, .to = to, .size = n};
    return root ? 4 : collective(c, s, o, "Broadcast", 4 * n);
}
