/* SPDX-License-Identifier: GPL-2.0-or-later
 * submit PRICE PROGRAM [ARGS]: a job that is worth PRICE per CPU-hour, waited for to its end; exits
 * as the job did. cc submit.c $(pkg-config --cflags --libs souk) */
#include <souk.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(souk_handle* market) {
    fprintf(stderr, "submit: %s\n", souk_error(market));
    souk_close(market);
    return 1;
}

int main(int argc, char** argv) {
    souk_terms terms = {.size = sizeof terms};
    char id[64];
    char* json = NULL;
    const char* exit_key = "\"exit\":";
    const char* at = NULL;
    int status = 1;
    souk_handle* market = souk_open(NULL, NULL);
    if (argc < 3 || !market) {
        fprintf(stderr, "usage: submit PRICE PROGRAM [ARGS]\n");
        return 2;
    }
    terms.price = argv[1];
    if (souk_submit(market, &terms, (const char* const*)argv + 2, id, sizeof id) != 0)
        return failed(market);
    fprintf(stderr, "submit: job %s\n", id);
    /* A day; the answer is the job as it is then. */
    if (souk_watch(market, id, NULL, 86400 * 1000, &json) != 0) return failed(market);
    at = strstr(json, exit_key);
    if (at) status = atoi(at + strlen(exit_key));
    souk_free(json);
    souk_close(market);
    return status;
}
