/*
 * Written from a description of CUDA's behaviour, on purpose without a look at the product's own parser:
 * the two check each other.
 */
#include "visible.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From this driver on, one process can use several GPU instances, beside whole GPUs (MIG User Guide). */
#define MANY_INSTANCES_DRIVER 570

struct list {
    int count;
    struct device device[MAX_DEVICES];
};

enum kind { NO_KIND, INTEGER, UUID };

static void append(struct list *list, const struct gpu *gpu, const struct mig *mig)
{
    if (list->count < MAX_DEVICES)
        list->device[list->count++] = (struct device){gpu, mig};
}

static bool same(struct device a, struct device b)
{
    return a.gpu == b.gpu && a.mig == b.mig;
}

static bool many_instances(const struct host *host)
{
    return host->driver_major >= MANY_INSTANCES_DRIVER;
}

/* FASTEST_FIRST, the default: a stable sort by multiprocessors explains every report that we know. */
static void order_gpus(const struct host *host, const char *order, const struct gpu *out[MAX_GPUS])
{
    bool by_speed = order == NULL || strcmp(order, "PCI_BUS_ID") != 0;
    for (int i = 0; i < host->gpu_count; i++) {
        int at = i;
        for (; by_speed && at > 0 && out[at - 1]->multiprocessors < host->gpu[i].multiprocessors; at--)
            out[at] = out[at - 1];
        out[at] = &host->gpu[i];
    }
}

/*
 * What integers index: whole GPUs first, then the GPUs in MIG mode.
 * One of those counts as its first MIG device; from R570 on, as the first compute instance of each GPU instance.
 */
static void index_space(const struct host *host, const char *order, struct list *out)
{
    const struct gpu *gpus[MAX_GPUS];
    order_gpus(host, order, gpus);
    for (int i = 0; i < host->gpu_count; i++)
        if (!gpus[i]->mig_enabled)
            append(out, gpus[i], NULL);
    for (int i = 0; i < host->gpu_count; i++) {
        int limit = many_instances(host) ? gpus[i]->mig_count : gpus[i]->mig_count > 0;
        for (int j = 0; j < limit; j++)
            if (j == 0 || gpus[i]->mig[j].gi != gpus[i]->mig[j - 1].gi)
                append(out, gpus[i], &gpus[i]->mig[j]);
    }
}

/* The GPU whose UUID starts so, if it is exactly one. */
static const struct gpu *find_gpu(const struct host *host, const char *prefix, size_t length)
{
    const struct gpu *found = NULL;
    for (int i = 0; i < host->gpu_count; i++) {
        if (strncmp(host->gpu[i].uuid, prefix, length) != 0)
            continue;
        if (found != NULL)
            return NULL;
        found = &host->gpu[i];
    }
    return found;
}

/* `MIG-GPU-<uuid>/<gi>/<ci>`, the name before R470. */
static const struct mig *find_legacy_mig(const struct host *host, const char *entry, size_t length)
{
    const char *name = entry + strlen("MIG-");
    const char *slash = memchr(entry, '/', length);
    unsigned gi, ci;
    if (slash == NULL || sscanf(slash, "/%u/%u", &gi, &ci) != 2)
        return NULL;
    const struct gpu *gpu = find_gpu(host, name, (size_t)(slash - name));
    for (int j = 0; gpu != NULL && j < gpu->mig_count; j++)
        if (gpu->mig[j].gi == gi && gpu->mig[j].ci == ci)
            return &gpu->mig[j];
    return NULL;
}

static const struct mig *find_mig(const struct host *host, const char *entry, size_t length)
{
    const struct mig *found = NULL;
    for (int i = 0; i < host->gpu_count; i++)
        for (int j = 0; j < host->gpu[i].mig_count; j++) {
            if (strncmp(host->gpu[i].mig[j].uuid, entry, length) != 0)
                continue;
            if (found != NULL)
                return NULL;
            found = &host->gpu[i].mig[j];
        }
    return found;
}

static bool starts_with(const char *entry, size_t length, const char *word)
{
    return length >= strlen(word) && strncmp(entry, word, strlen(word)) == 0;
}

static bool resolve_uuid(const struct host *host, const char *entry, size_t length, struct device *out)
{
    if (starts_with(entry, length, "GPU-")) {
        const struct gpu *gpu = find_gpu(host, entry, length);
        if (gpu == NULL || (gpu->mig_enabled && gpu->mig_count == 0))
            return false;
        /* The UUID of a GPU in MIG mode stands for its first MIG device. */
        *out = (struct device){gpu, gpu->mig_enabled ? &gpu->mig[0] : NULL};
        return true;
    }
    const struct mig *mig = starts_with(entry, length, "MIG-GPU-") ? find_legacy_mig(host, entry, length)
                                                                     : find_mig(host, entry, length);
    if (mig == NULL)
        return false;
    *out = (struct device){mig->gpu, mig};
    return true;
}

/* White space and a sign before, anything after: strtol's own habits. A comma ends it, being neither. */
static bool resolve_integer(const struct list *space, const char *entry, struct device *out)
{
    char *end;
    long value = strtol(entry, &end, 10);
    if (end == entry || value < 0 || value >= space->count)
        return false;
    *out = space->device[value];
    return true;
}

/* The entries up to the first that is invalid; none at all where one device is named twice among them. */
static void select_entries(const struct host *host, const struct list *space, const char *value, struct list *out)
{
    enum kind head = NO_KIND;
    for (const char *entry = value;; entry++) {
        size_t length = strcspn(entry, ",");
        bool uuid = starts_with(entry, length, "GPU-") || starts_with(entry, length, "MIG-");
        enum kind kind = uuid ? UUID : INTEGER;
        struct device device;
        if (head != NO_KIND && kind != head)
            break;
        head = kind;
        if (!(uuid ? resolve_uuid(host, entry, length, &device) : resolve_integer(space, entry, &device)))
            break;
        for (int i = 0; i < out->count; i++)
            if (same(out->device[i], device)) {
                out->count = 0;
                return;
            }
        append(out, device.gpu, device.mig);
        entry += length;
        if (*entry == '\0')
            break;
    }
}

/* Before R570: one MIG device a process, and no whole GPU beside it. */
static void keep_one_instance(struct list *list)
{
    for (int i = 0; i < list->count; i++)
        if (list->device[i].mig != NULL) {
            list->device[0] = list->device[i];
            list->count = 1;
            return;
        }
}

/* From R570 on: one compute instance of each GPU instance. */
static void keep_one_of_each_instance(struct list *list)
{
    int kept = 0;
    for (int i = 0; i < list->count; i++) {
        struct device device = list->device[i];
        bool taken = false;
        for (int j = 0; j < kept && device.mig != NULL; j++) {
            const struct mig *other = list->device[j].mig;
            taken = taken || (other != NULL && other->gpu == device.gpu && other->gi == device.mig->gi);
        }
        if (!taken)
            list->device[kept++] = device;
    }
    list->count = kept;
}

int visible_devices(const struct host *host, const char *value, const char *order, struct device out[MAX_DEVICES])
{
    struct list space = {0}, chosen = {0};
    index_space(host, order, &space);
    if (value == NULL)
        chosen = space;
    else
        select_entries(host, &space, value, &chosen);
    if (many_instances(host))
        keep_one_of_each_instance(&chosen);
    else
        keep_one_instance(&chosen);
    memcpy(out, chosen.device, (size_t)chosen.count * sizeof *out);
    return chosen.count;
}
