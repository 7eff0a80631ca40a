/* libnvidia-ml.so.1: the part of NVML that lists GPUs and their MIG devices. It knows no CUDA_VISIBLE_DEVICES. */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "json.h"

/* Values of nvmlReturn_t, NVML reference. */
enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_UNKNOWN = 999,
};

typedef int nvmlReturn_t;

/* A handle is a pointer to one of these; programs do not look inside. */
struct nvmlDevice_st {
    const struct gpu *gpu;
    const struct mig *mig; /* NULL for a whole GPU */
};
typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users;
static struct host *host;
static struct nvmlDevice_st gpu_handle[MAX_GPUS];
static struct nvmlDevice_st mig_handle[MAX_GPUS][MAX_MIGS];

static nvmlReturn_t start(void)
{
    host = host_load();
    if (host == NULL)
        return NVML_ERROR_UNKNOWN;
    for (int i = 0; i < host->gpu_count; i++) {
        gpu_handle[i] = (struct nvmlDevice_st){&host->gpu[i], NULL};
        for (int j = 0; j < host->gpu[i].mig_count; j++)
            mig_handle[i][j] = (struct nvmlDevice_st){&host->gpu[i], &host->gpu[i].mig[j]};
    }
    return NVML_SUCCESS;
}

/* Without an openable GPU it still succeeds, with a count of zero, as `nvidia-smi` shows in such a container. */
EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = users > 0 ? NVML_SUCCESS : start();
    users += result == NVML_SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&lock);
    if (users == 0) {
        result = NVML_ERROR_UNINITIALIZED;
    } else if (--users == 0) {
        host_free(host);
        host = NULL;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    default: return "Unknown Error";
    }
}

static nvmlReturn_t check(const void *argument)
{
    if (host == NULL)
        return NVML_ERROR_UNINITIALIZED;
    return argument != NULL ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* Both arguments of a question about a device. */
static nvmlReturn_t check_device(nvmlDevice_t device, const void *out)
{
    nvmlReturn_t result = check(device);
    return result != NVML_SUCCESS ? result : check(out);
}

static nvmlReturn_t give_text(const char *text, char *out, unsigned length)
{
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    nvmlReturn_t result = check(version);
    return result != NVML_SUCCESS ? result : give_text(host->driver_version, version, length);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    char text[TEXT_SIZE + 8];
    nvmlReturn_t result = check(version);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(text, sizeof text, "12.%s", host->driver_version);
    return give_text(text, version, length);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    nvmlReturn_t result = check(version);
    if (result == NVML_SUCCESS)
        *version = host_cuda_version(host);
    return result;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    nvmlReturn_t result = check(count);
    if (result == NVML_SUCCESS)
        *count = (unsigned)host->gpu_count;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    nvmlReturn_t result = check(device);
    if (result != NVML_SUCCESS)
        return result;
    if (index >= (unsigned)host->gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    const char *lost = getenv("GPU_DOUBLE_LOST");
    if (lost != NULL && strtoul(lost, NULL, 10) == index)
        return NVML_ERROR_GPU_IS_LOST;
    *device = &gpu_handle[index];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    nvmlReturn_t result = check(uuid);
    if (result != NVML_SUCCESS || (result = check(device)) != NVML_SUCCESS)
        return result;
    for (int i = 0; i < host->gpu_count; i++) {
        if (strcmp(host->gpu[i].uuid, uuid) == 0)
            return *device = &gpu_handle[i], NVML_SUCCESS;
        for (int j = 0; j < host->gpu[i].mig_count; j++)
            if (strcmp(host->gpu[i].mig[j].uuid, uuid) == 0)
                return *device = &mig_handle[i][j], NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device)
{
    unsigned domain, bus, slot;
    nvmlReturn_t result = check(address);
    if (result != NVML_SUCCESS || (result = check(device)) != NVML_SUCCESS)
        return result;
    if (sscanf(address, "%x:%x:%x.", &domain, &bus, &slot) != 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < host->gpu_count; i++)
        if (host->gpu[i].domain == domain && host->gpu[i].bus == bus && host->gpu[i].slot == slot)
            return *device = &gpu_handle[i], NVML_SUCCESS;
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    nvmlReturn_t result = check_device(device, index);
    if (result == NVML_SUCCESS)
        *index = device->mig != NULL ? device->mig->index : (unsigned)(device->gpu - host->gpu);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    nvmlReturn_t result = check_device(device, uuid);
    if (result != NVML_SUCCESS)
        return result;
    return give_text(device->mig != NULL ? device->mig->uuid : device->gpu->uuid, uuid, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    char text[2 * TEXT_SIZE + 8];
    nvmlReturn_t result = check_device(device, name);
    if (result != NVML_SUCCESS)
        return result;
    host_name(device->gpu, device->mig, text, sizeof text);
    return give_text(text, name, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    nvmlReturn_t result = check_device(device, minor);
    if (result != NVML_SUCCESS)
        return result;
    if (device->mig != NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    *minor = device->gpu->minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlReturn_t result = check_device(device, pci);
    if (result != NVML_SUCCESS)
        return result;
    const struct gpu *gpu = device->gpu;
    memset(pci, 0, sizeof *pci);
    pci->domain = gpu->domain;
    pci->bus = gpu->bus;
    pci->device = gpu->slot;
    pci->pciDeviceId = 0x20B010DE; /* an A100's, whatever the model: nothing here depends on it */
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", gpu->domain & 0xFFFF, gpu->bus & 0xFF,
             gpu->slot & 0x1F);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", gpu->domain, gpu->bus, gpu->slot);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned *cores)
{
    nvmlReturn_t result = check_device(device, cores);
    if (result == NVML_SUCCESS)
        *cores = device->gpu->multiprocessors * 64;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    unsigned slices = 0, compute = 0;
    nvmlReturn_t result = check_device(device, attributes);
    if (result != NVML_SUCCESS)
        return result;
    /* Only MIG devices have attributes (NVML reference). */
    if (device->mig == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    const char *profile = device->mig->profile;
    /* `1c.3g.40gb` is one compute slice of a GPU instance of three; `3g.40gb` has all three. */
    if (sscanf(profile, "%uc.%ug.%llug", &compute, &slices, &attributes->memorySizeMB) < 3) {
        sscanf(profile, "%ug.%llug", &slices, &attributes->memorySizeMB);
        compute = slices;
    }
    attributes->memorySizeMB *= 1024;
    attributes->gpuInstanceSliceCount = slices;
    attributes->computeInstanceSliceCount = compute;
    attributes->multiprocessorCount = device->gpu->multiprocessors * compute / 8;
    return NVML_SUCCESS;
}

/* Models that can do MIG; the others answer "not supported" to questions about it. */
static bool mig_capable(const struct gpu *gpu)
{
    static const char *const models[] = {"A30", "A100", "H100", "H200", "H20", "B200", "GH200", "GB200"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const char *found = strstr(gpu->name, models[i]);
        /* Not part of a longer number, such as A3000. */
        if (found != NULL && !isdigit((unsigned char)found[strlen(models[i])]))
            return true;
    }
    return gpu->mig_enabled;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    nvmlReturn_t result = check_device(device, current);
    if (result != NVML_SUCCESS || (result = check(pending)) != NVML_SUCCESS)
        return result;
    if (device->mig != NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!mig_capable(device->gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = device->gpu->mig_enabled;
    return NVML_SUCCESS;
}

/* Zero where MIG is off or unknown to the model. */
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    nvmlReturn_t result = check_device(device, count);
    if (result != NVML_SUCCESS)
        return result;
    if (device->mig != NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    /* How many there can be: seven on every model so far. */
    unsigned most = 7;
    for (int j = 0; j < device->gpu->mig_count; j++)
        if (device->gpu->mig[j].index >= most)
            most = device->gpu->mig[j].index + 1;
    *count = device->gpu->mig_enabled ? most : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *out)
{
    nvmlReturn_t result = check_device(device, out);
    if (result != NVML_SUCCESS)
        return result;
    if (device->mig != NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int j = 0; j < device->gpu->mig_count; j++)
        if (device->gpu->mig[j].index == index)
            return *out = &mig_handle[device->gpu - host->gpu][j], NVML_SUCCESS;
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *answer)
{
    nvmlReturn_t result = check_device(device, answer);
    if (result == NVML_SUCCESS)
        *answer = device->mig != NULL;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent)
{
    nvmlReturn_t result = check_device(device, parent);
    if (result != NVML_SUCCESS)
        return result;
    if (device->mig == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *parent = &gpu_handle[device->gpu - host->gpu];
    return NVML_SUCCESS;
}

static nvmlReturn_t instance(nvmlDevice_t device, unsigned *out, bool compute)
{
    nvmlReturn_t result = check_device(device, out);
    if (result != NVML_SUCCESS)
        return result;
    if (device->mig == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = compute ? device->mig->ci : device->mig->gi;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id)
{
    return instance(device, id, false);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id)
{
    return instance(device, id, true);
}

/* --- use: what the file that GPU_DOUBLE_USAGE names says, by UUID --- */

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

/* The document, to be released; NULL where there is none. */
static struct json *usage(void)
{
    const char *path = getenv("GPU_DOUBLE_USAGE");
    FILE *file = path != NULL ? fopen(path, "r") : NULL;
    if (file == NULL)
        return NULL;
    static char text[1 << 16];
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    return json_parse(text);
}

static const char *uuid_of(nvmlDevice_t device)
{
    return device->mig != NULL ? device->mig->uuid : device->gpu->uuid;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlReturn_t result = check_device(device, memory);
    if (result != NVML_SUCCESS)
        return result;
    struct json *document = usage();
    const struct json *own = document != NULL ? json_get(document, uuid_of(device)) : NULL;
    if (own == NULL) {
        json_free(document);
        return NVML_ERROR_NOT_SUPPORTED;
    }
    memory->used = (unsigned long long)json_number(own, "usedGiB", 0) << 30;
    memory->total = (unsigned long long)json_number(own, "totalGiB", 0) << 30;
    memory->reserved = 0;
    memory->free = memory->total - memory->used;
    json_free(document);
    return NVML_SUCCESS;
}

/* With too little room the number that there are, as NVML does. Processes of MIG devices are told of the whole GPU. */
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *processes)
{
    nvmlReturn_t result = check_device(device, count);
    if (result != NVML_SUCCESS)
        return result;
    struct json *document = usage();
    const struct json *own = document != NULL ? json_get(document, uuid_of(device)) : NULL;
    const struct json *list = own != NULL ? json_get(own, "processes") : NULL;
    unsigned there = 0;
    for (const struct json *one = list != NULL ? list->child : NULL; one != NULL; one = one->next) {
        if (processes != NULL && there < *count)
            processes[there] = (nvmlProcessInfo_t){json_number(one, "pid", 0), 0, json_number(one, "gi", ~0u),
                                                   json_number(one, "ci", ~0u)};
        there++;
    }
    bool fits = there <= *count;
    *count = there;
    json_free(document);
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                             nvmlProcessInfo_t *processes)
{
    (void)processes;
    nvmlReturn_t result = check_device(device, count);
    if (result == NVML_SUCCESS)
        *count = 0;
    return result;
}
