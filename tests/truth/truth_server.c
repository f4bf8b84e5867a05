/* A server of streamed chat answers that stamps each chunk just before it is sent: what a client's figures are held
 * against. Linux: one thread, epoll, a timerfd; HTTP/1.1; one send() for each chunk; CLOCK_MONOTONIC, which is Python's
 * perf_counter_ns() there.
 *
 * Says {"port": N} on stdout, then obeys lines on stdin:
 *   set TTFT_US GAP_US TOKENS STALL_EVERY_MS STALL_MS    what every answer is like from now on; stalls count from here
 *   clear                                                forget all requests
 *   log                                                  all requests, one line of JSON each, and the stalls
 * Each is answered by a line "ok". It ends when stdin does.
 *
 * A stall stops all of it, reading too, in the middle of each period. _server.py tells the same in Python.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FD = 4096, ID_BYTES = 80, MAX_BODY = 64 << 20 };

struct request {
    char id[ID_BYTES];
    int64_t received, head, role, first_due, gap, ended;
    int number, tokens, sent;
    int64_t *stamps;
    struct request *next;
};

struct connection {
    int fd, open, step;          /* step: 0 reads, then role, chunks, and the end */
    char *in;
    size_t have, room;
    int64_t due;
    int at;                      /* place in the heap, -1 for none */
    struct request *request;
    char rest[1024];             /* what the socket has not taken of a chunk */
    size_t left;
};

static struct connection connections[MAX_FD];
static struct connection *heap[MAX_FD];
static int waiting, epoll, timer;
static struct request *first, **last = &first;
static int64_t ttft_ns = 50000000, gap_ns = 500000, every_ns, stall_ns, next_stall;
static int tokens = 200;
static int64_t stalls[2][4096];
static int stalled, requests;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ------------------------------------------------------------------------------ the connections by what is due */

static void put(int i, struct connection *c) { heap[i] = c; c->at = i; }

static void sift(int i) {
    struct connection *c = heap[i];
    while (i && heap[(i - 1) / 2]->due > c->due) { put(i, heap[(i - 1) / 2]); i = (i - 1) / 2; }
    for (;;) {
        int child = 2 * i + 1;
        if (child + 1 < waiting && heap[child + 1]->due < heap[child]->due) child++;
        if (child >= waiting || heap[child]->due >= c->due) break;
        put(i, heap[child]);
        i = child;
    }
    put(i, c);
}

static void schedule(struct connection *c, int64_t due) {
    c->due = due;
    if (c->at < 0) put(waiting++, c);
    sift(c->at);
}

static void unschedule(struct connection *c) {
    int i = c->at;
    if (i < 0) return;
    c->at = -1;
    struct connection *moved = heap[--waiting];
    if (moved != c) { put(i, moved); sift(i); }
}

/* -------------------------------------------------------------------------------------------------- the answers */

static void hang_up(struct connection *c) {
    unschedule(c);
    close(c->fd);
    free(c->in);
    memset(c, 0, sizeof *c);
    c->at = -1;
}

static void watch(struct connection *c, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = c->fd};
    epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event);
}

/* Send all of it now, or keep what the socket does not take; no further chunk is sent before that has gone. */
static int say(struct connection *c, const char *data, size_t size) {
    ssize_t taken = send(c->fd, data, size, MSG_NOSIGNAL);
    if (taken < 0 && errno != EAGAIN) { hang_up(c); return 0; }
    if (taken < 0) taken = 0;
    if ((size_t)taken < size) {
        c->left = size - taken;
        memcpy(c->rest, data + taken, c->left);
        watch(c, EPOLLIN | EPOLLOUT);
    }
    return 1;
}

static int event(char *out, const struct request *r, const char *choices, const char *usage) {
    char data[768];
    int size = snprintf(data, sizeof data,
        "data: {\"id\":\"chatcmpl-%016d\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
        "\"model\":\"truth\",\"system_fingerprint\":\"fp_b1a7e9c240\",\"choices\":[%s],\"usage\":%s}\n\n",
        r->number, choices, usage);
    return sprintf(out, "%x\r\n%s\r\n", size, data);
}

static void answer(struct connection *c);

/* The next chunk of an answer is due. */
static void go_on(struct connection *c) {
    struct request *r = c->request;
    char out[1024], choices[256];
    int size;
    if (c->step == 1) {
        size = event(out, r, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                          "\"finish_reason\":null}", "null");
        r->role = now();
        if (!say(c, out, size)) return;
        c->step = 2;
        schedule(c, r->first_due);
    } else if (c->step == 2) {
        snprintf(choices, sizeof choices, "{\"index\":0,\"delta\":{\"content\":\" w%d\"},\"logprobs\":null,"
                                          "\"finish_reason\":null}", r->sent);
        size = event(out, r, choices, "null");
        r->stamps[r->sent++] = now();
        if (!say(c, out, size)) return;
        if (r->sent == r->tokens) c->step = 3;
        schedule(c, r->sent == r->tokens ? now() : r->first_due + r->sent * r->gap);
    } else {
        size = event(out, r, "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}", "null");
        if (!say(c, out, size)) return;
        snprintf(choices, sizeof choices, "{\"prompt_tokens\":12,\"completion_tokens\":%d,\"total_tokens\":%d}",
                 r->tokens, r->tokens + 12);
        size = event(out, r, "", choices);
        size += sprintf(out + size, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
        if (c->left) { memcpy(c->rest + c->left, out, size); c->left += size; }
        else if (!say(c, out, size)) return;
        r->ended = now();
        c->step = 0;
        c->request = NULL;
        unschedule(c);
        answer(c);
    }
}

static const char *header(const char *head, const char *end, const char *name, size_t *size) {
    size_t length = strlen(name);
    for (const char *line = head; line && line < end; line = memmem(line, end - line, "\r\n", 2)) {
        if (line != head) line += 2;
        if ((size_t)(end - line) > length && !strncasecmp(line, name, length) && line[length] == ':') {
            const char *value = line + length + 1, *stop = memmem(value, end - value, "\r\n", 2);
            while (*value == ' ') value++;
            *size = (stop ? stop : end) - value;
            return value;
        }
        if (line == head) line++;
    }
    *size = 0;
    return NULL;
}

static int plain(struct connection *c, const char *status, const char *body) {
    char out[1024];
    int size = snprintf(out, sizeof out, "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                        status, strlen(body), body);
    return say(c, out, size);
}

/* What a body says in "user", for clients whose headers are the same for all requests. */
static const char *user(const char *body, const char *end, size_t *size) {
    const char *found = memmem(body, end - body, "\"user\":", 7), *stop;
    if (!found) return NULL;
    for (found += 7; found < end && *found != '"';) found++;
    found++;
    stop = found < end ? memchr(found, 34, end - found) : NULL;
    *size = stop ? stop - found : 0;
    return stop ? found : NULL;
}

static void begin(struct connection *c, const char *head, const char *end, const char *body_end, int64_t received) {
    static const char *const said = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                                    "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
    struct request *r = calloc(1, sizeof *r);
    size_t size;
    const char *id = header(head, end, "x-request-id", &size);
    if (!id) id = user(end, body_end, &size);
    for (size_t i = 0; i < size && i < ID_BYTES - 1; i++)
        r->id[i] = id[i] <= ' ' || id[i] == '"' || id[i] == '\\' || id[i] > '~' ? '_' : id[i];
    r->number = ++requests;
    r->received = received;
    r->tokens = tokens;
    r->stamps = calloc(tokens, sizeof *r->stamps);
    r->first_due = received + ttft_ns;
    r->gap = gap_ns;
    *last = r;
    last = &r->next;
    c->request = r;
    c->step = 1;
    r->head = now();
    if (say(c, said, strlen(said))) schedule(c, r->first_due);
}

/* Answer what has come, if it is a whole request and the answer before it has ended. */
static void answer(struct connection *c) {
    while (c->open && !c->step && c->have) {
        c->in[c->have] = 0;
        char *end = strstr(c->in, "\r\n\r\n");
        if (!end) return;
        size_t size, length = 0;
        const char *value = header(c->in, end, "content-length", &size);
        if (value) length = strtoul(value, NULL, 10);
        size_t whole = end + 4 - c->in + length;
        if (length > MAX_BODY) { hang_up(c); return; }
        if (c->have < whole) return;
        int64_t received = now();
        int kept = 1;
        if (!strncmp(c->in, "POST /v1/chat/completions", 25)) begin(c, c->in, end, c->in + whole, received);
        else if (!strncmp(c->in, "GET /v1/models", 14))
            kept = plain(c, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"truth\",\"object\":\"model\","
                                      "\"created\":1700000000,\"owned_by\":\"truth\"}]}");
        else if (!strncmp(c->in, "GET /health", 11)) kept = plain(c, "200 OK", "{}");
        else kept = plain(c, "404 Not Found", "{\"error\":{\"message\":\"no such path\",\"type\":\"not_found\"}}");
        if (!kept || !c->open) return;
        memmove(c->in, c->in + whole, c->have - whole);
        c->have -= whole;
    }
}

static void take(struct connection *c) {
    for (;;) {
        if (c->room - c->have < 65536 && !(c->in = realloc(c->in, (c->room = 2 * c->room + 131072) + 1))) abort();
        ssize_t size = recv(c->fd, c->in + c->have, c->room - c->have, 0);
        if (size > 0) c->have += size;
        else if (size < 0 && errno == EAGAIN) break;
        else { hang_up(c); return; }
    }
    answer(c);
}

/* The socket has room again for what it did not take. */
static void push(struct connection *c) {
    ssize_t taken = send(c->fd, c->rest, c->left, MSG_NOSIGNAL);
    if (taken < 0 && errno != EAGAIN) { hang_up(c); return; }
    if (taken > 0) { c->left -= taken; memmove(c->rest, c->rest + taken, c->left); }
    if (!c->left) watch(c, EPOLLIN);
}

/* ------------------------------------------------------------------------------------------------- the commands */

static void tell(void) {
    for (int i = 0; i < stalled; i++) printf("{\"stall\":[%" PRId64 ",%" PRId64 "]}\n", stalls[0][i], stalls[1][i]);
    for (struct request *r = first; r; r = r->next) {
        printf("{\"id\":\"%s\",\"number\":%d,\"received\":%" PRId64 ",\"head\":%" PRId64 ",\"role\":%" PRId64 ",\"first_due\":%" PRId64
               ",\"gap\":%" PRId64 ",\"ended\":%" PRId64 ",\"sent\":[", r->id, r->number, r->received, r->head, r->role, r->first_due,
               r->gap, r->ended);
        for (int i = 0; i < r->sent; i++) printf(i ? ",%" PRId64 : "%" PRId64, r->stamps[i]);
        printf("]}\n");
    }
}

static void forget(void) {
    for (struct request *r = first, *next; r; r = next) { next = r->next; free(r->stamps); free(r); }
    first = NULL;
    last = &first;
    stalled = 0;
    for (int fd = 0; fd < MAX_FD; fd++)  /* an answer that is under way has nowhere to be logged */
        if (connections[fd].open && connections[fd].step) hang_up(&connections[fd]);
}

static int obey(void) {
    char line[256];
    if (!fgets(line, sizeof line, stdin)) return 0;
    int64_t ttft_us, gap_us, every_ms, stall_ms;
    int count;
    if (sscanf(line, "set %" SCNd64 " %" SCNd64 " %d %" SCNd64 " %" SCNd64, &ttft_us, &gap_us, &count, &every_ms,
               &stall_ms) == 5 && count > 0) {
        ttft_ns = ttft_us * 1000; gap_ns = gap_us * 1000; tokens = count;
        every_ns = every_ms * 1000000; stall_ns = stall_ms * 1000000;
        next_stall = every_ns ? now() + every_ns / 2 : 0;
    } else if (!strncmp(line, "log", 3)) tell();
    else if (!strncmp(line, "clear", 5)) forget();
    else { printf("no such command\n"); fflush(stdout); return 1; }
    printf("ok\n");
    fflush(stdout);
    return 1;
}

static void stall(void) {
    int64_t until = next_stall + stall_ns;
    struct timespec t = {until / 1000000000, until % 1000000000};
    if (stalled < 4096) stalls[0][stalled] = next_stall;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) {}
    if (stalled < 4096) stalls[1][stalled++] = now();
    next_stall += every_ns;
}

int main(void) {
    setvbuf(stdin, NULL, _IONBF, 0);
    prctl(PR_SET_TIMERSLACK, 1UL);
    struct rlimit files = {MAX_FD, MAX_FD};
    setrlimit(RLIMIT_NOFILE, &files);
    for (int fd = 0; fd < MAX_FD; fd++) connections[fd].at = -1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1024)) { perror("listen"); return 1; }
    getsockname(listener, (struct sockaddr *)&address, &size);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    int own[] = {listener, timer, 0};
    for (int i = 0; i < 3; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.fd = own[i]};
        epoll_ctl(epoll, EPOLL_CTL_ADD, own[i], &e);
    }
    printf("{\"port\": %d}\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int64_t wake = waiting ? heap[0]->due : 0;
        if (next_stall && (!wake || next_stall < wake)) wake = next_stall;
        struct itimerspec at = {.it_value = {wake / 1000000000, wake % 1000000000}};
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        struct epoll_event events[64];
        int ready = epoll_wait(epoll, events, 64, -1);
        if (next_stall && now() >= next_stall) stall();
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == 0) { if (!obey()) return 0; continue; }
            if (fd == timer) { uint64_t expired; if (read(timer, &expired, sizeof expired) < 0) {} continue; }
            if (fd != listener) {
                if (connections[fd].open && events[i].events & EPOLLOUT) push(&connections[fd]);
                if (connections[fd].open && events[i].events & ~EPOLLOUT) take(&connections[fd]);
                continue;
            }
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                if (fd >= MAX_FD) { close(fd); continue; }
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                connections[fd].fd = fd;
                connections[fd].open = 1;
                struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
                epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
            }
        }
        /* What is due; new bytes are looked at in between, so that a burst of chunks delays no request's stamp. */
        for (int i = 0; i < 64 && waiting && heap[0]->due <= now(); i++) {
            struct connection *c = heap[0];
            if (c->left) schedule(c, now() + 100000);  /* its socket is full */
            else go_on(c);
        }
    }
}
