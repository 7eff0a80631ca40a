/* Exchanges two names with each other, as fast as it can: what a container does that is to lead a hook astray.
 *
 *     exchange MILLISECONDS A B [WITH-A WITH-B]...
 *
 * Several pairs are exchanged in turn. Ends by itself; prints how often it exchanged.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
    if (argc < 4 || argc % 2 != 0) {
        fputs("usage: exchange MILLISECONDS A B...\n", stderr);
        return 2;
    }
    long end = milliseconds() + atol(argv[1]);
    unsigned long exchanged = 0;
    do {
        for (int round = 0; round < 64; round++)
            for (int pair = 2; pair < argc; pair += 2)
                exchanged += renameat2(AT_FDCWD, argv[pair], AT_FDCWD, argv[pair + 1], RENAME_EXCHANGE) == 0;
    } while (milliseconds() < end);
    printf("%lu\n", exchanged);
    return exchanged == 0;
}
