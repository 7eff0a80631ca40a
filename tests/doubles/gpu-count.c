/*
 * Lists the GPUs that this process sees, as any program would: through libcuda.so.1 and libnvidia-ml.so.1 by soname.
 * It runs against the doubles and against the real libraries alike.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MAX_ROWS 256
#define CUDA_SUCCESS 0
#define NVML_SUCCESS 0

struct row {
    char uuid[96];
    char name[128];
    unsigned minor;
};

struct listing {
    int error;
    char error_name[64];
    int count;
    struct row row[MAX_ROWS];
};

typedef void *device_handle;

/* A function of a library; without it the program cannot do its work. */
static void *function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "gpu-count: failed to find %s: %s\n", name, dlerror());
        exit(1);
    }
    return found;
}

/* dlsym gives an object pointer; POSIX lets it be stored as a function pointer this way. */
#define LOAD(library, pointer, name) (*(void **)&(pointer) = function((library), (name)))

static void *open_library(const char *soname)
{
    void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "gpu-count: failed to load %s: %s\n", soname, dlerror());
        exit(1);
    }
    return library;
}

static void format_uuid(char *out, size_t size, const char *kind, const unsigned char *b)
{
    snprintf(out, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", kind, b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static void list_cuda(struct listing *out)
{
    int (*init)(unsigned), (*count)(int *), (*get)(int *, int), (*name)(char *, int, int);
    int (*gpu_uuid)(unsigned char *, int), (*own_uuid)(unsigned char *, int), (*error_name)(int, const char **);
    void *library = open_library("libcuda.so.1");
    LOAD(library, init, "cuInit");
    LOAD(library, count, "cuDeviceGetCount");
    LOAD(library, get, "cuDeviceGet");
    LOAD(library, name, "cuDeviceGetName");
    LOAD(library, gpu_uuid, "cuDeviceGetUuid");
    LOAD(library, own_uuid, "cuDeviceGetUuid_v2");
    LOAD(library, error_name, "cuGetErrorName");

    out->error = init(0);
    if (out->error == CUDA_SUCCESS)
        out->error = count(&out->count);
    for (int i = 0; i < out->count && i < MAX_ROWS && out->error == CUDA_SUCCESS; i++) {
        int device;
        unsigned char gpu[16], own[16];
        if ((out->error = get(&device, i)) != CUDA_SUCCESS || (out->error = gpu_uuid(gpu, device)) != CUDA_SUCCESS ||
            (out->error = own_uuid(own, device)) != CUDA_SUCCESS ||
            (out->error = name(out->row[i].name, sizeof out->row[i].name, device)) != CUDA_SUCCESS)
            break;
        /* Only a MIG device has a UUID that is not its GPU's. */
        format_uuid(out->row[i].uuid, sizeof out->row[i].uuid, memcmp(gpu, own, 16) == 0 ? "GPU" : "MIG", own);
    }
    const char *text = "?";
    error_name(out->error, &text);
    snprintf(out->error_name, sizeof out->error_name, "%s", text != NULL ? text : "?");
}

static void list_nvml(struct listing *out)
{
    int (*init)(void), (*shutdown)(void), (*count)(unsigned *), (*get)(unsigned, device_handle *);
    int (*uuid)(device_handle, char *, unsigned), (*name)(device_handle, char *, unsigned);
    int (*minor_number)(device_handle, unsigned *);
    const char *(*error_string)(int);
    void *library = open_library("libnvidia-ml.so.1");
    LOAD(library, init, "nvmlInit_v2");
    LOAD(library, shutdown, "nvmlShutdown");
    LOAD(library, count, "nvmlDeviceGetCount_v2");
    LOAD(library, get, "nvmlDeviceGetHandleByIndex_v2");
    LOAD(library, uuid, "nvmlDeviceGetUUID");
    LOAD(library, name, "nvmlDeviceGetName");
    LOAD(library, minor_number, "nvmlDeviceGetMinorNumber");
    LOAD(library, error_string, "nvmlErrorString");

    unsigned total = 0;
    out->error = init();
    bool started = out->error == NVML_SUCCESS;
    if (started)
        out->error = count(&total);
    out->count = (int)total;
    for (unsigned i = 0; i < total && i < MAX_ROWS && out->error == NVML_SUCCESS; i++) {
        device_handle device;
        struct row *row = &out->row[i];
        if ((out->error = get(i, &device)) != NVML_SUCCESS ||
            (out->error = uuid(device, row->uuid, sizeof row->uuid)) != NVML_SUCCESS ||
            (out->error = name(device, row->name, sizeof row->name)) != NVML_SUCCESS ||
            (out->error = minor_number(device, &row->minor)) != NVML_SUCCESS)
            break;
    }
    snprintf(out->error_name, sizeof out->error_name, "%s", error_string(out->error));
    if (started)
        shutdown();
}

static void print_text(const char *library, const struct listing *list)
{
    if (list->count == 0 || list->error != 0)
        printf("%s none %d %s\n", library, list->error, list->error_name);
    for (int i = 0; i < list->count && list->error == 0; i++)
        printf("%s %d %s %s\n", library, i, list->row[i].uuid, list->row[i].name);
}

static void print_string(const char *text)
{
    if (text == NULL) {
        fputs("null", stdout);
        return;
    }
    putchar('"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void print_list(const char *library, const struct listing *list, bool minors)
{
    printf("\"%s\":{\"error\":%d,\"devices\":[", library, list->error);
    for (int i = 0; i < list->count && list->error == 0; i++) {
        printf("%s{\"%s\":%d,\"uuid\":", i > 0 ? "," : "", minors ? "index" : "ordinal", i);
        print_string(list->row[i].uuid);
        fputs(",\"name\":", stdout);
        print_string(list->row[i].name);
        if (minors)
            printf(",\"minor\":%u", list->row[i].minor);
        putchar('}');
    }
    fputs("]}", stdout);
}

static int is_gpu_node(const struct dirent *entry)
{
    size_t length = strlen("nvidia");
    return strncmp(entry->d_name, "nvidia", length) == 0 && isdigit((unsigned char)entry->d_name[length]);
}

static int is_capability_node(const struct dirent *entry)
{
    return strncmp(entry->d_name, "nvidia-cap", strlen("nvidia-cap")) == 0;
}

/* The nodes of a folder below /dev, in numeric order. */
static void print_nodes(const char *key, const char *folder, int (*is_wanted)(const struct dirent *))
{
    char directory[2048];
    const char *dev = getenv("GPU_DOUBLE_DEV");
    struct dirent **entries = NULL;
    snprintf(directory, sizeof directory, "%s%s", dev != NULL ? dev : "/dev", folder);
    int count = scandir(directory, &entries, is_wanted, versionsort);
    printf("\"%s\":[", key);
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        if (i > 0)
            putchar(',');
        print_string(path);
        free(entries[i]);
    }
    free(entries);
    putchar(']');
}

static void print_json(const struct listing *cuda, const struct listing *nvml)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
                                        "CUDAVIEW_HOST_GPUS"};
    putchar('{');
    print_list("cuda", cuda, false);
    putchar(',');
    print_list("nvml", nvml, true);
    putchar(',');
    print_nodes("nodes", "", is_gpu_node);
    putchar(',');
    print_nodes("capabilityNodes", "/nvidia-caps", is_capability_node);
    fputs(",\"env\":{", stdout);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        printf("%s\"%s\":", i > 0 ? "," : "", names[i]);
        print_string(getenv(names[i]));
    }
    puts("}}");
}

static void print_result(const char *operation, int error)
{
    static const struct { int code; const char *name; } names[] = {
        {EPERM, "EPERM"}, {ENOENT, "ENOENT"}, {EIO, "EIO"}, {ENXIO, "ENXIO"}, {EACCES, "EACCES"},
        {EEXIST, "EEXIST"}, {ENODEV, "ENODEV"}, {ENOTDIR, "ENOTDIR"}, {EISDIR, "EISDIR"}, {EINVAL, "EINVAL"},
        {EROFS, "EROFS"}, {ELOOP, "ELOOP"}, {EBUSY, "EBUSY"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (error == names[i].code) {
            printf("%s: %s\n", operation, names[i].name);
            return;
        }
    printf("%s: %s\n", operation, error == 0 ? "ok" : strerror(error));
}

static void try_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    print_result("open", fd >= 0 ? 0 : errno);
    if (fd >= 0)
        close(fd);
}

static void try_mknod(const char *path, const char *major_text, const char *minor_text)
{
    dev_t number = makedev((unsigned)strtoul(major_text, NULL, 10), (unsigned)strtoul(minor_text, NULL, 10));
    print_result("mknod", mknod(path, S_IFCHR | 0666, number) == 0 ? 0 : errno);
    try_open(path);
}

int main(int argc, char **argv)
{
    static struct listing cuda, nvml;
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    if (argc == 3 && strcmp(argv[1], "--try-open") == 0) {
        try_open(argv[2]);
        return 0;
    }
    if (argc == 5 && strcmp(argv[1], "--try-mknod") == 0) {
        try_mknod(argv[2], argv[3], argv[4]);
        return 0;
    }
    if (argc > 1 && !json) {
        fputs("usage: gpu-count [--json | --try-open PATH | --try-mknod PATH MAJOR MINOR]\n", stderr);
        return 2;
    }
    list_cuda(&cuda);
    list_nvml(&nvml);
    if (json) {
        print_json(&cuda, &nvml);
    } else {
        print_text("cuda", &cuda);
        print_text("nvml", &nvml);
    }
    return 0;
}
