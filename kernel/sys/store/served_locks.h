/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Locks of files that a job's home serves: what CRIU's preload (checkpoint/criu_locks.c) asks the
 * home about them, in the name of the process that holds one. The kernel tells who holds it by a
 * number that only a call of that process carries. So each question is an fcntl(2) F_GETLK (of a
 * POSIX lock) or F_OFD_GETLK (of a lock of the open file) that asks for a range where no program
 * locks: above 4 EiB. On any other file system it is an ordinary question: nobody holds a lock
 * there, or somebody does of more than that range. A program that asks so itself hears of its own
 * locks. For C and C++. */
#pragma once

#include <stdint.h>

/* The range begins at `souk_locks_at | question << 32 | number`, and is `secret` bytes long. */
#define souk_locks_at ((uint64_t)1 << 62)
enum {
    souk_locks_any = 1, /* whether this mount may hold locks; number 1: of this file */
    souk_locks_range,   /* the lock of that number; the answer is its range and type */
    souk_locks_mark,    /* it is called by the secret and the number from now on */
    souk_locks_hold,    /* what the mount holds stays, though its files are closed from now on */
    souk_locks_adopt,   /* what is called so is this process's or this open file's */
    souk_locks_fetch, /* the same, and it is kept at home as the lock of that number in a packet */
    souk_locks_alone, /* what other mounts of the job have held, and is not adopted, is let go */
    souk_locks_go,    /* the job goes on: files that are closed let their locks go again */
};
#define souk_locks_of_flock ((uint32_t)1 << 31) /* in a number: its lock of flock(2) */
#define souk_locks_of_index ((uint32_t)1 << 30) /* ... of a mapped index (below) */
/* SQLite's index of a write-ahead log is a file NAME-shm that all who have the database open map
 * and write to. Each of them shares a lock of this byte. No two machines have one mapping: so the
 * home gives that byte to one job alone. */
#define souk_index_byte 128
#define souk_index_ends "-shm"
/* Some bits of a token of 16 bytes, and never 0. */
static inline uint64_t souk_locks_secret(const uint8_t* token) {
    uint64_t bits = 1;
    for (int i = 0; i < 7; ++i) bits = bits << 8 | token[i];
    return bits;
}
static inline void souk_locks_token_of(uint64_t secret, uint8_t* token) {
    for (int i = 0; i < 7; ++i) token[i] = (uint8_t)(secret >> (48 - 8 * i));
}
static inline uint64_t souk_locks_begin(uint32_t question, uint32_t number) {
    return souk_locks_at | (uint64_t)question << 32 | number;
}
/* Returns the question of a range, or 0 if it is none. */
static inline uint32_t souk_locks_question(uint64_t start) {
    const uint64_t question = (start & ~souk_locks_at) >> 32;
    const int is_one =
        (start & souk_locks_at) != 0 && question >= souk_locks_any && question <= souk_locks_go;
    return is_one ? (uint32_t)question : 0;
}

/* Descriptors that hold locks go over a socket of packets. Who asks says `take`, and is told `keep`
 * packets with them, or `none`. CRIU says `keep`, packet by packet with the descriptors, and is
 * told `done`; `take_served`: what the job's home keeps that has its files here. */
enum {
    souk_locks_keep = 1,
    souk_locks_take,
    souk_locks_done,
    souk_locks_none,
    souk_locks_take_served,
};
enum { souk_locks_max = 4096, souk_lock_descriptors = 24 /* in one packet at most */ };
struct souk_locks_packet {
    uint8_t what, more; /* more: it is not the last one */
    uint8_t token[16];
};
