/* A hook as it is often written: it resolves a path, sees that the result lies in the root, and then uses the path.
 * The tests must catch it; that is how they show that they would catch ours.
 *
 *     naive-hook ROOT PATH...      makes a node 195:1 at each path below the root
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static int join(void) {
    static char state[1 << 16];
    size_t length = fread(state, 1, sizeof state - 1, stdin);
    state[length] = 0;
    const char *pid = strstr(state, "\"pid\":");
    if (!pid)
        return -1;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", atoi(pid + 6));
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    return namespace < 0 ? -1 : setns(namespace, CLONE_NEWNS);
}

int main(int argc, char **argv) {
    if (argc < 3 || join() != 0)
        return 2;
    const char *root = argv[1];
    for (int i = 2; i < argc; i++) {
        char path[PATH_MAX], folder[PATH_MAX], resolved[PATH_MAX];
        snprintf(path, sizeof path, "%s%s", root, argv[i]);
        strcpy(folder, path);
        dirname(folder);
        if (!realpath(folder, resolved) || strncmp(resolved, root, strlen(root)) != 0)
            continue; /* hostile at this moment */
        mknod(path, S_IFCHR | 0666, makedev(195, 1));
    }
    return 0;
}
