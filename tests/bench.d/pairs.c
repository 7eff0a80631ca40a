/* Times programs against each other: round after round, every variant once in each, in an order that rotates.
 *
 *     pairs < SCRIPT              times what the script says and prints medians
 *     pairs --peak FILE PROGRAM   runs the program in place of itself, and appends its peak memory (KiB) to FILE
 *
 * A script has one directive a line, words separated by blanks:
 *
 *     rounds N           how often; one more round before them warms up and is not counted
 *     variant NAME       what follows belongs to it
 *     copy FROM TO       before the timing: TO becomes a new file with the content of FROM
 *     before PROGRAM...  before the timing: run, must end with 0
 *     timed PROGRAM...   run and timed, must end with 0; several add up
 *     after PROGRAM...   after the timing, whatever came of it
 *
 * Output, in nanoseconds: `median NAME NS`, and `added BASE NAME NS` for the median, over the rounds, of what NAME
 * took more than BASE in the same round. Peak memory of a variant: `peak NAME KIB`.
 *
 * Static and small: until its execve a child shares this program's memory, which would count as the child's own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_VARIANTS = 6, MAX_STEPS = 12, MAX_WORDS = 48, MAX_ROUNDS = 4000, MAX_RETRIES = 20 };
enum kind { COPY, BEFORE, TIMED, AFTER };

struct step {
    enum kind kind;
    char *words[MAX_WORDS + 1];
};

struct variant {
    char *name;
    struct step steps[MAX_STEPS];
    int step_count;
    long nanoseconds[MAX_ROUNDS];
    long peak;
};

static struct variant variants[MAX_VARIANTS];
static int variant_count, rounds;
static int null_fd, stderr_fd;
extern char **environ;

/* runc, about once in a hundred runs on a busy machine, when it copies itself. */
static const char LOST_A_RACE[] = "could not ensure we are a cloned binary";

static void die(const char *what, const char *about)
{
    fprintf(stderr, "pairs: %s: %s%s%s\n", what, about, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(2);
}

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* The wait status. Nothing but the start of the program and its end lies between the two looks at the clock. */
static int run(char **words, posix_spawn_file_actions_t *actions, struct rusage *usage, long *elapsed)
{
    pid_t pid;
    int status;
    long start = now();
    int error = posix_spawn(&pid, words[0], actions, NULL, words, environ);
    if (error) {
        errno = error;
        die("failed to start", words[0]);
    }
    while (wait4(pid, &status, 0, usage) < 0)
        if (errno != EINTR)
            die("failed to wait for", words[0]);
    *elapsed = now() - start;
    return status;
}

static void copy(const char *from, const char *to)
{
    static char bytes[1 << 16];
    unlink(to);
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (in < 0 || out < 0)
        die("failed to copy", in < 0 ? from : to);
    for (ssize_t count; (count = read(in, bytes, sizeof bytes)) != 0;)
        if (count < 0 || write(out, bytes, count) != count)
            die("failed to copy", from);
    close(in);
    close(out);
}

static int lost_a_race(void)
{
    char text[4096];
    ssize_t count = pread(stderr_fd, text, sizeof text - 1, 0);
    text[count < 0 ? 0 : count] = 0;
    return strstr(text, LOST_A_RACE) != NULL;
}

/* Whether all went well; a lost race of runc's is no reason to stop. */
static int play(struct variant *variant, posix_spawn_file_actions_t *actions, long *total)
{
    struct rusage usage;
    long elapsed;
    int failed = 0;
    *total = 0;
    for (int i = 0; i < variant->step_count; i++) {
        struct step *step = &variant->steps[i];
        if (failed && step->kind != AFTER)
            continue;
        if (step->kind == COPY) {
            copy(step->words[0], step->words[1]);
            continue;
        }
        if (!failed && (ftruncate(stderr_fd, 0) || lseek(stderr_fd, 0, SEEK_SET)))
            die("failed to empty", "a temporary file");
        int status = run(step->words, actions, &usage, &elapsed);
        if (step->kind == TIMED) {
            *total += elapsed;
            if (usage.ru_maxrss > variant->peak)
                variant->peak = usage.ru_maxrss;
        }
        if (status == 0 || step->kind == AFTER)
            continue;
        failed = 1;
        if (!lost_a_race()) {
            char text[4096];
            ssize_t count = pread(stderr_fd, text, sizeof text, 0);
            fprintf(stderr, "pairs: %s of \"%s\" ended with status %#x\n%.*s\n", step->words[0], variant->name, status,
                    (int)(count < 0 ? 0 : count), text);
            exit(1);
        }
    }
    return !failed;
}

static int by_size(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

static long median(long *values)
{
    qsort(values, rounds, sizeof *values, by_size);
    return (values[(rounds - 1) / 2] + values[rounds / 2]) / 2;
}

static void report(void)
{
    static long values[MAX_ROUNDS];
    for (int i = 0; i < variant_count; i++) {
        memcpy(values, variants[i].nanoseconds, rounds * sizeof *values);
        printf("median %s %ld\npeak %s %ld\n", variants[i].name, median(values), variants[i].name, variants[i].peak);
    }
    for (int base = 0; base < variant_count; base++)
        for (int other = 0; other < variant_count; other++) {
            if (base == other)
                continue;
            for (int round = 0; round < rounds; round++)
                values[round] = variants[other].nanoseconds[round] - variants[base].nanoseconds[round];
            printf("added %s %s %ld\n", variants[base].name, variants[other].name, median(values));
        }
}

static void read_script(void)
{
    static const char *const kinds[] = {"copy", "before", "timed", "after"};
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) > 0) {
        char *rest = line, *word = strtok_r(line, " \n", &rest);
        if (!word)
            continue;
        if (!strcmp(word, "rounds")) {
            rounds = atoi(strtok_r(NULL, " \n", &rest));
            continue;
        }
        if (!strcmp(word, "variant")) {
            if (variant_count == MAX_VARIANTS)
                die("too many variants at", word);
            variants[variant_count++].name = strdup(strtok_r(NULL, " \n", &rest));
            continue;
        }
        unsigned kind = 0;
        while (kind < 4 && strcmp(word, kinds[kind]))
            kind++;
        struct variant *variant = &variants[variant_count - 1];
        if (kind == 4 || variant_count == 0 || variant->step_count == MAX_STEPS)
            die("not understood, or one too many", word);
        struct step *step = &variant->steps[variant->step_count++];
        step->kind = kind;
        for (int i = 0; (word = strtok_r(NULL, " \n", &rest)); i++) {
            if (i == MAX_WORDS)
                die("too many words at", word);
            step->words[i] = strdup(word);
        }
    }
    free(line);
    if (rounds < 1 || rounds > MAX_ROUNDS || variant_count == 0)
        die("rounds", "from 1 to 4000, and at least one variant");
}

static int peak(const char *file, char **words)
{
    struct rusage usage;
    long elapsed;
    int status = run(words, NULL, &usage, &elapsed);
    FILE *out = fopen(file, "ae");
    if (!out || fprintf(out, "%ld\n", usage.ru_maxrss) < 0 || fclose(out))
        die("failed to write", file);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    if (argc > 3 && !strcmp(argv[1], "--peak"))
        return peak(argv[2], argv + 3);
    posix_spawn_file_actions_t actions;
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    FILE *errors = tmpfile();
    if (null_fd < 0 || !errors)
        die("failed to open", null_fd < 0 ? "/dev/null" : "a temporary file");
    stderr_fd = fcntl(fileno(errors), F_DUPFD_CLOEXEC, 3);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, null_fd, 0);
    posix_spawn_file_actions_adddup2(&actions, null_fd, 1);
    posix_spawn_file_actions_adddup2(&actions, stderr_fd, 2);
    read_script();
    int retries = 0;
    for (int round = -1; round < rounds; round++) {
        int whole = 1;
        for (int turn = 0; turn < variant_count; turn++) {
            struct variant *variant = &variants[(turn + round + variant_count) % variant_count];
            long total;
            whole &= play(variant, &actions, &total);
            if (round >= 0)
                variant->nanoseconds[round] = total;
        }
        if (!whole) {
            if (++retries > MAX_RETRIES)
                die("too many lost races of", "runc");
            round--;
        }
    }
    report();
    return 0;
}
