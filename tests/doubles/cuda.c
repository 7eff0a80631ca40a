/* libcuda.so.1: the part of the CUDA driver API that lists devices. */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "visible.h"

/* Values of CUresult, CUDA driver API reference. */
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_UNKNOWN = 999,
};

typedef int CUresult;
typedef int CUdevice;
typedef struct {
    char bytes[16];
} CUuuid;

static const struct { CUresult code; const char *name, *text; } errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUresult state = CUDA_ERROR_NOT_INITIALIZED;
static struct host *host;
static struct device devices[MAX_DEVICES];
static int device_count;

/* The environment is read once, like the driver does: a later change has no effect. */
static void initialize(void)
{
    host = host_load();
    if (host == NULL) {
        state = CUDA_ERROR_UNKNOWN;
        return;
    }
    device_count = visible_devices(host, getenv("CUDA_VISIBLE_DEVICES"), getenv("CUDA_DEVICE_ORDER"), devices);
    state = device_count > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

static CUresult check_device(CUdevice device)
{
    if (state != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    return device >= 0 && device < device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* The sixteen octets of a UUID in its usual text form, after `GPU-` or `MIG-`. */
static void uuid_bytes(const char *text, CUuuid *out)
{
    memset(out, 0, sizeof *out);
    int digits = 0;
    for (const char *at = text + 4; *at != '\0' && digits < 32; at++) {
        int c = tolower((unsigned char)*at);
        if (!isxdigit(c))
            continue;
        int value = c <= '9' ? c - '0' : c - 'a' + 10;
        out->bytes[digits / 2] = (char)(out->bytes[digits / 2] << 4 | value);
        digits++;
    }
}

EXPORT CUresult cuInit(unsigned flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_once(&once, initialize);
    return state;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_once(&once, initialize);
    if (host == NULL)
        return CUDA_ERROR_UNKNOWN;
    *version = host_cuda_version(host);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    if (state != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = device_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = check_device(ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CUresult result = check_device(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (name == NULL || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    host_name(devices[device].gpu, devices[device].mig, name, (size_t)length);
    return CUDA_SUCCESS;
}

/* The GPU's UUID, for a MIG device too. */
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CUresult result = check_device(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (uuid == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    uuid_bytes(devices[device].gpu->uuid, uuid);
    return CUDA_SUCCESS;
}

/* The MIG device's own UUID, where it is one. */
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult result = cuDeviceGetUuid(uuid, device);
    if (result == CUDA_SUCCESS && devices[device].mig != NULL)
        uuid_bytes(devices[device].mig->uuid, uuid);
    return result;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *address, int length, CUdevice device)
{
    CUresult result = check_device(device);
    if (result != CUDA_SUCCESS)
        return result;
    /* Thirteen characters with the final zero, says the reference. */
    if (address == NULL || length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    const struct gpu *gpu = devices[device].gpu;
    snprintf(address, (size_t)length, "%04x:%02x:%02x.0", gpu->domain, gpu->bus, gpu->slot);
    return CUDA_SUCCESS;
}

static CUresult describe(CUresult error, const char **out, bool name)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error)
            *out = name ? errors[i].name : errors[i].text;
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name)
{
    return describe(error, name, true);
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
    return describe(error, text, false);
}
