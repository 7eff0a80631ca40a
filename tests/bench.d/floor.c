/* The least that a wrapper can be: it becomes the runtime. */
#include <unistd.h>

int main(int argc, char **argv)
{
    (void)argc;
    execv(RUNTIME, argv);
    return 127;
}
