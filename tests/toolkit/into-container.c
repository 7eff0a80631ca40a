/* Puts device nodes and the rules for them into a container between its making and its start, as libnvidia-container
 * does it from a prestart hook: nodes in the container's mount namespace, rules in its cgroup, of either version. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MAX_NODES 128
#define MAX_PROGRAMS 64
#define MAX_INSTRUCTIONS 4096

struct node {
    char *path;
    unsigned major, minor;
};

static struct node nodes[MAX_NODES];
static int count;

static int bpf(enum bpf_cmd command, union bpf_attr *attr) {
    return syscall(SYS_bpf, command, attr, sizeof *attr);
}

/* Before everything else: return 1 for each of the nodes. */
static int prelude(struct bpf_insn *out) {
    int length = 0;
    for (int i = 0; i < count; i++) {
        const struct bpf_insn allow[] = {
            {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 4},
            {.code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = 2, .off = 4, .imm = nodes[i].major},
            {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 8},
            {.code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = 2, .off = 2, .imm = nodes[i].minor},
            {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 1},
            {.code = BPF_JMP | BPF_EXIT},
        };
        memcpy(out + length, allow, sizeof allow);
        length += sizeof allow / sizeof *allow;
    }
    return length;
}

/* Replaces each program of the cgroup by one that allows the nodes and is the same otherwise. */
static void allow_v2(const char *folder) {
    int cgroup = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (cgroup < 0)
        err(1, "%s", folder);
    static uint32_t ids[MAX_PROGRAMS];
    union bpf_attr query = {.query = {.target_fd = cgroup, .attach_type = BPF_CGROUP_DEVICE,
                                      .prog_ids = (uintptr_t)ids, .prog_cnt = MAX_PROGRAMS}};
    if (bpf(BPF_PROG_QUERY, &query) != 0)
        err(1, "failed to ask for the programs of %s", folder);
    for (unsigned i = 0; i < query.query.prog_cnt; i++) {
        union bpf_attr by_id = {.prog_id = ids[i]};
        int old = bpf(BPF_PROG_GET_FD_BY_ID, &by_id);
        static struct bpf_insn program[MAX_INSTRUCTIONS];
        int start = prelude(program);
        struct bpf_prog_info info = {.xlated_prog_insns = (uintptr_t)(program + start),
                                     .xlated_prog_len = sizeof program - start * sizeof *program};
        union bpf_attr ask = {.info = {.bpf_fd = old, .info_len = sizeof info, .info = (uintptr_t)&info}};
        if (old < 0 || bpf(BPF_OBJ_GET_INFO_BY_FD, &ask) != 0)
            err(1, "failed to read a program of %s", folder);
        union bpf_attr load = {.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE, .insns = (uintptr_t)program,
                               .insn_cnt = start + info.xlated_prog_len / sizeof *program,
                               .license = (uintptr_t) "Apache"};
        int new = bpf(BPF_PROG_LOAD, &load);
        if (new < 0)
            err(1, "failed to load a program");
        union bpf_attr attach = {.target_fd = cgroup, .attach_bpf_fd = new, .attach_type = BPF_CGROUP_DEVICE,
                                 .attach_flags = query.query.attach_flags};
        union bpf_attr detach = {.target_fd = cgroup, .attach_bpf_fd = old, .attach_type = BPF_CGROUP_DEVICE};
        if (bpf(BPF_PROG_ATTACH, &attach) != 0 || bpf(BPF_PROG_DETACH, &detach) != 0)
            err(1, "failed to replace a program of %s", folder);
    }
}

static void allow_v1(const char *folder) {
    char file[8300];
    snprintf(file, sizeof file, "%s/devices.allow", folder);
    for (int i = 0; i < count; i++) {
        int allow = open(file, O_WRONLY | O_CLOEXEC);
        if (allow < 0 || dprintf(allow, "c %u:%u rw", nodes[i].major, nodes[i].minor) < 0)
            err(1, "%s", file);
        close(allow);
    }
}

/* Lines are `4:devices:/path`, and `0::/path` for version 2. */
static void allow(const char *pid) {
    char name[64], line[4096], unified[4096] = "", folder[8192];
    snprintf(name, sizeof name, "/proc/%s/cgroup", pid);
    int only_v2 = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
    FILE *file = fopen(name, "re");
    if (!file)
        err(1, "%s", name);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':') + 1, *path = strchr(controllers, ':') + 1;
        if (!only_v2 && strncmp(controllers, "devices:", 8) == 0) {
            snprintf(folder, sizeof folder, "/sys/fs/cgroup/devices%s", path);
            allow_v1(folder);
            fclose(file);
            return;
        }
        if (*controllers == ':')
            strcpy(unified, path);
    }
    fclose(file);
    snprintf(folder, sizeof folder, "/sys/fs/cgroup%s", unified);
    allow_v2(folder);
}

int main(int argc, char **argv) {
    if (argc < 3 || argc - 3 > MAX_NODES)
        errx(2, "usage: into-container PID ROOTFS [PATH:MAJOR:MINOR]...");
    for (int i = 3; i < argc; i++) {
        struct node *node = &nodes[count++];
        char *numbers = strchr(argv[i], ':');
        if (!numbers || sscanf(numbers, ":%u:%u", &node->major, &node->minor) != 2)
            errx(2, "not a node: %s", argv[i]);
        *numbers = '\0';
        node->path = argv[i];
    }
    allow(argv[1]);

    char path[8192];
    snprintf(path, sizeof path, "/proc/%s/ns/mnt", argv[1]);
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    if (namespace < 0 || setns(namespace, CLONE_NEWNS) != 0)
        err(1, "%s", path);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s%s", argv[2], nodes[i].path);
        char *slash = strrchr(path, '/');
        *slash = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            err(1, "%s", path);
        *slash = '/';
        if (mknod(path, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) != 0 && errno != EEXIST)
            err(1, "%s", path);
        chmod(path, 0666);
    }
    return 0;
}
