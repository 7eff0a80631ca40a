#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "json.h"

#define INVENTORY "/usr/share/gpu-double/inventory.json"
/* Documentation/admin-guide/devices.txt of the kernel: 195 char is NVIDIA's. */
#define NVIDIA_MAJOR 195
/* What an inventory without driverVersion counts as: the rules of the drivers before R570. */
#define DRIVER_VERSION "550.54.15"

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return NULL;
    char *text = NULL;
    size_t length = 0, size = 0;
    do {
        if (length + 4096 + 1 > size) {
            size = 2 * size + 8192;
            char *larger = realloc(text, size);
            if (larger == NULL) {
                free(text);
                fclose(file);
                return NULL;
            }
            text = larger;
        }
        length += fread(text + length, 1, 4096, file);
    } while (!feof(file) && !ferror(file));
    bool failed = ferror(file) != 0;
    fclose(file);
    text[length] = '\0';
    if (failed) {
        free(text);
        return NULL;
    }
    return text;
}

/*
 * Whether the node is the device that it claims to be, and the kernel lets this process open it.
 * Nothing drives major 195 on a test machine: an open that passes every permission check ends with ENXIO.
 */
static bool can_open(const char *path, unsigned major_number, unsigned minor_number)
{
    struct stat node;
    if (stat(path, &node) != 0 || !S_ISCHR(node.st_mode))
        return false;
    if (major(node.st_rdev) != major_number || minor(node.st_rdev) != minor_number)
        return false;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        return close(fd), true;
    return errno == ENXIO || errno == ENODEV || errno == EIO;
}

/* Whether tests asked to be shown every GPU, whatever the nodes. */
static bool nodes_ignored(void)
{
    const char *value = getenv("GPU_DOUBLE_NO_NODES");
    return value != NULL && strcmp(value, "1") == 0;
}

/* `path` is below /dev; tests may keep their nodes elsewhere. */
static bool node_usable(const char *path, unsigned major_number, unsigned minor_number)
{
    char real[4096];
    const char *dev = getenv("GPU_DOUBLE_DEV");
    if (nodes_ignored())
        return true;
    if (strncmp(path, "/dev/", 5) == 0)
        path += 5;
    snprintf(real, sizeof real, "%s/%s", dev != NULL ? dev : "/dev", path);
    return can_open(real, major_number, minor_number);
}

static void copy_text(char *out, const char *text)
{
    snprintf(out, TEXT_SIZE, "%s", text);
}

/* A MIG device needs its capability nodes as well as its parent's node, where the inventory knows them. */
static bool mig_usable(const struct json *entry)
{
    const struct json *nodes = json_get(entry, "capabilityNodes");
    for (const struct json *node = nodes != NULL ? nodes->child : NULL; node != NULL; node = node->next) {
        const struct json *number = json_get(node, "number");
        if (!node_usable(json_text(node, "path", ""), json_number(number, "major", 0), json_number(number, "minor", 0)))
            return false;
    }
    return true;
}

static int by_instance(const void *left, const void *right)
{
    const struct mig *a = left, *b = right;
    if (a->gi != b->gi)
        return a->gi < b->gi ? -1 : 1;
    return (a->ci > b->ci) - (a->ci < b->ci);
}

static bool read_migs(struct gpu *gpu, const struct json *list)
{
    const struct json *entry = list != NULL ? list->child : NULL;
    if (entry == NULL)
        return true;
    gpu->mig_enabled = true;
    unsigned position = 0;
    gpu->mig = calloc(MAX_MIGS, sizeof *gpu->mig);
    if (gpu->mig == NULL)
        return false;
    for (; entry != NULL; entry = entry->next, position++) {
        if (!mig_usable(entry))
            continue;
        if (gpu->mig_count == MAX_MIGS)
            return false;
        struct mig *mig = &gpu->mig[gpu->mig_count++];
        mig->index = json_number(entry, "index", position);
        mig->gi = json_number(entry, "gi", 0);
        mig->ci = json_number(entry, "ci", 0);
        copy_text(mig->uuid, json_text(entry, "uuid", ""));
        copy_text(mig->profile, json_text(entry, "profile", ""));
    }
    qsort(gpu->mig, (size_t)gpu->mig_count, sizeof *gpu->mig, by_instance);
    return true;
}

static bool read_gpu(struct gpu *gpu, const struct json *entry)
{
    gpu->index = json_number(entry, "index", 0);
    gpu->minor = json_number(entry, "minor", 0);
    gpu->multiprocessors = json_number(entry, "multiprocessors", 0);
    gpu->mig_enabled = json_true(entry, "migEnabled");
    copy_text(gpu->uuid, json_text(entry, "uuid", ""));
    copy_text(gpu->name, json_text(entry, "name", ""));
    const char *address = json_text(entry, "pciBusId", NULL);
    /* Hand-made inventories may leave the address out; their index gives the order. */
    if (address == NULL)
        gpu->bus = gpu->index + 1;
    else if (sscanf(address, "%x:%x:%x.", &gpu->domain, &gpu->bus, &gpu->slot) != 3)
        return false;
    return strncmp(gpu->uuid, "GPU-", 4) == 0 && read_migs(gpu, json_get(entry, "mig"));
}

static int by_address(const void *left, const void *right)
{
    const struct gpu *a = left, *b = right;
    if (a->domain != b->domain)
        return a->domain < b->domain ? -1 : 1;
    if (a->bus != b->bus)
        return a->bus < b->bus ? -1 : 1;
    return (a->slot > b->slot) - (a->slot < b->slot);
}

static bool read_host(struct host *host, const struct json *document)
{
    const struct json *list = json_get(document, "gpus");
    if (json_number(document, "schemaVersion", 0) != 1 || list == NULL || list->type != JSON_ARRAY)
        return false;
    copy_text(host->driver_version, json_text(document, "driverVersion", DRIVER_VERSION));
    host->driver_major = (unsigned)strtoul(host->driver_version, NULL, 10);
    for (const struct json *entry = list->child; entry != NULL; entry = entry->next) {
        char path[64];
        unsigned minor_number = json_number(entry, "minor", 0);
        snprintf(path, sizeof path, "/dev/nvidia%u", minor_number);
        if (!node_usable(path, NVIDIA_MAJOR, minor_number))
            continue;
        if (host->gpu_count == MAX_GPUS || !read_gpu(&host->gpu[host->gpu_count++], entry))
            return false;
    }
    qsort(host->gpu, (size_t)host->gpu_count, sizeof *host->gpu, by_address);
    for (int i = 0; i < host->gpu_count; i++)
        for (int j = 0; j < host->gpu[i].mig_count; j++)
            host->gpu[i].mig[j].gpu = &host->gpu[i];
    return true;
}

struct host *host_load(void)
{
    const char *path = getenv("GPU_DOUBLE_INVENTORY");
    if (path == NULL)
        path = INVENTORY;
    char *text = read_file(path);
    if (text == NULL) {
        fprintf(stderr, "gpu double: failed to read inventory \"%s\": %s\n", path, strerror(errno));
        return NULL;
    }
    struct json *document = json_parse(text);
    struct host *host = calloc(1, sizeof *host);
    if (document == NULL || host == NULL || !read_host(host, document)) {
        fprintf(stderr, "gpu double: not an inventory: \"%s\"\n", path);
        host_free(host);
        host = NULL;
    }
    json_free(document);
    free(text);
    return host;
}

void host_free(struct host *host)
{
    if (host == NULL)
        return;
    for (int i = 0; i < host->gpu_count; i++)
        free(host->gpu[i].mig);
    free(host);
}

int host_cuda_version(const struct host *host)
{
    /* CUDA Toolkit release notes, table of driver branches. */
    static const struct { unsigned driver; int cuda; } table[] = {
        {580, 13000}, {575, 12090}, {570, 12080}, {560, 12060}, {555, 12050}, {550, 12040}, {545, 12030},
        {535, 12020}, {530, 12010}, {525, 12000}, {520, 11080}, {515, 11070}, {510, 11060}, {495, 11050}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (host->driver_major >= table[i].driver)
            return table[i].cuda;
    return 11040;
}

void host_name(const struct gpu *gpu, const struct mig *mig, char *out, size_t size)
{
    if (mig == NULL)
        snprintf(out, size, "%s", gpu->name);
    else
        snprintf(out, size, "%s MIG %s", gpu->name, mig->profile);
}
