/* SPDX-License-Identifier: GPL-2.0-or-later
 * libsouk: jobs and the market from a program. C, one thread at a time for each handle.
 *
 * A call that returns int gives 0, or -1: then souk_error() says why in one line. Answers are JSON
 * (tools/common/replies.md says which keys), to be freed with souk_free().
 *
 * The version is semantic: within a major one, functions and the ends of structs are added, and the
 * soname stays. A struct begins with its size, so that a program built with an older header goes on
 * working. */
#ifndef SOUK_H
#define SOUK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOUK_API_MAJOR 0
#define SOUK_API_MINOR 4

typedef struct souk_handle souk_handle; /* the market, as one agentd of it is asked */

/* Terms say what a job is worth, and what it needs. Null or 0: not said, or with souk_change()
 * left as it was. Money is decimal text ("40", "0.25"). */
typedef struct souk_terms {
    size_t size;        /* sizeof(souk_terms) */
    const char* price;  /* worth per CPU-hour; a new job must say it */
    const char* budget; /* in all */
    int64_t memory_mb;
    int32_t cpus;
    double finish_s;  /* from its submission on */
    const char* name; /* of a new job, for lists */
    int promise;      /* finish_s is to be promised; the job waits until it is. Since 0.4 */
    double runtime_s; /* how long it runs on a standard machine. Since 0.4 */
} souk_terms;

/* (SOUK_API_MAJOR << 16) + SOUK_API_MINOR of the library that is there. */
int souk_api_version(void);

/* Takes the agentd that the tools would choose: that of `socket`, else that of `node`, else this
 * machine's. With neither it also follows $SOUK_MARKET and $SOUK_CERT. Connects to nobody yet.
 * Null: out of memory. */
souk_handle* souk_open(const char* socket, const char* node);
/* Takes the market on another host (HOST:PORT), with an operator's key and certificate in the
 * directory `cert`, as marketctl --market and --cert; null is as if the option is not given.
 * Serves all calls but souk_submit(), souk_change(), souk_quote() and souk_attach(), which only
 * a node answers. Since 0.3. */
souk_handle* souk_open_at(const char* market, const char* cert);
void souk_close(souk_handle* s);
/* Returns the error of the last call that failed; valid until the next call. */
const char* souk_error(const souk_handle* s);
void souk_free(char* text);

/* Submits a job with this process's environment, directory, umask and limits. `argv` ends with a
 * null. The job's id goes into `id`; 64 bytes are enough for any. */
int souk_submit(souk_handle* s, const souk_terms* terms, const char* const* argv, char* id,
                size_t id_size);
/* Changes the terms that are said; `name` cannot be changed. */
int souk_change(souk_handle* s, const char* id, const souk_terms* terms);
int souk_cancel(souk_handle* s, const char* id);
/* Says where such a job would run now and for how much, and what it would cost in all if it has
 * to run for so long. runtime_s 0: not said. */
int souk_quote(souk_handle* s, const souk_terms* terms, double runtime_s, char** json);
int souk_job(souk_handle* s, const char* id, char** json);
/* `filters` end with a null ("state=live", "user=ann", "limit=20"); null: none. */
int souk_list(souk_handle* s, const char* const* filters, char** json);
/* Waits until the job's status is another than `status` (null: until it is finished), or so many
 * milliseconds have passed; the job as it is then. It asks again with a pause that grows to a
 * second. */
int souk_watch(souk_handle* s, const char* id, const char* status, int timeout_ms, char** json);
/* Takes a job's streams until it has ended: reads `in`, and writes `out` and `err` (-1: none), as
 * srun --attach does, wherever the job goes. A connection that breaks is made again, for five
 * minutes. `exit` gets the job's exit status as srun's. The signals and the terminal of the program
 * are its own matter: a job with a terminal wants one that is raw. Since 0.2. */
int souk_attach(souk_handle* s, const char* id, int in, int out, int err, int* exit);
/* Asks any question of marketctl: a verb of tools/common/replies.md and its arguments. */
int souk_ask(souk_handle* s, const char* verb, const char* const* args, char** json);

#ifdef __cplusplus
}
#endif
#endif
