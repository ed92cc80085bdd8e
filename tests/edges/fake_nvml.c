/*
 * A libnvidia-ml.so.1 of the tests' own: real ABI, no driver.
 *
 *   FAKE_NVML_MODE  what is wrong: healthy, ecc, remap, recovery, lost, reset, unknown,
 *                   xid, hang, hang_start, die, init (nvmlInit fails with FAKE_NVML_CODE),
 *                   and what only a new job meets: pending, narrow, links, fabric, busy,
 *                   leak; spin (a kernel runs on it that moves no memory)
 *   FAKE_NVML_GPU   with which GPU (1)
 *   FAKE_NVML_EACH  instead of both: what is wrong with GPU 0, 1, … (ecc,healthy,lost)
 *   FAKE_NVML_WHEN  a file: all is well until it exists
 *   FAKE_NVML_GPUS  how many there are (2); FAKE_NVML_MIG=1 cuts each in two
 *   FAKE_NVML_XID   number of the event (79)
 *   FAKE_NVML_SEEN  a file that it makes when the last GPU is asked for its clocks
 *
 * With -DOLD_DRIVER the symbols are missing that drivers before R450 do not have.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    LOST = 15, RESET_REQUIRED = 16, UNKNOWN = 999,
    GPUS_MAX = 8, SLICES = 2, FIELD_RECOVERY = 230, XID_EVENT = 8,
};

typedef struct { int number, slice; } Device;  /* slice: -1 for a whole GPU */

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;

typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency_us;
    int type, result;
    union { unsigned number; uint64_t wide; } value;
} FieldValue;

typedef struct {
    Device *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} EventData;

static Device wholes[GPUS_MAX], slices[GPUS_MAX][SLICES];
static int told;

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static int number_of(const char *name, const char *otherwise)
{
    return atoi(setting(name, otherwise));
}

static int is_on(const char *mode)
{
    const char *when = getenv("FAKE_NVML_WHEN");
    if (strcmp(setting("FAKE_NVML_MODE", "healthy"), mode))
        return 0;
    return !when || !*when || !access(when, F_OK);
}

/* Whether the word of that number in a list is this one. */
static int is_word(const char *list, int number, const char *word)
{
    while (number-- > 0 && list)
        list = (list = strchr(list, ',')) ? list + 1 : NULL;
    size_t length = strlen(word);
    return list && !strncmp(list, word, length) && (!list[length] || list[length] == ',');
}

static int hits(const char *mode, const Device *device)
{
    const char *each = getenv("FAKE_NVML_EACH");
    if (each && *each)
        return is_word(each, device->number, mode);
    return is_on(mode) && device->number == number_of("FAKE_NVML_GPU", "1");
}

static void hang(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (;;)
        pause();
}

/* What every question about a GPU meets first. */
static int gate(const Device *device)
{
    if (hits("hang", device))
        hang();
    if (hits("die", device))
        abort();
    if (hits("lost", device))
        return LOST;
    if (hits("reset", device))
        return RESET_REQUIRED;
    if (hits("unknown", device))
        return UNKNOWN;
    return OK;
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    if (is_on("hang_start"))
        hang();
    if (is_on("init"))
        return number_of("FAKE_NVML_CODE", "9");
    for (int i = 0; i < GPUS_MAX; i++) {
        wholes[i] = (Device){i, -1};
        for (int s = 0; s < SLICES; s++)
            slices[i][s] = (Device){i, s};
    }
    return OK;
}

int nvmlShutdown(void) { return OK; }

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = number_of("FAKE_NVML_GPUS", "2");
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device)
{
    if (index >= GPUS_MAX)
        return INVALID_ARGUMENT;
    *device = &wholes[index];
    return OK;
}

int nvmlDeviceGetUUID(Device *device, char *text, unsigned size)
{
    if (device->slice >= 0)
        snprintf(text, size, "MIG-%d%d000000-aaaa-bbbb-cccc-0123456789ab",
                 device->number, device->slice);
    else
        snprintf(text, size, "GPU-%d0000000-aaaa-bbbb-cccc-0123456789ab",
                 device->number);
    return OK;
}

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *info)
{
    memset(info, 0, sizeof *info);
    info->bus = 0x1b + 16 * device->number;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return OK;
}

/* Minors are not numbers of NVML: they count the other way round here. */
int nvmlDeviceGetMinorNumber(Device *device, unsigned *minor)
{
    *minor = number_of("FAKE_NVML_GPUS", "2") - 1 - device->number;
    return OK;
}

int nvmlDeviceGetSerial(Device *device, char *text, unsigned size)
{
    snprintf(text, size, "13200%d", device->number);
    return OK;
}

int nvmlDeviceGetName(Device *device, char *text, unsigned size)
{
    (void)device;
    snprintf(text, size, "Fake H100 80GB");
    return OK;
}

int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter,
                                unsigned long long *count)
{
    int result = gate(device);
    *count = 2 * (counter == 1) + (type == 1 && hits("ecc", device));
    return result;
}

int nvmlDeviceGetRetiredPages(Device *device, int cause, unsigned *count,
                              unsigned long long *pages)
{
    (void)device, (void)cause, (void)count, (void)pages;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *active)
{
    *active = !(link && hits("links", device));
    return link < 2 ? gate(device) : INVALID_ARGUMENT;
}

int nvmlDeviceGetNvLinkErrorCounter(Device *device, unsigned link, int counter,
                                    unsigned long long *count)
{
    *count = counter == 2 && link == 0 && hits("ecc", device) ? 17 : 0;
    return gate(device);
}

int nvmlDeviceGetCurrPcieLinkWidth(Device *device, unsigned *width)
{
    *width = hits("narrow", device) ? 4 : 16;
    return gate(device);
}

int nvmlDeviceGetMaxPcieLinkWidth(Device *device, unsigned *width)
{
    *width = 16;
    return gate(device);
}

int nvmlDeviceGetUtilizationRates(Device *device, unsigned *percent)
{
    percent[0] = hits("spin", device) ? 100 : 0;
    percent[1] = 0;
    return gate(device);
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts)
{
    *milliwatts = hits("spin", device) ? 118400 : 70000;
    return gate(device);
}

int nvmlDeviceGetPerformanceState(Device *device, int *level)
{
    *level = 0;
    return gate(device);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *bits)
{
    const char *seen = setting("FAKE_NVML_SEEN", "");
    if (*seen && device->number == number_of("FAKE_NVML_GPUS", "2") - 1)
        close(open(seen, O_CREAT | O_WRONLY, 0600));
    *bits = hits("ecc", device) ? 0x80 : 0x1;
    return gate(device);
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    snprintf(text, size, "%s", setting("FAKE_NVML_DRIVER", "570.86.15"));
    return OK;
}

int nvmlDeviceGetPersistenceMode(Device *device, unsigned *mode)
{
    *mode = number_of("FAKE_NVML_PERSISTENCE", "1");
    return gate(device);
}

int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long *sizes)
{
    unsigned long long gib = 1ULL << 30;
    sizes[0] = 80 * gib;
    sizes[2] = hits("busy", device) || hits("leak", device) ? 40 * gib : gib / 2;
    sizes[1] = sizes[0] - sizes[2];
    return gate(device);
}

#ifndef OLD_DRIVER

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} Process;

typedef struct {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
} Fabric;

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count,
                                            Process *processes)
{
    int result = gate(device), there = hits("busy", device);
    if (result || !there) {
        *count = 0;
        return result;
    }
    if (!processes) {
        *count = 1;
        return INSUFFICIENT_SIZE;
    }
    *count = 1;
    memset(processes, 0, sizeof *processes);
    processes->pid = number_of("FAKE_NVML_PID", "1");
    processes->used = 39ULL << 30;
    return OK;
}

int nvmlDeviceGetGpuFabricInfo(Device *device, Fabric *fabric)
{
    memset(fabric, 0, sizeof *fabric);
    fabric->state = hits("fabric", device) ? 2 : 3;
    return gate(device);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 12080;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count)
{
    (void)device;
    *count = number_of("FAKE_NVML_MIG", "0") ? SLICES + 1 : 0;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice)
{
    if (index >= SLICES)
        return NOT_FOUND;
    *slice = &slices[device->number][index];
    return OK;
}

int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *number)
{
    *number = 7 + device->slice;
    return OK;
}

int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *number)
{
    (void)device;
    *number = 0;
    return OK;
}

int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failure)
{
    *corrected = *uncorrected = 0;
    *pending = hits("pending", device);
    *failure = hits("remap", device);
    return number_of("FAKE_NVML_MIG", "0") ? NOT_SUPPORTED : gate(device);
}

int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values)
{
    for (int i = 0; i < count; i++) {
        values[i].result = values[i].field == FIELD_RECOVERY ? OK : NOT_SUPPORTED;
        values[i].value.wide = hits("recovery", device);
    }
    return gate(device);
}

int nvmlEventSetCreate(int **set)
{
    *set = &told;
    return OK;
}

int nvmlDeviceGetSupportedEventTypes(Device *device, unsigned long long *types)
{
    (void)device;
    *types = XID_EVENT;
    return OK;
}

int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, int *set)
{
    (void)device, (void)set;
    return types & ~(unsigned long long)XID_EVENT ? INVALID_ARGUMENT : OK;
}

int nvmlEventSetWait_v2(int *set, EventData *data, unsigned timeout_ms)
{
    unsigned nap_ms = strcmp(setting("FAKE_NVML_MODE", ""), "xid") ? timeout_ms : 20;
    for (unsigned waited = 0; waited < timeout_ms; waited += nap_ms) {
        if (is_on("xid") && !*set) {
            *set = 1;
            memset(data, 0xff, sizeof *data);
            data->device = &wholes[number_of("FAKE_NVML_GPU", "1")];
            data->type = XID_EVENT;
            data->data = number_of("FAKE_NVML_XID", "79");
            return OK;
        }
        usleep(1000 * nap_ms);
    }
    return TIMEOUT;
}

#endif
