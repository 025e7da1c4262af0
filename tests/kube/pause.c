/* The container of a pod's sandbox, and of a slot: waits for its end. */
#include <signal.h>
#include <unistd.h>

static void end(int signal) { _exit(signal == SIGTERM ? 0 : 1); }

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    for (;;) pause();
}
