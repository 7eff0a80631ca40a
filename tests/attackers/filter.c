/* Runs a program for which one system call fails, as under a seccomp filter that does not know it.
 *
 *     filter ENOSYS|EPERM NUMBER PROGRAM [ARGUMENT]...
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 4) {
        fputs("usage: filter ENOSYS|EPERM NUMBER PROGRAM...\n", stderr);
        return 2;
    }
    unsigned int error = strcmp(argv[1], "EPERM") == 0 ? EPERM : ENOSYS;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)atoi(argv[2]), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("seccomp");
        return 2;
    }
    execv(argv[3], argv + 3);
    perror(argv[3]);
    return 2;
}
