/* CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, by CUDA's documented and observed rules. */
#ifndef DOUBLES_VISIBLE_H
#define DOUBLES_VISIBLE_H

#include "host.h"

/* Most devices a process can see: 64 (MIG User Guide, R570 and later). */
#define MAX_DEVICES 64

struct device {
    const struct gpu *gpu;
    const struct mig *mig; /* NULL for a whole GPU */
};

/* Fills `out` with what CUDA enumerates, in order, and returns how many. `value` and `order` may be NULL: unset. */
int visible_devices(const struct host *host, const char *value, const char *order, struct device out[MAX_DEVICES]);

#endif
