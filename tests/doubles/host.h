/* What both doubles know of the simulated host: its inventory, cut down to what this process can open. */
#ifndef DOUBLES_HOST_H
#define DOUBLES_HOST_H

#include <stdbool.h>
#include <stddef.h>

#define MAX_GPUS 64
#define MAX_MIGS 64 /* compute instances of one GPU */
#define TEXT_SIZE 96

/* Only these symbols leave a library; the shared sources stay private to each. */
#define EXPORT __attribute__((visibility("default")))

struct gpu;

struct mig {
    struct gpu *gpu;
    unsigned gi, ci;
    unsigned index; /* NVML's, which may have gaps */
    char uuid[TEXT_SIZE];
    char profile[TEXT_SIZE];
};

struct gpu {
    unsigned index, minor, multiprocessors;
    unsigned domain, bus, slot;
    bool mig_enabled; /* the inventory says so, or it has MIG devices, openable or not */
    char uuid[TEXT_SIZE];
    char name[TEXT_SIZE];
    int mig_count;
    struct mig *mig; /* the openable ones, by GPU instance, then compute instance */
};

struct host {
    char driver_version[TEXT_SIZE];
    unsigned driver_major;
    int gpu_count;
    struct gpu gpu[MAX_GPUS]; /* the openable ones, in PCI order */
};

/* Reads the inventory and tries the nodes. NULL, with a line on stderr, where there is no usable inventory. */
struct host *host_load(void);
void host_free(struct host *host);

/* CUDA's version number (1000 * major + 10 * minor) for the host's driver. */
int host_cuda_version(const struct host *host);
/* The product name; for a MIG device with its profile, as the driver prints it. */
void host_name(const struct gpu *gpu, const struct mig *mig, char *out, size_t size);

#endif
