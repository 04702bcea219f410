/* A stand-in for libnvidia-ml.so.1: the part of NVML that Headway calls, with values from text files.
 *
 * FAKE_NVML_FILE names one file and FAKE_NVML_DIR a folder of them (each simulated server keeps its own); they are read
 * again when they have changed, so that a test or a server changes the values of a running process. A line is
 * `key value`; of a key written twice the later counts (files of a folder in the order of their names, then
 * FAKE_NVML_FILE). Files of the folder are replaced by rename from a name that begins with a dot: writing in place goes
 * unnoticed there. Files and keys that are not there mean the defaults below.
 *
 *   count 2                     GPUs in the box (default 1)
 *   driver 580.65               version of the driver
 *   <i>.util 83                 utilisation in percent        <i>.memutil 40         the memory's
 *   <i>.mem_total_gib 141       size of the memory            <i>.mem_used_gib 1     used
 *   <i>.power_w 90              draw                          <i>.power_limit_w 700  enforced limit
 *   <i>.energy_mj 0             millijoules since the driver was loaded
 *   <i>.temp 35                 degrees Celsius               <i>.sm_mhz 1980  <i>.mem_mhz 3201
 *   <i>.reasons 1               bit mask of what holds the clocks down (1: idle)
 *   <i>.ecc 0                   uncorrected memory errors since the last reset
 *   <i>.mig 2                   MIG mode on, with so many slices; <i>.mig<m>.mem_total_gib and _used_gib are a slice's
 *   <i>.proc.<pid> <bytes>      a process that computes on GPU i (bytes -1: the driver does not tell)
 *   <i>.err.<field> 15          that call fails with NVML's error 15; fields: init count handle uuid util mem power
 *                               limit energy temp clock reasons ecc mig procs, or all
 *   missing.<function> 1        that function is not in this driver (NVML_ERROR_FUNCTION_NOT_FOUND)
 *
 * Where `<i>.` is left out, a key holds for every GPU that has no line of its own.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, FUNCTION_NOT_FOUND = 13 };
enum { GPUS = 32, SLICES = 8, KEY = 96, MAX_FILES = 64, ENTRIES = 4096 };
#define GIB 1073741824.0

typedef int Status;
typedef struct { int gpu; int slice; } Device; /* slice -1: the whole GPU */

static Device whole[GPUS];
static Device slices[GPUS][SLICES];

/* ---- the state files ---- */

typedef struct { char key[KEY]; double value; } Entry;
typedef struct { ino_t inode; off_t size; struct timespec changed; } Stamp;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Entry entries[ENTRIES];
static int entry_count;
static Stamp seen_folder, seen_single;
static int settled; /* what was seen cannot have changed since without another time stamp */

static Stamp stamp_of(const char *path) {
    struct stat status;
    Stamp stamp;
    memset(&stamp, 0, sizeof stamp);
    if (path && stat(path, &status) == 0) {
        stamp.inode = status.st_ino;
        stamp.size = status.st_size;
        stamp.changed = status.st_mtim;
    }
    return stamp;
}

static int is_old(const Stamp *stamp) { /* time stamps of files advance in steps of some milliseconds */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (now.tv_sec - stamp->changed.tv_sec) * 1000 + (now.tv_nsec - stamp->changed.tv_nsec) / 1000000 > 50;
}

static void read_file(int folder, const char *name) {
    int descriptor = openat(folder, name, O_RDONLY | O_CLOEXEC);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "r");
    char text[256];
    if (!file) return;
    while (entry_count < ENTRIES && fgets(text, sizeof text, file))
        if (sscanf(text, "%95s %lf", entries[entry_count].key, &entries[entry_count].value) == 2) entry_count++;
    fclose(file);
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

static void read_folder(const char *folder) {
    static char names[MAX_FILES][256];
    DIR *open_folder = opendir(folder);
    struct dirent *entry;
    int count = 0;
    if (!open_folder) return;
    while (count < MAX_FILES && (entry = readdir(open_folder)))
        if (entry->d_name[0] != '.') snprintf(names[count++], 256, "%s", entry->d_name);
    qsort(names, (size_t)count, 256, by_name);
    for (int i = 0; i < count; i++) read_file(dirfd(open_folder), names[i]);
    closedir(open_folder);
}

static void refresh(void) { /* the caller holds the lock */
    const char *folder = getenv("FAKE_NVML_DIR"), *single = getenv("FAKE_NVML_FILE");
    Stamp folder_stamp = stamp_of(folder), single_stamp = stamp_of(single);
    if (settled && !memcmp(&folder_stamp, &seen_folder, sizeof(Stamp)) &&
        !memcmp(&single_stamp, &seen_single, sizeof(Stamp)))
        return;
    settled = is_old(&folder_stamp) && is_old(&single_stamp);
    seen_folder = folder_stamp;
    seen_single = single_stamp;
    entry_count = 0;
    if (folder) read_folder(folder);
    if (single) read_file(AT_FDCWD, single);
}

static int look_up(const char *key, double *value) {
    for (int i = entry_count - 1; i >= 0; i--)
        if (!strcmp(entries[i].key, key)) return *value = entries[i].value, 1;
    return 0;
}

static double global_value(const char *key, double otherwise) {
    double value = otherwise;
    pthread_mutex_lock(&lock);
    refresh();
    look_up(key, &value);
    pthread_mutex_unlock(&lock);
    return value;
}

static double gpu_value(int gpu, const char *key, double otherwise) {
    char own[KEY + 16];
    double value = otherwise;
    snprintf(own, sizeof own, "%d.%s", gpu, key);
    pthread_mutex_lock(&lock);
    refresh();
    if (!look_up(own, &value)) look_up(key, &value);
    pthread_mutex_unlock(&lock);
    return value;
}

/* ---- refusals ---- */

static Status refusal(const char *function, const char *field, int gpu) {
    char key[KEY];
    int status;
    snprintf(key, sizeof key, "missing.%s", function);
    if (global_value(key, 0) != 0) return FUNCTION_NOT_FOUND;
    snprintf(key, sizeof key, "err.%s", field);
    status = (int)(gpu < 0 ? global_value(key, 0) : gpu_value(gpu, key, 0));
    if (status == 0 && gpu >= 0) status = (int)gpu_value(gpu, "err.all", 0);
    return status;
}

#define MAY_REFUSE(field, gpu)                                  \
    do {                                                        \
        Status refused = refusal(__func__, field, gpu);         \
        if (refused != OK) return refused;                      \
    } while (0)
#define WHOLE_GPU_ONLY(device) do { if ((device)->slice >= 0) return NOT_SUPPORTED; } while (0)

/* ---- library and devices ---- */

Status nvmlInitWithFlags(unsigned flags) { (void)flags; MAY_REFUSE("init", -1); return OK; }
Status nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
Status nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(Status status) {
    switch (status) {
    case OK: return "Success";
    case NOT_SUPPORTED: return "Not Supported";
    case FUNCTION_NOT_FOUND: return "Function Not Found";
    case 15: return "GPU is lost";
    case 999: return "Unknown Error";
    default: return "fake error";
    }
}

Status nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "%.2f", global_value("driver", 580.65));
    return OK;
}

static int gpu_count(void) {
    int count = (int)global_value("count", 1);
    return count > GPUS ? GPUS : count;
}

Status nvmlDeviceGetCount_v2(unsigned *count) { MAY_REFUSE("count", -1); *count = (unsigned)gpu_count(); return OK; }

Status nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if ((int)index >= gpu_count()) return INVALID_ARGUMENT;
    MAY_REFUSE("handle", (int)index);
    whole[index].gpu = (int)index;
    whole[index].slice = -1;
    *device = &whole[index];
    return OK;
}

Status nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
    MAY_REFUSE("uuid", device->gpu);
    if (device->slice < 0) snprintf(text, size, "GPU-fa4e%04d-0000-4000-8000-000000000000", device->gpu);
    else snprintf(text, size, "MIG-fa4e%04d-%04d-4000-8000-000000000000", device->gpu, device->slice);
    return OK;
}

Status nvmlDeviceGetName(Device *device, char *text, unsigned size) {
    if (device->slice < 0) snprintf(text, size, "NVIDIA H200 (simulated)");
    else snprintf(text, size, "NVIDIA H200 MIG 1g (simulated)");
    return OK;
}

Status nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    WHOLE_GPU_ONLY(device);
    MAY_REFUSE("mig", device->gpu);
    *current = *pending = gpu_value(device->gpu, "mig", 0) > 0;
    return OK;
}

Status nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    WHOLE_GPU_ONLY(device);
    *count = SLICES - 1;
    return OK;
}

Status nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice) {
    if (index >= SLICES || (int)index >= (int)gpu_value(device->gpu, "mig", 0)) return NOT_FOUND;
    slices[device->gpu][index].gpu = device->gpu;
    slices[device->gpu][index].slice = (int)index;
    *slice = &slices[device->gpu][index];
    return OK;
}

/* ---- readings ---- */

typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned version; int sensor, temperature; } Temperature;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } Process;

Status nvmlDeviceGetUtilizationRates(Device *device, Utilization *out) {
    WHOLE_GPU_ONLY(device);
    MAY_REFUSE("util", device->gpu);
    if (gpu_value(device->gpu, "mig", 0) > 0) return NOT_SUPPORTED; /* as NVML answers in MIG mode */
    out->gpu = (unsigned)gpu_value(device->gpu, "util", 0);
    out->memory = (unsigned)gpu_value(device->gpu, "memutil", 0);
    return OK;
}

static void memory_of(Device *device, unsigned long long *total, unsigned long long *used) {
    char total_key[KEY] = "mem_total_gib", used_key[KEY] = "mem_used_gib";
    if (device->slice >= 0) {
        snprintf(total_key, KEY, "mig%d.mem_total_gib", device->slice);
        snprintf(used_key, KEY, "mig%d.mem_used_gib", device->slice);
    }
    *total = (unsigned long long)(gpu_value(device->gpu, total_key, device->slice < 0 ? 141 : 17.5) * GIB);
    *used = (unsigned long long)(gpu_value(device->gpu, used_key, device->slice < 0 ? 1 : 0.1) * GIB);
}

Status nvmlDeviceGetMemoryInfo(Device *device, Memory *out) {
    MAY_REFUSE("mem", device->gpu);
    memory_of(device, &out->total, &out->used);
    out->free = out->total > out->used ? out->total - out->used : 0;
    return OK;
}

Status nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *out) {
    MAY_REFUSE("mem", device->gpu);
    memory_of(device, &out->total, &out->used);
    out->reserved = 0;
    out->free = out->total > out->used ? out->total - out->used : 0;
    return OK;
}

Status nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
    WHOLE_GPU_ONLY(device);
    MAY_REFUSE("power", device->gpu);
    *milliwatts = (unsigned)(gpu_value(device->gpu, "power_w", 90) * 1000);
    return OK;
}

Status nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *milliwatts) {
    WHOLE_GPU_ONLY(device);
    MAY_REFUSE("limit", device->gpu);
    *milliwatts = (unsigned)(gpu_value(device->gpu, "power_limit_w", 700) * 1000);
    return OK;
}

Status nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *millijoules) {
    WHOLE_GPU_ONLY(device);
    MAY_REFUSE("energy", device->gpu);
    *millijoules = (unsigned long long)gpu_value(device->gpu, "energy_mj", 0);
    return OK;
}

Status nvmlDeviceGetTemperatureV(Device *device, Temperature *out) {
    WHOLE_GPU_ONLY(device);
    MAY_REFUSE("temp", device->gpu);
    out->temperature = (int)gpu_value(device->gpu, "temp", 35);
    return OK;
}

Status nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius) {
    (void)sensor;
    WHOLE_GPU_ONLY(device);
    MAY_REFUSE("temp", device->gpu);
    *celsius = (unsigned)gpu_value(device->gpu, "temp", 35);
    return OK;
}

Status nvmlDeviceGetClockInfo(Device *device, int type, unsigned *mhz) { /* type 1: SM, 2: memory */
    WHOLE_GPU_ONLY(device);
    MAY_REFUSE("clock", device->gpu);
    *mhz = (unsigned)(type == 2 ? gpu_value(device->gpu, "mem_mhz", 3201) : gpu_value(device->gpu, "sm_mhz", 1980));
    return OK;
}

Status nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *mask) {
    WHOLE_GPU_ONLY(device);
    MAY_REFUSE("reasons", device->gpu);
    *mask = (unsigned long long)gpu_value(device->gpu, "reasons", 1);
    return OK;
}

Status nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *mask) { /* the older name */
    WHOLE_GPU_ONLY(device);
    MAY_REFUSE("reasons", device->gpu);
    *mask = (unsigned long long)gpu_value(device->gpu, "reasons", 1);
    return OK;
}

Status nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, unsigned long long *count) {
    (void)type, (void)counter;
    WHOLE_GPU_ONLY(device);
    MAY_REFUSE("ecc", device->gpu);
    *count = (unsigned long long)gpu_value(device->gpu, "ecc", 0);
    return OK;
}

Status nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *out) {
    unsigned room = out ? *count : 0, found = 0, pid;
    int gpu;
    MAY_REFUSE("procs", device->gpu);
    pthread_mutex_lock(&lock);
    refresh();
    for (int i = 0; i < entry_count; i++) {
        if (sscanf(entries[i].key, "%d.proc.%u", &gpu, &pid) != 2 || gpu != device->gpu) continue;
        if (found < room) {
            double bytes = entries[i].value;
            Process process = {pid, bytes < 0 ? ~0ULL : (unsigned long long)bytes, ~0U, ~0U};
            out[found] = process;
        }
        found++;
    }
    pthread_mutex_unlock(&lock);
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}
